//! Children that misbehave.

use std::time::Instant;

use futures_util::future::join_all;
use serde_json::json;
use waypost_testkit::client::Client;
use waypost_tests::gateway::Gateway;

use crate::process::{pid_in, program, signal};
use crate::support::{get, page, until, upstream, wait_for_state};

/// A shell script that ends as the demo server *tasks*.
fn script(before: &str) -> String {
    let script = format!(
        "{before}\nexec '{}' demo-server tasks --stdio",
        program().display()
    );
    format!("{{ command: sh, args: [-c, {script:?}], required: true }}")
}

#[tokio::test]
async fn r12_what_a_child_says_beside_the_protocol_is_skipped_and_counted() {
    let noise = r#"printf 'Server v1.0 running\n\n{"level":"info"}\nnull\n'"#;
    let gateway = Gateway::start(&format!("noisy: {}", script(noise)))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let reply = client.tool("noisy_greet", json!({ "name": "Ada" })).await;
    assert_eq!(reply.unwrap().text(), "Hello, Ada!");
    let metrics = page(&format!("{}/metrics", gateway.admin)).await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("waypost_upstream_stray_lines_total") && line.contains("\"noisy\"")
    });
    assert!(
        counted.is_some_and(|line| !line.ends_with(" 0")),
        "{metrics}"
    );
}

#[tokio::test]
async fn r35_a_killed_child_fails_its_calls_at_once_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let note = format!("echo $$$$ > '{}'; echo the last words >&2", file.display());
    let gateway = Gateway::start(&format!("c: {}", script(&note)))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let pid = pid_in(&file).await;
    std::fs::remove_file(&file).unwrap();
    let mut streams = Vec::new();
    for _ in 0..10 {
        let arguments = json!({ "seconds": 600 });
        let meta = json!({ "progressToken": 1 });
        let post = crate::support::tool_with_meta(&client, "c_slow_compute", arguments, meta);
        let mut stream = client.send(post).await.unwrap();
        stream.next().await.unwrap().unwrap();
        streams.push(stream);
    }
    signal(pid, "KILL").await;
    let started = Instant::now();
    let replies = join_all(streams.into_iter().map(|stream| stream.finish())).await;
    assert!(
        started.elapsed().as_millis() < 1_000,
        "{:?}",
        started.elapsed()
    );
    for reply in replies {
        let reply = reply.unwrap();
        assert_eq!(reply.code(), -32603, "{}", reply.answer);
        let message = reply.answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("`c`") && message.contains("signal 9"),
            "{message}"
        );
        assert!(message.contains("the last words"), "{message}");
    }
    let back = async || {
        let reply = client
            .tool("c_greet", json!({ "name": "Ada" }))
            .await
            .unwrap();
        // While it is away calls fail at once and by name, and its tools stay listed.
        assert!(
            reply.code() == -32603 || reply.text() == "Hello, Ada!",
            "{}",
            reply.answer
        );
        reply.text() == "Hello, Ada!"
    };
    until("the child to be back", back).await;
    assert_ne!(pid_in(&file).await, pid);
}

#[tokio::test]
async fn r56_a_child_that_cannot_start_says_why() {
    let upstreams = "boom: { command: sh, args: [-c, 'echo the reason >&2; exit 3'] }\n\
                     missing: { command: not-there }\n\
                     readonly: { command: /etc/hostname }";
    let started = Instant::now();
    let gateway = Gateway::start(upstreams).await.unwrap();
    for (name, parts) in [
        ("boom", ["code 3", "the reason"]),
        ("missing", ["not-there", "not-there"]),
        ("readonly", ["/etc/hostname", "/etc/hostname"]),
    ] {
        wait_for_state(&gateway.admin, name, "down").await;
        let error = upstream(&gateway.admin, name).await["lastError"]["message"].clone();
        let error = error.as_str().unwrap();
        assert!(
            parts.iter().all(|part| error.contains(part)),
            "{name}: {error}"
        );
    }
    assert!(
        started.elapsed().as_millis() < 2_000,
        "{:?}",
        started.elapsed()
    );
    assert_eq!(get(&format!("{}/readyz", gateway.admin)).await.status, 200);
}

#[tokio::test]
async fn r40_a_child_gets_its_own_environment_and_none_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("env");
    let dump = format!("env > '{}'", file.display());
    let upstream = script(&dump).replacen('{', "{ env: { OWN: value }, ", 1);
    // Set by cargo, so certainly in this process.
    assert!(std::env::vars_os().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
    let gateway = Gateway::start(&format!("c: {upstream}")).await.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("OWN=value") && text.contains("PATH="),
        "{text}"
    );
    assert!(!text.contains("CARGO_"), "{text}");
    drop(gateway);
}
