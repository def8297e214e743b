//! `external_job`: the work is another process.

use std::time::Duration;

use serde_json::json;
use waypost_testkit::demo::tasks::Options;

use crate::tasks::{create, get, server, until};

#[tokio::test]
async fn an_external_job_survives_a_restart_of_its_server() {
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        state: Some(state.path().into()),
        ..Options::default()
    };
    let (running, client) = server(options.clone()).await;
    let arguments = json!({ "seconds": 0.5, "label": "far away" });
    let task = create(&client, "external_job", arguments).await;
    assert_eq!(get(&client, &task).await["status"], "working");
    running.kill().await;
    // Nobody of this server is left; only the worker goes on.
    let result = state
        .path()
        .join("jobs")
        .join(task["taskId"].as_str().unwrap())
        .join("result");
    let wait = async {
        while !result.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), wait)
        .await
        .unwrap();
    let (_running, client) = server(options).await;
    let ended = until(&client, &task, "completed").await;
    let text = &ended["result"]["content"][0]["text"];
    assert_eq!(
        text,
        "external_job \"far away\" finished in its own process"
    );
}

#[tokio::test]
async fn cancelling_reaches_the_worker() {
    let state = tempfile::tempdir().unwrap();
    let options = Options {
        state: Some(state.path().into()),
        ..Options::default()
    };
    let (_running, client) = server(options).await;
    let task = create(&client, "external_job", json!({ "seconds": 60 })).await;
    client.call("tasks/cancel", task.clone()).await.unwrap();
    let job = state
        .path()
        .join("jobs")
        .join(task["taskId"].as_str().unwrap());
    let cancelled = async {
        while !job.join("cancel").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), cancelled)
        .await
        .unwrap();
    assert_eq!(get(&client, &task).await["status"], "cancelled");
}
