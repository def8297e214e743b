//! What a caller hears when the server behind fails: one error that says who and what.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::json;
use waypost_testkit::client::Client;
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::misbehave::closes_mid_body::{Break, closes_mid_body};
use waypost_testkit::misbehave::invalid_json::invalid_json;
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::misbehave::wrong_id::wrong_id;
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::fake::{Fake, plain, text};
use crate::stage::quick;
use crate::support::{tool_names, upstream, wait_for_state};

/// The one error of a call to `u_work`.
async fn error_of(url: &str) -> (u16, serde_json::Value) {
    let upstreams = format!("u: {{ url: '{url}', required: true }}");
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let reply = Client::new(&gateway.url)
        .tool("u_work", json!({}))
        .await
        .unwrap();
    assert!(reply.notifications.is_empty() && reply.answer.get("result").is_none());
    (reply.status.as_u16(), reply.answer["error"].clone())
}

#[tokio::test]
async fn r34_every_failure_over_http_is_one_error_that_names_upstream_and_status() {
    const BODY: &str = "<html>the-body-of-the-page</html>";
    for status in [400, 401, 403, 404, 409, 429, 500, 502, 503] {
        let body = if status == 502 { "" } else { BODY };
        let is_call = move |method: &str| method == "tools/call";
        let server =
            Fake::start(move |rpc| is_call(&rpc.method).then(|| plain(status, body))).await;
        let (http, error) = error_of(&server.url).await;
        assert_eq!(
            (http, &error["code"]),
            (200, &json!(-32603)),
            "{status}: {error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("`u`") && message.contains(&status.to_string()),
            "{message}"
        );
        assert_eq!(error["data"]["upstream"], "u");
        assert!(
            !error.to_string().contains("the-body-of-the-page"),
            "{error}"
        );
    }
}

/// A server that asks for other credentials while the flag is set.
async fn guarded(locked: &Arc<AtomicBool>) -> Fake {
    let locked = Arc::clone(locked);
    Fake::start(move |_| {
        let challenge = "Bearer resource_metadata=\"https://auth.example/\", scope=\"mcp\"";
        let mut response = plain(401, "no");
        let headers = response.headers_mut();
        headers.insert("www-authenticate", challenge.parse().unwrap());
        locked.load(Ordering::SeqCst).then_some(response)
    })
    .await
}

#[tokio::test]
async fn r71_a_servers_challenge_is_not_the_clients() {
    let locked = Arc::new(AtomicBool::new(false));
    let server = guarded(&locked).await;
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    locked.store(true, Ordering::SeqCst);
    let client = Client::new(&gateway.url);
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (200, -32603));
    assert!(reply.headers.get("www-authenticate").is_none());
    assert!(!reply.answer.to_string().contains("auth.example"));
}

#[tokio::test]
async fn r38_credentials_that_are_revoked_are_seen_and_asked_about_again() {
    let locked = Arc::new(AtomicBool::new(false));
    let server = guarded(&locked).await;
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let work = async || client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(work().await.text(), "done");
    locked.store(true, Ordering::SeqCst);
    let refused = work().await;
    let message = refused.answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("credentials"), "{message}");
    wait_for_state(&gateway.admin, "u", "auth_required").await;
    locked.store(false, Ordering::SeqCst);
    wait_for_state(&gateway.admin, "u", "up").await;
    assert_eq!(work().await.text(), "done");
}

#[tokio::test]
async fn r34_answers_that_are_none_are_one_error() {
    let mut urls = Vec::new();
    let mut servers = vec![
        invalid_json("{\"jsonrpc\":").await.unwrap(),
        wrong_id().await.unwrap(),
    ];
    for at in [Break::InJson, Break::AfterProgress, Break::WithoutAnswer] {
        servers.push(closes_mid_body(at).await.unwrap());
    }
    urls.extend(servers.iter().map(|server| server.url.clone()));
    for url in urls {
        let upstreams = format!("u: {{ url: '{url}', required: true }}");
        let gateway = Gateway::start(&upstreams).await.unwrap();
        let reply = Client::new(&gateway.url)
            .tool("u_work", json!({}))
            .await
            .unwrap();
        assert_eq!(reply.code(), -32603, "{}", reply.answer);
        let message = reply.answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("`u`"), "{message}");
    }
}

#[tokio::test]
async fn r34_an_error_of_the_server_passes_with_code_message_and_data() {
    let error =
        json!({ "code": -32042, "message": "as it came", "data": { "z": [1.5], "a": null } });
    let sent = error.clone();
    let server =
        Fake::start(move |rpc| (rpc.method == "tools/call").then(|| rpc.error(500, &sent))).await;
    assert_eq!(error_of(&server.url).await, (200, error));
}

#[tokio::test]
async fn our_own_timeout_cancels_the_call_and_says_so() {
    let server = never_answers(Silence::Calls).await.unwrap();
    let upstreams = format!(
        "u: {{ url: '{}', timeout: 100ms, tools: {{ timeouts: {{ other: 150ms }} }} }}",
        server.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    for (tool, bound, count) in [("u_work", "0.1 s", 1), ("u_other", "0.2 s", 2)] {
        let reply = client.tool(tool, json!({})).await.unwrap();
        assert_eq!((reply.status.as_u16(), reply.code()), (200, -32603));
        let message = reply.answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("`u`") && message.contains(bound),
            "{message}"
        );
        assert!(
            server
                .seen()
                .wait_for(|seen| seen.aborted("tools/call") == count)
                .await
        );
    }
}

