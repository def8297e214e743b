//! Lists stay the same bytes, whoever answers when.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use waypost_hub::hub::Hub;
use waypost_hub::status::State;

use crate::fake::{Fake, Memory, hub_with};
use crate::reloading::reload;
use crate::supervising::{state, until};

/// In the file's order; the first two want the same names.
const NAMES: [&str; 5] = ["d", "b", "e", "a", "c"];

fn yaml(names: &[&str]) -> String {
    let mut yaml = "upstreams:\n".to_owned();
    for name in names {
        let more = if matches!(*name, "d" | "b") {
            ", prefix: ''"
        } else {
            ""
        };
        yaml += &format!("  {name}: {{ url: 'http://127.0.0.1:9/mcp'{more} }}\n");
    }
    yaml
}

/// A source of numbers that are the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Servers that list the same tools in any order, each after its own time.
fn servers(numbers: &mut Numbers) -> Vec<Arc<Fake>> {
    let server = |name: &&str| {
        let mut tools = vec!["x", "y", "z", "search"];
        for at in (1..tools.len()).rev() {
            let other = numbers.below(at as u64 + 1);
            tools.swap(at, usize::try_from(other).unwrap());
        }
        let fake = Fake::with_tools(name, &tools);
        *fake.lists_take.lock().unwrap() = Duration::from_millis(numbers.below(3_000));
        fake
    };
    NAMES.iter().map(server).collect()
}

async fn all_up(hub: &Hub) {
    for name in NAMES {
        until("up", || state(hub, name) == State::Up).await;
    }
    // What is told of late is told by now.
    sleep(Duration::from_secs(1)).await;
}

fn listed(hub: &Hub) -> String {
    let catalog = hub.catalog();
    catalog.tools.listed().rendered.to_string()
}

#[tokio::test(start_paused = true)]
async fn r18_lists_are_the_same_bytes_over_random_delays_restarts_and_reloads() {
    let mut first: Option<String> = None;
    for seed in 0..40 {
        let mut numbers = Numbers(seed);
        let store = Arc::new(Memory::default());
        let fakes = servers(&mut numbers);
        let refs: Vec<_> = fakes.iter().collect();
        let hub = hub_with(&yaml(&NAMES), &refs, Arc::clone(&store) as _).await;
        all_up(&hub).await;
        let list = listed(&hub);
        let wanted = first.get_or_insert_with(|| list.clone());
        assert_eq!(list, *wanted, "seed {seed}");

        let fakes = servers(&mut numbers);
        let refs: Vec<_> = fakes.iter().collect();
        let again = hub_with(&yaml(&NAMES), &refs, store).await;
        assert_eq!(listed(&again), *wanted, "remembered, seed {seed}");
        all_up(&again).await;
        assert_eq!(listed(&again), *wanted, "restarted, seed {seed}");

        // One comes, and one that was there comes back. It is not the first one: what that has
        // goes to the second, who keeps it.
        let new = Fake::with_tools("f", &["x"]);
        let gone = NAMES
            .get(1 + usize::try_from(numbers.below(4)).unwrap())
            .unwrap();
        let mut names = NAMES.to_vec();
        names.retain(|name| name != gone);
        names.push("f");
        reload(&again, &yaml(&names), &[("f", &new)]);
        sleep(Duration::from_secs(5)).await;
        assert_ne!(listed(&again), *wanted, "seed {seed}");
        let back = servers(&mut numbers);
        let news: Vec<_> = NAMES.into_iter().zip(&back).collect();
        reload(&again, &yaml(&NAMES), &news);
        all_up(&again).await;
        assert_eq!(listed(&again), *wanted, "reloaded, seed {seed}");
    }
}
