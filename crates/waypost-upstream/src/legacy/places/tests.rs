use std::pin::Pin;

use futures_util::FutureExt as _;

use super::*;

fn listener(number: u64) -> Asker {
    Asker {
        session: 0,
        who: Who::Listener(number),
    }
}

/// A request of a listener, which has been asked in vain as often as that.
fn waits(places: &Places, of: u64, vain: u32) -> Pin<Box<dyn Future<Output = Place>>> {
    let (places, rank) = (places.clone(), (vain, places.number()));
    let mut waits = Box::pin(async move { places.place(&[listener(of)], rank).await });
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
    let mut again = waits(&places, 8, 1);
    after(TURN - LOOK, &hang).await;
    assert!(comes.as_mut().now_or_never().is_none());
    after(LOOK * 2, &hang).await;
    let comes = comes.now_or_never().expect("its turn");
    assert!(is_lost(&hang[0]) && !is_lost(&hang[1]));
    // What was asked in vain gives those that stand longer.
    assert!(again.as_mut().now_or_never().is_none());
    after(TURN, &hang).await;
    assert!(again.now_or_never().is_some());
    assert!(!is_lost(&comes));
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
    let both = [listener(1), listener(2)];
    let place = places.place(&both, (0, places.number())).now_or_never();
    assert_eq!(place.expect("of the other").of.asker, listener(2));
    assert_eq!(taken(&places), hang.len());
}