#[tokio::test]
async fn progress_extends_the_timeout_up_to_the_ceiling() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let upstreams = format!(
        "u: {{ url: '{}', timeout: 400ms, timeout_ceiling: 5s }}\n\
         v: {{ url: '{}', timeout: 400ms, timeout_ceiling: 600ms }}",
        demo.url, demo.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let run = async |tool: &str| {
        // Progress every 200 ms, 800 ms in all.
        let arguments = json!({ "seconds": 0.8, "label": "l" });
        let meta = json!({ "progressToken": 1 });
        let post = crate::support::tool_with_meta(&client, tool, arguments, meta);
        client.ask(post).await.unwrap()
    };
    assert!(run("u_slow_compute").await.text().contains("finished"));
    let reply = run("v_slow_compute").await;
    assert_eq!(reply.code(), -32603, "{}", reply.answer);
    assert!(
        demo.seen()
            .wait_for(|seen| seen.aborted("tools/call") == 1)
            .await
    );
}

#[tokio::test]
async fn r17_bad_upstreams_fail_alone_and_by_name() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let upstreams = format!(
        "missing: {{ command: /no/such, prefix: m_ }}\n\
         refused: {{ url: 'http://127.0.0.1:1/mcp', prefix: r_ }}\n\
         silent: {{ command: cat, prefix: s_ }}\n\
         good: {{ url: '{}' }}",
        demo.url
    );
    // `cat` answers with what it is asked, which is no answer.
    let started = Instant::now();
    let state = tempfile::tempdir().unwrap();
    let text: String = upstreams
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstate: {{ path: '{}' }}\nupstreams:\n{text}",
        state.path().join("db").display()
    );
    let config = waypost_config::parse_str(&yaml).unwrap().config;
    let options = waypost::daemon::Options::default();
    let daemon = Box::pin(waypost::daemon::Daemon::start(config, options))
        .await
        .unwrap();
    let client = Client::new(daemon.url());
    client.call("server/discover", json!({})).await.unwrap();
    let names = tool_names(&client).await;
    assert!(names.contains(&"good_greet".to_owned()), "{names:?}");
    let reply = client
        .tool("good_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");
    assert!(
        started.elapsed().as_millis() < 1_000,
        "{:?}",
        started.elapsed()
    );
    let admin = format!("http://{}", daemon.admin);
    for (name, cause) in [("missing", "/no/such"), ("refused", "refused")] {
        wait_for_state(&admin, name, "down").await;
        let error = upstream(&admin, name).await["lastError"]["message"].clone();
        assert!(error.as_str().unwrap().contains(cause), "{error}");
    }
    let reply = Client::new(format!("{}/refused", daemon.url()));
    let reply = reply.tool("r_any", json!({})).await.unwrap();
    assert_eq!(reply.status, 200);
    let message = reply.answer["error"]["message"].as_str().unwrap();
    // Whether it has the tool, nobody can say before it was there once.
    let says = "upstream `refused`: nothing is known of it yet: ";
    assert!(message.starts_with(says), "{message}");
    assert!(message.contains("connection refused"), "{message}");
}

#[tokio::test]
async fn r57_calls_that_fail_show_in_the_status_and_tool_errors_do_not() {
    let broken = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&broken);
    let server = Fake::start(move |rpc| {
        if rpc.method != "tools/call" {
            return None;
        }
        if switch.load(Ordering::SeqCst) {
            return Some(plain(500, "broken"));
        }
        let mut failed = text("no");
        failed["isError"] = json!(true);
        Some(rpc.ok(&failed))
    })
    .await;
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    for _ in 0..5 {
        let reply = client.tool("u_work", json!({})).await.unwrap();
        assert_eq!(reply.result()["isError"], true);
    }
    let entry = upstream(&gateway.admin, "u").await;
    assert_eq!(
        (&entry["state"], &entry["lastError"]),
        (&json!("up"), &json!(null))
    );
    broken.store(true, Ordering::SeqCst);
    let degraded = async || {
        client.tool("u_work", json!({})).await.unwrap();
        upstream(&gateway.admin, "u").await["state"] == "degraded"
    };
    crate::support::until("the upstream to be degraded", degraded).await;
    let error = upstream(&gateway.admin, "u").await["lastError"].clone();
    assert!(
        error["message"].as_str().unwrap().contains("500"),
        "{error}"
    );
    assert!(error["at"].is_string());
    broken.store(false, Ordering::SeqCst);
    client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(upstream(&gateway.admin, "u").await["state"], "up");
}

#[tokio::test]
async fn r73_a_server_that_was_not_there_for_a_moment_is_used_again() {
    let away = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&away);
    let is_away = move || switch.load(Ordering::SeqCst);
    let server = Fake::start(move |_| is_away().then(|| plain(404, "no route"))).await;
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    away.store(true, Ordering::SeqCst);
    let down = async || {
        let reply = client.tool("u_work", json!({})).await.unwrap();
        let message = reply.answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("`u`") && message.contains("404"),
            "{message}"
        );
        upstream(&gateway.admin, "u").await["state"] != "up"
    };
    crate::support::until("the failure to show", down).await;
    assert_eq!(tool_names(&client).await, ["u_work"], "what is known stays");
    away.store(false, Ordering::SeqCst);
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(reply.text(), "done", "{}", reply.answer);
    wait_for_state(&gateway.admin, "u", "up").await;
}
