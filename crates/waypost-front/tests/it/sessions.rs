//! Session ids and what they are worth.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{advance, sleep};
use waypost_front::legacy::Sessions;
use waypost_hub::call::{Call, Principal, View};
use waypost_hub::reply::Reply;
use waypost_wire::error::ErrorObject;

use crate::fake::{Answer, Front, Post, read};
use crate::peer::{
    LATEST, Memory, OLDEST, Peer, front, front_with, initialize, post, request, silent, text,
};

fn ok() -> Front {
    front(|_| Ok(text("ok")))
}

fn list() -> Value {
    request("l", "tools/list", &json!({}))
}

#[tokio::test]
async fn r33_initialize_answers_the_clients_version_or_the_latest_with_sessions() {
    let front = ok();
    for (offered, answered) in [
        (LATEST, LATEST),
        ("2025-06-18", "2025-06-18"),
        (OLDEST, OLDEST),
        ("2026-07-28", LATEST),
        ("2099-01-01", LATEST),
    ] {
        let offer = initialize(offered, &json!({}));
        // Whatever the header says, the body counts.
        for headers in [&[][..], &[("mcp-protocol-version", offered)]] {
            let answer = post(&front.router, headers, &offer).await;
            assert_eq!(answer.status, 200);
            let result = &answer.json()["result"];
            assert_eq!(result["protocolVersion"], answered);
            assert_eq!(result["serverInfo"]["name"], "waypost");
            assert_eq!(result["instructions"], "be kind");
            let capabilities = json!({ "tools": { "listChanged": true }, "logging": {},
                "resources": { "subscribe": true, "listChanged": true } });
            assert_eq!(result["capabilities"], capabilities);
            let id = answer.header("mcp-session-id").unwrap();
            assert!(id.bytes().all(|b| (0x21..0x7f).contains(&b)), "{id}");
        }
    }
    let odd = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {} });
    let answer = post(&front.router, &[], &odd).await;
    assert_eq!(answer.refusal(), (200, -32602));
}

#[tokio::test]
async fn r52_ids_come_back_as_they_were_and_both_kinds_at_once() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let long = json!("x".repeat(4096 / 2));
    for id in [json!(1), json!("1"), json!(0), json!(-1), json!(""), long] {
        let answer = peer
            .post(&request(id.clone(), "tools/list", &json!({})))
            .await;
        assert_eq!(answer.json()["id"], id);
    }
}

#[tokio::test(start_paused = true)]
async fn r52_an_id_that_is_in_flight_is_refused() {
    let front = front(|_| Ok(silent()));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let call = |id: Value| request(id, "tools/call", &json!({ "name": "t" }));
    let _first = peer.stream(&call(json!(1))).await;
    let answer = peer.post(&call(json!(1))).await;
    assert_eq!(answer.refusal(), (200, -32600));
    assert_eq!(answer.json()["id"], 1);
    let _other = peer.stream(&call(json!("1"))).await;
    // Another session's ids are its own.
    let other = Peer::open(&front, LATEST, &json!({})).await;
    let _same = other.stream(&call(json!(1))).await;
    // And once it is over the id is free.
    peer.notify("notifications/cancelled", &json!({ "requestId": 1 }))
        .await;
    sleep(Duration::from_millis(1)).await;
    let _again = peer.stream(&call(json!(1))).await;
}

#[tokio::test]
async fn r21_what_does_not_open_is_404_and_nothing_is_400() {
    let front = ok();
    let foreign = Peer {
        router: front.router.clone(),
        id: "0b9c1f5e-8a43-4d0c-9c6e-0123456789ab".to_owned(),
        version: LATEST.to_owned(),
    };
    let answer = foreign.post(&list()).await;
    assert_eq!(answer.refusal(), (404, -32600));
    assert_eq!(answer.json()["id"], "l");
    let answer = foreign
        .notify("notifications/initialized", &json!({}))
        .await;
    assert_eq!(answer.refusal(), (404, -32600));
    for method in [Method::GET, Method::DELETE] {
        let answer = read(foreign.send(method, &[], "").await).await;
        assert_eq!(answer.refusal(), (404, -32600));
    }
    // A client that starts anew with the old id gets a new one.
    let fresh = initialize(LATEST, &json!({}));
    let answer = foreign.post(&fresh).await;
    assert_eq!(answer.status, 200);
    assert_ne!(answer.header("mcp-session-id"), Some(&*foreign.id));

    let missing = post(&front.router, &[("mcp-protocol-version", LATEST)], &list()).await;
    assert_eq!(missing.refusal(), (400, -32600));
    assert!(missing.text.contains("mcp-session-id"), "{}", missing.text);
    let neither = post(&front.router, &[], &list()).await;
    assert_eq!(neither.refusal(), (400, -32600));
    for way in ["mcp-session-id", "io.modelcontextprotocol/protocolVersion"] {
        assert!(neither.text.contains(way), "{}", neither.text);
    }
}

