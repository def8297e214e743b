//! Sizes and numbers.

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use waypost_testkit::client::Client;
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::fake::Fake;
use crate::process::{Home, Served};
use crate::support::until;

const MIB: usize = 1024 * 1024;

/// A server whose result is `size` bytes long, give or take what is around its text.
async fn sized(size: usize) -> Fake {
    let text = "x".repeat(size);
    let result =
        format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":"{text}"}}]}}"#);
    Fake::start(move |rpc| (rpc.method == "tools/call").then(|| rpc.raw(&result))).await
}

#[tokio::test]
async fn r55_large_results_pass_and_too_large_ones_fail_alone() {
    let (large, too_large) = (sized(16 * MIB).await, sized(64 * MIB).await);
    let upstreams = format!(
        "l: {{ url: '{}' }}\nt: {{ url: '{}' }}",
        large.url, too_large.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let (passed, failed) = tokio::join!(
        client.tool("l_work", json!({})),
        client.tool("t_work", json!({}))
    );
    assert_eq!(passed.unwrap().text().len(), 16 * MIB);
    let failed = failed.unwrap();
    assert_eq!(
        (failed.status.as_u16(), failed.code()),
        (200, -32603),
        "{}",
        failed.answer
    );
    let message = failed.answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("`t`") && message.contains("larger than"),
        "{message}"
    );
}

#[tokio::test]
async fn r55_a_request_over_the_limit_is_413_however_it_is_cut() {
    let gateway = Gateway::start("{}").await.unwrap();
    let client = Client::new(&gateway.url);
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "x", "params": { "x": "y".repeat(5 * MIB) } });
    let post = client.post("x", json!({})).raw(body.to_string());
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.status, 413);
    assert!(
        reply.answer["error"]["message"].is_string(),
        "{:?}",
        reply.raw
    );
    let reply = client.call("server/discover", json!({})).await.unwrap();
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn calls_over_an_upstreams_limit_are_refused_at_once() {
    let server = never_answers(Silence::Calls).await.unwrap();
    let upstreams = format!("u: {{ url: '{}', max_in_flight: 2 }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let call =
        || client.send(client.post("tools/call", json!({ "name": "u_work", "arguments": {} })));
    let mut held = Vec::new();
    for count in 1..=2 {
        let mut pending = Box::pin(call());
        let seen = server.seen().clone();
        tokio::select! {
            _ = &mut pending => panic!("answered"),
            reached = seen.wait_for(|seen| seen.count("tools/call") == count) => assert!(reached),
        }
        held.push(pending);
    }
    let reply = call().await.unwrap().finish().await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (200, -32603),
        "{}",
        reply.answer
    );
    assert!(
        reply.answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`u`")
    );
    // Leaving makes room.
    held.pop();
    assert!(
        server
            .seen()
            .wait_for(|seen| seen.aborted("tools/call") == 1)
            .await
    );
    let mut pending = Box::pin(call());
    let seen = server.seen().clone();
    tokio::select! {
        _ = &mut pending => panic!("answered"),
        reached = seen.wait_for(|seen| seen.count("tools/call") == 3) => assert!(reached),
    }
}

#[tokio::test]
async fn requests_over_the_limit_are_refused_at_once() {
    let server = never_answers(Silence::Calls).await.unwrap();
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::with(&upstreams, "limits: { in_flight: 2 }")
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let call =
        || client.send(client.post("tools/call", json!({ "name": "u_work", "arguments": {} })));
    let mut held = Vec::new();
    for count in 1..=2 {
        let mut pending = Box::pin(call());
        let seen = server.seen().clone();
        tokio::select! {
            _ = &mut pending => panic!("answered"),
            reached = seen.wait_for(|seen| seen.count("tools/call") == count) => assert!(reached),
        }
        held.push(pending);
    }
    let list = async || client.call("tools/list", json!({})).await.unwrap();
    let refused = list().await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -32603));
    assert_eq!(refused.answer["error"]["data"]["kind"], "throttled");
    // Leaving makes room.
    held.pop();
    until("room", async || list().await.status == 200).await;
}

