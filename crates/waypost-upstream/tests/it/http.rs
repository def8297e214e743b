//! Calls over Streamable HTTP.

use futures_util::StreamExt as _;
use waypost_hub::call::Call;
use waypost_hub::error::Kind;
use waypost_hub::reply::{End, Event, Reply};
use waypost_hub::upstream::Upstream;
use waypost_wire::raw::Raw;

use crate::fake::{Fake, STREAM, Step, chunk, error, http, result};
use crate::kit::{complete, end_of, in_time, object, parts, stream, tool, upstream, upstream_with};

#[tokio::test]
async fn a_call_carries_exactly_the_headers_of_the_protocol() {
    let fake = Fake::always(|seen| result(seen, r#"{"resultType":"complete","n":1.0}"#)).await;
    let settings = format!(
        "era: modern, url: '{}?key=canary', headers: {{ X-Team: blue }}",
        fake.url()
    );
    let upstream = upstream(&settings);
    let mut call = tool("größe");
    call.headers.params = vec![
        ("mcp-param-region".to_owned(), "eu".to_owned()),
        (
            "authorization".to_owned(),
            "Bearer of-the-client".to_owned(),
        ),
    ];
    call.meta.progress_token = Some(Raw::string("p"));
    call.meta.rest.set("traceparent", Raw::string("00-1-2-01"));
    let got = complete(&*upstream, call).await;
    assert_eq!(
        Raw::from(got).text(),
        r#"{"resultType":"complete","n":1.0}"#
    );

    let seen = fake.requests().remove(0);
    assert_eq!(seen.line, "POST /mcp?key=canary HTTP/1.1");
    let mut names: Vec<_> = seen.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "content-length",
        "content-type",
        "host",
        "mcp-method",
        "mcp-name",
        "mcp-param-region",
        "mcp-protocol-version",
        "user-agent",
        "x-team",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        seen.header("accept"),
        Some("application/json, text/event-stream")
    );
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(
        seen.header("host"),
        Some(&*format!("127.0.0.1:{}", fake.port))
    );
    assert_eq!(seen.header("mcp-method"), Some("tools/call"));
    assert_eq!(seen.header("mcp-name"), Some("=?base64?Z3LDtsOfZQ==?="));
    assert_eq!(seen.header("mcp-param-region"), Some("eu"));
    assert_eq!(seen.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(seen.header("x-team"), Some("blue"));
    let meta = &seen.body["params"]["_meta"];
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        serde_json::json!({})
    );
    assert_eq!(meta["progressToken"], "p");
    assert_eq!(meta["traceparent"], "00-1-2-01");
    assert_eq!(seen.body["params"]["name"], "größe");
}

#[tokio::test]
async fn answers_that_are_not_quite_right_are_answers() {
    let forms: [fn(&str) -> String; 3] = [
        |id| format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#),
        |id| format!(r#"{{"id":{id},"result":{{}}}}"#),
        |id| format!("data: {{\"jsonrpc\":\"2.0\",\"id\":\"{id}\",\"result\":{{}}}}\n\n"),
    ];
    for form in forms {
        let fake = Fake::always(move |seen| {
            let body = form(&seen.id());
            let kind = match body.starts_with("data") {
                true => "text/event-stream",
                false => "application/json",
            };
            http("200 OK", kind, &body)
        })
        .await;
        let upstream = upstream(&format!("url: '{}', era: modern", fake.url()));
        complete(&*upstream, tool("t")).await;
    }
}

#[tokio::test]
async fn configured_headers_win() {
    let fake = Fake::always(|seen| result(seen, "{}")).await;
    let upstream = upstream(&format!(
        "era: modern, url: '{}', headers: {{ User-Agent: me }}",
        fake.url()
    ));
    complete(&*upstream, tool("t")).await;
    assert_eq!(fake.requests().remove(0).header("user-agent"), Some("me"));
}

#[tokio::test]
async fn calls_share_a_connection_and_no_id() {
    let fake = Fake::always(|seen| result(seen, "{}")).await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    for _ in 0..5 {
        complete(&*upstream, tool("t")).await;
    }
    let seen = fake.requests();
    assert!(seen.iter().all(|seen| seen.connection == 0));
    let mut ids: Vec<_> = seen.iter().map(crate::fake::Seen::id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 5);
}

#[tokio::test]
async fn the_result_type_alone_makes_the_end() {
    let fake = Fake::always(|seen| {
        let kind = seen.body["params"]["name"].as_str().unwrap();
        result(seen, &format!(r#"{{"resultType":"{kind}","content":[]}}"#))
    })
    .await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    let ends = ["complete", "input_required", "task"];
    for (name, index) in ends.into_iter().zip(0..) {
        let end = end_of(&*upstream, tool(name)).await.unwrap();
        let got = match end {
            End::Complete(_) => 0,
            End::InputRequired(_) => 1,
            End::Task(_) => 2,
            End::Error(_) => 3,
        };
        assert_eq!(got, index);
    }
    let error = end_of(&*upstream, tool("partial")).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    assert_eq!(error.to_string(), "upstream `u`: unknown `resultType`");
}

#[tokio::test]
async fn a_closed_idle_connection_is_replaced() {
    let fake =
        Fake::start(|_, seen| vec![Step::Send(result(seen, "{}").into_bytes()), Step::Close]).await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    for expected in 1..=3 {
        complete(&*upstream, tool("t")).await;
        assert_eq!(fake.requests().len(), expected);
        // Lets the client, on this same thread, see that the server has closed.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
}

fn event(seen: &crate::fake::Seen, member: &str) -> String {
    format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},{member}}}\n\n",
        seen.id()
    )
}

const PROGRESS: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progress\":1}}\n\n";

#[tokio::test]
async fn notifications_come_before_the_end_however_the_bytes_are_cut() {
    for (size, ends) in [(1, "\n"), (3, "\r\n"), (7, "\r"), (100_000, "\r\n")] {
        let fake = Fake::start(move |_, seen| {
            let body = format!(
                ": comment\n\nid: 7\nretry: 500\ndata:\n\n{PROGRESS}event: other\ndata: x\n\n\
                 data: {{\"jsonrpc\":\"2.0\",\"id\":\"z\",\"method\":\"roots/list\"}}\n\n\
                 data: {{\"jsonrpc\":\"2.0\",\"id\":\"z\",\"result\":{{}}}}\n\n{PROGRESS}{}",
                event(seen, r#""result":{"text":"日本🦀"}"#)
            );
            let body = body.replace('\n', ends);
            let mut answer = STREAM.to_owned().into_bytes();
            for piece in body.as_bytes().chunks(size) {
                answer.extend(format!("{:x}\r\n", piece.len()).into_bytes());
                answer.extend(piece);
                answer.extend(b"\r\n");
            }
            answer.extend(b"0\r\n\r\n");
            vec![Step::Pieces(answer, size)]
        })
        .await;
        let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
        let reply = in_time(upstream.call(tool("t"))).await.unwrap();
        let mut events = reply.into_stream();
        let mut got = Vec::new();
        while let Some(event) = in_time(events.next()).await {
            got.push(match event.unwrap() {
                Event::Notification(notification) => notification.method,
                Event::End(End::Complete(result)) => result.string("text").unwrap(),
                Event::End(other) => panic!("{other:?}"),
            });
        }
        assert_eq!(
            got,
            ["notifications/progress", "notifications/progress", "日本🦀"]
        );
    }
}

#[tokio::test]
async fn r55_a_notification_over_the_limit_costs_the_call_nothing() {
    for era in ["modern", "legacy"] {
        let fake = Fake::always(|seen| {
            let big = "y".repeat(5_000);
            let note = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"error","data":"{big}"}}}}"#
            );
            let id = seen.id();
            match seen.what() {
                "tools/call" => http(
                    "200 OK",
                    "text/event-stream",
                    &format!("data: {note}\n\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n"),
                ),
                "initialize" => result(
                    seen,
                    r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{}}"#,
                ),
                "GET" => http("405 Method Not Allowed", "text/plain", ""),
                _ => http("202 Accepted", "text/plain", ""),
            }
        })
        .await;
        let mut parts = parts();
        parts.response_limit = 2_000;
        let settings = format!("url: '{}', era: {era}", fake.url());
        let upstream = upstream_with(&settings, &parts);
        complete(&*upstream, tool("t")).await;
    }
}