#[tokio::test]
async fn r21_a_session_outlives_a_restart_and_moves_between_replicas() {
    let store = Arc::new(Memory::default());
    let other = || {
        let store = Arc::clone(&store);
        front_with(|_| Ok(text("ok")), move |parts| parts.store = store)
    };
    let first = other();
    let peer = Peer::open(&first, "2025-06-18", &json!({ "roots": {} })).await;
    let debug = json!({ "level": "debug" });
    assert_eq!(
        peer.ask("logging/setLevel", &debug).await.json()["result"],
        json!({})
    );
    tokio::task::yield_now().await;

    let second = other();
    let moved = peer.at(&second);
    assert_eq!(moved.ask("tools/list", &json!({})).await.status, 200);
    let call = second.calls().pop().unwrap();
    assert!(call.meta.capabilities.has("roots"));
    assert_eq!(call.meta.log_level.unwrap().text(), "\"debug\"");
    assert_eq!(
        call.session.unwrap().id(),
        {
            peer.ask("tools/list", &json!({})).await;
            first.calls().pop().unwrap().session.unwrap()
        }
        .id()
    );
    let _stream = moved.get(None).await;

    let ended = moved.send(Method::DELETE, &[], "").await;
    assert_eq!(ended.status(), 204);
    for front in [second, other()] {
        let answer = peer.at(&front).post(&list()).await;
        assert_eq!(answer.refusal(), (404, -32600), "after DELETE");
    }
}

#[tokio::test]
async fn r21_a_session_is_of_its_principal_and_endpoint() {
    let front = ok();
    let mut peer = Peer::open(&front, LATEST, &json!({})).await;
    peer.router = front
        .router
        .clone()
        .layer(axum::Extension(Principal::new("bob")));
    assert_eq!(peer.post(&list()).await.refusal(), (404, -32600));
    let post = Post::raw(list())
        .path("/mcp/builds")
        .header("mcp-session-id", &peer.id);
    assert_eq!(front.send(post.build()).await.refusal(), (404, -32600));
}

#[tokio::test]
async fn r21_a_bad_token_is_401_before_any_look_up() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let keys = [waypost_config::Key {
        name: "ci".to_owned(),
        hash: waypost_config::KeyHash::of("secret"),
        endpoint: None,
    }];
    let router = front.guarded(&keys);
    for id in [&*peer.id, "no-such-session"] {
        for (token, status) in [("Bearer wrong", 401), ("Bearer secret", 404)] {
            let headers = [("mcp-session-id", id), ("authorization", token)];
            assert_eq!(post(&router, &headers, &list()).await.status, status);
        }
    }
}

#[tokio::test]
async fn a_version_header_may_be_absent_or_another_known_one() {
    let front = ok();
    let mut peer = Peer::open(&front, "2025-06-18", &json!({})).await;
    let bare = post(&front.router, &[("mcp-session-id", &*peer.id)], &list()).await;
    assert_eq!(bare.status, 200);
    LATEST.clone_into(&mut peer.version);
    assert_eq!(peer.post(&list()).await.status, 200);
    "2026-07-28".clone_into(&mut peer.version);
    assert_eq!(peer.post(&list()).await.refusal(), (400, -32602));
}

#[tokio::test]
async fn both_eras_are_served_side_by_side() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    for _ in 0..2 {
        let modern = front.send(Post::call().build()).await;
        assert_eq!(modern.json()["result"]["resultType"], "complete");
        let legacy = peer.ask("tools/call", &json!({ "name": "echo" })).await;
        assert_eq!(legacy.json()["result"].get("resultType"), None);
    }
    // A proxy that relays what it gets puts these on both.
    let body = list().to_string();
    let odd = [("mcp-method", "tools/list"), ("mcp-name", "x")];
    assert_eq!(peer.send(Method::POST, &odd, &body).await.status(), 200);
}

