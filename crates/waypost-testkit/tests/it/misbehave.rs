//! That the fakes misbehave as they say, and otherwise do not.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::misbehave::always_tasks::always_tasks;
use waypost_testkit::misbehave::asks_undeclared::asks_undeclared;
use waypost_testkit::misbehave::closes_mid_body::{Break, closes_mid_body};
use waypost_testkit::misbehave::demands_tasks::demands_tasks;
use waypost_testkit::misbehave::echo::{echo, raw_result};
use waypost_testkit::misbehave::endless_cursors::{Cursors, endless_cursors};
use waypost_testkit::misbehave::flaky_polls::flaky_polls;
use waypost_testkit::misbehave::forgets_tasks::forgets_tasks;
use waypost_testkit::misbehave::header_mismatch_once::header_mismatch_once;
use waypost_testkit::misbehave::http_errors::{Refusal, http_errors};
use waypost_testkit::misbehave::legacy_only::{Sdk, legacy_only};
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::misbehave::never_ends::{Hints, never_ends};
use waypost_testkit::misbehave::odd_sse::{Shape, TEXT, odd_sse};
use waypost_testkit::misbehave::slow_drip::slow_drip;
use waypost_testkit::run::Running;

fn plain(running: &Running) -> Client {
    Client::new(&running.url)
}

async fn work(client: &Client) -> Reply {
    client.tool("work", json!({})).await.unwrap()
}

#[tokio::test]
async fn always_tasks_ignores_what_was_declared() {
    let running = always_tasks().await.unwrap();
    let client = plain(&running);
    let created = work(&client).await;
    assert_eq!(created.result()["resultType"], "task");
    let id = json!({ "taskId": created.result()["taskId"] });
    let ended = client.call("tasks/get", id).await.unwrap();
    assert_eq!(ended.result()["status"], "completed");
    assert_eq!(running.seen().count("tools/call"), 1);
}

#[tokio::test]
async fn never_ends_gives_the_hints_it_was_given() {
    let hints = [
        Hints {
            ttl_ms: Some(5000),
            poll_interval_ms: Some(0),
        },
        Hints {
            ttl_ms: None,
            poll_interval_ms: Some(3_600_000),
        },
        Hints::default(),
    ];
    for hint in hints {
        let running = never_ends(hint).await.unwrap();
        let created = work(&plain(&running).with_tasks()).await;
        let task = created.result();
        assert_eq!(task.get("ttlMs"), Some(&json!(hint.ttl_ms)));
        assert_eq!(
            task.get("pollIntervalMs").and_then(Value::as_u64),
            hint.poll_interval_ms
        );
    }
}

#[tokio::test]
async fn tasks_are_forgotten_or_polled_in_vain() {
    let running = forgets_tasks().await.unwrap();
    let client = plain(&running).with_tasks();
    let id = json!({ "taskId": work(&client).await.result()["taskId"] });
    assert_eq!(client.call("tasks/get", id).await.unwrap().code(), -32602);
    let running = flaky_polls(2, StatusCode::BAD_GATEWAY).await.unwrap();
    let client = plain(&running).with_tasks();
    let id = json!({ "taskId": work(&client).await.result()["taskId"] });
    let mut polls = Vec::new();
    for _ in 0..3 {
        polls.push(
            client
                .call("tasks/get", id.clone())
                .await
                .unwrap()
                .status
                .as_u16(),
        );
    }
    assert_eq!(polls, [502, 502, 200]);
}

#[tokio::test]
async fn refusals_come_with_their_code() {
    for code in [-32021, -32003] {
        let running = demands_tasks(code).await.unwrap();
        assert_eq!(work(&plain(&running)).await.code(), code);
        let created = work(&plain(&running).with_tasks()).await;
        assert_eq!(created.result()["resultType"], "task");
    }
    let running = header_mismatch_once().await.unwrap();
    assert_eq!(work(&plain(&running)).await.code(), -32020);
    assert_eq!(work(&plain(&running)).await.text(), "done");
    let statuses = [
        (Refusal::Html500, 500),
        (Refusal::Unauthorized, 401),
        (Refusal::TooManyRequests, 429),
        (Refusal::Unavailable, 503),
    ];
    for (refusal, status) in statuses {
        let running = http_errors(refusal).await.unwrap();
        assert_eq!(work(&plain(&running)).await.status, status);
    }
}

