//! Planted secrets turn up nowhere.

use serde_json::json;
use waypost_config::KeyHash;
use waypost_testkit::client::Client;
use waypost_testkit::misbehave::echo::echo;
use waypost_testkit::misbehave::http_errors::{Refusal, http_errors};

use crate::process::{Home, Served, run};
use crate::support::{get, until};

const KEY: &str = "wp_canary-key-0123456789abcdef";
const ADMIN: &str = "canary-admin-0123456789abcdef0123456789";

/// Upstreams that work, refuse, are gone, die with their secret on the lips, or have no TLS.
fn yaml(good: &str, refusing: &str) -> String {
    let port = good.rsplit(':').next().unwrap();
    let scheme = format!("https://127.0.0.1:{port}");
    let script = "echo my token is $TOKEN >&2; exit 3";
    let upstreams = json!({
        "good": { "url": format!("{good}?api_key=canary-query"), "headers": { "X-Secret": "canary-header" } },
        "refusing": { "url": format!("{refusing}?api_key=canary-query"), "headers": { "Authorization": "Bearer canary-header" } },
        "gone": { "url": "http://127.0.0.1:1/mcp?api_key=canary-query" },
        "tls": { "url": format!("{scheme}?api_key=canary-query"), "headers": { "X-Secret": "canary-header" } },
        "dying": { "command": "sh", "args": ["-c", script], "env": { "TOKEN": "canary-env" } },
    });
    let config = json!({
        "log": { "level": "trace" },
        "auth": { "keys": [{ "name": "ada", "hash": KeyHash::of(KEY).to_string() }] },
        "admin": { "token": ADMIN },
        "state": { "keys": ["canary-state-0123456789abcdef0123456789abcdef"] },
        "upstreams": upstreams,
    });
    config.to_string()
}

async fn admin(waypost: &Served, path: &str) -> String {
    let client = Client::new(format!("{}{path}", waypost.admin));
    let mut post = client.post("", json!({})).raw("");
    post.http_method = http::Method::GET;
    let post = post.header("authorization", &format!("Bearer {ADMIN}"));
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.status, 200, "{path}");
    String::from_utf8(reply.raw.to_vec()).unwrap()
}

#[tokio::test]
async fn r36_no_secret_is_in_log_admin_metrics_or_errors() {
    let (good, refusing) = (
        echo().await.unwrap(),
        http_errors(Refusal::Unauthorized).await.unwrap(),
    );
    let home = Home::new(&yaml(&good.url, &refusing.url));
    let waypost = Served::start(&home).await;
    let client = waypost.client();
    let mut said = String::new();
    for upstream in ["good", "refusing", "gone", "tls", "dying"] {
        for key in [KEY, "wp_canary-wrong"] {
            let tool = format!("{upstream}_work");
            let post = client.post(
                "tools/call",
                json!({ "name": tool, "arguments": { "a": 1 } }),
            );
            let post = post
                .header("authorization", &format!("Bearer {key}"))
                .header("cookie", "canary-cookie");
            let reply = client.ask(post).await.unwrap();
            if upstream != "good" {
                said.push_str(&reply.answer.to_string());
            }
        }
    }
    // The good server did get its own.
    let seen = good.seen().of("tools/call");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("x-secret"), Some("canary-header"));
    assert!(seen[0].path.contains("canary-query"));
    let wrong = get(&format!("{}/api/v1/upstreams", waypost.admin)).await;
    assert_eq!(wrong.status, 401);
    let states = async || {
        admin(&waypost, "/api/v1/upstreams")
            .await
            .matches("\"lastError\":{")
            .count()
            >= 4
    };
    until("every failure to be known", states).await;
    for path in ["/api/v1/upstreams", "/metrics", "/readyz"] {
        said.push_str(&admin(&waypost, path).await);
    }
    let config = home.config();
    let check = run(&["check", "--config", config.to_str().unwrap()], &[]).await;
    said.push_str(&String::from_utf8(check.stdout).unwrap());
    said.push_str(&String::from_utf8(check.stderr).unwrap());
    said.push_str(&waypost.log());
    assert!(
        said.contains("my token is"),
        "the last words are kept:\n{said}"
    );
    let leaks: Vec<_> = said
        .lines()
        .filter(|line| line.contains("canary"))
        .collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[tokio::test]
async fn r36_a_configuration_that_is_refused_shows_no_value() {
    let home = Home::new(
        "upstreams:\n  a: { url: 'http://user:canary-basic@h/mcp?k=canary-query', timeout: canary }\n  \
         b: { url: 'ht tp://canary-host/', headers: { 'bad name': canary-header } }\nadmin: { token: canary-short }\n",
    );
    let config = home.config();
    let output = run(&["check", "--config", config.to_str().unwrap()], &[]).await;
    assert_eq!(output.status.code(), Some(78));
    let said = String::from_utf8(output.stderr).unwrap();
    for secret in [
        "canary-basic",
        "canary-query",
        "canary-header",
        "canary-short",
    ] {
        assert!(!said.contains(secret), "{secret} in\n{said}");
    }
    assert!(said.contains("waypost.yaml:2:"), "{said}");
}
