//! What operators see.

use serde_json::json;
use waypost_testkit::client::Client;
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::draining::{answer, ask, asking};
use crate::fake::{self, Fake};
use crate::process::{Home, Served};
use crate::stage::quick;
use crate::support::{created, get, page, tool_names, until, upstream};

#[tokio::test]
async fn what_clients_send_does_not_become_labels() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    // A process of its own: metrics are the whole process's.
    let home = Home::new(&format!(
        "upstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let waypost = Served::start(&home).await;
    let client = waypost.client().with_tasks();
    let count = async || {
        page(&format!("{}/metrics", waypost.admin))
            .await
            .lines()
            .count()
    };
    let unknown = async |number: usize| {
        client
            .tool(&format!("t_nosuch{number}"), json!({}))
            .await
            .unwrap();
        client
            .tool(&format!("nosuch{number}"), json!({}))
            .await
            .unwrap();
        client
            .call(&format!("nosuch/{number}"), json!({}))
            .await
            .unwrap();
        let params = json!({ "uri": format!("nosuch://{number}") });
        client.call("resources/read", params).await.unwrap();
        let params = json!({ "name": format!("nosuch{number}") });
        client.call("prompts/get", params).await.unwrap();
        let params = json!({ "taskId": format!("t~nosuch{number}") });
        client.call("tasks/get", params).await.unwrap();
    };
    unknown(0).await;
    let before = count().await;
    for number in 1..20 {
        unknown(number).await;
    }
    assert_eq!(count().await, before);
    let metrics = page(&format!("{}/metrics", waypost.admin)).await;
    assert!(!metrics.contains("nosuch"), "{metrics}");
}

#[tokio::test]
async fn a_question_of_a_collapsed_task_is_counted_at_its_upstream() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "upstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let waypost = Served::start(&home).await;
    let counted = async || {
        let metrics = page(&format!("{}/metrics", waypost.admin)).await;
        let said = page(&format!("{}/api/v1/upstreams", waypost.admin)).await;
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let of = "waypost_upstream_parked_calls{upstream=\"t\"} ";
        let of = metrics.lines().find_map(|line| line.strip_prefix(of));
        (
            of.unwrap().to_owned(),
            said["upstreams"][0]["parked"].clone(),
        )
    };
    let (client, file) = (asking(&waypost), json!({ "filename": "a" }));
    let asked = ask(&client, "t_confirm_delete", &file).await;
    assert_eq!(counted().await, ("1".to_owned(), json!(1)));
    answer(&client, "t_confirm_delete", &file, &asked).await;
    assert_eq!(counted().await, ("0".to_owned(), json!(0)));
}

#[tokio::test]
async fn requests_calls_tasks_and_states_are_counted() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "upstreams: {{ t: {{ url: '{}', required: true }}, gone: {{ url: 'http://127.0.0.1:1/mcp' }} }}",
        demo.url
    ));
    let waypost = Served::start(&home).await;
    let client = waypost.client().with_tasks();
    client
        .tool("t_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    let arguments = json!({ "seconds": 600 });
    let handle = created(&client.tool("t_slow_compute", arguments).await.unwrap());
    let look = client.post("tasks/get", json!({ "taskId": handle }));
    client.ask(look.without("mcp-name")).await.unwrap();
    let metrics = page(&format!("{}/metrics", waypost.admin)).await;
    let has = |parts: &[&str]| {
        let found = metrics
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in\n{metrics}");
    };
    has(&[
        "waypost_requests_total",
        "method=\"tools/call\"",
        "outcome=\"task\"",
        " 1",
    ]);
    has(&[
        "waypost_upstream_calls_total",
        "upstream=\"t\"",
        "target=\"greet\"",
        "outcome=\"complete\"",
        " 1",
    ]);
    has(&[
        "waypost_upstream_calls_total",
        "target=\"slow_compute\"",
        "outcome=\"task\"",
        " 1",
    ]);
    has(&["waypost_upstream_up", "upstream=\"t\"", " 1"]);
    has(&["waypost_upstream_up", "upstream=\"gone\"", " 0"]);
    has(&["waypost_task_requests_without_name_total", " 1"]);
    has(&["waypost_request_seconds_count", "method=\"tools/call\""]);
    let log = waypost.log();
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
}