#[tokio::test]
async fn a_client_that_gives_up_is_noticed() {
    let running = never_answers(Silence::Calls).await.unwrap();
    let client = plain(&running);
    tokio::select! {
        reply = client.tool("work", json!({})) => panic!("{reply:?}"),
        arrived = running.seen().wait_for(|seen| seen.count("tools/call") == 1) => assert!(arrived),
    }
    assert!(
        running
            .seen()
            .wait_for(|seen| seen.aborted("tools/call") == 1)
            .await
    );
    assert_eq!(
        client.call("tools/list", json!({})).await.unwrap().status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn answers_break_off_where_they_should() {
    for at in [Break::InJson, Break::AfterProgress] {
        let running = closes_mid_body(at).await.unwrap();
        let client = plain(&running);
        assert!(client.tool("work", json!({})).await.is_err(), "{at:?}");
        assert!(
            running
                .seen()
                .wait_for(|seen| seen.aborted("tools/call") == 1)
                .await
        );
    }
    let running = closes_mid_body(Break::WithoutAnswer).await.unwrap();
    assert_eq!(work(&plain(&running)).await.answer, Value::Null);
}

#[tokio::test]
async fn odd_streams_say_the_same_in_every_shape() {
    for line_end in ["\n", "\r\n", "\r"] {
        for piece in [1, 7, 4096] {
            let running = odd_sse(Shape { line_end, piece }).await.unwrap();
            assert_eq!(
                work(&plain(&running)).await.text(),
                TEXT,
                "{line_end:?} {piece}"
            );
        }
    }
    let running = slow_drip(Duration::from_millis(1)).await.unwrap();
    assert_eq!(work(&plain(&running)).await.text(), "done");
}

#[tokio::test]
async fn bytes_go_through_untouched() {
    let running = echo().await.unwrap();
    let client = plain(&running);
    let post = client
        .post("tools/call", json!({ "name": "work" }))
        .header("x-odd", "Value");
    let body =
        r#"{ "jsonrpc":"2.0","id":7,"method":"tools/call","z":1.0,"a":12345678901234567890123 }"#;
    let reply = client.ask(post.raw(body)).await.unwrap();
    assert_eq!(reply.text(), body);
    let headers = reply.result()["structuredContent"]["headers"]
        .as_array()
        .unwrap();
    assert!(headers.contains(&json!(["x-odd", "Value"])));
    let raw = r#"{"z":1.0,"resultType":"complete","a":12345678901234567890123}"#;
    let running = raw_result(raw).await.unwrap();
    let client = plain(&running);
    let reply = work(&client).await;
    let expected = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{raw}}}");
    assert_eq!(reply.raw, expected);
}

#[tokio::test]
async fn lists_and_questions_overstep() {
    let running = endless_cursors(Cursors::Same).await.unwrap();
    let client = plain(&running);
    let params = json!({ "cursor": "page-0" });
    let page = client.call("tools/list", params).await.unwrap();
    assert_eq!(page.result()["nextCursor"], "page-0");
    let running = asks_undeclared().await.unwrap();
    assert_eq!(
        work(&plain(&running)).await.result()["resultType"],
        "input_required"
    );
}

#[tokio::test]
async fn legacy_servers_refuse_discover_in_their_own_way() {
    let cases = [
        (Sdk::TypeScript, -32000, Value::Null),
        (Sdk::Python, -32600, json!("server-error")),
    ];
    for (sdk, code, id) in cases {
        let running = legacy_only(sdk).await.unwrap();
        let client = plain(&running);
        let reply = client.call("server/discover", json!({})).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.code()), (400, code));
        assert_eq!(reply.answer["id"], id);
        let hello = json!({ "protocolVersion": "2025-06-18" });
        let hello = client.call("initialize", hello).await.unwrap();
        assert_eq!(hello.result()["protocolVersion"], "2025-06-18");
        let session = hello.headers["mcp-session-id"].to_str().unwrap().to_owned();
        let post = client.post("tools/call", json!({ "name": "work" }));
        let reply = client
            .ask(post.header("mcp-session-id", &session))
            .await
            .unwrap();
        assert_eq!(reply.text(), "done");
    }
}
