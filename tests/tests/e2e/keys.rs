//! Bearer keys: who gets in, and what belongs to whom.

use serde_json::{Value, json};
use waypost_config::KeyHash;
use waypost_testkit::client::{Client, Post, Reply};
use waypost_testkit::demo::demo_all;
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::stage::quick;
use crate::support::{accept, created};

const ADA: &str = "wp_ada-0123456789abcdef";
const BOB: &str = "wp_bob-0123456789abcdef";

async fn keyed() -> (Running, Gateway) {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let hash = |key: &str| KeyHash::of(key).to_string();
    let more = format!(
        "auth: {{ keys: [{{ name: ada, hash: '{}' }}, {{ name: bob, hash: '{}' }}] }}\n\
         tasks: {{ poll_first: 10ms, poll_least: 10ms }}",
        hash(ADA),
        hash(BOB)
    );
    let upstream = format!("d: {{ url: '{}', required: true }}", demo.url);
    let gateway = Gateway::with(&upstream, &more).await.unwrap();
    (demo, gateway)
}

async fn ask(client: &Client, post: Post, key: &str) -> Reply {
    let post = post.header("authorization", &format!("Bearer {key}"));
    client.ask(post).await.unwrap()
}

async fn call(client: &Client, method: &str, params: Value, key: &str) -> Reply {
    ask(client, client.post(method, params), key).await
}

/// The body without the id, which is the caller's.
fn body(reply: &Reply) -> Value {
    let mut answer = reply.answer.clone();
    answer["id"] = Value::Null;
    answer
}

#[tokio::test]
async fn a_task_belongs_to_the_key_that_started_it() {
    let (demo, gateway) = keyed().await;
    let client = Client::new(&gateway.url).with_tasks();
    let params = json!({ "name": "d_slow_compute", "arguments": { "seconds": 600 } });
    let handle = created(&call(&client, "tools/call", params, ADA).await);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let with = |id: &str| json!({ "taskId": id, "inputResponses": {} });
        let foreign = call(&client, method, with(&handle), BOB).await;
        let never = call(&client, method, with("never-was"), BOB).await;
        assert_eq!(
            (foreign.status.as_u16(), foreign.code()),
            (200, -32602),
            "{method}"
        );
        assert_eq!(body(&foreign), body(&never), "{method}");
    }
    let filter = json!({ "notifications": { "taskIds": [handle] } });
    let post = client.post("subscriptions/listen", filter);
    let post = post.header("authorization", &format!("Bearer {BOB}"));
    let mut stream = client.send(post).await.unwrap();
    let acknowledged = stream.next().await.unwrap().unwrap();
    assert_ne!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([handle])
    );
    let sent = demo.seen().all();
    let of_tasks = sent.iter().filter_map(|seen| seen.method());
    let of_tasks: Vec<_> = of_tasks
        .filter(|method| method.starts_with("tasks/"))
        .collect();
    assert_eq!(of_tasks, [""; 0], "nothing of it was sent to the server");
    let own = call(&client, "tasks/get", json!({ "taskId": handle }), ADA).await;
    assert_eq!(own.result()["status"], "working", "{}", own.answer);
}

#[tokio::test]
async fn a_state_belongs_to_the_key_that_was_asked() {
    let (_demo, gateway) = keyed().await;
    let asks = json!({ "elicitation": {} });
    let client = Client::new(&gateway.url).with_capabilities(asks);
    let mut params = json!({ "name": "d_confirm_delete", "arguments": { "filename": "f" } });
    let asked = call(&client, "tools/call", params.clone(), ADA).await;
    let state = asked.result()["requestState"].as_str().unwrap();
    params["inputResponses"] = json!({ "confirm-1": accept(json!({ "confirm": true })) });
    let mut with = |state: &str| {
        params["requestState"] = state.into();
        params.clone()
    };
    let foreign = call(&client, "tools/call", with(state), BOB).await;
    let damaged = call(&client, "tools/call", with(&format!("{state}A")), BOB).await;
    assert_eq!(foreign.code(), -32602, "{}", foreign.answer);
    assert_eq!(body(&foreign), body(&damaged));
    let own = call(&client, "tools/call", with(state), ADA).await;
    assert_eq!(own.text(), "Deleted f.", "{}", own.answer);
}

#[tokio::test]
async fn r15_r21_without_a_known_key_there_is_nothing_but_a_challenge() {
    let (demo, gateway) = keyed().await;
    let client = Client::new(&gateway.url);
    let call = json!({ "name": "d_greet", "arguments": { "name": "Ada" } });
    let greet = || client.post("tools/call", call.clone());
    let longer = format!("Bearer {ADA}x");
    let posts = [
        greet(),
        greet().header("authorization", "Bearer wrong"),
        greet().header("authorization", &longer),
        greet().header("authorization", &format!("Basic {ADA}")),
        greet().header("authorization", ADA),
        // The key is looked at before anything else of the request is.
        greet()
            .header("authorization", "Bearer wrong")
            .header("mcp-session-id", "x"),
        greet()
            .header("authorization", "Bearer wrong")
            .raw("{ no json"),
        client.post("no/such", json!({})),
    ];
    for post in posts {
        let reply = client.ask(post).await.unwrap();
        assert_eq!(reply.status, 401);
        assert_eq!(reply.headers["www-authenticate"], "Bearer");
        assert!(reply.answer["error"].is_object(), "{:?}", reply.raw);
    }
    assert_eq!(demo.seen().count("tools/call"), 0);
    let reply = ask(&client, greet(), ADA).await;
    assert_eq!(reply.status, 200, "{}", reply.answer);
}
