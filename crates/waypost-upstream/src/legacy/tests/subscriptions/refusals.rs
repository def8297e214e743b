//! What the server refuses, for now or for good.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_is_refused_late_is_not_asked_for_again() {
    let (server, legacy) = server();
    let (mut events, line, request) = listens_early(&legacy, &server).await;
    let error = json!({ "code": -32602, "message": "m" });
    line.says(&json!({ "id": request["id"], "error": error }));
    let told = timeout(Duration::from_secs(600), events.next()).await;
    assert!(told.is_err(), "{told:?}");
    assert!(is_asked(&line, "resources/subscribe", 1).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_for_ever() {
    let (server, legacy) = server();
    let refuses = async {
        let line = server.first().await;
        let request = line.request("resources/subscribe").await;
        let error = json!({ "code": -32602, "message": "m" });
        line.says(&json!({ "id": request["id"], "error": error }));
        line
    };
    let (refused, line) = join(listens(&legacy, &["x:1"]), refuses).await;
    assert!(refused.1.is_empty());
    let again = agrees(&line, "resources/subscribe");
    let (agreed, _) = join(listens(&legacy, &["x:1"]), again).await;
    assert_eq!(agreed.1, ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_for_now_is_asked_for_again() {
    let (server, legacy) = server();
    let refuses = async {
        let line = server.first().await;
        let request = line.request("resources/subscribe").await;
        let error = json!({ "code": -32050, "message": "not now" });
        line.says(&json!({ "id": request["id"], "error": error }));
        line
    };
    let ((mut events, honoured), line) = join(listens(&legacy, &["x:1"]), refuses).await;
    assert_eq!(honoured, ["x:1"]);
    assert_eq!(agrees(&line, "resources/subscribe").await, "x:1");
    let told = timeout(Duration::from_secs(1), events.next()).await;
    let Ok(Some(Ok(Event::Notification(told)))) = told else {
        panic!("{told:?}")
    };
    assert_eq!(told.method, "notifications/resources/updated");
    drop(events);
    assert_eq!(agrees(&line, "resources/unsubscribe").await, "x:1");
}

#[tokio::test(start_paused = true)]
async fn a_second_refusal_after_a_lost_session_ends_nothing_unless_it_is_final() {
    for last in [-32050, -32603, -32602] {
        let (server, legacy) = server();
        let agreed = async {
            let line = server.first().await;
            agrees(&line, "resources/subscribe").await;
            line
        };
        let ((mut events, honoured), line) = join(listens(&legacy, &["x:1"]), agreed).await;
        assert_eq!(honoured, ["x:1"]);
        line.is_forgotten();
        assert!(matches!(events.next().await, Some(Err(_))));
        // Who listened does so again, and is refused, at once and once more.
        let refuses = async {
            while server.dialled() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
            let line = server.line(1);
            refuse(&line, -32050).await;
            line
        };
        let ((mut events, honoured), line) = join(listens(&legacy, &["x:1"]), refuses).await;
        assert_eq!(honoured, ["x:1"], "it goes on being asked for");
        refuse(&line, last).await;
        if last == -32602 {
            let told = timeout(Duration::from_secs(300), events.next()).await;
            assert!(told.is_err(), "{told:?}");
            assert!(is_asked(&line, "resources/subscribe", 0).await.is_none());
            continue;
        }
        agrees(&line, "resources/subscribe").await;
        let told = timeout(Duration::from_secs(1), events.next()).await;
        let Ok(Some(Ok(Event::Notification(told)))) = told else {
            panic!("{told:?}")
        };
        assert_eq!(told.method, "notifications/resources/updated");
    }
}

async fn refuse(line: &Line, code: i64) {
    let asked = timeout(Duration::from_secs(10), line.request("resources/subscribe"));
    let request = asked.await.expect("it is asked again");
    let error = json!({ "code": code, "message": "m" });
    line.says(&json!({ "id": request["id"], "error": error }));
}
