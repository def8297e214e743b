//! `subscriptions/listen`, whichever way the server is reached.

use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_testkit::client::{Arriving, Client};
use waypost_testkit::demo::legacy_tasks;
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::peer::{Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::process::program;
use crate::stage::{Stage, Way, both_ways, quick};
use crate::support::{SOON, accept, created, task_in, tool_names};

both_ways! {
    r09_changes_of_lists_and_resources_reach_who_asked_for_them,
    tasks_are_told_of_under_their_handles,
    task_ids_need_the_extension,
    many_listeners_hear_the_same_change,
}

async fn next(stream: &mut Arriving) -> Value {
    let next = timeout(SOON, stream.next()).await.unwrap();
    next.unwrap().unwrap()
}

/// Opens a subscription; gives it, its id and what was acknowledged.
async fn listen(client: &Client, filter: Value, id: &Value) -> (Arriving, Value) {
    let mut post = client.post("subscriptions/listen", json!({ "notifications": filter }));
    post.message["id"] = id.clone();
    let mut stream = client.send(post).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(subscription(&first), id);
    let acknowledged = first["params"]["notifications"].clone();
    (stream, acknowledged)
}

fn subscription(message: &Value) -> &Value {
    &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

async fn r09_changes_of_lists_and_resources_reach_who_asked_for_them(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let filter = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "resourceSubscriptions": ["test://watched-resource"],
    });
    let id = json!("seven");
    let (mut stream, acknowledged) = listen(&client, filter.clone(), &id).await;
    assert_eq!(acknowledged, filter);
    let steps = [
        (
            "d_test_trigger_tool_change",
            "notifications/tools/list_changed",
        ),
        (
            "d_test_trigger_prompt_change",
            "notifications/prompts/list_changed",
        ),
        (
            "d_test_trigger_resource_change",
            "notifications/resources/list_changed",
        ),
        (
            "d_test_trigger_resource_update",
            "notifications/resources/updated",
        ),
    ];
    for (tool, method) in steps {
        client.tool(tool, json!({})).await.unwrap();
        let told = next(&mut stream).await;
        assert_eq!(told["method"], method, "{told}");
        assert_eq!(*subscription(&told), id);
        if method.ends_with("updated") {
            assert_eq!(told["params"]["uri"], "test://watched-resource");
        }
    }
    let names = tool_names(&client).await;
    assert!(
        names.contains(&"d_test_dynamic_tool".to_owned()),
        "{names:?}"
    );
    let reply = client.tool("d_test_dynamic_tool", json!({})).await.unwrap();
    assert!(reply.result()["content"].is_array(), "{}", reply.answer);
    // A number stays a number.
    let number = json!(7);
    let (mut numbered, acknowledged) =
        listen(&client, json!({ "toolsListChanged": true }), &number).await;
    assert_eq!(acknowledged, json!({ "toolsListChanged": true }));
    client
        .tool("d_test_trigger_tool_change", json!({}))
        .await
        .unwrap();
    assert_eq!(*subscription(&next(&mut numbered).await), number);
}

/// Hears of one task alone, under its handle, until its file is deleted.
async fn told_until_deleted(stream: &mut Arriving, handle: &str) {
    let mut told = Value::Null;
    while told["params"]["status"] != "completed" {
        told = next(stream).await;
        assert_eq!(told["method"], "notifications/tasks", "{told}");
        assert_eq!(told["params"]["taskId"], handle);
        assert_eq!(*subscription(&told), json!(1));
    }
    assert_eq!(told["params"]["result"]["content"][0]["text"], "Deleted f.");
}

