//! Upstreams good and bad, cores, connections.

use std::num::NonZeroUsize;
use std::time::Instant;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use waypost::daemon::{Options, Shares};
use waypost_testkit::demo::{demo_tasks, tasks};
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::run::ANY_PORT;

use crate::support::{Waypost, tool_names, until};

#[tokio::test]
async fn r17_bad_upstreams_neither_delay_nor_hide_the_good_one() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!(
        "upstreams: {{ missing: {{ command: /no/such/program }}, refused: {{ url: 'http://127.0.0.1:1/mcp' }}, \
         good: {{ url: '{}' }} }}",
        demo.url
    );
    let waypost = Waypost::start(&yaml).await;
    let client = waypost.client();
    let started = Instant::now();
    let names = tool_names(&client).await;
    assert!(
        started.elapsed().as_millis() < 1_000,
        "{:?}",
        started.elapsed()
    );
    assert!(names.contains(&"good_greet".to_owned()), "{names:?}");
    let reply = client
        .tool("good_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");

    for bad in ["missing", "refused"] {
        waypost.wait_for(bad, "down").await;
        assert_ne!(waypost.upstream(bad).await["lastError"], json!(null));
        let metrics = waypost.admin("/metrics").await;
        let text = String::from_utf8(metrics.raw.to_vec()).unwrap();
        assert!(
            text.contains(&format!("waypost_upstream_up{{upstream=\"{bad}\"}} 0")),
            "{text}"
        );
    }
    // Its names are there a moment before its state is.
    waypost.wait_for("good", "up").await;
    assert_eq!(waypost.admin("/readyz").await.status, 200);
    demo.stop().await;
}

#[tokio::test]
async fn r77_an_upstream_that_comes_later_shows_up_by_itself() {
    let reserved = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let address = reserved.local_addr().unwrap();
    drop(reserved);
    let yaml = format!("upstreams: {{ late: {{ url: 'http://{address}/mcp' }} }}");
    let waypost = Waypost::start(&yaml).await;
    waypost.wait_for("late", "down").await;
    assert_eq!(waypost.admin("/readyz").await.status, 200);
    let demo = demo_tasks(address, tasks::Options::default())
        .await
        .unwrap();
    let client = waypost.client();
    let there = async || tool_names(&client).await.contains(&"late_greet".to_owned());
    until("the tools of the late upstream", there).await;
    demo.stop().await;
}

#[tokio::test]
async fn r78_only_required_upstreams_count_for_readiness() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = |required: bool| {
        format!(
            "upstreams: {{ good: {{ url: '{}', required: true }}, \
             bad: {{ url: 'http://127.0.0.1:1/mcp', required: {required} }} }}",
            demo.url
        )
    };
    for (required, status) in [(false, 200), (true, 503)] {
        let waypost = Waypost::start(&yaml(required)).await;
        waypost.wait_for("good", "up").await;
        waypost.wait_for("bad", "down").await;
        assert_eq!(
            waypost.admin("/readyz").await.status,
            status,
            "required: {required}"
        );
        assert_eq!(waypost.admin("/healthz").await.status, 200);
    }
    demo.stop().await;
}

#[tokio::test]
async fn every_core_answers_however_it_comes_by_its_connections() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!("upstreams: {{ tasks: {{ url: '{}' }} }}", demo.url);
    for shares in [Shares::Own, Shares::Dealt] {
        let options = Options {
            cores: NonZeroUsize::new(3),
            shares: Some(shares),
            ..Options::default()
        };
        let waypost = Waypost::with(&yaml, options).await;
        assert!(waypost.daemon.ready(crate::support::SOON).await);
        // Each client has a connection of its own, so these reach every core.
        for number in 0..12 {
            let client = waypost.client();
            let reply = client.tool("tasks_greet", json!({ "name": number.to_string() }));
            assert_eq!(
                reply.await.unwrap().text(),
                format!("Hello, {number}!"),
                "{shares:?}"
            );
        }
        assert!(waypost.daemon.stop().await, "{shares:?}");
    }
    demo.stop().await;
}

/// Sends a request and reads the status line, on a connection that stays open.
async fn status(stream: &mut TcpStream) -> Option<String> {
    let request = b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // A refused connection may be gone before this arrives.
    stream.write_all(request).await.ok()?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.ok()?;
    Some(String::from_utf8_lossy(&start).into_owned())
}

#[tokio::test]
async fn a_connection_over_the_cap_is_told_so_at_once() {
    let waypost = Waypost::start("limits: { connections: 2 }").await;
    let connect = || TcpStream::connect(waypost.daemon.mcp);
    let mut held = [connect().await.unwrap(), connect().await.unwrap()];
    for stream in &mut held {
        assert_eq!(status(stream).await.as_deref(), Some("HTTP/1.1 404"));
    }
    // A refusal may arrive as a reset; then there is no text.
    let answers = async |wanted: &str| {
        let mut third = connect().await.unwrap();
        status(&mut third)
            .await
            .is_some_and(|status| status == wanted)
    };
    until("a refusal", async || answers("HTTP/1.1 503").await).await;
    drop(held);
    until("room again", async || answers("HTTP/1.1 404").await).await;
}

#[tokio::test]
async fn two_daemons_in_one_process_do_not_mix() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let one = Waypost::start(&format!("upstreams: {{ one: {{ url: '{}' }} }}", demo.url)).await;
    let two = Waypost::start(&format!("upstreams: {{ two: {{ url: '{}' }} }}", demo.url)).await;
    for (waypost, prefix) in [(&one, "one_"), (&two, "two_")] {
        let names = tool_names(&waypost.client()).await;
        assert!(
            names.iter().all(|name| name.starts_with(prefix)),
            "{names:?}"
        );
        assert!(!names.is_empty());
    }
    demo.stop().await;
}

#[tokio::test]
async fn every_answer_carries_the_id_that_finds_its_log_lines() {
    let waypost = Waypost::start("{}").await;
    let client = waypost.client();
    let id = |reply: &waypost_testkit::client::Reply| {
        let id = reply.headers.get("x-request-id").unwrap();
        id.to_str().unwrap().to_owned()
    };
    let one = client.call("tools/list", json!({})).await.unwrap();
    let two = client.call("nothing/of/the/kind", json!({})).await.unwrap();
    assert_ne!(id(&one), id(&two));
    let post = client
        .post("tools/list", json!({}))
        .header("x-request-id", "from-the-proxy");
    assert_eq!(id(&client.ask(post).await.unwrap()), "from-the-proxy");
}

#[tokio::test]
async fn a_caller_that_goes_away_cancels_its_call_upstream() {
    let silent = never_answers(Silence::Calls).await.unwrap();
    let waypost = Waypost::start(&format!(
        "upstreams: {{ silent: {{ url: '{}' }} }}",
        silent.url
    ))
    .await;
    let client = waypost.client();
    let tool = tool_names(&client).await.remove(0);
    let asked = silent.seen().wait_for(|seen| seen.count("tools/call") == 1);
    tokio::select! {
        answer = client.tool(&tool, json!({})) => panic!("{answer:?}"),
        asked = asked => assert!(asked),
    }
    drop(client);
    assert!(
        silent
            .seen()
            .wait_for(|seen| seen.aborted("tools/call") == 1)
            .await
    );
    silent.stop().await;
}
