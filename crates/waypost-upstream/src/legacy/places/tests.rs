use std::pin::Pin;

use futures_util::{FutureExt as _, StreamExt as _};

use super::turns::{SIDE_BY_SIDE, TURN};
use super::*;

fn listener(number: u64) -> Asker {
    Asker {
        session: 0,
        who: Who::Listener(number),
    }
}

/// A request of a listener, which has been asked in vain as often as that.
fn waits(places: &Places, of: u64, vain: u32) -> Pin<Box<dyn Future<Output = Place>>> {
    waits_with(places, &[of], vain)
}

fn waits_with(places: &Places, of: &[u64], vain: u32) -> Pin<Box<dyn Future<Output = Place>>> {
    let number = places.number();
    let askers = of.iter().copied().map(listener);
    let mut waits = Box::pin(places.queue(askers, Ask { number, vain }).place());
    // It queues from now on.
    match waits.as_mut().now_or_never() {
        Some(place) => Box::pin(std::future::ready(place)),
        None => waits,
    }
}

/// One that must have its place at once.
fn has(places: &Places, of: u64) -> Place {
    waits(places, of, 0)
        .now_or_never()
        .expect("there is a place")
}

fn is_lost(place: &Place) -> bool {
    place.of.lost.is_cancelled()
}

fn taken(places: &Places) -> usize {
    let all = places.all();
    let open: usize = all.askers.values().map(|asking| asking.open.len()).sum();
    assert_eq!(open, all.taken);
    assert!(open <= all.most);
    open
}

