//! Sessions over a store that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::sleep;
use waypost_hub::registry::Learned;
use waypost_hub::store::{SessionRecord, Store, StoreError};
use waypost_hub::upstream::BoxFuture;

use crate::fake::{Front, read};
use crate::peer::{LATEST, Memory, Peer, front_with, text};

/// Remembers, unless it is broken.
#[derive(Debug, Default)]
struct Flaky {
    memory: Memory,
    broken: AtomicBool,
}

impl Flaky {
    fn break_it(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    fn check(&self, action: &'static str) -> Result<(), StoreError> {
        if self.broken.load(Ordering::Relaxed) {
            let source = "the disk is full".into();
            return Err(StoreError { action, source });
        }
        Ok(())
    }
}

impl Store for Flaky {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        self.memory.load()
    }

    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.save(learned)
    }

    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.forget(upstream)
    }

    fn session(&self, key: &str) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        match self.check("load") {
            Ok(()) => self.memory.session(key),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn save_session(
        &self,
        key: &str,
        record: SessionRecord,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        match self.check("save") {
            Ok(()) => self.memory.save_session(key, record),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

fn over(store: &Arc<Flaky>) -> Front {
    let store = Arc::clone(store);
    front_with(|_| Ok(text("ok")), move |parts| parts.store = store)
}

async fn refusal(peer: &Peer) -> (u16, i64) {
    peer.ask("tools/list", &json!({})).await.refusal()
}

#[tokio::test]
async fn no_session_opens_while_nobody_knows_whether_it_ended() {
    let store = Arc::new(Flaky::default());
    let peer = Peer::open(&over(&store), LATEST, &json!({})).await;
    let moved = peer.at(&over(&store));
    store.break_it(true);
    let refused = moved.ask("tools/list", &json!({})).await;
    assert_eq!(refused.refusal(), (503, -32603));
    assert!(refused.header("retry-after").is_some());
    assert!(!refused.text.contains("disk"), "{}", refused.text);
    store.break_it(false);
    assert_eq!(moved.ask("tools/list", &json!({})).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_could_not_be_stored_counts_and_is_stored_later() {
    let store = Arc::new(Flaky::default());
    let front = over(&store);
    let peer = Peer::open(&front, LATEST, &json!({})).await;
    store.break_it(true);
    let ended = read(peer.send(Method::DELETE, &[], "").await).await;
    assert_eq!(ended.status, 204);
    assert_eq!(refusal(&peer).await, (404, -32600));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(refusal(&peer).await, (404, -32600), "much later");
    store.break_it(false);
    sleep(Duration::from_secs(60)).await;
    let elsewhere = peer.at(&over(&store));
    assert_eq!(refusal(&elsewhere).await, (404, -32600), "on a replica");
}