async fn tasks_are_told_of_under_their_handles(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let arguments = json!({ "filename": "f" });
    let handle = created(&client.tool("d_confirm_delete", arguments).await.unwrap());
    let ids = json!({ "taskIds": [handle, "d~forged"] });
    let (mut stream, acknowledged) = listen(&client, ids, &json!(1)).await;
    assert_eq!(acknowledged, json!({ "taskIds": [handle] }));
    // The question may have been asked before anybody listened.
    task_in(&client, &handle, "input_required").await;
    let answers = json!({ "confirm-1": accept(json!({ "confirm": true })) });
    let params = json!({ "taskId": handle, "inputResponses": answers });
    let reply = client.call("tasks/update", params).await.unwrap();
    assert_eq!(reply.result()["resultType"], "complete", "{}", reply.answer);
    told_until_deleted(&mut stream, &handle).await;
}

#[tokio::test]
async fn tasks_of_servers_that_tell_nothing_are_told_of() {
    let server = legacy_tasks(ANY_PORT, quick(), Options::default());
    let server = server.await.unwrap();
    let upstream = format!("d: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstream).await.unwrap();
    let client = Client::new(&gateway.url).with_tasks();
    let arguments = json!({ "filename": "f" });
    let handle = created(&client.tool("d_confirm_delete", arguments).await.unwrap());
    let wanted = json!({ "taskIds": [handle] });
    let (mut stream, acknowledged) = listen(&client, wanted.clone(), &json!(1)).await;
    assert_eq!(acknowledged, wanted);
    let asked = task_in(&client, &handle, "input_required").await;
    let questions = asked["inputRequests"].as_object().unwrap();
    let answers: Value = questions
        .keys()
        .map(|key| (key.clone(), accept(json!({ "confirm": true }))))
        .collect();
    let params = json!({ "taskId": handle, "inputResponses": answers });
    let reply = client.call("tasks/update", params).await.unwrap();
    assert_eq!(reply.result()["resultType"], "complete", "{}", reply.answer);
    told_until_deleted(&mut stream, &handle).await;
}

async fn task_ids_need_the_extension(way: Way) {
    let stage = Stage::new(way).await;
    let filter = json!({ "notifications": { "taskIds": ["d~x"] } });
    let reply = stage
        .client()
        .call("subscriptions/listen", filter)
        .await
        .unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32021));
}

/// Each has a child of its own, and so a resource of its own.
#[tokio::test]
async fn r10_a_session_is_told_of_its_own_resource_and_of_no_other() {
    let upstream = format!(
        "u: {{ command: '{}', args: [demo-server, everything, --stdio, --era, legacy], required: true }}",
        program().display()
    );
    let gateway = Gateway::start(&upstream).await.unwrap();
    let updated = "notifications/resources/updated";
    let uri = "test://watched-resource";
    let connect = async || {
        let target = Target::Url(gateway.url.clone());
        let kind = Kind::Http(Revision::Nov2025);
        let peer = Peer::connect(kind, &target).await.unwrap();
        peer.watch(&[uri]).await.unwrap();
        peer
    };
    let (one, two) = (connect().await, connect().await);
    // Whatever is told of another's change comes before what is told of an own one after it.
    for changes in [&one, &two, &one] {
        let tool = "u_test_trigger_resource_update";
        changes.tool(tool, json!({})).await.unwrap();
        let told = changes.told(updated).await.unwrap();
        assert_eq!(told["params"]["uri"], uri);
        let rest = changes.inbox();
        assert!(
            rest.iter().all(|told| told["method"] != updated),
            "{rest:?}"
        );
    }
}

async fn many_listeners_hear_the_same_change(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let mut streams = Vec::new();
    for id in 0..5 {
        let filter = json!({ "toolsListChanged": true });
        streams.push(listen(&client, filter, &json!(id)).await.0);
    }
    // One that left does not keep the others from hearing.
    drop(streams.pop());
    client
        .tool("d_test_trigger_tool_change", json!({}))
        .await
        .unwrap();
    for (id, stream) in streams.iter_mut().enumerate() {
        let told = next(stream).await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
        assert_eq!(*subscription(&told), json!(id));
    }
    let subscriptions = stage.sent("subscriptions/listen");
    assert!(subscriptions.len() <= 2, "shared: {}", subscriptions.len());
}
