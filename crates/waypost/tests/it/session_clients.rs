//! Clients that open sessions, against the daemon and the program.
#![expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_everything, demo_tasks, tasks};
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::ANY_PORT;

use crate::program::{Served, file};
use crate::support::{Waypost, until};

const REVISIONS: [Revision; 3] = [Revision::Nov2025, Revision::Jun2025, Revision::Mar2025];

async fn peer(url: &str, revision: Revision) -> Peer {
    let target = Target::Url(url.to_owned());
    Peer::connect(Kind::Http(revision), &target).await.unwrap()
}

#[tokio::test]
async fn r10_session_clients_call_and_are_asked_and_get_plain_answers() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let other = demo_everything(ANY_PORT).await.unwrap();
    let yaml = format!(
        "upstreams: {{ tasks: {{ url: '{}' }}, all: {{ url: '{}' }} }}",
        demo.url, other.url
    );
    let waypost = Waypost::start(&yaml).await;
    for revision in REVISIONS {
        let peer = peer(&waypost.daemon.url(), revision).await;
        assert_eq!(peer.agreed(), Some(revision));
        let usual = Answers::usual();
        let names = peer.list("tools").await.unwrap();
        let named = |name: &str| names.iter().any(|tool| tool["name"] == name);
        assert!(named("tasks_greet") && named("all_test_sampling"));

        // A task behind, collapsed; in the middle of it a question.
        let args = json!({ "filename": "x" });
        let outcome = peer.call("tasks_confirm_delete", args, &usual).await;
        let outcome = outcome.unwrap();
        assert_eq!(outcome.task, None);
        assert_eq!(outcome.asked.len(), 1, "{outcome:?}");
        assert_eq!(outcome.result().get("resultType"), None);
        for (tool, asked) in [
            ("all_test_sampling", "sampling/createMessage"),
            ("all_test_list_roots", "roots/list"),
            ("all_test_elicitation", "elicitation/create"),
        ] {
            let args = json!({ "prompt": "?", "message": "?" });
            let outcome = peer.call(tool, args, &usual).await.unwrap();
            assert_eq!(outcome.asked[0].method, asked, "{outcome:?}");
        }
        // Nobody of this era repeats arguments in headers.
        let args = json!({ "region": "eu" });
        let outcome = peer.tool("all_test_mirrored_headers", args).await.unwrap();
        assert_ne!(outcome.result(), &Value::Null, "{outcome:?}");
    }
    demo.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn r61_both_eras_share_one_endpoint_and_no_connection() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!("upstreams: {{ tasks: {{ url: '{}' }} }}", demo.url);
    let waypost = Waypost::start(&yaml).await;
    let url = waypost.daemon.url();
    let first = peer(&url, Revision::Jun2025).await;
    let id = first.session_id().unwrap().to_owned();
    let kind = Kind::Http(Revision::Jun2025);
    for _ in 0..3 {
        // Each with connections of its own.
        let again = Peer::rejoin(kind, &url, &id, &Manners::default()).unwrap();
        let greeting = json!({ "name": "Ada" });
        let outcome = again.tool("tasks_greet", greeting.clone()).await.unwrap();
        assert_eq!(outcome.text(), "Hello, Ada!");
        let reply = waypost.client().tool("tasks_greet", greeting).await;
        assert_eq!(reply.unwrap().result()["resultType"], "complete");
    }
    demo.stop().await;
}

/// What came back.
struct Answered {
    status: u16,
    session: Option<String>,
    message: Value,
}

/// Posts over a connection of its own that begins with HTTP/2, to this host and port by name.
async fn post_http2(
    mcp: SocketAddr,
    authority: &str,
    headers: &[(&str, &str)],
    message: &Value,
) -> Answered {
    let stream = TcpStream::connect(mcp).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post(format!("http://{authority}/mcp"))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(message.to_string())));
    let answer = client.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    let status = answer.status().as_u16();
    let id = answer.headers().get("mcp-session-id");
    let id = id.map(|id| id.to_str().unwrap().to_owned());
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    let mut lines = text
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let message = lines.find(|line| line.starts_with('{'));
    let message = message.map(|text| serde_json::from_str(text).unwrap());
    drop(client);
    drop(connection.await);
    Answered {
        status,
        session: id,
        message: message.unwrap_or_default(),
    }
}

