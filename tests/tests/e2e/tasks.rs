//! Tasks of callers that know them, end to end.

use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::{demo_tasks, legacy_tasks, tasks};
use waypost_testkit::kit::legacy;
use waypost_testkit::misbehave::always_tasks::always_tasks;
use waypost_testkit::misbehave::demands_tasks::demands_tasks;
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::fake::{self, Fake};
use crate::process::{Home, Served, program};
use crate::stage::{Stage, Way, both_ways, quick};
use crate::support::{accept, created, task, task_in};

both_ways! {
    a_task_is_created_read_and_ends_with_its_result,
    a_task_asks_and_takes_answers_in_parts,
    a_cancelled_task_is_acknowledged_and_then_cancelled,
    a_tool_error_completes_and_a_protocol_error_fails,
    a_question_before_the_task_and_the_task_after_it,
    mcp_name_may_be_missing_on_tasks_unless_headers_are_strict,
    without_the_extension_task_methods_name_it_before_the_id_is_looked_at,
}

async fn a_task_is_created_read_and_ends_with_its_result(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let discover = client.call("server/discover", json!({})).await.unwrap();
    let extensions = &discover.result()["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/tasks": {} }));
    let arguments = json!({ "seconds": 0.1, "label": "l" });
    let reply = client.tool("d_slow_compute", arguments).await.unwrap();
    let handle = created(&reply);
    assert!(handle.starts_with("d~"), "{handle}");
    assert!(
        handle.bytes().all(|byte| byte.is_ascii_graphic()),
        "{handle}"
    );
    assert_eq!(reply.headers["mcp-name"], handle.as_str());
    assert!(reply.result()["ttlMs"].is_u64() && reply.result()["createdAt"].is_string());
    let ended = task_in(&client, &handle, "completed").await;
    assert_eq!(ended["taskId"], handle.as_str());
    assert_eq!(ended["resultType"], "complete");
    assert_eq!(ended["result"]["resultType"], "complete");
    let text = ended["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "slow_compute \"l\" finished after 0.1 s");
    // The server knows the task under its own name only.
    let sent = &stage.sent("tasks/get")[0]["params"]["taskId"];
    assert!(!sent.as_str().unwrap().contains('~'), "{sent}");
}

async fn a_task_asks_and_takes_answers_in_parts(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let handle = created(&client.tool("d_multi_input", json!({})).await.unwrap());
    let asking = task_in(&client, &handle, "input_required").await;
    assert_eq!(asking["inputRequests"].as_object().unwrap().len(), 2);
    let update = async |answers: Value| {
        let params = json!({ "taskId": handle, "inputResponses": answers });
        let reply = client.call("tasks/update", params).await.unwrap();
        assert_eq!(reply.result()["resultType"], "complete", "{}", reply.answer);
    };
    update(json!({ "color-2": accept(json!({ "color": "green" })), "no-such": {} })).await;
    let asking = task(&client, &handle).await.result()["inputRequests"].clone();
    assert_eq!(
        asking.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["name-1"]
    );
    update(json!({ "name-1": accept(json!({ "name": "Ada" })) })).await;
    let ended = task_in(&client, &handle, "completed").await;
    assert_eq!(ended["result"]["content"][0]["text"], "Ada likes green.");
}

async fn a_cancelled_task_is_acknowledged_and_then_cancelled(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let arguments = json!({ "seconds": 600 });
    let handle = created(&client.tool("d_slow_compute", arguments).await.unwrap());
    let cancel = client.call("tasks/cancel", json!({ "taskId": handle }));
    let cancel = cancel.await.unwrap();
    assert_eq!(cancel.result()["resultType"], "complete");
    assert_eq!(
        cancel.result()["taskId"],
        Value::Null,
        "an empty acknowledgement"
    );
    task_in(&client, &handle, "cancelled").await;
}

async fn a_tool_error_completes_and_a_protocol_error_fails(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let handle = created(&client.tool("d_failing_job", json!({})).await.unwrap());
    let ended = task_in(&client, &handle, "completed").await;
    assert_eq!(ended["result"]["isError"], true);
    let handle = created(
        &client
            .tool("d_protocol_error_job", json!({}))
            .await
            .unwrap(),
    );
    let ended = task_in(&client, &handle, "failed").await;
    assert!(ended["error"]["code"].is_i64(), "{ended}");
    assert!(ended.get("result").is_none());
}

