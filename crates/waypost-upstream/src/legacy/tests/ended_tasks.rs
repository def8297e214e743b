//! How long the ends of tasks are remembered.

use std::time::Duration;

use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use waypost_config::config::Isolation;
use waypost_hub::call::{Call, Principal};
use waypost_hub::reply::End;

use super::kit::{Line, Played, end, object};

const WELCOME: &str = r#"{"result":{"protocolVersion":"2025-11-25","capabilities":
    {"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}}}"#;

fn about(method: &str) -> Call {
    let mut call = Call::own(method, object(&json!({ "taskId": "t" })));
    call.principal = Principal::new("p");
    call
}

/// Answers the next request of this method.
async fn answers(line: &Line, method: &str, result: Value) {
    let request = timeout(Duration::from_secs(5), line.request(method)).await;
    let request = request.unwrap_or_else(|_| panic!("no `{method}`"));
    line.says(&json!({ "id": request["id"], "result": result }));
}

async fn is_asked(line: &Line, method: &str) -> bool {
    let within = Duration::from_millis(100);
    timeout(within, line.request(method)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_task_is_kept_for_a_while_after_it_was_delivered_and_not_longer() {
    let server = Played::new();
    server.welcomes(Duration::ZERO, WELCOME);
    let legacy = server.legacy(Isolation::Shared, 9);
    legacy
        .begin(std::sync::Arc::new(server.clone()))
        .await
        .unwrap();
    let line = server.line(0);
    let look = async |asks: bool| {
        let plays = async {
            let done = json!({ "taskId": "t", "status": "completed" });
            answers(&line, "tasks/get", done).await;
            if asks {
                answers(&line, "tasks/result", json!({ "content": [] })).await;
            } else {
                assert!(!is_asked(&line, "tasks/result").await);
            }
        };
        let (end, ()) = join(end(&legacy, about("tasks/get")), plays).await;
        assert!(matches!(end, End::Complete(_)), "{end:?}");
    };
    look(true).await;
    sleep(Duration::from_secs(50)).await;
    look(false).await;
    sleep(Duration::from_secs(11)).await;
    look(true).await;

    let cancels = answers(&line, "tasks/cancel", json!({}));
    join(end(&legacy, about("tasks/cancel")), cancels).await;
    look(true).await;
}
