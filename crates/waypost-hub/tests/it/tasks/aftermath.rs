//! Answers that come after their callers have gone.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep};
use waypost_hub::aftermath::{Aftermath, LINGER};
use waypost_hub::reply::End;

use super::kit::{Act, Setup, World, created, object, tasks};

/// That of a call which a server of this world has and nobody waits for.
fn aftermath(world: &World, capabilities: serde_json::Value) -> Aftermath {
    world.fake.on("tools/call", [Act::Hang]);
    let mut call = Box::pin(world.call(capabilities));
    assert!((&mut call).now_or_never().is_none());
    drop(call);
    let seen = world.fake.seen("tools/call").pop().unwrap();
    seen.call.aftermath
}

/// Something of the call that is still open, and how much of that there is.
struct Held(Arc<AtomicUsize>);

impl Held {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_may_be_a_task_means_something() {
    for (policy, extension, declared, matters) in [
        ("auto", true, true, true),
        ("auto", true, false, false),
        ("auto", false, true, false),
        ("collapse", true, false, true),
        ("refuse", true, true, false),
    ] {
        let world = Setup {
            policy,
            extension,
            ..Setup::default()
        };
        let declares = if declared { tasks() } else { json!({}) };
        let aftermath = aftermath(&world.build(), declares);
        assert_eq!(
            aftermath.matters(),
            matters,
            "{policy} {extension} {declared}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_is_cancelled_and_nothing_else_is() {
    let world = World::new();
    let late = aftermath(&world, tasks());
    for end in [
        End::Complete(object(&created())),
        End::Task(object(&json!({}))),
    ] {
        late.linger(async { Some(end) });
    }
    late.linger(async { None });
    sleep(LINGER).await;
    assert_eq!(world.fake.count("tasks/cancel"), 0);
    late.linger(async {
        sleep(LINGER / 2).await;
        Some(End::Task(object(&created())))
    });
    world.fake.called("tasks/cancel", 1).await;
    assert_eq!(world.fake.seen("tasks/cancel")[0].param("taskId"), "t1");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_waited_for_so_long_and_so_many_are() {
    let world = World::new();
    let late = aftermath(&world, tasks());
    let open = Arc::new(AtomicUsize::new(0));
    let leave_all = |late: &Aftermath| {
        for _ in 0..200 {
            let held = Held::new(&open);
            late.linger(async move {
                let _held = held;
                pending().await
            });
        }
        open.load(Ordering::SeqCst)
    };
    let start = Instant::now();
    assert_eq!(leave_all(&late), 32, "the others are closed at once");
    // They take nothing from callers of other upstreams.
    let others = [64, 96, 128, 128].map(|count| {
        let other = World {
            desk: world.desk.clone(),
            ..World::new()
        };
        assert_eq!(leave_all(&aftermath(&other, tasks())), count);
        other
    });
    sleep(LINGER - (LINGER / 10)).await;
    assert_eq!(open.load(Ordering::SeqCst), 128);
    while open.load(Ordering::SeqCst) > 0 {
        sleep(LINGER / 100).await;
    }
    assert!(start.elapsed() <= LINGER + LINGER / 50);
    assert!(late.room().is_some());
    drop(others);
}