/// Key order, numbers and all.
const EXTENSIONS: &str = r#"{"io.modelcontextprotocol/tasks":{},"com.example/z":{"n":1.0,"b":[12345678901234567890123],"a":null},"com.example/a":true}"#;

#[tokio::test]
async fn extensions_are_kept_as_the_server_said_them_across_its_death_and_our_restart() {
    let server = Fake::start(|rpc| {
        if rpc.method != "server/discover" {
            return None;
        }
        let result = fake::discover(&json!("EXTENSIONS")).to_string();
        Some(rpc.raw(&result.replace("\"EXTENSIONS\"", EXTENSIONS)))
    })
    .await;
    let upstreams = format!("u: {{ url: '{}' }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let shown =
        async |gateway: &Gateway| page(&format!("{}/api/v1/upstreams", gateway.admin)).await;
    let expected = format!(r#""extensions":{EXTENSIONS}"#);
    let text = shown(&gateway).await;
    assert!(text.contains(&expected), "{text}");
    drop(server);
    let gateway = gateway.restart().await.unwrap();
    let text = shown(&gateway).await;
    assert!(text.contains(&expected), "{text}");
    assert_eq!(upstream(&gateway.admin, "u").await["state"], "down");
    let client = Client::new(&gateway.url);
    assert_eq!(tool_names(&client).await, ["u_work"]);
    let discover = client.call("server/discover", json!({})).await.unwrap();
    // What may be shown to clients is the file's to say; tasks are Waypost's own.
    let extensions = &discover.result()["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/tasks": {} }));
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (200, -32603));
    assert!(
        reply.answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("`u`")
    );
}

#[tokio::test]
async fn every_log_line_of_a_request_carries_its_id_and_upstream() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "log: {{ level: 'warn,waypost=info,waypost_hub=debug,waypost_front=debug' }}\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let waypost = Served::start(&home).await;
    waypost
        .client()
        .tool("t_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    let parse = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let ours = parse(waypost.wait_for_log("\"request finished\"").await);
    let log = waypost.log();
    let theirs = log
        .lines()
        .find(|line| line.contains("\"call finished\"") && line.contains("tools/call"));
    let theirs = parse(theirs.unwrap().to_owned());
    assert_eq!(theirs["upstream"], "t");
    // Within the request's span it is said there.
    let id = |line: &serde_json::Value| {
        let own = line.get("request_id").or(line["span"].get("request_id"));
        own.unwrap().as_str().unwrap().to_owned()
    };
    assert!(!id(&theirs).is_empty());
    assert_eq!(id(&ours), id(&theirs));
}

#[tokio::test]
async fn r78_a_flapping_upstream_moves_readiness_only_if_it_is_required() {
    for required in [false, true] {
        let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
        let address = demo.address;
        let upstreams = format!("t: {{ url: '{}', required: {required} }}", demo.url);
        let gateway = Gateway::start(&upstreams).await.unwrap();
        let ready = async || get(&format!("{}/readyz", gateway.admin)).await.status;
        assert_eq!(ready().await, 200);
        demo.kill().await;
        let client = Client::new(&gateway.url);
        let down = async || {
            client
                .tool("t_greet", json!({ "name": "Ada" }))
                .await
                .unwrap();
            upstream(&gateway.admin, "t").await["state"] == "down"
        };
        until("the upstream to be down", down).await;
        assert_eq!(ready().await, if required { 503 } else { 200 });
        let healthy = get(&format!("{}/healthz", gateway.admin)).await;
        assert_eq!(healthy.status, 200);
        let demo = demo_tasks(address, quick()).await.unwrap();
        until("readiness", async || ready().await == 200).await;
        demo.stop().await;
    }
}