async fn a_question_before_the_task_and_the_task_after_it(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client().with_tasks();
    let mut params = json!({ "name": "d_test_tool_with_task", "arguments": {} });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    params["requestState"] = asked.result()["requestState"].clone();
    params["inputResponses"] = json!({ "user_name": accept(json!({ "name": "Ada" })) });
    let handle = created(&client.call("tools/call", params).await.unwrap());
    let ended = task_in(&client, &handle, "completed").await;
    assert_eq!(ended["result"]["content"][0]["text"], "Hello, Ada!");
}

async fn mcp_name_may_be_missing_on_tasks_unless_headers_are_strict(way: Way) {
    for (strict, expected) in [(false, (200, 0)), (true, (400, -32020))] {
        let more = format!("front: {{ strict_headers: {strict} }}");
        let stage = Stage::with(way, &more).await;
        let client = stage.client().with_tasks();
        let arguments = json!({ "seconds": 600 });
        let handle = created(&client.tool("d_slow_compute", arguments).await.unwrap());
        let post = || client.post("tasks/get", json!({ "taskId": handle }));
        let reply = client.ask(post().without("mcp-name")).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.code()), expected, "{strict}");
        // A wrong one is wrong always, before anything is sent.
        let before = stage.sent("tasks/get").len();
        let reply = client
            .ask(post().header("mcp-name", "d~other"))
            .await
            .unwrap();
        assert_eq!((reply.status.as_u16(), reply.code()), (400, -32020));
        assert_eq!(stage.sent("tasks/get").len(), before);
    }
}

async fn without_the_extension_task_methods_name_it_before_the_id_is_looked_at(way: Way) {
    let stage = Stage::new(way).await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({ "taskId": "no such", "inputResponses": {} });
        let reply = stage.client().call(method, params).await.unwrap();
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (400, -32021),
            "{method}"
        );
        let needed = &reply.answer["error"]["data"]["requiredCapabilities"]["extensions"];
        assert_eq!(*needed, json!({ "io.modelcontextprotocol/tasks": {} }));
    }
}

// === restarts ===

async fn restartable(state: &std::path::Path, address: std::net::SocketAddr) -> Running {
    let state = Some(state.to_owned());
    demo_tasks(address, tasks::Options { state, ..quick() })
        .await
        .unwrap()
}

