//! The stop signal comes at a bad moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use waypost_hub::lifecycle::{FAREWELL, Tasks};
use waypost_hub::registry::Learned;
use waypost_hub::status::State;
use waypost_hub::store::{Store, StoreError};
use waypost_hub::upstream::BoxFuture;

use crate::fake::{Fake, Memory, hub_in, names, upstreams};
use crate::supervising::{state, until};

/// A store that is slow.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    begun: AtomicBool,
    /// Each permit lets one upstream be stored.
    go: Semaphore,
}

impl Store for Slow {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        self.memory.load()
    }

    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        self.begun.store(true, Ordering::SeqCst);
        Box::pin(async {
            self.go.acquire().await.unwrap().forget();
            self.memory.save(learned).await
        })
    }

    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        self.memory.forget(upstream)
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_of_an_upstream_is_stored_although_all_is_told_to_stop_right_then() {
    for stores in [true, false] {
        let (fake, background) = (Fake::with_tools("a", &["x"]), Tasks::default());
        let slow = Arc::new(Slow {
            memory: Memory::default(),
            begun: AtomicBool::new(false),
            go: Semaphore::new(0),
        });
        let store = Arc::clone(&slow) as Arc<dyn Store>;
        let hub = hub_in(background.clone(), &upstreams(&["a"]), &[&fake], store).await;
        until("up", || state(&hub, "a") == State::Up).await;
        assert_eq!(names(&hub).await, ["a_x"]);
        until("stored", || slow.begun.load(Ordering::SeqCst)).await;
        background.stop_signal().cancel();
        sleep(FAREWELL / 2).await;
        if stores {
            slow.go.add_permits(1);
        }
        let before = Instant::now();
        assert!(background.drain(Duration::from_secs(20)).await);
        let took = before.elapsed();
        assert!(took < Duration::from_secs(2), "a disk that hangs: {took:?}");
        let known = slow.memory.0.lock().unwrap();
        assert_eq!(known.len(), usize::from(stores));
    }
}
