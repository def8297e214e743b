//! The command line around the daemon.

use std::path::Path;

use serde_json::{Value, json};
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::run::ANY_PORT;

use crate::process::{Home, Served, run};
use crate::stage::quick;
use crate::support::get;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn the_schema_printed_is_the_schema_kept() {
    let printed = run(&["schema"], &[]).await;
    assert!(printed.status.success());
    let kept = std::fs::read_to_string(root().join("config/waypost.schema.json")).unwrap();
    assert_eq!(text(&printed.stdout).trim_end(), kept.trim_end());
}

#[tokio::test]
async fn the_key_that_add_key_prints_opens_the_endpoint() {
    let printed = text(&run(&["auth", "add-key", "ci"], &[]).await.stdout);
    let key = printed
        .split_whitespace()
        .find(|word| word.starts_with("wp_"))
        .unwrap();
    let yaml = &printed[printed.find("auth:").unwrap()..];
    let home = Home::new(yaml);
    let waypost = Served::start(&home).await;
    let client = waypost.client();
    for (key, status) in [(key, 200), ("wp_other", 401)] {
        let post = client.post("server/discover", json!({}));
        let post = post.header("authorization", &format!("Bearer {key}"));
        assert_eq!(client.ask(post).await.unwrap().status, status);
    }
    assert!(!yaml.contains(key), "the file holds only the hash");
    let again = text(&run(&["auth", "add-key", "ci"], &[]).await.stdout);
    assert!(!again.contains(key), "each time another");
}

#[tokio::test]
async fn every_example_passes_the_check() {
    let hash = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let hashes = [hash("1"), hash("2")];
    let key = "k".repeat(40);
    let env = [
        ("CI_TOKEN", "t"),
        ("WAYPOST_AGENTS_HASH", hashes[0].as_str()),
        ("WAYPOST_STATE_KEY", key.as_str()),
        ("CI_KEY_HASH", hashes[0].as_str()),
        ("ALICE_KEY_HASH", hashes[1].as_str()),
    ];
    let secrets = tempfile::tempdir().unwrap();
    for name in [
        "waypost_admin_token",
        "ci_token",
        "issues_token",
        "waypost_state_key",
    ] {
        std::fs::write(secrets.path().join(name), format!("{key}\n")).unwrap();
    }
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        seen += 1;
        // The files of secrets lie elsewhere here.
        let yaml = std::fs::read_to_string(&path).unwrap();
        let yaml = yaml.replace("/run/secrets", secrets.path().to_str().unwrap());
        let home = Home::new(&yaml);
        let config = home.config();
        let arguments = ["check", "--offline", "--config", config.to_str().unwrap()];
        let output = run(&arguments, &env).await;
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            text(&output.stderr)
        );
    }
    assert!(seen >= 3, "{seen}");
}

#[tokio::test]
async fn beyond_loopback_there_must_be_keys_or_a_word_about_it() {
    let cases = [
        ("listen: 0.0.0.0:0", false),
        ("listen: '[::]:0'", false),
        ("{ listen: 0.0.0.0:0, insecure: true }", true),
    ];
    for (yaml, passes) in cases {
        let home = Home::new(yaml);
        let config = home.config();
        let config = config.to_str().unwrap();
        let output = run(&["check", "--offline", "--config", config], &[]).await;
        assert_eq!(
            output.status.success(),
            passes,
            "{yaml}: {}",
            text(&output.stderr)
        );
        if !passes {
            let output = run(&["serve", "--config", config], &[]).await;
            assert_eq!(output.status.code(), Some(78), "{yaml}");
            let said = text(&output.stderr);
            assert!(
                said.contains("auth.keys") && said.contains("insecure"),
                "{said}"
            );
        }
    }
}

#[tokio::test]
async fn problems_come_all_at_once_with_place_and_hint() {
    let yaml = "upstreams:\n  a:\n    url: http://h/mcp\n    timeot: 5s\n  B: { command: x }\n  c: {}\nlisten: nowhere\n";
    let home = Home::new(yaml);
    let config = home.config();
    let output = run(&["check", "--config", config.to_str().unwrap()], &[]).await;
    assert_eq!(output.status.code(), Some(78));
    let said = text(&output.stderr);
    for place in [
        "waypost.yaml:4:5:",
        "waypost.yaml:5:3:",
        "waypost.yaml:6:",
        "waypost.yaml:7:9:",
    ] {
        assert!(said.contains(place), "{place} in\n{said}");
    }
    assert!(said.matches("hint: ").count() >= 3, "{said}");
}

#[tokio::test]
async fn environment_and_flags_win_over_the_file() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(
        "front: { strict_headers: false }\nupstreams: { t: { url: '${env:TARGET}', required: true } }",
    );
    let env = [
        ("TARGET", demo.url.as_str()),
        ("WAYPOST_FRONT__STRICT_HEADERS", "true"),
    ];
    let waypost = Served::start_with(&home, &env).await;
    let client = waypost.client().with_tasks();
    let post = client.post("tasks/get", json!({ "taskId": "t~x" }));
    let reply = client.ask(post.without("mcp-name")).await.unwrap();
    assert_eq!((reply.status.as_u16(), reply.code()), (400, -32020));
}

#[tokio::test]
async fn servers_in_the_shape_of_other_files_are_served() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let program = crate::process::program();
    // Text, for its order.
    let servers = format!(
        r#"{{ "mcpServers": {{
            "remote": {{ "type": "http", "url": "{}" }},
            "local": {{ "command": "{}", "args": ["demo-server", "tasks", "--stdio"], "env": {{}} }},
            "off": {{ "command": "/no/such", "disabled": true }}
        }} }}"#,
        demo.url,
        program.display()
    );
    let home = Home::new(&servers);
    let waypost = Served::start(&home).await;
    for tool in ["remote_greet", "local_greet"] {
        let reply = waypost
            .client()
            .tool(tool, json!({ "name": "Ada" }))
            .await
            .unwrap();
        assert_eq!(reply.text(), "Hello, Ada!", "{tool}");
    }
    let all = get(&format!("{}/api/v1/upstreams", waypost.admin))
        .await
        .answer;
    let states: Vec<_> = all["upstreams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one: &Value| &one["state"])
        .collect();
    assert_eq!(states, ["up", "up", "disabled"]);
}
