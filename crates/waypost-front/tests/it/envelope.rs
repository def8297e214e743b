//! Bodies that are no request, media types, limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderValue, Request};
use proptest::prelude::*;
use serde_json::json;

use crate::fake::{Front, MODERN, Post};

async fn raw(body: &str) -> (u16, serde_json::Value) {
    let front = Front::new(|_| panic!("must not be called"));
    let answer = front
        .send(Post::raw(json!(null)).build_with(body.to_owned()))
        .await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn r53_what_is_no_request_is_refused_without_an_id() {
    for (body, code) in [
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#,
            -32600,
        ),
        (
            r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#,
            -32600,
        ),
        ("null", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/li"#, -32700),
        ("", -32700),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#,
            -32600,
        ),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, -32600),
    ] {
        let (status, answer) = raw(body).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (400, &json!(code)),
            "{body}"
        );
        assert!(answer.get("id").is_none(), "{answer}");
    }
}

#[tokio::test]
async fn a_bad_request_whose_id_is_readable_gets_it_back() {
    for body in [
        r#"{"jsonrpc":"2.0","id":"a","method":1}"#,
        r#"{"id":"a","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"a":1,"\u0061":2}}"#,
    ] {
        let (status, answer) = raw(body).await;
        assert_eq!((status, &answer["id"]), (400, &json!("a")), "{body}");
        assert_eq!(answer["error"]["code"], -32600, "{body}");
    }
}

#[tokio::test]
async fn text_nested_too_deep_is_refused_with_its_id() {
    let arguments = format!("{}{}", "[".repeat(64), "]".repeat(64));
    let body = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"a","params":{{"x":{arguments}}}}}"#);
    let (status, answer) = raw(&body).await;
    assert_eq!((status, &answer["id"]), (400, &json!(5)));
    assert_eq!(answer["error"]["message"], "nested deeper than 64 levels");
}

#[tokio::test]
async fn r52_ids_come_back_as_they_were_spelled() {
    let long = format!("\"{}\"", "x".repeat(2048));
    let uuid = "\"0b1f8d3c-6d9c-4b7e-9d7e-0a6f6a6e2a10\"";
    let front = Front::complete();
    for id in ["1", "\"1\"", "0", "-1", "\"\"", "\"\\u0041\"", uuid, &long] {
        let body = Post::call().body.to_string();
        let body = body.replace("\"id\":1,", &format!("\"id\":{id},"));
        let answer = front.send(Post::call().build_with(body)).await;
        let expected =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete"}}}}"#);
        assert_eq!(answer.text, expected);
    }
}

#[tokio::test]
async fn notifications_are_accepted_without_a_body() {
    for method in [
        "notifications/cancelled",
        "notifications/initialized",
        "x/y",
    ] {
        let front = Front::new(|_| panic!("must not be called"));
        let post = Post::raw(json!({"jsonrpc": "2.0", "method": method}));
        let answer = front.send(post.build()).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));
    }
}

#[tokio::test]
async fn r43_other_media_types_are_refused_and_lenient_ones_served() {
    let front = Front::complete();
    for (content_type, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON; CHARSET=UTF-8", 200),
        ("application/json; charset=iso-8859-1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
    ] {
        let post = Post::call().set("content-type", content_type);
        let answer = front.send(post.build()).await;
        assert_eq!(answer.status, status, "{content_type}");
    }
    let none = Post::call().without("content-type");
    assert_eq!(front.send(none.build()).await.status, 415);
    let html = Post::call().set("accept", "text/html");
    assert_eq!(front.send(html.build()).await.refusal(), (406, -32600));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let front = Front::new(|_| panic!("must not be called"));
    let large = || Bytes::from(vec![b' '; 4097]);
    let said = Post::call().build_with(large());
    assert_eq!(front.send(said).await.refusal(), (413, -32600));
    let chunks = stream::iter([Ok::<_, std::io::Error>(large().slice(..4096)), Ok(large())]);
    let unsaid = Post::call().build_with(Body::from_stream(chunks));
    assert_eq!(front.send(unsaid).await.refusal(), (413, -32600));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_large_is_taken_so_that_the_client_can_read_why() {
    let front = Front::new(|_| panic!("must not be called"));
    let taken = Arc::new(AtomicUsize::new(0));
    let body = |chunks: usize| {
        let taken = Arc::clone(&taken);
        taken.store(0, Ordering::Relaxed);
        let chunk = move |_| {
            taken.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20]))
        };
        Body::from_stream(stream::iter(0..chunks).map(chunk))
    };
    let answer = front.send(Post::call().build_with(body(10))).await;
    assert_eq!(answer.refusal(), (413, -32600));
    assert_eq!(taken.load(Ordering::Relaxed), 10);
    let answer = front.send(Post::call().build_with(body(1000))).await;
    assert_eq!(answer.refusal(), (413, -32600));
    assert!(taken.load(Ordering::Relaxed) < 20, "but only so much");
    let asks = Post::call().header("expect", "100-continue");
    let answer = front.send(asks.build_with(body(10))).await;
    assert_eq!(answer.refusal(), (413, -32600));
    assert_eq!(taken.load(Ordering::Relaxed), 1, "who asks is told at once");
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 5000]))]);
    let stuck = Body::from_stream(first.chain(stream::pending()));
    let start = tokio::time::Instant::now();
    let answer = front.send(Post::call().build_with(stuck)).await;
    assert_eq!(answer.refusal(), (413, -32600));
    assert_eq!(start.elapsed().as_secs(), 2, "and not for ever");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let front = Front::new(|_| panic!("must not be called"));
    let endless = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let answer = front.send(Post::call().build_with(endless)).await;
    assert_eq!(answer.refusal(), (408, -32600));
    let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]);
    let broken = Post::call().build_with(Body::from_stream(broken));
    assert_eq!(front.send(broken).await.refusal(), (400, -32600));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is sent, the answer is one of this front's own, and nothing panics.
    #[test]
    fn any_bytes_and_headers_get_an_answer(
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "[{}\\[\\]\":,a-z0-9\\\\ ]{0,80}".prop_map(String::into_bytes),
            "(tools/call|tasks/get|initialize|\\PC{0,9})".prop_map(|method| {
                let mut post = Post::new("tools/call", &json!({"name": "echo"}));
                post.body["method"] = method.into();
                post.body.to_string().into_bytes()
            }),
        ],
        lines in proptest::collection::vec((
            prop_oneof![
                Just("content-type"), Just("accept"), Just("mcp-method"), Just("mcp-name"),
                Just("mcp-protocol-version"), Just("mcp-param-a"), Just("x-request-id"),
            ],
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..24),
                Just(MODERN.as_bytes().to_vec()),
                Just(b"tools/call".to_vec()),
                Just(b"echo".to_vec()),
                Just(b"=?base64?".to_vec()),
            ],
        ), 0..6),
        json in any::<bool>(),
    ) {
        let mut request = Request::post("/mcp").body(Body::from(body)).unwrap();
        if json {
            let value = HeaderValue::from_static("application/json");
            request.headers_mut().insert("content-type", value);
        }
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                request.headers_mut().append(name, value);
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answer = runtime.block_on(Front::complete().send(request));
        let status = answer.status.as_u16();
        prop_assert!([200, 202, 400, 404, 406, 413, 415].contains(&status), "{status}");
    }
}
