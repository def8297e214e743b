//! Calls over standard streams.

use std::sync::Arc;

use futures_util::StreamExt as _;
use waypost_hub::call::Call;
use waypost_hub::error::Kind;
use waypost_hub::reply::{End, Event, EventStream};
use waypost_hub::upstream::Upstream;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::kit::{complete, end_of, in_time, object, parts, stream, tool, upstream_with};

pub const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/child.py");

/// The well-behaved child, started.
pub async fn server() -> Arc<dyn Upstream> {
    server_with(usize::MAX >> 1).await
}

async fn server_with(limit: usize) -> Arc<dyn Upstream> {
    let mut parts = parts();
    parts.response_limit = limit;
    let settings = format!("command: python3, args: ['{SERVER}']");
    let upstream = upstream_with(&settings, &parts);
    in_time(upstream.discover(None)).await.unwrap();

    upstream
}

pub fn tool_with(name: &str, arguments: &str) -> Call {
    let params = format!(r#"{{"name":"{name}","arguments":{arguments}}}"#);
    Call::own("tools/call", object(&params))
}

fn text(result: &Object) -> String {
    Raw::from(result).to_string()
}

#[tokio::test]
async fn a_call_and_its_answer_keep_their_values() {
    let upstream = server().await;
    let call = tool_with("echo", "{\"n\":[1,\n2],\"s\":\"a\\nb\"}");
    let got = complete(&*upstream, call).await;
    assert_eq!(text(&got), r#"{"echo":{"n": [1, 2], "s": "a\nb"}}"#);
}

#[tokio::test]
async fn r12_lines_that_are_no_messages_are_skipped() {
    let upstream = server().await;
    for _ in 0..2 {
        complete(&*upstream, tool("stray")).await;
    }
}

#[tokio::test]
async fn answers_that_are_not_quite_right_are_answers() {
    let upstream = server().await;
    for name in ["string-id", "bare"] {
        let got = complete(&*upstream, tool(name)).await;
        assert!(text(&got).contains(name), "{got:?}");
    }
}

#[tokio::test]
async fn r54_a_message_of_invalid_utf8_fails_its_call_alone() {
    let upstream = server().await;
    let held = upstream.call(tool("hold"));
    tokio::pin!(held);
    let error = async {
        let error = end_of(&*upstream, tool("bad-utf8")).await.unwrap_err();
        complete(&*upstream, tool("release")).await;
        error
    };
    let (reply, error) = in_time(async { tokio::join!(held, error) }).await;
    assert_eq!(error.kind, Kind::BadUpstream);
    assert!(reply.is_ok());
}

#[tokio::test]
async fn r54_multi_byte_text_survives_every_cut() {
    let upstream = server().await;
    for (length, size) in [(1000, 1), (40_000, 3), (40_000, 4096)] {
        let call = tool_with("pieces", &format!(r#"{{"length":{length},"size":{size}}}"#));
        let got = complete(&*upstream, call).await.string("text").unwrap();
        let expected: String = "語🦀é\u{2028}"
            .repeat(12_000)
            .chars()
            .take(length)
            .collect();
        assert!(got == expected, "{length} {size}");
    }
}

#[tokio::test]
async fn r55_big_answers_pass_and_too_big_ones_fail_their_call_alone() {
    let upstream = server_with(2 << 20).await;
    let big = |name, length: usize| tool_with(name, &format!(r#"{{"length":{length}}}"#));
    let got = complete(&*upstream, big("big", 1 << 20)).await;
    assert_eq!(got.string("text").unwrap().len(), 1 << 20);
    for name in ["big", "big-id-last"] {
        let error = end_of(&*upstream, big(name, 5 << 20)).await.unwrap_err();
        assert_eq!(error.kind, Kind::BadUpstream);
        assert_eq!(
            error.detail.unwrap(),
            "the answer is larger than 2097152 bytes"
        );
    }
    complete(&*upstream, tool("echo")).await;
}

#[tokio::test]
async fn r37_a_slow_call_holds_nobody_up() {
    let upstream = server().await;
    let slow = upstream.call(tool("hold"));
    tokio::pin!(slow);
    let quick = async {
        let calls = (0..100).map(|n| {
            let upstream = &upstream;
            async move {
                let call = tool_with("echo", &format!(r#"{{"n":{n}}}"#));
                let got = complete(&**upstream, call).await;
                assert_eq!(text(&got), format!(r#"{{"echo":{{"n": {n}}}}}"#));
            }
        });
        futures_util::future::join_all(calls).await;
    };
    tokio::select! {
        biased;
        reply = &mut slow => panic!("{reply:?}"),
        () = quick => {}
    }
    complete(&*upstream, tool("release")).await;
    assert!(in_time(slow).await.is_ok());
}

#[tokio::test]
async fn dropping_a_call_tells_the_server() {
    let upstream = server().await;
    let mut held = upstream.call(tool("hold"));
    // Written before the next one, whose answer therefore says that it has arrived.
    let seen = async {
        loop {
            let got = complete(&*upstream, tool("cancelled")).await;
            if text(&got).contains(r#""held":[2]"#) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        reply = &mut held => panic!("{reply:?}"),
        () = seen => {}
    }
    drop(held);
    let told = async {
        loop {
            let got = complete(&*upstream, tool("cancelled")).await;
            if text(&got) == r#"{"cancelled":[2],"held":[]}"# {
                return;
            }
        }
    };
    in_time(told).await;
}

#[tokio::test]
async fn a_request_of_the_server_is_refused_at_once() {
    let upstream = server().await;
    let asked = upstream.call(tool("ask"));
    let refused = async {
        while text(&complete(&*upstream, tool("answers")).await) != r#"{"answers":[-32601]}"# {}
        complete(&*upstream, tool("release")).await;
    };
    let (reply, ()) = in_time(async { tokio::join!(asked, refused) }).await;
    assert!(reply.is_ok());
}

#[tokio::test]
async fn an_error_without_id_answers_the_only_call() {
    let upstream = server().await;
    match end_of(&*upstream, tool("null-error")).await {
        Ok(End::Error(error)) => assert_eq!(error.code(), -32600),
        other => panic!("{other:?}"),
    }
}

fn with_token(mut call: Call, token: &str) -> Call {
    call.meta.progress_token = Some(Raw::string(token));
    call
}

/// The methods of all notifications up to the end.
async fn methods(mut events: EventStream) -> Vec<String> {
    let mut got = Vec::new();
    loop {
        match in_time(events.next()).await.unwrap().unwrap() {
            Event::Notification(notification) => got.push(notification.method),
            Event::End(End::Complete(_)) => return got,
            Event::End(other) => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn progress_comes_before_the_end_and_only_to_its_call() {
    let upstream = server().await;
    let call = with_token(tool_with("progress", r#"{"count":3}"#), "a");
    let reply = in_time(upstream.call(call)).await.unwrap();
    assert_eq!(methods(stream(reply)).await, ["notifications/progress"; 3]);

    let mut held = with_token(tool("hold"), "b");
    held.meta.log_level = Some(Raw::string("info"));
    let held = upstream.call(held);
    let others = async {
        let call = with_token(tool_with("progress-for", r#"{"token":"b"}"#), "c");
        let reply = upstream.call(call).await.unwrap();
        assert!(
            matches!(reply, waypost_hub::reply::Reply::End(_)),
            "{reply:?}"
        );
        complete(&*upstream, tool("release")).await;
    };
    let (reply, ()) = in_time(async { tokio::join!(held, others) }).await;
    let got = methods(stream(reply.unwrap())).await;
    assert_eq!(got, ["notifications/progress"]);
}

#[tokio::test]
async fn a_log_message_comes_to_the_only_call() {
    let upstream = server().await;
    let mut call = tool("log");
    call.meta.log_level = Some(Raw::string("info"));
    let reply = in_time(upstream.call(call)).await.unwrap();
    let got = methods(stream(reply)).await;
    assert_eq!(got, ["notifications/message"]);
}

#[tokio::test]
async fn a_result_without_id_answers_nobody() {
    let upstream = server().await;
    let got = complete(&*upstream, tool("null-result")).await;
    assert_eq!(text(&got).replace(' ', ""), r#"{"own":true}"#);
}

#[tokio::test]
async fn r82_a_task_made_after_its_caller_has_gone_is_cancelled() {
    let upstream = server().await;
    let mut making = upstream.call(tool("task"));
    tokio::select! {
        biased;
        reply = &mut making => panic!("{reply:?}"),
        _ = complete(&*upstream, tool("echo")) => {}
    }
    drop(making);
    let got = complete(&*upstream, tool("created")).await;
    assert_eq!(text(&got), r#"{"created":[2]}"#);
    let expected = r#"{"stopped":[["t",["io.modelcontextprotocol/tasks"]]]}"#;
    let told = async {
        while text(&complete(&*upstream, tool("stopped")).await).replace(' ', "") != expected {}
    };
    in_time(told).await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_nobody_up_and_loses_no_end() {
    let upstream = server().await;
    let call = with_token(tool_with("progress", r#"{"count":5000}"#), "a");
    let events = stream(in_time(upstream.call(call)).await.unwrap());
    complete(&*upstream, tool("echo")).await;
    let got = methods(events).await.len();
    assert!((200..5000).contains(&got), "{got}");
}

#[tokio::test]
async fn a_subscription_gets_what_names_it_and_ends_when_it_is_not_read() {
    let upstream = server().await;
    let listen = |count: usize| {
        Call::own(
            "subscriptions/listen",
            object(&format!(r#"{{"count":{count}}}"#)),
        )
    };
    let mut few = stream(in_time(upstream.call(listen(2))).await.unwrap());
    let mut got = Vec::new();
    for _ in 0..3 {
        match in_time(few.next()).await.unwrap().unwrap() {
            Event::Notification(notification) => got.push(notification.method),
            Event::End(end) => panic!("{end:?}"),
        }
    }
    let changed = "notifications/tools/list_changed";
    assert_eq!(
        got,
        ["notifications/subscriptions/acknowledged", changed, changed]
    );

    let mut many = stream(in_time(upstream.call(listen(5000))).await.unwrap());
    complete(&*upstream, tool("echo")).await;
    let error = loop {
        match in_time(many.next()).await.unwrap() {
            Ok(Event::Notification(_)) => {}
            Ok(Event::End(end)) => panic!("{end:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.detail.unwrap(),
        "more notifications came than were read"
    );
}

#[tokio::test]
async fn a_tool_s_own_error_is_not_about_the_hop() {
    let upstream = server().await;
    let cases = [
        (r#"{"code":-32020}"#, -32603),
        (
            r#"{"code":-32022,"data":{"supported":["2026-07-28"]}}"#,
            -32603,
        ),
        (
            r#"{"code":-32022,"data":{"supported":["2027-01-01"]}}"#,
            -32022,
        ),
        (r#"{"code":-32021}"#, -32021),
    ];
    for (arguments, expected) in cases {
        match end_of(&*upstream, tool_with("own-error", arguments)).await {
            Ok(End::Error(error)) => {
                assert_eq!((error.code(), &*error.message()), (expected, "own"));
            }
            other => panic!("{other:?}"),
        }
    }
}
