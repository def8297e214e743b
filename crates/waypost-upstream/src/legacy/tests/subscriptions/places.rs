//! Those who share what may be unanswered.

use waypost_hub::lifecycle::Tasks;

use super::*;

#[tokio::test(start_paused = true)]
async fn what_hangs_of_one_client_holds_up_none_that_shares_its_session() {
    for (places, within) in [(128, 0), (24, 300)] {
        let (server, legacy) = crowded(places);
        let (one, other) = (client("a"), client("b"));
        let hang = join_all((0..150).map(|n| legacy.call(in_session(&one, &format!("x:{n}")))));
        let plays = async {
            let line = server.first().await;
            let mut hanging = 0;
            // In the first moment, and when as many hang as may.
            for wait in [0, 60] {
                while is_asked(&line, "resources/subscribe", wait).await.is_some() && hanging < 200
                {
                    hanging += 1;
                }
                let before = Instant::now();
                for who in [in_session(&other, "y:1"), awaiting("y:2")] {
                    let (asked, answered) = (who_agrees(&line, "y"), legacy.call(who));
                    let ((), answered) = join(asked, answered).await;
                    assert!(matches!(answered, Ok(Reply::Stream(_))), "{answered:?}");
                }
                let took = before.elapsed();
                assert!(
                    took <= Duration::from_millis(within),
                    "{took:?} of {places}"
                );
            }
            assert!(hanging >= 150, "{hanging} were asked in the end");
        };
        tokio::select! {
            _ = hang => panic!("nothing was answered"),
            () = plays => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_awaits_the_server_is_not_held_up_by_its_own_listener_or_another() {
    let (server, legacy) = crowded(16);
    let uris: Vec<String> = (0..100).map(|n| format!("x:{n}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let client = client("a");
    let mut call = awaiting("x:0");
    call.awaits_servers = false;
    call.session = Some(client.clone());
    let wanted = json!({ "notifications": { "resourceSubscriptions": uris } });
    call.params = object(&wanted);
    let (listening, line) = join(legacy.call(call), server.first()).await;
    assert!(matches!(listening, Ok(Reply::Stream(_))));
    for _ in 0..16 {
        line.request("resources/subscribe").await;
    }
    let before = Instant::now();
    for uri in ["y:1", "x:99"] {
        let asks = legacy.call(in_session(&client, uri));
        let (answer, ()) = join(asks, who_agrees(&line, uri)).await;
        assert!(matches!(answer, Ok(Reply::Stream(_))), "{answer:?}");
    }
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn sessions_share_the_places_and_each_has_some() {
    let server = Played::new();
    server.welcomes(Duration::ZERO, WELCOME);
    let legacy = server.legacy_at(Isolation::Session, 9, &Places::new(24));
    let (one, other) = (client("a"), client("b"));
    let hang = join_all((0..40).map(|n| legacy.call(in_session(&one, &format!("x:{n}")))));
    let plays = async {
        let line = server.first().await;
        for _ in 0..24 {
            line.request("resources/subscribe").await;
        }
        let before = Instant::now();
        let agreed = async {
            while server.dialled() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
            agrees(&server.line(1), "resources/subscribe").await
        };
        let (answer, _) = join(legacy.call(in_session(&other, "y:1")), agreed).await;
        assert!(matches!(answer, Ok(Reply::Stream(_))), "{answer:?}");
        assert!(before.elapsed() < Duration::from_secs(1));
    };
    tokio::select! {
        _ = hang => panic!("nothing was answered"),
        () = plays => {}
    }
}

#[tokio::test(start_paused = true)]
async fn all_of_one_stand_in_the_end_however_slow_the_server_is() {
    for (places, slow) in [(16, 2), (16, 12), (16, 45), (128, 45)] {
        let (server, legacy) = crowded(places);
        let uris: Vec<String> = (0..60).map(|n| format!("x:{n}")).collect();
        let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
        let (listening, line) = join(listens(&legacy, &uris), server.first()).await;
        let (mut events, _) = listening;
        let mut told = std::collections::HashSet::new();
        let answers = async {
            loop {
                let request = line.request("resources/subscribe").await;
                let line = Arc::clone(&line);
                Tasks::default().spawn(|_| async move {
                    sleep(Duration::from_secs(slow)).await;
                    line.says(&json!({ "id": request["id"], "result": {} }));
                });
            }
        };
        let stand = async {
            while told.len() < 60 {
                let Some(Ok(Event::Notification(one))) = events.next().await else {
                    panic!("it ended")
                };
                told.insert(one.params.string("uri").unwrap());
            }
        };
        let stand = timeout(Duration::from_secs(1_200), stand);
        tokio::select! {
            never = answers => never,
            stand = stand => assert!(stand.is_ok(), "{places} {slow}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_so_many_are_kept_and_further_ones_wait_until_others_are_forgotten() {
    let (server, legacy) = server();
    let uris: Vec<String> = (0..8_192).map(|n| format!("x:{n}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let ((events, honoured), line) = join(listens(&legacy, &uris), server.first()).await;
    assert_eq!(honoured.len(), 8_192);
    let (mut more, honoured) = listens(&legacy, &["y:1", "x:8191"]).await;
    assert_eq!(honoured, ["y:1", "x:8191"], "not for good");
    for _ in 0..2 {
        let refused = legacy.call(awaiting("y:1")).await.unwrap();
        let Reply::End(End::Error(error)) = refused else {
            panic!("{refused:?}")
        };
        assert!(error.message().contains("8192"), "{error:?}");
        assert!(!error.is_final(), "{error:?}");
    }
    drop(events);
    let (told, ()) = join(more.next(), who_agrees(&line, "y")).await;
    let Some(Ok(Event::Notification(told))) = told else {
        panic!("{told:?}")
    };
    assert_eq!(told.params.string("uri").as_deref(), Some("y:1"));
    let agreed = legacy.call(awaiting("y:1")).await;
    assert!(matches!(agreed, Ok(Reply::Stream(_))), "{agreed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_leaves_room_for_what_others_want() {
    let (server, legacy) = server();
    for hundred in 0..82 {
        let uris = (0..100).map(|n| format!("x:{hundred}/{n}"));
        let asks = join_all(uris.map(|uri| legacy.call(awaiting(&uri))));
        let left = timeout(Duration::from_millis(1), asks).await;
        assert!(left.is_err(), "nothing is answered");
    }
    let line = server.first().await;
    let asks = legacy.call(awaiting("y:1"));
    let (agreed, ()) = join(asks, who_agrees(&line, "y")).await;
    assert!(matches!(agreed, Ok(Reply::Stream(_))), "{agreed:?}");
}