#[tokio::test]
async fn calls_that_ask_are_answered_and_given_up_when_there_is_room_for_no_more() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/script.py");
    let upstreams = format!("u: {{ command: python3, args: ['{script}'], required: true }}");
    let gateway = Gateway::with(&upstreams, "limits: { in_flight: 3 }")
        .await
        .unwrap();
    let target = Target::Url(gateway.url.clone());
    let kind = Kind::Http(Revision::Nov2025);
    let (mut peers, mut asked) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        peers.push(Peer::connect(kind, &target).await.unwrap());
    }
    let steps = json!({ "steps": [{ "ask": "elicitation/create" }, { "answer": 1 }] });
    for peer in &peers {
        let mut begun = peer.begin("u_run", steps.clone()).await.unwrap();
        // What comes next is no notification.
        assert_eq!(begun.notification().await.unwrap(), None);
        asked.push(begun);
    }
    let client = Client::new(&gateway.url);
    let refused = client.call("tools/list", json!({})).await.unwrap();
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -32603));
    assert!(peers[0].ask("tools/list", json!({})).await.is_err());
    peers[0].ask("ping", json!({})).await.unwrap();
    let (third, second) = (asked.pop().unwrap(), asked.pop().unwrap());
    let deleted = peers[2].delete().await.unwrap();
    assert!(deleted.is_some_and(|status| status.is_success()));
    drop(third);
    peers[1].cancel(second).await.unwrap();
    let answers = Answers::usual();
    let outcome = peers[0].finish(asked.pop().unwrap(), &answers).await;
    assert!(outcome.unwrap().text().contains("accept"));
    let list = async || client.call("tools/list", json!({})).await.unwrap();
    until("room", async || list().await.status == 200).await;
}

#[tokio::test]
async fn r74_clients_that_leave_take_their_descriptors_with_them() {
    let server = never_answers(Silence::Calls).await.unwrap();
    let home = Home::new(&format!(
        "upstreams: {{ u: {{ url: '{}', required: true }} }}",
        server.url
    ));
    let waypost = Served::start(&home).await;
    let open = || {
        let folder = format!("/proc/{}/fd", waypost.pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    waypost
        .client()
        .call("tools/list", json!({}))
        .await
        .unwrap();
    let before = open();
    let address = waypost
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp");
    let client = waypost.client();
    let post = client.post("tools/call", json!({ "name": "u_work", "arguments": {} }));
    let body = post.message.to_string();
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in &post.headers {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    let whole = format!("{head}\r\n{body}");
    for round in 1..=4 {
        // Nothing, half a head, half a body, a whole call: then they are gone.
        let cuts = [0, 20, whole.len() - 5, whole.len()];
        let visits = (0..100).map(|number| &whole[..cuts[number % cuts.len()]]);
        let streams = join_all(visits.map(async |text| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }));
        let streams = streams.await;
        let seen = server.seen();
        assert!(
            seen.wait_for(|seen| seen.count("tools/call") == 25 * round)
                .await
        );
        // Those that have said nothing yet may still wait to be let in.
        until("all to be let in", async || open() > before + 100).await;
        drop(streams);
        assert!(
            seen.wait_for(|seen| seen.aborted("tools/call") == 25 * round)
                .await
        );
    }
    until("the descriptors to be closed", async || {
        open() <= before + 5
    })
    .await;
    let reply = waypost
        .client()
        .call("tools/list", json!({}))
        .await
        .unwrap();
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn r65_a_tool_that_is_listed_is_busy_or_works_and_never_unknown() {
    let server = legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap();
    let (kind, url) = (Kind::Http(Revision::Nov2025), &server.url);
    for (limit, says) in [
        ("max_sessions: 1", "all 1 sessions are in use"),
        ("max_in_flight: 1", "too many calls in flight"),
    ] {
        let upstreams = format!("u: {{ url: '{url}', required: true, {limit} }}");
        let gateway = Gateway::start(&upstreams).await.unwrap();
        let target = Target::Url(gateway.url.clone());
        let first = Peer::connect(kind, &target).await.unwrap();
        let slow = json!({ "seconds": 600 });
        let mut held = first.begin("u_test_slow", slow).await.unwrap();
        assert!(held.notification().await.unwrap().is_some());
        let busy = (0..10).map(async |_| {
            let peer = Peer::connect(kind, &target).await.unwrap();
            let refused = peer.tool("u_echo", json!({})).await.unwrap();
            assert_eq!(refused.code(), -32603, "{:?}", refused.answer);
            let message = refused.answer["error"]["message"].as_str().unwrap();
            assert!(message.contains(says), "{message}");
        });
        join_all(busy).await;
        first.cancel(held).await.unwrap();
        first.close().await.unwrap();
        // Nothing is listed before the call, by nobody.
        let gateway = gateway.restart().await.unwrap();
        let target = Target::Url(gateway.url.clone());
        let peer = Peer::connect(kind, &target).await.unwrap();
        let echo = peer.tool("u_echo", json!({})).await.unwrap();
        assert_eq!(echo.text(), "{}", "{:?}", echo.answer);
    }
}