#[tokio::test]
async fn a_connection_survives_a_finished_stream() {
    let fake = Fake::start(|_, seen| {
        let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&event(seen, r#""result":{}"#)));
        vec![Step::Send(answer.into_bytes())]
    })
    .await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    // The last bytes are read behind the caller's back, so not every call finds it free.
    let reused = async {
        loop {
            complete(&*upstream, tool("t")).await;
            let seen = fake.requests();
            if seen.last().unwrap().connection + 1 < seen.len() {
                return;
            }
        }
    };
    in_time(reused).await;
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    let fake = Fake::start(|_, _| vec![Step::Hang]).await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    let mut gone = fake.gone.clone();
    tokio::select! {
        reply = upstream.call(tool("t")) => panic!("{reply:?}"),
        () = async { while fake.requests().is_empty() { tokio::task::yield_now().await } } => {}
    }
    in_time(gone.wait_for(|gone| *gone == 1)).await.unwrap();
}

#[tokio::test]
async fn dropping_a_stream_closes_its_connection() {
    let fake = Fake::start(|_, _| {
        vec![
            Step::Send(format!("{STREAM}{}", chunk(PROGRESS)).into_bytes()),
            Step::Hang,
        ]
    })
    .await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    let mut gone = fake.gone.clone();
    let reply = in_time(upstream.call(tool("t"))).await.unwrap();
    let mut events = stream(reply);
    let first = in_time(events.next()).await.unwrap().unwrap();
    assert!(matches!(first, Event::Notification(_)));
    assert_eq!(*gone.borrow(), 0);
    drop(events);
    in_time(gone.wait_for(|gone| *gone == 1)).await.unwrap();
    // And the next call opens another.
    drop(
        tokio::time::timeout(
            std::time::Duration::from_millis(500),
            upstream.call(tool("t")),
        )
        .await,
    );
    assert_eq!(fake.requests().last().unwrap().connection, 1);
}

#[tokio::test]
async fn r37_a_slow_call_holds_nobody_up() {
    let fake = Fake::start(|_, seen| match seen.body["params"]["name"].as_str() {
        Some("slow") => vec![Step::Hang],
        _ => vec![Step::Send(result(seen, r#"{"quick":true}"#).into_bytes())],
    })
    .await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    let slow = upstream.call(tool("slow"));
    tokio::pin!(slow);
    let quick = async {
        for _ in 0..100 {
            complete(&*upstream, tool("quick")).await;
        }
    };
    tokio::select! {
        biased;
        reply = &mut slow => panic!("{reply:?}"),
        () = quick => {}
    }
}

#[tokio::test]
async fn r55_big_answers_arrive_whole_in_small_pieces() {
    for size in [1 << 20, 16 << 20] {
        let fake = Fake::start(move |_, seen| {
            let text = "é".repeat(size / 2);
            let answer = result(seen, &format!(r#"{{"text":"{text}"}}"#)).into_bytes();
            vec![Step::Pieces(answer, 8191)]
        })
        .await;
        let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
        let got = complete(&*upstream, tool("t")).await;
        assert_eq!(got.get("text").unwrap().as_bytes().len(), size + 2);
    }
}

#[tokio::test]
async fn other_methods_carry_their_own_names() {
    let fake = Fake::always(|seen| result(seen, "{}")).await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    for (method, params, name) in [
        (
            "resources/read",
            r#"{"uri":"file:///a b"}"#,
            Some("file:///a b"),
        ),
        ("prompts/get", r#"{"name":"p"}"#, Some("p")),
        (
            "tasks/get",
            r#"{"taskId":"=?base64?x?="}"#,
            Some("=?base64?PT9iYXNlNjQ/eD89?="),
        ),
        ("tools/list", "{}", None),
    ] {
        complete(&*upstream, Call::own(method, object(params))).await;
        let seen = fake.requests().pop().unwrap();
        assert_eq!(seen.header("mcp-method"), Some(method));
        assert_eq!(seen.header("mcp-name"), name);
    }
}

#[tokio::test]
async fn an_answer_in_the_first_chunk_needs_no_stream() {
    let fake = Fake::start(|_, seen| {
        let answer = format!("{STREAM}{}0\r\n\r\n", chunk(&event(seen, r#""result":{}"#)));
        vec![Step::Send(answer.into_bytes())]
    })
    .await;
    let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
    let reply = in_time(upstream.call(tool("t"))).await.unwrap();
    assert!(matches!(reply, Reply::End(End::Complete(_))), "{reply:?}");
}

/// Calls three times from a runtime of its own, which ends with it, as data core `core`.
fn call_on_core(core: usize, upstream: &dyn Upstream) {
    let run = || {
        waypost_upstream::core_local::set_core(core);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            for _ in 0..3 {
                complete(upstream, tool("t")).await;
            }
        });
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_core_has_connections_of_its_own() {
    let fake = Fake::always(|seen| result(seen, "{}")).await;
    let mut parts = parts();
    parts.cores = 2;
    let upstream = upstream_with(&format!("era: modern, url: '{}'", fake.url()), &parts);
    // A runtime that is gone takes its own connections with it and nobody else's.
    for core in [1, 2, 0] {
        call_on_core(core, &*upstream);
    }
    let connections: Vec<_> = fake.requests().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[tokio::test]
async fn a_tool_s_own_error_is_not_about_the_hop() {
    let own = r#"{"code":-32020,"message":"own","data":{"n":1.0}}"#;
    let cases = [
        ("400 Bad Request", -32020),
        ("200 OK", -32603),
        ("stream", -32603),
    ];
    for (status, expected) in cases {
        let fake = Fake::always(move |seen| {
            let id = seen.id();
            match status {
                "stream" => {
                    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{own}}}"#);
                    http("200 OK", "text/event-stream", &format!("data: {line}\n\n"))
                }
                status => error(status, &id, own),
            }
        })
        .await;
        let upstream = upstream(&format!("era: modern, url: '{}'", fake.url()));
        match end_of(&*upstream, tool("t")).await {
            Ok(End::Error(error)) => {
                assert_eq!(error.code(), expected, "{status}");
                assert_eq!(error.message(), "own");
                assert_eq!(error.data().unwrap().text(), r#"{"n":1.0}"#);
                let said = (expected == -32603).then_some(-32020);
                assert_eq!(error.said(), said, "{status}");
            }
            other => panic!("{status}: {other:?}"),
        }
    }
}
