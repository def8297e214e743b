//! Waiting for a task in its caller's place: when it is looked at, and what ends the wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use waypost_hub::error::Kind;
use waypost_hub::reply::{End, Event, EventStream};
use waypost_wire::error::ErrorObject;
use waypost_wire::raw::Raw;

use super::kit::{
    Act, Setup, World, call, created, done, fails, got, object, result, stream, task, value,
};

fn working() -> Act {
    got("working", json!({}))
}

/// Lets the stream run until it has nothing more to say at once.
fn poke(events: &mut EventStream) {
    assert!(
        events.next().now_or_never().is_none(),
        "something came too early"
    );
}

/// A world whose upstream answers with this task and then works for ever.
fn endless(times: &'static str, made: Value) -> World {
    let world = Setup {
        times,
        ..Setup::default()
    }
    .build();
    world.fake.on("tools/call", [task(made.clone())]);
    let mut get = made;
    get["resultType"] = json!("complete");
    world.fake.on("tasks/get", [super::kit::complete(get)]);
    world
}

#[track_caller]
fn about(what: Duration, expected: u64) {
    let expected = Duration::from_millis(expected).as_secs_f64();
    let what = what.as_secs_f64();
    assert!(
        (expected * 0.89..=expected * 1.11).contains(&what),
        "{what} is not about {expected}"
    );
}

