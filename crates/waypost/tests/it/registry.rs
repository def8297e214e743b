//! What survives a restart.

use serde_json::json;
use waypost::daemon::{Daemon, Options};
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_tasks, tasks};
use waypost_testkit::run::ANY_PORT;

use crate::support::{SOON, Waypost, config, tool_names};

#[tokio::test]
async fn a_restart_lists_and_advertises_what_a_dead_upstream_had() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!("upstreams: {{ tasks: {{ url: '{}' }} }}", demo.url);
    let first = Waypost::start(&yaml).await;
    assert!(first.daemon.ready(SOON).await);
    let before = tool_names(&first.client()).await;
    assert!(before.contains(&"tasks_greet".to_owned()), "{before:?}");
    assert!(first.daemon.stop().await);
    demo.kill().await;

    let daemon = Daemon::start(config(&yaml, &first.folder), Options::default())
        .await
        .unwrap();
    let again = Waypost {
        daemon,
        folder: first.folder,
    };
    let client = again.client();
    assert_eq!(tool_names(&client).await, before);
    let discovered = client.call("server/discover", json!({})).await.unwrap();
    let extensions = &discovered.result()["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/tasks": {} }));
    again.wait_for("tasks", "down").await;
    let entry = again.upstream("tasks").await;
    assert_eq!(
        entry["extensions"],
        json!({ "io.modelcontextprotocol/tasks": {} })
    );
    let reply = client
        .tool("tasks_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.code(), -32603, "{}", reply.answer);
    assert!(reply.answer.to_string().contains("tasks"));
}

#[tokio::test]
async fn a_changed_configuration_discards_what_was_learned_under_the_old_one() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let first = Waypost::start(&format!(
        "upstreams: {{ tasks: {{ url: '{}' }} }}",
        demo.url
    ))
    .await;
    assert!(first.daemon.ready(SOON).await);
    assert!(!tool_names(&first.client()).await.is_empty());
    assert!(first.daemon.stop().await);
    let other = "upstreams: { tasks: { url: 'http://127.0.0.1:1/mcp' } }";
    let daemon = Daemon::start(config(other, &first.folder), Options::default())
        .await
        .unwrap();
    assert_eq!(
        tool_names(&Client::new(daemon.url())).await,
        Vec::<String>::new()
    );
    demo.stop().await;
}

#[tokio::test]
async fn a_task_handle_outlives_the_daemon_that_gave_it() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let yaml = format!("upstreams: {{ tasks: {{ url: '{}' }} }}", demo.url);
    let first = Waypost::start(&yaml).await;
    assert!(first.daemon.ready(SOON).await);
    let client = first.client().with_tasks();
    let arguments = json!({ "seconds": 0.1, "label": "survivor" });
    let created = client.tool("tasks_slow_compute", arguments).await.unwrap();
    let id = created.result()["taskId"].as_str().unwrap().to_owned();
    assert!(first.daemon.stop().await);
    let daemon = Daemon::start(config(&yaml, &first.folder), Options::default())
        .await
        .unwrap();
    let client = Client::new(daemon.url()).with_tasks();
    let reply = client
        .call("tasks/get", json!({ "taskId": id }))
        .await
        .unwrap();
    assert_eq!(reply.result()["taskId"], id.as_str(), "{}", reply.answer);
    demo.stop().await;
}