#[tokio::test]
async fn r61_http2_without_tls_is_served_beside_http1_in_the_same_sessions() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!("upstreams: {{ tasks: {{ url: '{}' }} }}", demo.url);
    let waypost = Waypost::start(&yaml).await;
    assert!(waypost.daemon.ready(crate::support::SOON).await);
    let mcp = waypost.daemon.mcp;
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "c", "version": "1" } } });
    let own = mcp.to_string();
    let begun = post_http2(mcp, &own, &[], &begin).await;
    assert_eq!(begun.status, 200);
    let version = &begun.message["result"]["protocolVersion"];
    assert_eq!(version, "2025-06-18", "{}", begun.message);
    let id = begun.session.unwrap();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": { "name": "tasks_greet", "arguments": { "name": "Ada" } } });
    let session = [
        ("mcp-session-id", &*id),
        ("mcp-protocol-version", "2025-06-18"),
    ];
    let answer = post_http2(mcp, &own, &session, &call).await;
    assert_eq!(answer.status, 200);
    let text = &answer.message["result"]["content"][0]["text"];
    assert_eq!(text, "Hello, Ada!", "{}", answer.message);
    // And over the other version of HTTP.
    let kind = Kind::Http(Revision::Jun2025);
    let again = Peer::rejoin(kind, &waypost.daemon.url(), &id, &Manners::default()).unwrap();
    let outcome = again.tool("tasks_greet", json!({ "name": "Bo" })).await;
    assert_eq!(outcome.unwrap().text(), "Hello, Bo!");
    // The guard looks at the host that this version names elsewhere.
    let foreign = [("origin", "http://elsewhere.example")];
    for (authority, headers) in [(&*own, &foreign[..]), ("elsewhere.example", &[])] {
        let refused = post_http2(mcp, authority, headers, &begin).await;
        assert_eq!(refused.status, 403, "{authority} {headers:?}");
        assert!(refused.message["result"].is_null(), "{}", refused.message);
    }
    demo.stop().await;
}

#[tokio::test]
async fn r16_sessions_that_nobody_goes_on_with_are_freed() {
    let waypost = Waypost::start("front: { session_handshake: 1s }\nupstreams: {}").await;
    let client = Client::new(waypost.daemon.url());
    for _ in 0..100 {
        let mut post = client.post("initialize", json!({}));
        post.headers.remove("mcp-protocol-version");
        post.message["params"] = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "c", "version": "1" } });
        let reply = client.ask(post).await.unwrap();
        assert_eq!(reply.status, 200, "{:?}", reply.answer);
    }
    let open = async || {
        let metrics = waypost.admin("/metrics").await;
        let text = String::from_utf8(metrics.raw.to_vec()).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("waypost_client_sessions "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    assert!(open().await.is_some_and(|open| open > 0));
    until("all sessions to be freed", async || open().await == Some(0)).await;
}

#[tokio::test]
async fn r21_a_session_of_before_kill_9_works_after_the_restart() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db").display().to_string();
    let yaml = format!(
        "upstreams: {{ tasks: {{ url: '{}' }} }}\nstate: {{ path: '{path}' }}",
        demo.url
    );
    let config = file(&folder, &yaml);
    let kind = Kind::Http(Revision::Nov2025);
    let greeting = json!({ "name": "Ada" });

    let first = Served::start_blocking(config.clone()).await;
    let opened = peer(&first.url, Revision::Nov2025).await;
    let id = opened.session_id().unwrap().to_owned();
    first.signal("KILL");
    drop(first);

    let second = Served::start_blocking(config.clone()).await;
    let peer = Peer::rejoin(kind, &second.url, &id, &Manners::default()).unwrap();
    let outcome = peer.tool("tasks_greet", greeting.clone()).await.unwrap();
    assert_eq!(outcome.text(), "Hello, Ada!");
    // Its client ends it, and that outlives a restart too.
    peer.close().await.unwrap();
    second.signal("KILL");
    drop(second);

    let third = Served::start_blocking(config).await;
    let peer = Peer::rejoin(kind, &third.url, &id, &Manners::default()).unwrap();
    let usual = Answers::usual();
    let outcome = peer.request("tools/call", greeting, &usual).await;
    let status = outcome.unwrap().status;
    assert_eq!(status.map(|status| status.as_u16()), Some(404));
    third.signal("TERM");
    drop(third);
    demo.stop().await;
}

#[tokio::test]
async fn r25_a_call_that_is_cancelled_while_it_asks_is_cancelled_at_the_server_too() {
    let child = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../waypost-upstream/tests/it/legacy_child.py"
    );
    let yaml = format!("upstreams: {{ old: {{ command: python3, args: ['{child}'] }} }}");
    let waypost = Waypost::start(&yaml).await;
    waypost.wait_for("old", "up").await;
    let peer = peer(&waypost.daemon.url(), Revision::Nov2025).await;
    let mut begun = peer.begin("old_elicit", json!({})).await.unwrap();
    assert!(begun.question().await.unwrap().is_some());
    peer.cancel(begun).await.unwrap();
    until("the server to be told", async || {
        let held = peer.tool("old_held", json!({})).await.unwrap();
        let held: Value = serde_json::from_str(held.text()).unwrap();
        held["cancelled"].as_array().is_some_and(|c| c.len() == 1)
    })
    .await;
}
