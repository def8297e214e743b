//! Subscriptions that servers with sessions do not answer, and the connections that they have.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Session};
use waypost_hub::reply::Reply;
use waypost_hub::upstream::Upstream;
use waypost_upstream::Places;

use crate::fake::{Fake, Step, http, result};
use crate::kit::{in_time, object, parts, upstream_with};

const WELCOME: &str = r#"{"protocolVersion":"2025-11-25","serverInfo":{},
    "capabilities":{"resources":{"subscribe":true}}}"#;

/// Connections that nothing waits on are closed after a few seconds, by themselves.
const SOON: Duration = Duration::from_secs(2);

/// A server that answers no subscription to what begins with `hang:`.
async fn server() -> Fake {
    Fake::start(|_, seen| {
        let uri = seen.body["params"]["uri"].as_str().unwrap_or_default();
        let answer = match seen.what() {
            "initialize" => result(seen, WELCOME),
            "GET" => http("405 Method Not Allowed", "text/plain", ""),
            "resources/subscribe" if uri.starts_with("hang:") => return vec![Step::Hang],
            "resources/subscribe" | "resources/unsubscribe" => result(seen, "{}"),
            _ => http("202 Accepted", "text/plain", ""),
        };
        vec![Step::Send(answer.into_bytes())]
    })
    .await
}

fn reached(fake: &Fake, places: usize) -> Arc<dyn Upstream> {
    let mut parts = parts();
    parts.places = Places::new(places);
    let settings = format!("url: '{}', era: legacy", fake.url());
    upstream_with(&settings, &parts)
}

/// `resources/subscribe` of the client with this session.
fn subscribe(client: &str, uri: &str) -> Call {
    let wanted = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    let mut call = Call::own("subscriptions/listen", object(&wanted.to_string()));
    call.awaits_servers = true;
    call.session = Some(Session::new(client, CancellationToken::new()));
    call
}

/// How many subscriptions hang, once it is so.
async fn hang(fake: &Fake, so: impl Fn(usize) -> bool) -> usize {
    loop {
        let asked = fake.requests();
        let asked = asked.iter().filter(|seen| {
            let uri = seen.body["params"]["uri"].as_str();
            seen.what() == "resources/subscribe" && uri.is_some_and(|uri| uri.starts_with("hang:"))
        });
        let count = asked.count();
        if so(count) {
            return count;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_its_caller_cancels_gives_its_connection_up() {
    let fake = server().await;
    let upstream = reached(&fake, 8);
    let asks = upstream.call(subscribe("a", "hang:1"));
    tokio::select! {
        answer = asks => panic!("{answer:?}"),
        _ = hang(&fake, |count| count == 1) => {}
    }
    let asked = fake.requests();
    let connection = asked.last().unwrap().connection;
    let mut gone = fake.gone.clone();
    let before = *gone.borrow();
    let closed = timeout(SOON, gone.wait_for(|gone| *gone > before)).await;
    assert!(closed.is_ok(), "{connection} stays open");
}

#[tokio::test]
async fn many_sessions_have_few_connections_and_hold_up_no_other() {
    let fake = server().await;
    let upstream = reached(&fake, 4);
    let clients = ["a", "b", "c"];
    let asks = clients.iter().flat_map(|client| {
        let uris = (0..10).map(move |n| format!("hang:{client}{n}"));
        uris.map(|uri| upstream.call(subscribe(client, &uri)))
    });
    let plays = async {
        in_time(hang(&fake, |count| count >= 4)).await;
        for client in ["d", "e"] {
            let agreed = timeout(SOON, upstream.call(subscribe(client, "x:1"))).await;
            assert!(matches!(agreed, Ok(Ok(Reply::Stream(_)))), "{agreed:?}");
        }
        let count = hang(&fake, |_| true).await;
        let open = count - *fake.gone.borrow();
        assert!(open <= 4, "{open} of {count} are open");
    };
    tokio::select! {
        _ = join_all(asks) => panic!("nothing was answered"),
        () = plays => {}
    }
}
