//! The way down.
#![expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::Instant;
use waypost_testkit::client::{Arriving, Client};
use waypost_testkit::demo::{demo_tasks, tasks};
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::misbehave::never_ends::{Hints, never_ends};
use waypost_testkit::run::ANY_PORT;

use crate::support::{SOON, Waypost, get, until};

async fn up(yaml: &str) -> Waypost {
    let waypost = Waypost::start(yaml).await;
    assert!(waypost.daemon.ready(SOON).await);
    waypost
}

async fn last(mut stream: Arriving) -> Option<Value> {
    let mut last = None;
    while let Ok(Some(message)) = stream.next().await {
        last = Some(message);
    }
    last
}

#[tokio::test]
async fn r42_readiness_goes_calls_finish_and_idle_streams_end_gracefully() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let waypost = up(&format!(
        "upstreams: {{ tasks: {{ url: '{}' }} }}",
        demo.url
    ))
    .await;
    let client = waypost.client();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let post = client.post("subscriptions/listen", filter);
    let id = post.message["id"].clone();
    let mut idle = client.send(post).await.unwrap();
    let acknowledged = idle.next().await.unwrap().unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );

    let caller = waypost.client();
    let arguments = json!({ "seconds": 2, "label": "in flight" });
    let call = tokio::spawn(async move { caller.tool("tasks_slow_compute", arguments).await });
    assert!(
        demo.seen()
            .wait_for(|seen| seen.count("tools/call") == 1)
            .await
    );

    let (admin, mcp) = (waypost.daemon.admin, waypost.daemon.mcp);
    let stop = tokio::spawn(waypost.daemon.stop());
    let draining = async || {
        let reply = get(&format!("http://{admin}/readyz")).await;
        reply.status == 503 && reply.answer["status"] == "draining"
    };
    until("readiness to go", draining).await;
    assert_eq!(get(&format!("http://{admin}/healthz")).await.status, 200);
    let refused = async || {
        let client = Client::new(format!("http://{mcp}/mcp"));
        let reply = client.call("tools/list", json!({})).await.unwrap();
        reply.status == 503 && reply.answer.to_string().contains("shutting down")
    };
    until("new requests to be refused", refused).await;

    let end = last(idle).await.unwrap();
    assert_eq!(end["id"], id);
    assert_eq!(end["result"]["resultType"], "complete");
    let reply = call.await.unwrap().unwrap();
    assert!(
        reply.text().contains("finished after 2 s"),
        "{:?}",
        reply.answer
    );
    assert!(stop.await.unwrap(), "everything ended by itself");
    demo.stop().await;
}

#[tokio::test]
async fn r42_what_does_not_end_is_cut_off_after_the_grace() {
    let silent = never_answers(Silence::Calls).await.unwrap();
    let yaml = format!(
        "drain_grace: 500ms\nupstreams: {{ silent: {{ url: '{}' }} }}",
        silent.url
    );
    let waypost = up(&yaml).await;
    let caller = waypost.client();
    let tool = crate::support::tool_names(&caller).await.remove(0);
    let call = tokio::spawn(async move { caller.tool(&tool, json!({})).await });
    assert!(
        silent
            .seen()
            .wait_for(|seen| seen.count("tools/call") == 1)
            .await
    );
    let started = Instant::now();
    assert!(!waypost.daemon.stop().await, "the call was cut off");
    let took = started.elapsed();
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    let reply = call.await.unwrap().unwrap();
    assert_eq!(reply.code(), -32603, "{:?}", reply.answer);
    assert!(reply.answer.to_string().contains("Waypost has stopped"));
    // The server was told, as it is whenever a caller goes away.
    assert!(
        silent
            .seen()
            .wait_for(|seen| seen.aborted("tools/call") == 1)
            .await
    );
    silent.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_dropped_ends_too() {
    let waypost = up("{}").await;
    let (mcp, admin) = (waypost.daemon.mcp, waypost.daemon.admin);
    drop(waypost);
    for address in [mcp, admin] {
        let free = async || std::net::TcpListener::bind(address).is_ok();
        until("the ports to be free", free).await;
    }
}

#[tokio::test]
async fn r42_connections_without_a_request_do_not_hold_up_the_end() {
    let waypost = up("drain_grace: 1m").await;
    let mcp = waypost.daemon.mcp;
    // One that never said anything, one that was used and is kept, one in the middle of a head.
    let silent = tokio::net::TcpStream::connect(mcp).await.unwrap();
    let kept = waypost.client();
    kept.call("tools/list", json!({})).await.unwrap();
    let mut half = tokio::net::TcpStream::connect(mcp).await.unwrap();
    half.write_all(b"POST /mcp HTTP/1.1\r\nhost: local")
        .await
        .unwrap();
    let started = Instant::now();
    assert!(waypost.daemon.stop().await);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    drop((silent, kept, half));
}

#[tokio::test]
async fn r42_a_task_whose_caller_is_cut_off_is_cancelled_at_its_upstream() {
    let endless = never_ends(Hints::default()).await.unwrap();
    let waypost = up(&format!(
        "drain_grace: 200ms\nupstreams: {{ endless: {{ url: '{}', tasks: collapse }} }}",
        endless.url
    ))
    .await;
    let caller = waypost.client();
    let tool = crate::support::tool_names(&caller).await.remove(0);
    let call = tokio::spawn(async move { caller.tool(&tool, json!({})).await });
    assert!(
        endless
            .seen()
            .wait_for(|seen| seen.count("tasks/get") > 0)
            .await
    );
    assert!(!waypost.daemon.stop().await, "the call was cut off");
    assert_eq!(endless.seen().count("tasks/cancel"), 1);
    let reply = call.await.unwrap().unwrap();
    assert_eq!(reply.code(), -32603, "{:?}", reply.answer);
    assert!(reply.answer.to_string().contains("Waypost has stopped"));
    endless.stop().await;
}
