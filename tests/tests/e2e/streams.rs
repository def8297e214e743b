//! Event streams, byte by byte.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::misbehave::odd_sse::{Shape, TEXT, chatty_sse, odd_sse};
use waypost_testkit::misbehave::slow_drip::slow_drip;
use waypost_tests::gateway::Gateway;

use crate::stage::{Stage, Way};

#[tokio::test]
async fn r04_a_silent_call_is_kept_alive_and_marked_for_proxies() {
    let server = never_answers(Silence::Calls).await.unwrap();
    let upstreams = format!("u: {{ url: '{}' }}", server.url);
    let gateway = Gateway::with(&upstreams, "front: { keep_alive: 50ms }")
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let post = client.post("tools/call", json!({ "name": "u_work", "arguments": {} }));
    let body = post.message.to_string();
    let address = gateway
        .url
        .trim_start_matches("http://")
        .trim_end_matches("/mcp");
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in &post.headers {
        request.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{request}\r\n{body}").as_bytes())
        .await
        .unwrap();
    let (mut got, mut buffer) = (String::new(), [0; 1024]);
    let comments = |got: &str| got.lines().filter(|line| line.starts_with(':')).count();
    while comments(&got) < 3 {
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut buffer));
        let read = read.await.unwrap().unwrap();
        assert_ne!(read, 0, "{got}");
        got.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
    }
    let head = got.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{got}");
    for line in [
        "content-type: text/event-stream",
        "x-accel-buffering: no",
        "cache-control: no-cache",
    ] {
        assert!(head.contains(line), "{line} in\n{got}");
    }
}

#[tokio::test]
async fn r29_streams_of_every_shape_are_understood() {
    let mut servers = Vec::new();
    for line_end in ["\n", "\r\n", "\r"] {
        for piece in [1, 3, 4096] {
            servers.push(odd_sse(Shape { line_end, piece }).await.unwrap());
        }
    }
    let lines = servers.iter().enumerate();
    let lines = lines.map(|(number, server)| format!("u{number}: {{ url: '{}' }}\n", server.url));
    let gateway = Gateway::start(&lines.collect::<String>()).await.unwrap();
    let client = Client::new(&gateway.url);
    for number in 0..servers.len() {
        let reply = client
            .tool(&format!("u{number}_work"), json!({}))
            .await
            .unwrap();
        assert_eq!(reply.text(), TEXT, "{number} {}", reply.answer);
    }
}

#[tokio::test]
async fn messages_that_belong_to_no_call_do_not_reach_one() {
    let server = chatty_sse().await.unwrap();
    let gateway = Gateway::start(&format!("u: {{ url: '{}' }}", server.url))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let meta = json!({ "progressToken": "mine" });
    let post = crate::support::tool_with_meta(&client, "u_work", json!({}), meta);
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.text(), "done", "{}", reply.answer);
    for told in &reply.notifications {
        assert_eq!(told["params"]["progressToken"], "mine", "{told}");
    }
}

#[tokio::test]
async fn an_answer_that_comes_a_byte_at_a_time_comes_whole() {
    let server = slow_drip(Duration::from_millis(1)).await.unwrap();
    let gateway = Gateway::start(&format!("u: {{ url: '{}' }}", server.url))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    assert_eq!(
        client.tool("u_work", json!({})).await.unwrap().text(),
        "done"
    );
}

#[tokio::test]
async fn r75_a_client_of_json_that_leaves_before_the_head_cancels_too() {
    let stage = Stage::new(Way::Http).await;
    let client = stage.client();
    let params = json!({ "name": "d_slow_compute", "arguments": { "seconds": 600 } });
    let post = client
        .post("tools/call", params)
        .header("accept", "application/json");
    let mut pending = Box::pin(client.send(post));
    let sent = async || !stage.sent("tools/call").is_empty();
    tokio::select! {
        _ = &mut pending => panic!("answered"),
        () = crate::support::until("the call at the server", sent) => {}
    }
    drop(pending);
    stage.wait_for_cancel("tools/call").await;
}

#[tokio::test]
async fn r43_who_takes_json_only_gets_one_answer() {
    let stage = Stage::new(Way::Stdio).await;
    let client = stage.client();
    let params = json!({ "name": "d_test_tool_with_progress", "_meta": { "progressToken": 1 } });
    let post = client
        .post("tools/call", params)
        .header("accept", "application/json");
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.text(), "reported progress three times");
    assert!(reply.notifications.is_empty());
}
