//! What several want to read at once is read once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use waypost_hub::call::{Call, Principal};
use waypost_hub::hub::Hub;
use waypost_hub::reply::{End, Event, Reply};
use waypost_wire::error::ErrorObject;

use crate::fake::{Fake, call, reply, upstreams};
use crate::listening::settled;

/// How long a read takes.
const SLOW: Duration = Duration::from_secs(1);

/// A server that takes its time, and answers on a stream with how often it was read from.
fn server(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Arc<Fake> {
    let none = json!({ "resources": [], "resourceTemplates": [] });
    let lists = ["resources/list", "resources/templates/list"].map(|list| (list, none.clone()));
    let reads = AtomicUsize::new(0);
    Fake::new("a", json!({ "resources": {} }), &lists, move |_| {
        let Reply::End(end) = answer(reads.fetch_add(1, Ordering::SeqCst)) else {
            panic!("not an end");
        };
        Ok(Reply::Stream(Box::pin(stream::once(async {
            sleep(SLOW).await;
            Ok(Event::End(end))
        }))))
    })
}

fn good_for(ttl_ms: u64) -> impl Fn(usize) -> Reply {
    move |read| {
        reply(&json!({ "contents": [], "read": read, "ttlMs": ttl_ms, "cacheScope": "private" }))
    }
}

fn read(principal: &str) -> Call {
    let mut call = call("resources/read", &json!({ "uri": "file:///x" }));
    call.principal = Principal::new(principal);
    call
}

/// How often the server had been read from when it gave the answer; `Null` for an error.
async fn ask(hub: &Arc<Hub>, principal: &str) -> Value {
    let reply = hub.call(read(principal)).await.unwrap();
    match reply.into_end().await.unwrap() {
        End::Complete(result) => crate::fake::value(&result)["read"].clone(),
        End::Error(_) => Value::Null,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_caller_asks_for_many_times_at_once_is_read_once() {
    let a = server(good_for(60_000));
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let asked = ["ann", "ann", "bob", "ann", "bob"];
    let answers = asked.map(|who| ask(&hub, who));
    let answers: Vec<Value> = join_all(answers).await;
    assert_eq!(a.count("resources/read"), 2, "once for each");
    let by_ann = answers[0].clone();
    for (who, answer) in asked.iter().zip(&answers) {
        assert_eq!(*answer == by_ann, *who == "ann", "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asked_first_may_leave_and_the_others_get_their_answer() {
    let a = server(good_for(60_000));
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let leaves = timeout(SLOW / 2, ask(&hub, "ann"));
    let stay = [(); 3].map(|()| ask(&hub, "ann"));
    let (left, answers) = tokio::join!(leaves, join_all(stay));
    assert!(left.is_err());
    for answer in answers {
        assert_eq!(answer, 1);
    }
    assert_eq!(a.count("resources/read"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_kept_is_nobody_elses_and_nobody_waits_long_for_it() {
    let error = |_| Reply::error(ErrorObject::new(-32602, "no"));
    for a in [server(error), server(good_for(0))] {
        let hub = settled(&upstreams(&["a"]), &[&a]).await;
        let begun = Instant::now();
        let all = [(); 5].map(|()| ask(&hub, "ann"));
        join_all(all).await;
        assert_eq!(a.count("resources/read"), 5);
        assert_eq!(begun.elapsed(), SLOW * 2, "not one after the other");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_server_whose_answers_are_not_kept_do_not_wait() {
    let a = server(good_for(0));
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    ask(&hub, "ann").await;
    let begun = Instant::now();
    join_all([(); 5].map(|()| ask(&hub, "ann"))).await;
    assert_eq!((begun.elapsed(), a.count("resources/read")), (SLOW, 6));
}