#[tokio::test]
async fn an_era_can_be_switched_off() {
    let parts = crate::peer::session_parts(&Arc::default());
    let sessions = Sessions::new(parts);
    let legacy = Front::with(
        |_| Ok(text("ok")),
        |parts| {
            parts.sessions = Some(sessions);
            parts.modern = false;
        },
    );
    let answer = legacy.send(Post::call().build()).await;
    assert_eq!(answer.refusal(), (400, -32022));
    let supported = &answer.json()["error"]["data"]["supported"];
    assert_eq!(supported[0], LATEST);
    // A client that looks for the era goes on to `initialize`.
    let probe = legacy
        .send(Post::new("server/discover", &json!({})).build())
        .await;
    assert_eq!(probe.refusal(), (404, -32601));
    assert_eq!(
        post(&legacy.router, &[], &initialize(LATEST, &json!({})))
            .await
            .status,
        200
    );

    let modern = Front::complete();
    let answer = post(&modern.router, &[], &initialize(LATEST, &json!({}))).await;
    assert_eq!(answer.refusal(), (400, -32022));
    assert_eq!(
        answer.json()["error"]["data"]["supported"],
        json!(["2026-07-28"])
    );
}

#[tokio::test]
async fn r45_a_stateless_endpoint_gives_no_ids_and_wants_none() {
    let front = front_with(
        |_| Ok(text("ok")),
        |parts| parts.stateless = [View::All].into(),
    );
    let answer = post(&front.router, &[], &initialize(LATEST, &json!({}))).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("mcp-session-id")),
        (200, None)
    );
    for headers in [
        &[][..],
        &[("mcp-protocol-version", OLDEST)],
        &[("mcp-session-id", "whatever")],
    ] {
        assert_eq!(post(&front.router, headers, &list()).await.status, 200);
    }
    let ping = post(&front.router, &[], &request(1, "ping", &json!({}))).await;
    assert_eq!(ping.json()["result"], json!({}));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(&front.router, &[], &initialized).await.status, 202);
    for method in [Method::GET, Method::DELETE] {
        let headers = [("mcp-session-id", "x")];
        let response = crate::peer::send(&front.router, method, &headers, "").await;
        assert_eq!(response.status(), 405);
    }
}

#[tokio::test]
async fn r45_each_endpoint_can_be_stateless_by_itself() {
    let stateless = |view: View| {
        front_with(
            |_| Ok(text("ok")),
            move |parts| {
                parts.stateless = [view].into();
            },
        )
    };
    let builds = View::Upstream("builds".into());
    for (front, with, without) in [
        (stateless(builds), "/mcp", "/mcp/builds"),
        (stateless(View::All), "/mcp/builds", "/mcp"),
    ] {
        for (path, has_id) in [(with, true), (without, false)] {
            let open = Post::raw(initialize(LATEST, &json!({}))).path(path);
            let answer = front.send(open.build()).await;
            assert_eq!(answer.header("mcp-session-id").is_some(), has_id, "{path}");
            let bare = Post::raw(list())
                .path(path)
                .header("mcp-protocol-version", LATEST);
            let status = if has_id { 400 } else { 200 };
            assert_eq!(front.send(bare.build()).await.status, status, "{path}");
        }
    }
}

#[tokio::test]
async fn r45_without_a_session_a_subscription_says_why_it_cannot_be() {
    let front = front_with(
        |_| Ok(text("ok")),
        |parts| parts.stateless = [View::All].into(),
    );
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let asked = request(1, method, &json!({ "uri": "x:y" }));
        let answer = post(&front.router, &[], &asked).await;
        assert_eq!(answer.refusal(), (200, -32601));
        let error = answer.json()["error"].clone();
        let said = error["message"].as_str().unwrap();
        for part in ["without a session", "hint: set `stateless: false`"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(error["data"]["hint"].is_string());
    }
}

