//! Those who go before the server has answered.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_server_has_agreed_leaves_no_subscription() {
    let (server, legacy) = server();
    let legacy = Arc::new(legacy);
    let leaves = timeout(Duration::from_secs(1), listens(&legacy, &["x:1"]));
    let (left, line) = join(leaves, server.first()).await;
    assert!(left.is_err());
    agrees(&line, "resources/subscribe").await;
    let taken_back = is_asked(&line, "resources/unsubscribe", 40).await.unwrap();
    // Who comes meanwhile waits for the next answer.
    let comes = listens(&legacy, &["x:1"]);
    let plays = async {
        assert!(is_asked(&line, "resources/subscribe", 1).await.is_none());
        line.says(&json!({ "id": taken_back["id"], "result": {} }));
        agrees(&line, "resources/subscribe").await
    };
    let (came, _) = join(comes, plays).await;
    assert_eq!(came.1, ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn who_awaits_the_server_and_leaves_is_taken_back_later() {
    let (server, legacy) = server();
    let leaves = timeout(Duration::from_secs(60), legacy.call(awaiting("x:1")));
    let asked = async {
        let line = server.first().await;
        let request = line.request("resources/subscribe").await;
        (line, request)
    };
    let (left, (line, request)) = join(leaves, asked).await;
    assert!(left.is_err());
    // It may be agreed to yet.
    let taken_back = is_asked(&line, "resources/unsubscribe", 29).await;
    assert_eq!(taken_back, None);
    line.says(&json!({ "id": request["id"], "result": {} }));
    assert_eq!(agrees(&line, "resources/unsubscribe").await, "x:1");
    assert!(is_asked(&line, "resources/subscribe", 60).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn who_comes_before_it_is_taken_back_is_asked_for_at_once() {
    let (server, legacy) = server();
    let leaves = timeout(Duration::from_secs(1), legacy.call(awaiting("x:1")));
    let (left, line) = join(leaves, server.first()).await;
    assert!(left.is_err());
    line.request("resources/subscribe").await;
    sleep(Duration::from_secs(10)).await;
    let before = Instant::now();
    let comes = listens(&legacy, &["x:1"]);
    let (came, _) = join(comes, agrees(&line, "resources/subscribe")).await;
    assert_eq!(came.1, ["x:1"]);
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(is_asked(&line, "resources/unsubscribe", 60).await.is_none());
    drop(came);
    assert_eq!(agrees(&line, "resources/unsubscribe").await, "x:1");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_it_queues_causes_no_request() {
    let (server, legacy) = server();
    let client = client("a");
    let hang = join_all((0..16).map(|n| legacy.call(in_session(&client, &format!("x:{n}")))));
    let plays = async {
        let line = server.first().await;
        for _ in 0..16 {
            line.request("resources/subscribe").await;
        }
        let late = in_session(&client, "x:late");
        let leaves = timeout(Duration::from_secs(1), legacy.call(late.clone()));
        assert!(leaves.await.is_err());
        assert!(is_asked(&line, "resources/subscribe", 30).await.is_none());
        assert!(is_asked(&line, "resources/unsubscribe", 60).await.is_none());
        // Who comes after that is asked for.
        let (came, asked) = join(legacy.call(late), agrees(&line, "resources/subscribe")).await;
        assert!(matches!(came, Ok(Reply::Stream(_))), "{came:?}");
        assert_eq!(asked, "x:late");
    };
    tokio::select! {
        _ = hang => panic!("nothing was answered"),
        () = plays => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_more_has_no_place() {
    let (server, legacy) = crowded(1);
    for uri in ["x:1", "x:2", "x:3"] {
        let leaves = timeout(Duration::from_millis(1), legacy.call(awaiting(uri)));
        let (left, line) = join(leaves, server.first()).await;
        assert!(left.is_err());
        let asked = is_asked(&line, "resources/subscribe", 0).await.unwrap();
        assert_eq!(asked["params"]["uri"], uri);
    }
    let line = server.line(0);
    for uri in ["x:1", "x:2", "x:3"] {
        assert_eq!(agrees(&line, "resources/unsubscribe").await, uri);
    }
}
