//! Servers of the session era over standard streams, called without sessions.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::error::Kind;
use waypost_hub::reply::{End, Event, EventStream};
use waypost_hub::upstream::Upstream;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::kit::{complete, end_of, in_time, object, stream, tool, upstream};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/legacy_child.py");

fn settings(mode: &str, more: &str) -> String {
    format!("command: python3, args: ['{SERVER}', {mode}], {more}")
}

async fn server_with(more: &str) -> Arc<dyn Upstream> {
    let upstream = upstream(&settings("refuse", more));
    in_time(upstream.discover(None)).await.unwrap();
    upstream
}

async fn server() -> Arc<dyn Upstream> {
    server_with("").await
}

/// A modern caller that can be asked everything.
fn asked(name: &str) -> Call {
    let mut call = tool(name);
    call.principal = Principal::new("p");
    let all = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
    call.meta.capabilities = ClientCapabilities::new(object(&all.to_string()));
    call
}

/// A caller that declared nothing.
fn mute(name: &str) -> Call {
    let mut call = asked(name);
    call.meta.capabilities = ClientCapabilities::default();
    call
}

fn value(object: &Object) -> Value {
    Raw::from(object).decode().unwrap()
}

/// What the tool says in its text.
fn said(result: &Object) -> Value {
    let text = value(result)["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    serde_json::from_str(&text).unwrap()
}

fn questions(end: End) -> (Value, String) {
    let End::InputRequired(result) = end else {
        panic!("{end:?}");
    };
    let state = result.string("requestState").unwrap();
    assert!(state.starts_with("wp1."), "{state}");
    assert_eq!(
        result.string("resultType").as_deref(),
        Some("input_required")
    );
    (value(&result)["inputRequests"].clone(), state)
}

/// The same call again, with `answer` to every question.
fn retry(mut call: Call, asked: &Value, state: &str, answer: &Value) -> Call {
    let keys = asked.as_object().unwrap().keys();
    let answers: Value = keys
        .map(|key| (key.clone(), answer.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into();
    call.params.set("inputResponses", Raw::from(&answers));
    call.params.set("requestState", Raw::string(state));
    call
}

fn accept(text: &str) -> Value {
    json!({ "action": "accept", "content": { "x": text } })
}

async fn ask(upstream: &dyn Upstream, call: Call) -> (Value, String) {
    questions(end_of(upstream, call).await.unwrap())
}

#[tokio::test]
async fn what_initialize_said_is_what_the_server_is() {
    let upstream = upstream(&settings("refuse", ""));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2025-06-18");
    assert_eq!(facts.versions, ["2025-06-18"]);
    assert_eq!(facts.instructions.as_deref(), Some("be kind"));
    assert!(facts.announces_list("tools"));
    let info: Value = facts.server_info.unwrap().decode().unwrap();
    assert_eq!(info["name"], "old");
    let got = complete(&*upstream, tool("who")).await;
    let client = said(&got)["client"].clone();
    assert_eq!(client["protocolVersion"], "2025-11-25");
    assert_eq!(client["clientInfo"]["name"], "waypost");
}

#[tokio::test]
async fn r10_a_question_in_the_middle_of_a_call_reaches_a_caller_without_session() {
    let upstream = server().await;
    let (asked_for, state) = ask(&*upstream, asked("elicit")).await;
    let question = asked_for.as_object().unwrap().values().next().unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "first");
    let again = retry(asked("elicit"), &asked_for, &state, &accept("blue"));
    // The answer may have been lost on the way; it is not made again.
    for _ in 0..2 {
        let got = complete(&*upstream, again.clone()).await;
        assert_eq!(said(&got)["result"], accept("blue"));
    }
}

#[tokio::test]
async fn a_call_can_ask_at_every_answer() {
    let upstream = server().await;
    let (one, state) = ask(&*upstream, asked("elicit-twice")).await;
    let again = retry(asked("elicit-twice"), &one, &state, &accept("a"));
    let (two, state) = ask(&*upstream, again).await;
    assert_eq!(
        two.as_object().unwrap().values().next().unwrap()["params"]["message"],
        "second"
    );
    let again = retry(
        asked("elicit-twice"),
        &two,
        &state,
        &json!({ "action": "decline" }),
    );
    let got = said(&complete(&*upstream, again).await);
    assert_eq!(got[0]["result"], accept("a"));
    assert_eq!(got[1]["result"]["action"], "decline");
}

#[tokio::test]
async fn questions_that_come_together_are_shown_together_and_missing_answers_asked_again() {
    let upstream = server().await;
    let (both, state) = ask(&*upstream, asked("elicit-both")).await;
    assert_eq!(both.as_object().unwrap().len(), 2);
    let mut one = both.clone();
    let second = both.as_object().unwrap().keys().nth(1).unwrap().clone();
    one.as_object_mut().unwrap().remove(&second);
    let again = retry(asked("elicit-both"), &one, &state, &accept("a"));
    let (rest, state) = ask(&*upstream, again).await;
    assert_eq!(
        rest.as_object().unwrap().keys().collect::<Vec<_>>(),
        [&second]
    );
    let again = retry(asked("elicit-both"), &rest, &state, &accept("b"));
    let got = said(&complete(&*upstream, again).await);
    assert_eq!(
        (&got[0]["result"], &got[1]["result"]),
        (&accept("a"), &accept("b"))
    );
}

#[tokio::test]
async fn every_kind_of_question_is_carried() {
    let upstream = server().await;
    for (name, method, answer) in [
        (
            "sample",
            "sampling/createMessage",
            json!({ "role": "assistant", "content": [] }),
        ),
        (
            "roots",
            "roots/list",
            json!({ "roots": [{ "uri": "file:///x" }] }),
        ),
    ] {
        let (asked_for, state) = ask(&*upstream, asked(name)).await;
        assert_eq!(asked_for["q1"]["method"], method);
        let again = retry(asked(name), &asked_for, &state, &answer);
        let got = complete(&*upstream, again).await;
        assert_eq!(said(&got)["result"], answer);
    }
}

#[tokio::test]
async fn r10_a_server_is_refused_at_once_what_the_caller_did_not_declare() {
    let upstream = server().await;
    let end = end_of(&*upstream, mute("strict-elicit")).await.unwrap();
    let End::Error(error) = end else {
        panic!("{end:?}")
    };
    assert_eq!(error.code(), -32021);
    assert!(
        error
            .required_capabilities()
            .unwrap()
            .contains("elicitation")
    );
    // A tool that copes with it has an answer.
    let got = complete(&*upstream, mute("elicit")).await;
    assert_eq!(said(&got)["error"]["code"], -32601);
}

#[tokio::test]
async fn r10_a_session_is_refused_at_once_what_it_did_not_declare() {
    let upstream = server_with("isolation: shared, declare: [roots]").await;
    // Whatever this caller could answer.
    let got = complete(&*upstream, asked("sample")).await;
    assert_eq!(said(&got)["error"]["code"], -32601);
    let (_, state) = ask(&*upstream, asked("roots")).await;
    assert!(!state.is_empty());
}

#[tokio::test]
async fn an_answer_that_overtakes_its_question_is_the_answer() {
    let upstream = server().await;
    let got = complete(&*upstream, asked("elicit-and-answer")).await;
    assert_eq!(said(&got), "done without");
    let got = complete(&*upstream, asked("withdraw")).await;
    assert_eq!(said(&got), "withdrawn");
    let got = complete(&*upstream, asked("ping")).await;
    assert_eq!(said(&got)["result"], json!({}));
}

#[tokio::test]
async fn progress_goes_to_whoever_waits_now_under_its_own_token() {
    let upstream = server().await;
    let with = |mut call: Call, token: i64| {
        call.meta.progress_token = Some(Raw::from_serialize(&token));
        call
    };
    let mut events = stream(
        in_time(upstream.call(with(asked("progress-elicit"), 7)))
            .await
            .unwrap(),
    );
    assert_eq!(progress(&mut events).await, (json!(7), json!(1)));
    let Some(Ok(Event::End(end))) = in_time(events.next()).await else {
        panic!()
    };
    let (asked_for, state) = questions(end);
    let again = retry(
        with(asked("progress-elicit"), 8),
        &asked_for,
        &state,
        &accept("a"),
    );
    let mut events = stream(in_time(upstream.call(again)).await.unwrap());
    assert_eq!(progress(&mut events).await, (json!(8), json!(2)));
    assert!(matches!(
        in_time(events.next()).await,
        Some(Ok(Event::End(End::Complete(_))))
    ));
}

async fn progress(events: &mut EventStream) -> (Value, Value) {
    match in_time(events.next()).await {
        Some(Ok(Event::Notification(n))) if n.method == "notifications/progress" => {
            let params = value(&n.params);
            (params["progressToken"].clone(), params["progress"].clone())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn log_messages_come_from_the_level_that_the_call_set() {
    let upstream = server().await;
    let mut call = asked("log");
    call.meta.log_level = Some(Raw::string("info"));
    let mut events = stream(in_time(upstream.call(call)).await.unwrap());
    let mut levels = Vec::new();
    let end = loop {
        match in_time(events.next()).await.unwrap().unwrap() {
            Event::Notification(n) => levels.push(n.params.string("level").unwrap()),
            Event::End(End::Complete(result)) => break said(&result),
            Event::End(end) => panic!("{end:?}"),
        }
    };
    assert_eq!(levels, ["info", "error"]);
    assert_eq!(end, "info", "the server was told");
    let got = complete(&*upstream, asked("log")).await;
    assert_eq!(said(&got), "info");
}

#[tokio::test]
async fn r25_a_call_given_up_is_cancelled_at_the_server() {
    let upstream = server().await;
    let mut held = upstream.call(asked("hold"));
    let seen = in_time(async {
        tokio::select! {
            reply = &mut held => panic!("{reply:?}"),
            seen = until(&*upstream, |seen| seen["held"].as_array().is_some_and(|h| h.len() == 1)) => seen,
        }
    })
    .await;
    let id = seen["held"][0].clone();
    drop(held);
    let seen = in_time(until(&*upstream, |seen| seen["cancelled"] == json!([id]))).await;
    assert_eq!(seen["cancelled"], json!([id]));
}

/// Asks what the server holds until it is so.
async fn until(upstream: &dyn Upstream, so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let seen = said(&complete(upstream, asked("held")).await);
        if so(&seen) {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_visit_that_a_call_needs_first_is_a_question() {
    let upstream = server().await;
    let (asked_for, state) = ask(&*upstream, asked("visit")).await;
    assert_eq!(asked_for["q1"]["params"]["url"], "https://a.example");
    let again = retry(
        asked("visit"),
        &asked_for,
        &state,
        &json!({ "action": "accept" }),
    );
    assert_eq!(said(&complete(&*upstream, again).await), "visited");

    let other = server().await;
    let end = end_of(&*other, mute("visit")).await.unwrap();
    let End::Error(error) = end else {
        panic!("{end:?}")
    };
    assert_eq!(error.code(), -32021);
    let other = server().await;
    let (asked_for, state) = ask(&*other, asked("visit")).await;
    let again = retry(
        asked("visit"),
        &asked_for,
        &state,
        &json!({ "action": "decline" }),
    );
    let end = end_of(&*other, again).await.unwrap();
    assert!(matches!(end, End::Error(error) if error.code() == -32603));
}

#[tokio::test]
async fn lists_and_reads_have_what_today_s_schema_wants() {
    let upstream = server().await;
    let got = value(&complete(&*upstream, Call::own("tools/list", Object::new())).await);
    assert_eq!(
        (&got["resultType"], &got["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(got["ttlMs"].is_u64());
    let read = Call::own("resources/read", object(r#"{"uri":"r:9"}"#));
    let end = end_of(&*upstream, read).await.unwrap();
    assert!(matches!(end, End::Error(error) if error.code() == -32602));
}

#[tokio::test]
async fn subscriptions_bring_what_the_session_hears() {
    let upstream = server_with("isolation: shared").await;
    let wanted = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,
        "resourceSubscriptions":["r:1"]}}"#;
    let listen = Call::own("subscriptions/listen", object(wanted));
    let mut events = stream(in_time(upstream.call(listen)).await.unwrap());
    let mut next = async || match in_time(events.next()).await {
        Some(Ok(Event::Notification(n))) => (n.method.clone(), value(&n.params)),
        other => panic!("{other:?}"),
    };
    let (method, params) = next().await;
    assert_eq!(method, "notifications/subscriptions/acknowledged");
    let honoured = json!({ "toolsListChanged": true, "resourceSubscriptions": ["r:1"] });
    assert_eq!(params["notifications"], honoured);
    assert_eq!(params["_meta"]["io.modelcontextprotocol/subscriptionId"], 0);
    let told = complete(&*upstream, asked("change")).await;
    assert_eq!(said(&told), json!(["r:1"]));
    assert_eq!(next().await.0, "notifications/tools/list_changed");
    assert_eq!(next().await.1["uri"], "r:1");
    drop(events);
    in_time(async {
        while said(&complete(&*upstream, asked("change")).await) != json!([]) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn in_session(mut call: Call, id: &str, released: &CancellationToken) -> Call {
    call.session = Some(Session::new(id, released.clone()));
    call
}

async fn pid(upstream: &dyn Upstream, call: Call) -> i64 {
    said(&complete(upstream, call).await)["pid"]
        .as_i64()
        .unwrap()
}

#[tokio::test]
async fn r22_each_client_session_has_one_session_and_its_state() {
    let upstream = server().await;
    let token = CancellationToken::new();
    for n in 1..=5 {
        for client in ["a", "b"] {
            let got = complete(&*upstream, in_session(asked("count"), client, &token)).await;
            assert_eq!(said(&got)["count"], n, "{client}");
        }
    }
    let got = complete(&*upstream, asked("count")).await;
    assert_eq!(
        said(&got)["count"],
        1,
        "a caller without session has its own"
    );
}

#[tokio::test]
async fn a_session_declares_exactly_what_its_client_does() {
    let upstream = server().await;
    let token = CancellationToken::new();
    let who = async |call| said(&complete(&*upstream, call).await)["client"].clone();
    let client = who(in_session(mute("who"), "a", &token)).await;
    assert_eq!(client["capabilities"], json!({}));
    let client = who(in_session(asked("who"), "b", &token)).await;
    assert!(client["capabilities"].get("sampling").is_some());

    let shared = server_with("isolation: shared, declare: [roots]").await;
    let got = said(&complete(&*shared, asked("who")).await)["client"].clone();
    let expected = json!({ "elicitation": { "form": {}, "url": {} }, "roots": {} });
    assert_eq!(got["capabilities"], expected);
}

#[tokio::test]
async fn r01_r16_children_of_fifty_client_sessions_end_with_them() {
    let upstream = server().await;
    let mut seen = Vec::new();
    for n in 0..50 {
        let released = CancellationToken::new();
        let id = format!("s{n}");
        seen.push(pid(&*upstream, in_session(asked("count"), &id, &released)).await);
        released.cancel();
    }
    let alive = |pid: &&i64| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains("python3"))
    };
    in_time(async {
        while seen.iter().any(|pid| alive(&pid)) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    // The one of the gateway's own goes on.
    complete(&*upstream, tool("count")).await;
    in_time(upstream.close()).await;
}

#[tokio::test]
async fn shared_sessions_use_one_process_for_all() {
    let upstream = server_with("isolation: shared").await;
    let token = CancellationToken::new();
    let one = pid(&*upstream, in_session(asked("count"), "a", &token)).await;
    let two = pid(&*upstream, tool("count")).await;
    assert_eq!(one, two);
}

#[tokio::test]
async fn too_many_sessions_are_refused_with_a_reason() {
    let upstream = server_with("max_sessions: 1").await;
    let token = CancellationToken::new();
    complete(&*upstream, in_session(asked("count"), "a", &token)).await;
    let error = end_of(&*upstream, in_session(asked("count"), "b", &token))
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Throttled);
    assert!(error.to_string().contains("max_sessions"), "{error}");
    token.cancel();
    in_time(async {
        let next = CancellationToken::new();
        loop {
            let call = in_session(asked("count"), "b", &next);
            if end_of(&*upstream, call).await.is_ok() {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn r70_first_calls_at_once_share_one_session_and_wait_for_it() {
    let upstream = server().await;
    let all = (0..10).map(|_| complete(&*upstream, asked("who")));
    let all = in_time(join_all(all)).await;
    for got in all {
        assert_eq!(said(&got)["early"], 0);
        assert_eq!(said(&got)["ready"], true);
    }
    let got = said(&complete(&*upstream, asked("count")).await);
    assert_eq!(got["count"], 1);
}

#[tokio::test]
async fn r35_a_crash_fails_its_calls_with_the_last_words_and_the_next_call_starts_anew() {
    let upstream = server_with("isolation: shared").await;
    let error = end_of(&*upstream, asked("crash")).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("exited with code 3: about to die"), "{text}");
    in_time(upstream.lost()).await;
    complete(&*upstream, asked("echo")).await;
}

#[tokio::test]
async fn r12_stray_lines_are_skipped() {
    let upstream = server().await;
    complete(&*upstream, asked("stray")).await;
    complete(&*upstream, asked("echo")).await;
}

#[tokio::test]
async fn a_call_does_not_wait_to_be_discovered() {
    for more in ["", "era: legacy", "isolation: shared"] {
        let upstream = upstream(&settings("refuse", more));
        complete(&*upstream, asked("echo")).await;
    }
}

#[tokio::test]
async fn servers_of_the_session_era_are_known_by_how_they_refuse() {
    // TypeScript v1, Python v1, and codes of somebody's own.
    for code in [-32601, -32602, -32000, -32600] {
        let upstream = upstream(&settings(&format!("refuse, '{code}'"), "isolation: shared"));
        let facts = in_time(upstream.discover(None)).await.unwrap();
        assert_eq!(facts.protocol, "2025-06-18");
        let got = said(&complete(&*upstream, asked("who")).await);
        assert_eq!(got["discovered"], 1, "the same process goes on");
    }
    let failing = upstream(&settings("refuse, '-32603'", ""));
    let error = in_time(failing.discover(None)).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
}

#[tokio::test]
async fn a_server_known_to_want_sessions_is_not_asked_otherwise_first() {
    let upstream = upstream(&settings("silent", ""));
    let facts = in_time(upstream.discover(Some("2025-06-18")))
        .await
        .unwrap();
    assert_eq!(facts.protocol, "2025-06-18");
}

#[tokio::test]
async fn a_silent_probe_is_followed_by_initialize_on_the_same_pipe() {
    let upstream = upstream(&settings("silent", "startup_timeout: 4s"));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2025-06-18");
    complete(&*upstream, asked("echo")).await;
}

#[tokio::test]
async fn a_late_word_of_a_modern_server_counts() {
    let upstream = upstream(&settings("late", "startup_timeout: 4s"));
    let facts = in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(facts.protocol, "2026-07-28");
    complete(&*upstream, asked("echo")).await;
}
