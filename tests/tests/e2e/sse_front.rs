//! Clients of HTTP+SSE in front of the daemon.

use ::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};
use waypost_config::KeyHash;
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::stage::{Stage, Way, both_ways};
use crate::support::{get, until};

const ON: &str = "front: { sse: true }";
const OLD: Kind = Kind::Sse(Revision::Nov2024);

async fn connect(kind: Kind, gateway: &Gateway) -> Peer {
    let target = Target::Url(gateway.sse_url());
    Peer::connect(kind, &target).await.unwrap()
}

async fn everything(more: &str) -> (Running, Gateway) {
    let server = legacy_everything(ANY_PORT, Options::default());
    let server = server.await.unwrap();
    let upstream = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::with(&upstream, more).await.unwrap();
    (server, gateway)
}

/// `POST` of a request to the address of some stream.
async fn post(gateway: &Gateway, address: &str) -> Reply {
    let root = gateway.url.trim_end_matches("/mcp");
    let client = Client::new(format!("{root}{address}"));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let mut post = client.post("ping", Value::Null).raw(body.to_string());
    let json = "application/json".parse().unwrap();
    post.headers.clear();
    post.headers.insert("content-type", json);
    client.ask(post).await.unwrap()
}

/// The address that a stream names; the stream lives as long as what else is given.
async fn stream(gateway: &Gateway) -> (String, waypost_testkit::client::Arriving) {
    let client = Client::new(gateway.sse_url());
    let mut get = client.post("", Value::Null).raw("");
    get.http_method = Method::GET;
    get.headers.clear();
    let mut arriving = client.send(get).await.unwrap();
    let first = arriving.event().await.unwrap().unwrap();
    (first.data.trim().to_owned(), arriving)
}

both_ways!(
    a_client_lists_calls_hears_progress_and_is_asked,
    r75_the_end_of_a_stream_cancels_its_calls_at_the_server,
);

#[tokio::test]
async fn it_is_off_unless_the_file_says_so() {
    let gateway = Gateway::start("{}").await.unwrap();
    let reply = get(&gateway.sse_url()).await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.answer["error"], "not_found");
    assert_eq!(post(&gateway, "/messages").await.status, 404);
}

async fn a_client_lists_calls_hears_progress_and_is_asked(way: Way) {
    let stage = Stage::with(way, ON).await;
    for revision in [Revision::Nov2024, Revision::Nov2025] {
        let peer = connect(Kind::Sse(revision), &stage.gateway).await;
        assert_eq!(peer.agreed(), Some(revision));
        assert!(!peer.list("tools").await.unwrap().is_empty());
        assert!(!peer.list("prompts").await.unwrap().is_empty());
        let told = peer.tool("d_test_tool_with_progress", json!({})).await;
        assert_eq!(told.unwrap().progress().len(), 3);
        let name = "d_test_input_required_result_elicitation";
        let asked = peer.call(name, json!({}), &Answers::usual()).await;
        assert_eq!(asked.unwrap().asked.len(), 1);
        // What is a task to others is waited for.
        let args = json!({ "seconds": 0.1, "label": "short" });
        let slow = peer.tool("d_slow_compute", args).await.unwrap();
        assert!(slow.text().contains("short"), "{slow:?}");
        peer.close().await.unwrap();
    }
    assert!(stage.gateway.stop().await, "nothing is left of them");
}

async fn r75_the_end_of_a_stream_cancels_its_calls_at_the_server(way: Way) {
    let stage = Stage::with(way, ON).await;
    let peer = connect(OLD, &stage.gateway).await;
    let args = json!({ "seconds": 600 });
    let begun = peer.begin("d_slow_compute", args).await.unwrap();
    let started = async || !stage.sent("tools/call").is_empty();
    until("the call", started).await;
    drop((begun, peer));
    stage.wait_for_cancel("tools/call").await;
}