#[tokio::test]
async fn a_get_without_a_session_is_not_offered() {
    let front = ok();
    for (headers, status) in [
        (&[][..], 405),
        (&[("mcp-protocol-version", "2026-07-28")], 405),
        (&[("mcp-protocol-version", LATEST)], 400),
    ] {
        for method in [Method::GET, Method::DELETE] {
            let response = crate::peer::send(&front.router, method, headers, "").await;
            assert_eq!(response.status(), status);
        }
    }
}

fn released(front: &Front) -> bool {
    let call = front.calls().pop().unwrap();
    call.session.unwrap().released().is_cancelled()
}

#[tokio::test(start_paused = true)]
async fn r16_idle_sessions_are_freed_and_the_next_request_opens_them_again() {
    let front = ok();
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    peer.post(&list()).await;
    advance(Duration::from_secs(29 * 60)).await;
    sleep(Duration::from_millis(1)).await;
    peer.post(&list()).await;
    sleep(Duration::from_secs(29 * 60)).await;
    assert!(!released(&front), "used in between");
    sleep(Duration::from_secs(2 * 60)).await;
    assert!(released(&front));
    assert_eq!(peer.post(&list()).await.status, 200);
    assert!(!released(&front), "a new life");
}

#[tokio::test(start_paused = true)]
async fn r47_calls_in_flight_and_open_streams_hold_a_session() {
    let front = front(|_| Ok(silent()));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let call = peer.stream(&request(1, "tools/call", &json!({}))).await;
    sleep(Duration::from_secs(3600)).await;
    assert!(!released(&front));
    peer.notify("notifications/cancelled", &json!({ "requestId": 1 }))
        .await;
    drop(call);
    let stream = peer.get(None).await;
    sleep(Duration::from_secs(3600)).await;
    assert!(!released(&front));
    drop(stream);
    sleep(Duration::from_secs(3600)).await;
    assert!(released(&front));
}

#[tokio::test(start_paused = true)]
async fn r16_there_is_a_cap_and_the_unconfirmed_go_early() {
    let front = front_with(|_| Ok(text("ok")), |parts| parts.limit = 2);
    let confirmed = Peer::open(&front, LATEST, &json!({})).await;
    let unconfirmed = Peer::unconfirmed(&front, LATEST, &json!({})).await;
    let full = post(&front.router, &[], &initialize(LATEST, &json!({}))).await;
    assert_eq!(full.refusal(), (503, -32603));
    assert!(full.header("retry-after").is_some());
    sleep(Duration::from_secs(45)).await;
    let third = Peer::open(&front, LATEST, &json!({})).await;
    assert_eq!(third.post(&list()).await.status, 200);
    assert_eq!(confirmed.post(&list()).await.status, 200);
    // Its id is as good as ever; only the room is gone.
    assert_eq!(unconfirmed.post(&list()).await.refusal(), (503, -32603));
    // To end it needs none.
    let delete = || unconfirmed.send(Method::DELETE, &[], "");
    assert_eq!(delete().await.status(), 204);
    assert_eq!(delete().await.status(), 404, "once");
    assert_eq!(third.send(Method::DELETE, &[], "").await.status(), 204);
    assert_eq!(unconfirmed.post(&list()).await.refusal().0, 404);
}

#[tokio::test]
async fn what_belongs_to_the_other_era_is_unknown() {
    let front = front(|call| panic!("{}", call.method));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    for method in [
        "server/discover",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
    ] {
        assert_eq!(peer.ask(method, &json!({})).await.refusal(), (200, -32601));
    }
    let odd = json!({ "level": "loud" });
    assert_eq!(
        peer.ask("logging/setLevel", &odd).await.refusal(),
        (200, -32602)
    );
    assert_eq!(
        peer.ask("ping", &json!({})).await.json()["result"],
        json!({})
    );
}

#[tokio::test]
async fn r34_errors_are_json_rpc_errors_in_a_200() {
    async fn check(method: &str, given: i64, expected: i64) {
        let front = front(move |_: Call| {
            let data = json!({ "uri": "x:y" });
            Ok(Reply::error(ErrorObject::with_data(
                given, "it broke", &data,
            )))
        });
        let peer = Peer::open(&front, LATEST, &json!({})).await;
        let answer: Answer = peer.ask(method, &json!({})).await;
        assert_eq!(answer.refusal(), (200, expected));
        assert_eq!(answer.json()["error"]["message"], "it broke");
        assert_eq!(answer.json()["error"]["data"], json!({ "uri": "x:y" }));
    }
    check("tools/call", -32021, -32600).await;
    check("tools/call", -32601, -32601).await;
    check("tools/call", -32602, -32602).await;
    check("tools/call", 7, 7).await;
    check("resources/read", -32602, -32002).await;
}

