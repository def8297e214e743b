//! What the end of a task becomes for a caller that knows no tasks.

use serde_json::{Value, json};
use waypost_hub::error::Kind;
use waypost_hub::reply::End;
use waypost_wire::raw::Raw;

use super::kit::{Act, World, created, error, got, result, task};

async fn ends(get: Act) -> Result<End, waypost_hub::error::CallError> {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [get]);
    let end = world.end(json!({})).await;
    assert_eq!(world.fake.count("tasks/cancel"), 0);
    end
}

#[track_caller]
fn is_complete(end: &End, expected: &Value) {
    assert!(matches!(end, End::Complete(_)));
    assert_eq!(&result(end), expected);
}

#[tokio::test(start_paused = true)]
async fn a_completed_task_is_its_result() {
    let content = json!([{ "type": "text", "text": "42" }]);
    let inner = json!({ "content": content, "isError": true, "x": { "taskId": "t1" } });
    let end = ends(got("completed", json!({ "result": inner })))
        .await
        .unwrap();
    let mut expected = inner;
    expected["resultType"] = json!("complete");
    is_complete(&end, &expected);
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_a_result_survive() {
    let text = r#"{"taskId":"t1","status":"completed","result":{"a":1.0,"b":12345678901234567890123,"resultType":"complete"}}"#;
    let object = Raw::parse(&text.into()).unwrap().as_object().unwrap();
    let Ok(End::Complete(result)) = ends(Act::End(End::Complete(object))).await else {
        panic!()
    };
    let expected = r#"{"a":1.0,"b":12345678901234567890123,"resultType":"complete"}"#;
    assert_eq!(Raw::from(result).text(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_failed_task_is_its_error() {
    let inner = json!({ "code": -32050, "message": "boom", "data": { "a": 1 } });
    let end = ends(got("failed", json!({ "error": inner })))
        .await
        .unwrap();
    assert_eq!(super::kit::value(error(end).raw()), inner);
}

#[tokio::test(start_paused = true)]
async fn codes_of_a_hop_are_the_tools_own_in_a_task() {
    for code in [-32020, -32022] {
        let inner = json!({ "code": code, "message": "boom" });
        let end = ends(got("failed", json!({ "error": inner })));
        let error = error(end.await.unwrap());
        // Who writes for sessions takes what was said.
        assert_eq!((error.code(), error.said()), (-32603, Some(code)));
        assert_eq!(error.message(), "boom");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_a_tool_result_that_says_so() {
    let end = ends(got(
        "cancelled",
        json!({ "statusMessage": "by an operator" }),
    ))
    .await;
    let text = "the task was cancelled at upstream `up`: by an operator";
    let content = json!([{ "type": "text", "text": text }]);
    let expected = json!({ "resultType": "complete", "content": content, "isError": true });
    is_complete(&end.unwrap(), &expected);
}

#[tokio::test(start_paused = true)]
async fn an_answer_typed_as_a_task_is_read_all_the_same() {
    let mut get = created();
    get["status"] = json!("completed");
    get["result"] = json!({ "content": [] });
    let end = ends(task(get)).await.unwrap();
    is_complete(&end, &json!({ "resultType": "complete", "content": [] }));
}

#[tokio::test(start_paused = true)]
async fn an_end_without_what_belongs_to_it_is_the_upstreams_fault() {
    for (status, says) in [
        (
            "completed",
            "upstream `up`: completed a task without a result",
        ),
        ("failed", "upstream `up`: its task failed: no reason given"),
    ] {
        let error = ends(got(status, json!({}))).await.unwrap_err();
        assert_eq!(
            (error.kind, error.to_string().as_str()),
            (Kind::BadUpstream, says)
        );
    }
}