#[tokio::test(start_paused = true)]
async fn polls_come_faster_first_and_then_as_the_upstream_asks() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on(
        "tasks/get",
        [working(), working(), working(), working(), done()],
    );
    let start = Instant::now();
    let end = world.end(json!({})).await.unwrap();
    assert_eq!(
        result(&end),
        json!({ "content": [], "n": 1, "resultType": "complete" })
    );
    let polls = world.fake.seen("tasks/get");
    let mut last = start;
    for (poll, expected) in polls.iter().zip([250, 500, 1000, 1000, 1000]) {
        about(poll.at - last, expected);
        last = poll.at;
        assert!(poll.declares_tasks());
        assert_eq!(poll.param("taskId"), json!("t1"));
        assert_eq!(poll.call.meta.progress_token, None);
    }
    assert_eq!(polls.len(), 5);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
    assert_eq!(world.fake.count("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn r82_an_interval_of_nothing_or_of_an_hour_is_clamped() {
    for (interval, least, most) in [
        (json!(0), 250, 280),
        (json!(-5), 250, 280),
        (json!(3_600_000), 54_000, 60_000),
        (Value::Null, 4500, 5500),
    ] {
        let mut made = created();
        made["pollIntervalMs"] = interval.clone();
        let world = endless("", made);
        world.end(json!({})).await.unwrap_err();
        let polls = world.fake.seen("tasks/get");
        let late = polls[12].at - polls[11].at;
        let bounds = Duration::from_millis(least)..=Duration::from_millis(most);
        assert!(bounds.contains(&late), "{interval}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r82_a_caller_that_leaves_cancels_the_task() {
    let world = endless("", created());
    let mut events = stream(world.call(json!({})).await.unwrap());
    poke(&mut events);
    drop(events);
    world.fake.called("tasks/cancel", 1).await;
    let cancel = &world.fake.seen("tasks/cancel")[0];
    assert_eq!(cancel.param("taskId"), json!("t1"));
    assert!(cancel.declares_tasks());
    assert_eq!(world.fake.count("tasks/get"), 0);
}

#[tokio::test(start_paused = true)]
async fn r82_a_caller_that_leaves_before_reading_anything_cancels_the_task() {
    let world = endless("", created());
    drop(world.call(json!({})).await.unwrap());
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn r82_a_caller_that_leaves_during_a_poll_gives_up_the_poll_too() {
    let world = endless("", created());
    world.fake.on("tasks/get", [Act::Hang]);
    let mut events = stream(world.call(json!({})).await.unwrap());
    let polled = world.fake.called("tasks/get", 1);
    tokio::select! {
        _ = events.next() => panic!("no answer can have come"),
        () = polled => {}
    }
    assert_eq!(world.fake.given_up(), 0);
    drop(events);
    assert_eq!(world.fake.given_up(), 1);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_there_is_a_task_gives_up_the_call() {
    let world = World::new();
    world.fake.on("tools/call", [Act::Hang]);
    let mut pending = Box::pin(world.call(json!({})));
    assert!((&mut pending).now_or_never().is_none());
    drop(pending);
    assert_eq!(world.fake.given_up(), 1);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn r82_max_wait_ends_the_wait_and_the_task() {
    let world = endless("max_wait: 90s", created());
    let start = Instant::now();
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(90));
    assert_eq!(error.kind, Kind::Timeout);
    let says =
        "upstream `up`: the task was not over after 90.0 s, `tasks.max_wait`, and was cancelled";
    assert_eq!(error.to_string(), says);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn r82_a_poll_that_hangs_does_not_outlive_max_wait() {
    let world = endless("max_wait: 10s", created());
    world.fake.on("tasks/get", [Act::Hang]);
    let start = Instant::now();
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, start.elapsed()),
        (Kind::Timeout, Duration::from_secs(10))
    );
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn r82_the_tasks_own_time_to_live_ends_the_wait() {
    let mut made = created();
    made["ttlMs"] = json!(5000);
    let world = endless("", made);
    let start = Instant::now();
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(
        (error.kind, start.elapsed()),
        (Kind::Timeout, Duration::from_secs(5))
    );
    assert!(error.to_string().contains("5.0 s, its `ttlMs`"), "{error}");
    world.fake.called("tasks/cancel", 1).await;
    let last = world.fake.seen("tasks/get").pop().unwrap();
    let before = Duration::from_millis(5000) - (last.at - start);
    assert!(
        before <= Duration::from_millis(1200),
        "the last look was {before:?} before the end"
    );
}

#[tokio::test(start_paused = true)]
async fn a_time_to_live_that_is_prolonged_or_lifted_counts_as_last_said() {
    let mut made = created();
    made["ttlMs"] = json!(2000);
    let world = endless("max_wait: 1m", made);
    let longer = got("working", json!({ "ttlMs": 20_000 }));
    world.fake.on(
        "tasks/get",
        [longer, got("working", json!({ "ttlMs": null }))],
    );
    let start = Instant::now();
    world.end(json!({})).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn r82_a_task_that_the_upstream_forgot_is_an_error_at_once() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [working(), fails(-32602)]);
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    assert!(
        error
            .to_string()
            .starts_with("upstream `up`: no longer knows the task"),
        "{error}"
    );
    assert_eq!(world.fake.count("tasks/get"), 2);
    assert_eq!(world.fake.count("tools/call"), 1);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn polls_that_fail_are_tried_again_and_the_call_is_not() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let trouble = [
        Act::Fail(Kind::BadUpstream),
        Act::Fail(Kind::Unavailable),
        Act::Fail(Kind::Timeout),
        Act::Refuse(Kind::Throttled),
        fails(-32603),
        Act::Hang,
        done(),
    ];
    world.fake.on("tasks/get", trouble);
    let end = world.end(json!({})).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tools/call"), 1);
    let polls = world.fake.seen("tasks/get");
    about(polls[1].at - polls[0].at, 500);
    about(polls[4].at - polls[3].at, 4000);
    // The one that hung was given up after its own time, not after the call's.
    assert_eq!(world.fake.given_up(), 1);
    assert!(polls[6].at - polls[5].at < Duration::from_secs(45));
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_stays_away_ends_the_wait() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [Act::Fail(Kind::Unavailable)]);
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(world.fake.count("tasks/get"), 11);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_became_a_task_has_run_whatever_its_polls_met() {
    for poll in [Act::Refuse(Kind::Unavailable), fails(-32020), fails(-32022)] {
        let world = World::new();
        world.fake.on("tools/call", [task(created())]);
        world.fake.on("tasks/get", [poll.clone()]);
        let error = world.end(json!({})).await.unwrap_err();
        assert!(!error.retryable, "{poll:?}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_error_that_stays_is_told_in_own_words() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let theirs = ErrorObject::new(-32603, "cannot look up t1");
    world.fake.on("tasks/get", [Act::End(End::Error(theirs))]);
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    assert_eq!(
        error.to_string(),
        "upstream `up`: does not say how the task is that it made of the call (code -32603)"
    );
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_our_own_hop_to_a_poll_makes_us_look_anew_until_the_next() {
    for code in [-32020, -32022] {
        let world = World::new();
        world.fake.on("tools/call", [task(created())]);
        world
            .fake
            .on("tasks/get", [fails(code), fails(code), done()]);
        let member = Arc::clone(&world.member);
        let looks = async move {
            member.wake.notified().await;
            Instant::now()
        };
        let (end, looked) = tokio::join!(world.end(json!({})), looks);
        assert_eq!(result(&end.unwrap())["n"], json!(1));
        let polls = world.fake.seen("tasks/get");
        assert_eq!(polls.len(), 3);
        assert_eq!(polls[0].at, looked);
        about(polls[1].at - looked, 500);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_our_own_hop_that_stays_is_never_the_callers() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [fails(-32020)]);
    let start = Instant::now();
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    assert_eq!(
        error.to_string(),
        "upstream `up`: does not say how the task is that it made of the call (code -32020)"
    );
    // As long as other polls that fail, whether the looks anew bring anything or not.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(75), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_refused_for_our_own_hop_holds_up_no_end() {
    let world = endless("", created());
    world.fake.on("tasks/cancel", [fails(-32020)]);
    drop(world.call(json!({})).await.unwrap());
    world.fake.called("tasks/cancel", 1).await;
    world.background.stop_signal().cancel();
    assert!(world.background.drain(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_does_not_arrive_is_tried_again_for_a_minute() {
    let world = endless("", created());
    let mut acts = vec![Act::Fail(Kind::Unavailable); 7];
    acts.push(super::kit::complete(json!({})));
    world.fake.on("tasks/cancel", acts);
    drop(world.call(json!({})).await.unwrap());
    world.fake.called("tasks/cancel", 8).await;

    let world = endless("", created());
    world
        .fake
        .on("tasks/cancel", [Act::Fail(Kind::Unavailable)]);
    drop(world.call(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = world.fake.seen("tasks/cancel");
    let span = tries[tries.len() - 1].at - tries[0].at;
    let about_a_minute = Duration::from_secs(45)..=Duration::from_secs(60);
    assert!(about_a_minute.contains(&span), "{span:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_over_by_itself_is_not_cancelled_any_more() {
    let mut made = created();
    made["ttlMs"] = json!(5000);
    let world = endless("", made);
    world
        .fake
        .on("tasks/cancel", [Act::Fail(Kind::Unavailable)]);
    let start = Instant::now();
    drop(world.call(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = world.fake.seen("tasks/cancel");
    assert!(tries.len() > 2, "{}", tries.len());
    assert!(tries[tries.len() - 1].at - start < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_process_that_is_gone_is_lost_and_the_next_one_left_alone() {
    let world = endless("", created());
    world.fake.run_as("child 1");
    let waiting = world.call(json!({})).await.unwrap();
    let leaving = world.call(json!({})).await.unwrap();
    // It may give the same id to another caller's task.
    world.fake.run_as("child 2");
    let error = waiting.into_end().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.to_string().contains("has ended"), "{error}");
    drop(leaving);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.fake.count("tasks/get"), 0);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_callers_first_task_is_waited_for_where_the_call_was_opened() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [working(), done()]);
    world.fake.opens("child 1");
    let end = world.call(json!({})).await.unwrap().into_end().await;
    assert_eq!(result(&end.unwrap())["resultType"], "complete");
}

#[tokio::test(start_paused = true)]
async fn what_the_next_process_answers_to_a_poll_is_not_of_the_task() {
    let world = endless("", created());
    world.fake.run_as("child 1");
    let waiting = world.call(json!({})).await.unwrap();
    world.fake.on("tasks/get", [done()]);
    world.fake.opens("child 2");
    let error = waiting.into_end().await.unwrap_err();
    assert!(error.to_string().contains("has ended"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn changes_become_progress_under_the_callers_own_token() {
    let world = World::new();
    let mut made = created();
    made["statusMessage"] = json!("queued");
    world.fake.on("tools/call", [task(made)]);
    let half = || {
        got(
            "working",
            json!({ "statusMessage": "half", "lastUpdatedAt": "x" }),
        )
    };
    world
        .fake
        .on("tasks/get", [half(), half(), working(), done()]);
    let mut call = call(json!({}));
    call.meta.progress_token = Some(Raw::string("mine"));
    let mut events = stream(world.send(call).await.unwrap());
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        if let Event::Notification(notification) = event.unwrap() {
            assert_eq!(notification.method, "notifications/progress");
            told.push(value(&Raw::from(notification.params)));
        }
    }
    let expected = ["queued", "half", "working", "completed"].iter().zip(1..);
    let expected: Vec<_> = expected
        .map(|(message, n)| json!({ "progressToken": "mine", "progress": n, "message": message }))
        .collect();
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_task_at_the_end_of_a_stream_is_waited_for_in_the_same_stream() {
    let world = World::new();
    let progress = waypost_wire::message::Notification {
        method: "notifications/message".to_owned(),
        params: object(&json!({ "level": "info", "data": "starting" })),
    };
    let Act::End(made) = task(created()) else {
        panic!()
    };
    world
        .fake
        .on("tools/call", [Act::Stream(vec![progress.clone()], made)]);
    world.fake.on("tasks/get", [done()]);
    let mut call = call(json!({}));
    call.meta.log_level = Some(Raw::string("info"));
    let mut events = stream(world.send(call).await.unwrap());
    let first = events.next().await.unwrap().unwrap();
    assert_eq!(first, Event::Notification(progress));
    let Some(Ok(Event::End(end))) = events.next().await else {
        panic!("no end")
    };
    assert_eq!(result(&end)["n"], json!(1));
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn progress_never_falls_behind_what_the_upstream_said_before_the_task() {
    let world = World::new();
    let upstreams = waypost_wire::message::Notification {
        method: "notifications/progress".to_owned(),
        params: object(&json!({ "progressToken": 0, "progress": 40 })),
    };
    let Act::End(made) = task(created()) else {
        panic!()
    };
    world
        .fake
        .on("tools/call", [Act::Stream(vec![upstreams], made)]);
    world.fake.on("tasks/get", [done()]);
    let mut call = call(json!({}));
    call.meta.progress_token = Some(Raw::string("mine"));
    let events: Vec<_> = stream(world.send(call).await.unwrap()).collect().await;
    let told = events.into_iter().filter_map(|event| match event.unwrap() {
        Event::Notification(notification) => notification.params.get("progress").map(value),
        Event::End(_) => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [json!(40), json!(41), json!(42)]);
}

#[tokio::test(start_paused = true)]
async fn waiting_holds_no_permit_of_the_upstream() {
    let world = Setup {
        more: "max_in_flight: 1",
        ..Setup::default()
    }
    .build();
    world.fake.on("tools/call", [task(created())]);
    world.fake.on("tasks/get", [working(), done()]);
    let first = world.end(json!({}));
    let second = world.end(json!({}));
    let (first, second) = tokio::join!(first, second);
    assert_eq!(
        (
            result(&first.unwrap())["n"].clone(),
            result(&second.unwrap())["n"].clone()
        ),
        (json!(1), json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn an_upstream_full_of_calls_is_still_polled_and_told_to_cancel() {
    let world = Setup {
        more: "max_in_flight: 1",
        ..Setup::default()
    }
    .build();
    world
        .fake
        .on("tools/call", [task(created()), task(created()), Act::Hang]);
    world.fake.on("tasks/get", [working(), done()]);
    let waiting = world.call(json!({})).await.unwrap();
    let leaving = world.call(json!({})).await.unwrap();
    let mut hanging = Box::pin(world.call(json!({})));
    assert!((&mut hanging).now_or_never().is_none());
    let full = world.call(json!({})).await;
    assert_eq!(full.unwrap_err().kind, Kind::Throttled);

    let started = Instant::now();
    let end = waiting.into_end().await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert!(started.elapsed() < Duration::from_secs(1));
    drop(leaving);
    world.fake.called("tasks/cancel", 1).await;
    assert!((&mut hanging).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_task_with_hardly_any_life_is_looked_at_before_it_is_given_up() {
    for ttl in [0, -1, 100] {
        let mut made = created();
        made["ttlMs"] = json!(ttl);
        let world = endless("", made.clone());
        let mut over = made.clone();
        over["status"] = json!("completed");
        over["result"] = json!({ "content": [], "n": 1 });
        world.fake.on("tasks/get", [super::kit::complete(over)]);
        let end = world.end(json!({})).await.unwrap();
        assert_eq!(result(&end)["n"], json!(1), "{ttl}");
        assert_eq!(world.fake.count("tasks/get"), 1);
        let world = endless("", made);
        let start = Instant::now();
        assert_eq!(world.end(json!({})).await.unwrap_err().kind, Kind::Timeout);
        assert_eq!(world.fake.count("tasks/get"), 1, "{ttl}");
        assert!(start.elapsed() <= Duration::from_millis(100));
        world.fake.called("tasks/cancel", 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_look_without_an_answer_does_not_outlive_the_longest_wait() {
    let mut made = created();
    made["ttlMs"] = json!(0);
    let world = endless("max_wait: 2s", made);
    world.fake.on("tasks/get", [Act::Hang]);
    let start = Instant::now();
    assert_eq!(world.end(json!({})).await.unwrap_err().kind, Kind::Timeout);
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_completed_task_with_a_result_that_is_not_final_is_the_upstreams_fault() {
    for other in ["input_required", "task", "odd"] {
        let world = World::new();
        world.fake.on("tools/call", [task(created())]);
        let inner = json!({ "result": { "resultType": other, "content": [] } });
        world.fake.on("tasks/get", [got("completed", inner)]);
        let error = world.end(json!({})).await.unwrap_err();
        assert_eq!(error.kind, Kind::BadUpstream, "{other}");
        assert_eq!(world.fake.count("tasks/cancel"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_brings_another_task_is_not_taken_for_this_one() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let mut other = created();
    other["taskId"] = json!("t2");
    other["status"] = json!("completed");
    other["result"] = json!({ "content": [], "secret": "of another caller" });
    world
        .fake
        .on("tasks/get", [super::kit::complete(other), done()]);
    let end = world.end(json!({})).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/get"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_known_counts_as_work_for_a_few_looks() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let odd = || (0..3).map(|_| got("paused", json!({})));
    let working = [got("working", json!({}))];
    let looks = odd().chain(working).chain(odd()).chain([done()]);
    world.fake.on("tasks/get", looks);
    let end = world.end(json!({})).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/get"), 8);
}

#[tokio::test(start_paused = true)]
async fn a_status_that_stays_unknown_is_the_upstream_s_error_and_ends_the_task() {
    let world = World::new();
    world.fake.on("tools/call", [task(created())]);
    let odd = (0..40).map(|_| got("bogus", json!({})));
    world.fake.on("tasks/get", odd);
    let before = Instant::now();
    let error = world.end(json!({})).await.unwrap_err();
    assert_eq!(error.kind, Kind::BadUpstream);
    let text = error.to_string();
    assert!(
        text.contains("its task has status `bogus`, which is not known"),
        "{text}"
    );
    assert!(text.starts_with("upstream `"), "{text}");
    let took = before.elapsed();
    let within = Duration::from_secs(30)..Duration::from_secs(60);
    assert!(within.contains(&took), "{took:?}");
    assert!(world.fake.count("tasks/get") > 3);
    world.fake.called("tasks/cancel", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_of_the_server_s_own_may_last_for_seconds_however_often_it_is_seen() {
    let world = World::new();
    let mut made = created();
    made["pollIntervalMs"] = json!(250);
    world.fake.on("tools/call", [task(made)]);
    let hint = || json!({ "pollIntervalMs": 250 });
    let queued = (0..20).map(|_| got("queued", hint()));
    let looks = queued.chain([got("working", hint()), done()]);
    world.fake.on("tasks/get", looks);
    let end = world.end(json!({})).await.unwrap();
    assert_eq!(result(&end)["n"], json!(1));
    assert_eq!(world.fake.count("tasks/get"), 22);
    assert_eq!(world.fake.count("tasks/cancel"), 0);
}