#[tokio::test]
async fn a_handle_outlives_crashes_of_waypost_and_of_the_server() {
    let kept = tempfile::tempdir().unwrap();
    let server = restartable(kept.path(), ANY_PORT).await;
    let address = server.address;
    let home = Home::new(&format!(
        "upstreams: {{ t: {{ url: '{}', required: true }} }}",
        server.url
    ));
    let waypost = Served::start(&home).await;
    let client = waypost.client().with_tasks();
    let arguments = json!({ "seconds": 0.5, "label": "outlives" });
    let handle = created(&client.tool("t_external_job", arguments).await.unwrap());
    waypost.signal("KILL").await;
    drop(waypost);
    server.kill().await;

    let server = restartable(kept.path(), address).await;
    let waypost = Served::start(&home).await;
    let client = waypost.client().with_tasks();
    let ended = task_in(&client, &handle, "completed").await;
    let text = ended["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(
        text,
        "external_job \"outlives\" finished in its own process"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_handle_of_a_child_is_unknown_once_that_child_is_gone() {
    let stage = Stage::new(Way::Stdio).await;
    let client = stage.client().with_tasks();
    let arguments = json!({ "seconds": 600 });
    let handle = created(&client.tool("d_slow_compute", arguments).await.unwrap());
    assert_eq!(task(&client, &handle).await.result()["status"], "working");
    let gateway = stage.gateway.restart().await.unwrap();
    let client = Client::new(&gateway.url).with_tasks();
    let reply = task(&client, &handle).await;
    assert_eq!(reply.code(), -32602, "{}", reply.answer);
    assert_eq!(
        reply.answer["error"]["message"].as_str().unwrap(),
        unknown(&client).await
    );
}

/// The first call of a caller has a task: of one that knows tasks, and of one that does not.
async fn first_calls(upstream: &str) {
    let more = "tasks: { poll_first: 10ms, poll_least: 10ms }";
    let upstream = format!("d: {{ {upstream}, required: true }}");
    let arguments = || json!({ "seconds": 0.1, "label": "l" });
    let gateway = Gateway::with(&upstream, more).await.unwrap();
    let client = Client::new(&gateway.url).with_tasks();
    let handle = created(&client.tool("d_external_job", arguments()).await.unwrap());
    assert_eq!(handle.split('~').count(), 5, "{handle}");
    let ended = task_in(&client, &handle, "completed").await;
    assert_eq!(
        ended["result"]["content"][0]["text"],
        "external_job \"l\" finished in its own process"
    );
    let gateway = Gateway::with(&upstream, more).await.unwrap();
    let client = Client::new(&gateway.url);
    let reply = client.tool("d_external_job", arguments()).await.unwrap();
    assert_eq!(
        reply.text(),
        "external_job \"l\" finished in its own process"
    );
}

#[tokio::test]
async fn the_task_of_a_callers_first_call_is_found_where_callers_are_kept_apart() {
    let server = legacy_tasks(ANY_PORT, quick(), legacy::Options::default());
    let server = server.await.unwrap();
    first_calls(&format!("url: '{}'", server.url)).await;
    let program = program().display().to_string();
    let child = format!("command: '{program}', args: [demo-server, all, --stdio]");
    first_calls(&format!("{child}, isolation: principal")).await;
    first_calls(&format!("{child}, isolation: session")).await;
}

#[tokio::test]
async fn replicas_with_the_same_keys_serve_each_others_handles_and_no_others() {
    let server = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let (old, new) = (
        "old-0123456789abcdef0123456789abcdef",
        "new-0123456789abcdef0123456789abcdef",
    );
    let home = |keys: &[&str]| {
        let keys = json!(keys);
        Home::new(&format!(
            "state: {{ keys: {keys} }}\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
            server.url
        ))
    };
    let homes = [home(&[old]), home(&[new, old]), home(&[new])];
    let [one, both, other] = &homes;
    let (one, both, other) = tokio::join!(
        Served::start(one),
        Served::start(both),
        Served::start(other)
    );
    let arguments = json!({ "seconds": 600 });
    let client = one.client().with_tasks();
    let handle = created(&client.tool("t_slow_compute", arguments).await.unwrap());
    let look = async |replica: &Served| {
        let reply = task(&replica.client().with_tasks(), &handle).await;
        (reply.result()["status"].clone(), reply.code())
    };
    assert_eq!(look(&one).await, (json!("working"), 0));
    assert_eq!(look(&both).await, (json!("working"), 0));
    assert_eq!(look(&other).await, (Value::Null, -32602));
}

#[tokio::test]
async fn a_handle_outlives_a_new_name_of_its_upstream() {
    let server = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let yaml = |entry: &str| {
        format!(
            "upstreams: {{ {entry}, url: '{}', required: true }} }}",
            server.url
        )
    };
    let home = Home::new(&yaml("former: { disabled: false"));
    let waypost = Served::start(&home).await;
    let client = waypost.client().with_tasks();
    let arguments = json!({ "seconds": 600 });
    let handle = created(&client.tool("former_slow_compute", arguments).await.unwrap());
    drop(waypost);
    for (entry, code) in [
        ("other: { aliases: [former]", 0),
        ("other: { aliases: []", -32602),
    ] {
        std::fs::write(home.config(), yaml(entry)).unwrap();
        let waypost = Served::start(&home).await;
        let reply = task(&waypost.client().with_tasks(), &handle).await;
        assert_eq!(reply.code(), code, "{entry} {}", reply.answer);
    }
}

/// How a task that never was is unknown.
async fn unknown(client: &Client) -> String {
    let reply = task(client, "never-was").await;
    reply.answer["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned()
}

// === handles ===

#[tokio::test]
async fn r80_equal_ids_lead_to_their_own_server_and_forged_ones_nowhere() {
    let server = |name: &'static str| {
        Fake::start(move |rpc| match rpc.method.as_str() {
            "tools/call" => Some(rpc.ok(&fake::task("1", "task", "working"))),
            "tasks/get" => {
                assert_eq!(rpc.headers["mcp-name"], "1");
                let mut all = fake::task("1", "complete", "working");
                all["statusMessage"] = name.into();
                Some(rpc.ok(&all))
            }
            "tasks/update" | "tasks/cancel" => Some(rpc.ok(&json!({ "resultType": "complete" }))),
            _ => None,
        })
    };
    let (a, b) = (server("a").await, server("b").await);
    let upstreams = format!("a: {{ url: '{}' }}\nb: {{ url: '{}' }}", a.url, b.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url).with_tasks();
    let mut handles = Vec::new();
    for name in ["a", "b"] {
        let handle = created(
            &client
                .tool(&format!("{name}_work"), json!({}))
                .await
                .unwrap(),
        );
        let reply = task(&client, &handle).await;
        assert_eq!(reply.result()["statusMessage"], name);
        handles.push(handle);
    }
    let expected = unknown(&client).await;
    let (of_a, of_b) = (&handles[0], &handles[1]);
    let forged = [
        of_a.replacen("a~", "b~", 1),
        of_a.replacen("~1~", "~2~", 1),
        format!("{of_a}x"),
        of_a[..of_a.len() - 1].to_owned(),
        format!("{}{}", &of_a[..of_a.len() - 4], &of_b[of_b.len() - 4..]),
        "1".to_owned(),
        "gone~x~1~AAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        "~~~".to_owned(),
    ];
    for handle in &forged {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({ "taskId": handle, "inputResponses": {} });
            let reply = client.call(method, params).await.unwrap();
            assert_eq!(
                (reply.status.as_u16(), reply.code()),
                (200, -32602),
                "{method} {handle}"
            );
            assert_eq!(
                reply.answer["error"]["message"],
                expected.as_str(),
                "{method} {handle}"
            );
        }
    }
}

// === who is given a task ===

async fn before(upstream: &Running, settings: &str) -> Gateway {
    let upstream = format!("u: {{ url: '{}'{settings} }}", upstream.url);
    Gateway::start(&upstream).await.unwrap()
}

async fn work(client: Client) -> Reply {
    client.tool("u_work", json!({})).await.unwrap()
}

#[tokio::test]
async fn r79_only_who_declared_the_extension_on_this_call_gets_a_handle() {
    let server = always_tasks().await.unwrap();
    let gateway = before(&server, "").await;
    let plain = || Client::new(&gateway.url);
    assert_eq!(work(plain()).await.text(), "done");
    // The tasks of 2025-11-25 are another thing.
    let old = json!({ "tasks": { "requests": { "tools": { "call": {} } } } });
    assert_eq!(work(plain().with_capabilities(old)).await.text(), "done");
    created(&work(plain().with_tasks()).await);
    let declares = |call: &waypost_testkit::seen::Recorded| {
        let declared =
            &call.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        declared["extensions"]["io.modelcontextprotocol/tasks"].is_object()
    };
    let calls = server.seen().of("tools/call");
    assert_eq!(
        calls.iter().map(declares).collect::<Vec<_>>(),
        [false, false, true]
    );
}

#[tokio::test]
async fn the_four_policies_do_as_they_say() {
    // Policy, what a caller with tasks gets and what one without: `task`, `done` or a code.
    let always = [
        ("auto", "task", "done"),
        ("passthrough", "task", "done"),
        ("collapse", "done", "done"),
        ("refuse", "-32603", "-32603"),
    ];
    let demands = [
        ("auto", "task", "done"),
        ("passthrough", "task", "-32021"),
        ("collapse", "done", "done"),
        ("refuse", "-32021", "-32021"),
    ];
    let outcome = |reply: &Reply| match reply.code() {
        0 if reply.result()["resultType"] == "task" => "task".to_owned(),
        0 => reply.text().to_owned(),
        code => code.to_string(),
    };
    for (demanding, table) in [(false, always), (true, demands)] {
        for (policy, with, without) in table {
            let server = if demanding {
                demands_tasks(-32021).await.unwrap()
            } else {
                always_tasks().await.unwrap()
            };
            let gateway = before(&server, &format!(", tasks: {policy}")).await;
            let client = || Client::new(&gateway.url);
            let reply = work(client().with_tasks()).await;
            assert_eq!(outcome(&reply), with, "{policy}, demanding: {demanding}");
            let reply = work(client()).await;
            assert_eq!(outcome(&reply), without, "{policy}, demanding: {demanding}");
            if without == "-32603" {
                assert!(
                    reply.answer["error"]["message"]
                        .as_str()
                        .unwrap()
                        .contains("`u`")
                );
                assert!(
                    server
                        .seen()
                        .wait_for(|seen| seen.count("tasks/cancel") == 2)
                        .await
                );
            }
        }
    }
}

#[tokio::test]
async fn r81_the_drafts_code_is_understood_and_only_the_final_one_shown() {
    for code in [-32003, -32021] {
        let server = demands_tasks(code).await.unwrap();
        let gateway = before(&server, "").await;
        let client = || Client::new(&gateway.url);
        assert_eq!(work(client()).await.text(), "done", "{code}");
        // The tool is known now: it is asked once, not refused first.
        let calls = server.seen().count("tools/call");
        assert_eq!(work(client()).await.text(), "done", "{code}");
        assert_eq!(server.seen().count("tools/call"), calls + 1, "{code}");

        let gateway = before(&server, ", tasks: passthrough").await;
        let reply = work(Client::new(&gateway.url)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (400, -32021),
            "{code}"
        );
        let needed = &reply.answer["error"]["data"]["requiredCapabilities"]["extensions"];
        assert!(
            needed["io.modelcontextprotocol/tasks"].is_object(),
            "{}",
            reply.answer
        );
    }
}