#[tokio::test]
async fn r42_a_call_on_a_stream_is_answered_before_the_daemon_ends() {
    let stage = Stage::with(Way::Http, ON).await;
    let peer = connect(OLD, &stage.gateway).await;
    let args = json!({ "seconds": 1, "label": "last" });
    let begun = peer.begin("d_slow_compute", args).await.unwrap();
    let started = async || !stage.sent("tools/call").is_empty();
    until("the call", started).await;
    let answers = Answers::refusing();
    let (clean, outcome) = tokio::join!(stage.gateway.stop(), peer.finish(begun, &answers));
    assert!(clean);
    let outcome = outcome.unwrap();
    assert!(outcome.text().contains("last"), "{outcome:?}");
}

#[tokio::test]
async fn r10_clients_do_not_hear_each_other() {
    let (_server, gateway) = everything(ON).await;
    let gateway = &gateway;
    let peers = ["ada", "bob", "cleo"].map(|name| async move {
        let peer = connect(OLD, gateway).await;
        let answers = Answers::new(move |_, params| {
            let message = params["message"].as_str().unwrap_or_default();
            assert!(message.starts_with(name), "{name} was asked {message}");
            let content = json!({ "username": name, "email": message });
            Ok(json!({ "action": "accept", "content": content }))
        });
        let calls = (0..10).map(|number| {
            let args = json!({ "message": format!("{name}-{number}") });
            peer.call("u_test_elicitation", args, &answers)
        });
        let mut asked = 0;
        for outcome in join_all(calls).await {
            let outcome = outcome.unwrap();
            // Which of its calls a question is of, nothing on a stream tells.
            asked += outcome.asked.len();
            assert!(outcome.text().contains(name), "{outcome:?}");
        }
        assert_eq!(asked, 10);
    });
    join_all(peers).await;
}

#[tokio::test]
async fn with_keys_a_client_needs_one_for_stream_and_address() {
    let (ada, bob) = ("wp_ada-0123456789abcdef", "wp_bob-0123456789abcdef");
    let hash = |key: &str| KeyHash::of(key).to_string();
    let keys = format!(
        "{ON}\nauth: {{ keys: [{{ name: ada, hash: '{}' }}, {{ name: bob, hash: '{}' }}] }}",
        hash(ada),
        hash(bob)
    );
    let (_server, gateway) = everything(&keys).await;
    assert_eq!(get(&gateway.sse_url()).await.status, 401);
    assert_eq!(post(&gateway, "/messages?session=x").await.status, 401);
    let with = |key: &str| Manners {
        headers: vec![("authorization".to_owned(), format!("Bearer {key}"))],
        ..Manners::default()
    };
    let target = Target::Url(gateway.sse_url());
    assert!(Peer::with(OLD, &target, with("wrong")).await.is_err());
    let peer = Peer::with(OLD, &target, with(ada)).await.unwrap();
    let echo = peer.tool("u_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}");
}

#[tokio::test]
async fn r21_an_address_ends_with_its_stream_and_with_the_daemon() {
    let (_server, gateway) = everything(ON).await;
    let (mine, open) = stream(&gateway).await;
    assert_eq!(post(&gateway, &mine).await.status, 202);
    let mut forged = mine.clone().into_bytes();
    forged[50] ^= 1;
    let forged = String::from_utf8(forged).unwrap();
    let reply = post(&gateway, &forged).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, -32600));
    let elsewhere = mine.replace("/messages", "/messages/u");
    assert_eq!(post(&gateway, &elsewhere).await.status, 404);
    // A stream that is open holds nothing up.
    let gateway = gateway.restart().await.unwrap();
    let reply = post(&gateway, &mine).await;
    assert_eq!((reply.status.as_u16(), reply.code()), (404, -32600));
    drop(open);
    let again = connect(OLD, &gateway).await;
    let echo = again.tool("u_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}");
}

#[tokio::test]
async fn r32_streams_are_for_known_hosts_and_origins_alone() {
    let gateway = Gateway::with("{}", ON).await.unwrap();
    for (name, value) in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        let client = Client::new(gateway.sse_url());
        let mut get = client.post("", Value::Null).raw("");
        get.http_method = Method::GET;
        let reply = client.ask(get.header(name, value)).await.unwrap();
        assert_eq!(reply.status, 403, "{name}: {value}");
    }
}
