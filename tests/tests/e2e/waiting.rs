//! Tasks of callers that do not know them: Waypost waits in their place.

use ::http::StatusCode;
use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::asks_undeclared::{asks_undeclared, task_asks_undeclared};
use waypost_testkit::misbehave::flaky_polls::flaky_polls;
use waypost_testkit::misbehave::forgets_tasks::forgets_tasks;
use waypost_testkit::misbehave::never_ends::{Hints, never_ends};
use waypost_testkit::run::Running;
use waypost_tests::gateway::Gateway;

use crate::stage::{Stage, Way, both_ways};
use crate::support::{accept, tool_with_meta};

both_ways! {
    a_tool_that_demands_a_task_answers_plainly,
    the_wait_shows_progress_and_ends_with_the_tasks_result,
    a_question_of_the_task_becomes_a_round,
    what_a_tool_needs_and_nobody_declared_is_said_before_there_is_a_task,
    closing_the_stream_cancels_the_task,
}

/// Quick polls, whatever the upstream says.
const QUICK: &str = "tasks: { poll_first: 10ms, poll_least: 10ms }";

async fn a_tool_that_demands_a_task_answers_plainly(way: Way) {
    let stage = Stage::with(way, QUICK).await;
    let client = stage.client();
    let reply = client.tool("d_failing_job", json!({})).await.unwrap();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.result()["resultType"], "complete", "{}", reply.answer);
    assert_eq!(reply.result()["isError"], true);
    assert!(reply.headers.get("mcp-name").is_none());
    let reply = client
        .tool("d_protocol_error_job", json!({}))
        .await
        .unwrap();
    assert_eq!(
        reply.answer["error"]["message"],
        "protocol_error_job broke, as it always does"
    );
}

async fn the_wait_shows_progress_and_ends_with_the_tasks_result(way: Way) {
    let stage = Stage::with(way, QUICK).await;
    let client = stage.client();
    let meta = json!({ "progressToken": "mine" });
    let arguments = json!({ "seconds": 0.3, "label": "w" });
    let post = tool_with_meta(&client, "d_external_job", arguments, meta);
    let reply = client.ask(post).await.unwrap();
    assert_eq!(
        reply.text(),
        "external_job \"w\" finished in its own process"
    );
    assert!(!reply.notifications.is_empty());
    let mut last = -1.0;
    for told in &reply.notifications {
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(told["params"]["progressToken"], "mine");
        let progress = told["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "it only grows: {:?}", reply.notifications);
        last = progress;
    }
    let message = &reply.notifications[0]["params"]["message"];
    assert_eq!(*message, "working in another process");
}

async fn a_question_of_the_task_becomes_a_round(way: Way) {
    let stage = Stage::with(way, QUICK).await;
    let asks = json!({ "elicitation": {} });
    let client = stage.client().with_capabilities(asks);
    let mut params = json!({ "name": "d_confirm_delete", "arguments": { "filename": "f" } });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    assert_eq!(
        asked.result()["resultType"],
        "input_required",
        "{}",
        asked.answer
    );
    let question = &asked.result()["inputRequests"]["confirm-1"];
    assert_eq!(question["params"]["message"], "Delete f?");
    let state = asked.result()["requestState"].as_str().unwrap();
    assert!(state.starts_with("wp1."), "{state}");
    params["requestState"] = state.into();
    params["inputResponses"] = json!({ "confirm-1": accept(json!({ "confirm": true })) });
    let reply = client.call("tools/call", params.clone()).await.unwrap();
    assert_eq!(reply.text(), "Deleted f.", "{}", reply.answer);
    // The same once more within a minute is answered the same, and nothing runs again.
    let repeated = client.call("tools/call", params.clone()).await.unwrap();
    assert_eq!(repeated.result(), reply.result());
    assert_eq!(stage.sent("tasks/update").len(), 1);
    // A damaged state is refused here; the server never sees it.
    params["requestState"] = format!("{state}A").into();
    let before = stage.sent("tools/call").len();
    let reply = client.call("tools/call", params).await.unwrap();
    assert_eq!(reply.code(), -32602, "{}", reply.answer);
    assert_eq!(stage.sent("tools/call").len(), before);
}

async fn what_a_tool_needs_and_nobody_declared_is_said_before_there_is_a_task(way: Way) {
    // What its caller can do is told to the server, which refuses; collapsing declares the rest.
    let stage = Stage::with(way, QUICK).await;
    let client = stage.client();
    let arguments = json!({ "filename": "f" });
    let reply = client.tool("d_confirm_delete", arguments).await.unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (400, -32021),
        "{}",
        reply.answer
    );
    let needed = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert!(needed["elicitation"].is_object(), "{}", reply.answer);
    assert!(stage.sent("tasks/get").is_empty());
}