#[tokio::test(start_paused = true)]
async fn r34_what_a_session_does_not_take_is_a_json_rpc_error_in_a_200() {
    let front = front(|_| Ok(silent()));
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    let call = |id: u32| request(id, "tools/call", &json!({ "name": "t" }));
    let mut open = Vec::new();
    for id in 0..256 {
        open.push(peer.stream(&call(id)).await);
    }
    let busy = peer.post(&call(256)).await;
    assert_eq!(busy.refusal(), (200, -32603));
    assert_eq!(busy.json()["id"], 256);
    assert!(busy.text.contains("too many requests"), "{}", busy.text);
    let odd = request("o", "tools/list", &json!({ "_meta": 1 }));
    let answer = peer.post(&odd).await;
    assert_eq!(answer.refusal(), (200, -32602));
    assert_eq!(answer.json()["id"], "o");
    assert!(answer.text.contains("_meta"), "{}", answer.text);
    // In the form that the client takes.
    let sse = [("accept", "text/event-stream")];
    for (body, code) in [(call(256), -32603), (call(1), -32600), (odd, -32602)] {
        let answer = peer.send(Method::POST, &sse, &body.to_string()).await;
        let event = read(answer).await.events().remove(0);
        assert_eq!(
            (&event["id"], &event["error"]["code"]),
            (&body["id"], &json!(code))
        );
    }
    // Before there is a session to say it in, HTTP says what is wrong.
    let stranger = Peer {
        id: "x".to_owned(),
        ..peer.clone()
    };
    let odd = request("o", "tools/list", &json!({ "_meta": 1 }));
    assert_eq!(stranger.post(&odd).await.refusal(), (404, -32600));
}

#[tokio::test(start_paused = true)]
async fn r16_thousands_of_abandoned_sessions_leave_nothing() {
    let sessions = Sessions::new(crate::peer::session_parts(&Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(|_| Ok(text("ok")), |parts| parts.sessions = Some(sessions));
    for n in 0..2_000 {
        let peer = Peer::unconfirmed(&front, LATEST, &json!({})).await;
        if n % 2 == 0 {
            peer.notify("notifications/initialized", &json!({})).await;
            assert_eq!(peer.post(&list()).await.status, 200);
        }
    }
    let open = || format!("{kept:?}");
    assert!(open().contains("open: 2000"), "{}", open());
    sleep(Duration::from_secs(60)).await;
    assert!(open().contains("open: 1000"), "{}", open());
    sleep(Duration::from_secs(31 * 60)).await;
    assert!(open().contains("open: 0"), "{}", open());
}

#[tokio::test]
async fn r46_a_probe_of_the_other_era_costs_no_session() {
    let sessions = Sessions::new(crate::peer::session_parts(&Arc::default()));
    let kept = sessions.clone();
    let front = Front::with(|_| Ok(text("ok")), |parts| parts.sessions = Some(sessions));
    front
        .send(Post::new("server/discover", &json!({})).build())
        .await;
    front.send(Post::call().build()).await;
    assert!(format!("{kept:?}").contains("open: 0"));
}

#[tokio::test(start_paused = true)]
async fn who_tells_that_its_roots_changed_is_heard_by_what_is_kept_for_its_session() {
    let front = front(|_| Ok(text("done")));
    for (declared, tells) in [(json!({ "listChanged": true }), true), (json!({}), false)] {
        let peer = Peer::open(&front, LATEST, &json!({ "roots": declared })).await;
        peer.ask("tools/call", &json!({ "name": "t" })).await;
        let call = front.calls().pop().unwrap();
        let roots = call.meta.capabilities.object().get("roots").cloned();
        assert_eq!(
            roots.unwrap().text(),
            "{}",
            "the stateless era knows no such promise"
        );
        let roots = call.session.unwrap().roots();
        assert_eq!(roots.is_some(), tells);
        peer.notify("notifications/roots/list_changed", &json!({}))
            .await;
        assert!(roots.is_none_or(|roots| roots.has_changed().unwrap()));
    }
}
