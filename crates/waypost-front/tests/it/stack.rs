//! The front under the layers it is served with.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures_util::{StreamExt as _, stream};
use http::Request;
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceExt as _;
use waypost_config::{Key, KeyHash};
use waypost_hub::call::Principal;
use waypost_hub::reply::{End, Event, Reply};
use waypost_policy::in_flight::InFlightLayer;
use waypost_policy::origin::OriginGuardLayer;

use crate::fake::{Answer, Front, Post, read};
use crate::peer::{self, LATEST, OLDEST, Peer};

fn stacked(front: &Front, keys: &[Key], limit: usize) -> Router {
    let yaml = "upstreams: { a: { url: 'http://127.0.0.1:9' } }";
    let settings = waypost_config::parse_str(yaml).unwrap().config.front;
    let listen = "127.0.0.1:7400".parse().unwrap();
    let router = front.guarded(keys);
    router
        .layer(OriginGuardLayer::new(listen, &settings))
        .layer(InFlightLayer::new(limit))
}

async fn send(router: &Router, request: Request<Body>) -> Answer {
    read(router.clone().oneshot(request).await.unwrap()).await
}

fn keys() -> Vec<Key> {
    vec![Key {
        name: "ci".to_owned(),
        hash: KeyHash::of("wp_secret"),
        endpoint: None,
    }]
}

#[tokio::test]
async fn the_key_gives_the_principal_and_stays_in_front() {
    let front = Front::complete();
    let router = stacked(&front, &keys(), 8);
    let post = Post::call().header("authorization", "Bearer wp_secret");
    assert_eq!(send(&router, post.build()).await.status, 200);
    assert_eq!(front.calls()[0].principal, Principal::new("ci"));
    let answer = send(&router, Post::call().build()).await;
    assert_eq!(answer.refusal(), (401, -32600));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn r15_the_404s_need_no_key() {
    let router = stacked(&Front::complete(), &keys(), 8);
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/mcp/.well-known/openid-configuration",
        "/register",
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = send(&router, request).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.json()["error"], "not_found");
    }
}

/// The official scenario `dns-rebinding-protection`.
#[tokio::test]
async fn r32_a_page_of_a_stranger_is_refused_and_our_own_is_served() {
    let front = Front::complete();
    let router = stacked(&front, &[], 8);
    let from = |host: &str| {
        Post::call()
            .header("host", host)
            .header("origin", &format!("http://{host}"))
            .build()
    };
    assert_eq!(send(&router, from("evil.example.com")).await.status, 403);
    assert!(front.calls().is_empty());
    for host in ["localhost:7400", "127.0.0.1:7400", "[::1]:7400"] {
        assert_eq!(send(&router, from(host)).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn an_open_stream_is_in_flight() {
    let front = Front::new(|_| {
        let progress = Event::Notification(waypost_wire::message::Notification {
            method: "notifications/progress".to_owned(),
            params: waypost_wire::object::Object::new(),
        });
        let events = stream::iter([Ok(progress)]).chain(stream::pending());
        Ok(Reply::Stream(events.boxed()))
    });
    let router = stacked(&front, &[], 1);
    let head = router.clone().oneshot(Post::call().build()).await.unwrap();
    assert_eq!(head.status(), 200);
    let refused = send(&router, Post::call().build()).await;
    assert_eq!(refused.refusal(), (503, -32603));
    drop(head);
    let head = router.clone().oneshot(Post::call().build()).await.unwrap();
    assert_eq!(
        head.status(),
        200,
        "the stream that was left counts no more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_session_is_in_flight_until_it_is_over() {
    let over = Arc::new(Notify::new());
    let end = Arc::clone(&over);
    let front = peer::front(move |_| {
        let end = Arc::clone(&end);
        let event = async move {
            end.notified().await;
            Ok(Event::End(End::Complete(peer::result("ok"))))
        };
        Ok(Reply::Stream(stream::once(event).boxed()))
    });
    let mut client = Peer::open(&front, LATEST, &json!({})).await;
    client.router = stacked(&front, &[], 1);
    let head = client
        .stream(&peer::request(1, "tools/call", &json!({})))
        .await;
    drop(head);
    let level = json!({ "level": "info" });
    let refused = client.ask("logging/setLevel", &level).await;
    assert_eq!(refused.refusal(), (503, -32603), "its client has left it");
    assert_eq!(client.ask("ping", &json!({})).await.status, 200, "no work");
    over.notify_one();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let taken = client.ask("logging/setLevel", &level).await;
    assert_eq!(taken.status, 200);
}

#[tokio::test(start_paused = true)]
async fn each_call_of_a_batch_counts_by_itself() {
    let front = peer::front(|_| Ok(peer::silent()));
    let mut client = Peer::open(&front, OLDEST, &json!({})).await;
    client.router = stacked(&front, &[], 3);
    let call = |id: u64| peer::request(id, "tools/call", &json!({}));
    let ping = peer::request(9, "ping", &json!({}));
    let batch = json!([call(1), call(2), call(3), call(4), ping]);
    let mut stream = client.stream(&batch).await;
    let refused = stream.message().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(4), &json!(-32603))
    );
    let pong = stream.message().await;
    assert_eq!(pong["id"], 9, "no work");
    let level = json!({ "level": "info" });
    let refused = client.ask("logging/setLevel", &level).await;
    assert_eq!(refused.refusal(), (503, -32603), "all room is taken");
}