#[tokio::test]
async fn a_question_that_nobody_can_be_asked_cancels_the_task() {
    let server = task_asks_undeclared().await.unwrap();
    let upstream = format!(
        "u: {{ url: '{}', required: true, tasks: collapse }}",
        server.url
    );
    let gateway = Gateway::with(&upstream, QUICK).await.unwrap();
    let client = Client::new(&gateway.url);
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(reply.code(), -32021, "{}", reply.answer);
    let needed = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert!(needed["elicitation"].is_object(), "{}", reply.answer);
    let cancelled = server
        .seen()
        .wait_for(|seen| seen.count("tasks/cancel") == 1);
    assert!(cancelled.await);
}

async fn closing_the_stream_cancels_the_task(way: Way) {
    let stage = Stage::with(way, QUICK).await;
    let client = stage.client();
    let meta = json!({ "progressToken": 1 });
    let post = tool_with_meta(&client, "d_external_job", json!({ "seconds": 60 }), meta);
    let mut stream = client.send(post).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    let cancelled = async || !stage.sent("tasks/cancel").is_empty();
    crate::support::until("`tasks/cancel`", cancelled).await;
}

async fn before(server: &Running, more: &str) -> Gateway {
    let upstream = format!("u: {{ url: '{}', required: true }}", server.url);
    Gateway::with(&upstream, more).await.unwrap()
}

/// The error of a plain call whose task never ends.
async fn given_up(hints: Hints, more: &str) -> (Running, Value) {
    let server = never_ends(hints).await.unwrap();
    // Only who declares tasks is given one by this server.
    let upstream = format!("u: {{ url: '{}', tasks: collapse }}", server.url);
    let gateway = Gateway::with(&upstream, more).await.unwrap();
    let reply = Client::new(&gateway.url)
        .tool("u_work", json!({}))
        .await
        .unwrap();
    assert!(
        server
            .seen()
            .wait_for(|seen| seen.count("tasks/cancel") == 1)
            .await
    );
    (server, reply.answer["error"].clone())
}

#[tokio::test]
async fn r82_a_wait_ends_with_the_tasks_time_to_live_or_ours() {
    let ttl = Hints {
        ttl_ms: Some(300),
        poll_interval_ms: Some(10),
    };
    let (_, error) = given_up(ttl, QUICK).await;
    assert_eq!(error["code"], -32603);
    assert!(
        error["message"].as_str().unwrap().contains("`u`"),
        "{error}"
    );
    assert_eq!(error["data"]["kind"], "timeout");

    let forever = Hints {
        ttl_ms: None,
        poll_interval_ms: Some(3_600_000),
    };
    let more = "tasks: { poll_first: 10ms, poll_least: 10ms, poll_most: 20ms, max_wait: 600ms }";
    let (server, error) = given_up(forever, more).await;
    assert!(
        error["message"].as_str().unwrap().contains("max_wait"),
        "{error}"
    );
    assert!(
        server.seen().count("tasks/get") > 10,
        "an hour between polls is too long"
    );

    let never = Hints {
        ttl_ms: None,
        poll_interval_ms: Some(0),
    };
    let more = "tasks: { poll_first: 10ms, poll_least: 100ms, max_wait: 300ms }";
    let (server, _) = given_up(never, more).await;
    let polls = server.seen().count("tasks/get");
    assert!(polls <= 5, "no time between polls is too short: {polls}");
}

#[tokio::test]
async fn r82_a_task_that_the_server_forgot_is_an_error_at_once() {
    let server = forgets_tasks().await.unwrap();
    let upstream = format!("u: {{ url: '{}', tasks: collapse }}", server.url);
    let gateway = Gateway::with(&upstream, QUICK).await.unwrap();
    let reply = Client::new(&gateway.url)
        .tool("u_work", json!({}))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32603);
    assert!(
        reply.answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`u`")
    );
    assert_eq!(server.seen().count("tasks/get"), 1);
}

#[tokio::test]
async fn polls_that_fail_are_repeated_and_the_call_is_not() {
    let server = flaky_polls(2, StatusCode::BAD_GATEWAY).await.unwrap();
    let upstream = format!("u: {{ url: '{}', tasks: collapse }}", server.url);
    let gateway = Gateway::with(&upstream, QUICK).await.unwrap();
    let reply = Client::new(&gateway.url)
        .tool("u_work", json!({}))
        .await
        .unwrap();
    assert_eq!(reply.text(), "done", "{}", reply.answer);
    assert_eq!(server.seen().count("tools/call"), 1);
    assert_eq!(server.seen().count("tasks/get"), 3);
}

#[tokio::test]
async fn who_declared_nothing_is_never_asked() {
    let server = asks_undeclared().await.unwrap();
    let gateway = before(&server, "").await;
    let reply = Client::new(&gateway.url)
        .tool("u_work", json!({}))
        .await
        .unwrap();
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (400, -32021),
        "{}",
        reply.answer
    );
    let needed = &reply.answer["error"]["data"]["requiredCapabilities"];
    assert!(needed["elicitation"].is_object(), "{}", reply.answer);
    let asked = json!({ "elicitation": {} });
    let client = Client::new(&gateway.url).with_capabilities(asked);
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(reply.result()["requestState"], "opaque");
}