async fn after(time: Duration, of: &[Place]) {
    let look = futures_util::future::join_all(of.iter().map(Place::lost));
    drop(tokio::time::timeout(time, look).await);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_of_one_leaves_room_for_its_own_after_a_turn() {
    let places = Places::new(128);
    let hang: Vec<_> = (0..SIDE_BY_SIDE).map(|_| has(&places, 1)).collect();
    let mut next = waits(&places, 1, 0);
    after(TURN - LOOK, &hang).await;
    assert!(next.as_mut().now_or_never().is_none());
    after(LOOK * 2, &hang).await;
    let _next = next.now_or_never().expect("its turn");
    assert!(!hang.iter().any(is_lost), "there is room");
    assert_eq!(taken(&places), SIDE_BY_SIDE + 1);
}

#[tokio::test(start_paused = true)]
async fn what_hangs_of_others_holds_nobody_up_even_where_all_is_taken() {
    let places = Places::new(8);
    let hang: Vec<_> = (0..8).map(|_| has(&places, 1)).collect();
    let mut kept = Vec::new();
    // Until each has as much.
    for other in 2..=5 {
        for _ in 0..2 {
            let comes = waits(&places, other, 0);
            after(GRACE, &hang).await;
            if let Some(place) = comes.now_or_never() {
                kept.push(place);
            }
            assert_eq!(taken(&places), 8);
        }
    }
    assert_eq!(hang.iter().filter(|place| is_lost(place)).count(), 7);
    let count = kept.iter().filter(|place| !is_lost(place)).count();
    assert_eq!(count, 7);
    // What is lost was the oldest.
    assert!(is_lost(&hang[0]) && !is_lost(&hang[7]));
}

#[tokio::test(start_paused = true)]
async fn who_comes_last_waits_a_turn_where_all_have_one() {
    let places = Places::new(4);
    let hang: Vec<_> = (0..4).map(|of| has(&places, of)).collect();
    let mut comes = waits(&places, 9, 0);
    after(TURN - LOOK, &hang).await;
    assert!(comes.as_mut().now_or_never().is_none());
    after(LOOK * 2, &hang).await;
    let comes = comes.now_or_never().expect("its turn");
    assert!(is_lost(&hang[0]) && !is_lost(&hang[1]));
    assert!(!is_lost(&comes));
}

#[tokio::test(start_paused = true)]
async fn what_has_lost_its_place_lets_others_pass_for_a_turn_and_keeps_the_next_one_longer() {
    let places = Places::new(1);
    let first = has(&places, 1);
    let mut again = waits(&places, 2, 1);
    after(TURN - LOOK, std::slice::from_ref(&first)).await;
    let passes = waits(&places, 3, 0);
    after(LOOK * 2, std::slice::from_ref(&first)).await;
    let passes = [passes.now_or_never().expect("it came first")];
    assert!(again.as_mut().now_or_never().is_none());
    let mut late = waits(&places, 4, 0);
    after(TURN + LOOK, &passes).await;
    let again = [again.now_or_never().expect("for a turn only")];
    after(TURN * 2 - LOOK, &again).await;
    assert!(late.as_mut().now_or_never().is_none());
    after(LOOK * 2, &again).await;
    assert!(late.now_or_never().is_some());
}

/// A request that a slow server answers is answered in the end, though others of these come all
/// the time that it leaves unanswered.
async fn stands_in_the_end(others: impl Fn(u64) -> u64) {
    const SLOW: Duration = Duration::from_secs(45);
    let places = Places::new(4);
    let fresh = async {
        let mut hang = futures_util::stream::FuturesUnordered::new();
        for number in 0.. {
            let waits = waits(&places, others(number), 0);
            hang.push(async move { waits.await.lost().await });
            let next = sleep(Duration::from_millis(1_500));
            tokio::pin!(next);
            while let futures_util::future::Either::Right((Some(()), _)) =
                futures_util::future::select(&mut next, hang.next()).await
            {}
        }
    };
    let stands = async {
        // All is taken when it comes.
        sleep(TURN).await;
        for vain in 0.. {
            let place = waits(&places, 0, vain).await;
            if tokio::time::timeout(SLOW, place.lost()).await.is_err() {
                return vain;
            }
        }
        0
    };
    let stands = tokio::time::timeout(Duration::from_secs(600), stands);
    tokio::select! {
        () = fresh => panic!("no more come"),
        vain = stands => assert!(matches!(vain, Ok(1..)), "{vain:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_ask_afresh_starves_no_request() {
    stands_in_the_end(|number| number + 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_one_asks_afresh_starves_none_of_its_own() {
    stands_in_the_end(|_| 0).await;
}

#[tokio::test(start_paused = true)]
async fn thousands_who_ask_do_not_make_each_step_long() {
    let places = Places::new(256);
    let started = std::time::Instant::now();
    let waiting: Vec<_> = (0..5_000)
        .map(|of| [(); 5].map(|()| waits(&places, of, 0)))
        .collect();
    assert_eq!(taken(&places), 256);
    let one = waits(&places, 0, 0);
    let number = places.number() - 1;
    for of in 0..5_000 {
        places.join(number, &listener(of));
    }
    let mut served = 0;
    for place in waiting.into_iter().flatten().chain([one]) {
        let place = tokio::task::unconstrained(place).now_or_never();
        served += usize::from(place.is_some());
    }
    assert_eq!(served, 25_001, "each leaves its place to the next");
    assert_eq!(taken(&places), 0);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_takes_something_back_keeps_its_place() {
    let places = Places::new(2);
    let (who, session) = (Who::Nobody, 0);
    let nobody = || {
        let (number, vain) = (places.number(), 0);
        let waits = places.queue(
            [Asker {
                session,
                who: who.clone(),
            }],
            Ask { number, vain },
        );
        waits.place().now_or_never().expect("there is a place")
    };
    let back = [nobody(), nobody()];
    let mut comes = waits(&places, 1, 0);
    after(TURN * 2, &back).await;
    assert!(comes.as_mut().now_or_never().is_none());
    assert!(!back.iter().any(is_lost));
    drop(back);
    assert!(comes.now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn no_request_makes_room_for_another_of_its_own_while_answers_come() {
    let places = Places::new(4);
    let hang: Vec<_> = (0..3).map(|_| has(&places, 1)).collect();
    for _ in 0..20 {
        let answered = has(&places, 1);
        let mut waiting = waits(&places, 1, 0);
        after(TURN - LOOK, &hang).await;
        assert!(waiting.as_mut().now_or_never().is_none());
        answered.answered();
        drop(answered);
        drop(waiting.now_or_never().expect("that one is free"));
    }
    assert!(!hang.iter().any(is_lost));
    let _fourth = has(&places, 1);
    let mut waiting = waits(&places, 1, 0);
    after(TURN + LOOK, &hang).await;
    assert!(is_lost(&hang[0]));
    assert!(waiting.as_mut().now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_leaves_nothing_behind() {
    let places = Places::new(1);
    let hangs = has(&places, 1);
    let (left, stays) = (waits(&places, 2, 0), waits(&places, 2, 0));
    drop(left);
    drop(hangs);
    // Granted, and never taken.
    assert_eq!(taken(&places), 1);
    drop(stays);
    assert_eq!(taken(&places), 0);
    let all = places.all();
    assert!(all.askers.is_empty() && all.waiting.is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_several_want_has_the_first_place_that_one_of_them_gets() {
    let places = Places::new(128);
    let hang: Vec<_> = (0..SIDE_BY_SIDE).map(|_| has(&places, 1)).collect();
    assert!(waits(&places, 1, 0).now_or_never().is_none());
    let place = waits_with(&places, &[1, 2], 0).now_or_never();
    assert_eq!(place.expect("of the other").of.asker, listener(2));
    assert_eq!(taken(&places), hang.len());
}
