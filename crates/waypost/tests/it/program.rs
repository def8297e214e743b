//! The program as a process: commands, exit codes, signals.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_tasks, tasks};
use waypost_testkit::misbehave::http_errors::{Refusal, http_errors};
use waypost_testkit::misbehave::never_answers::{Silence, never_answers};
use waypost_testkit::run::ANY_PORT;

use crate::support::tool_names;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waypost"));
    command.stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn file(folder: &TempDir, yaml: &str) -> PathBuf {
    let path = folder.path().join("waypost.yaml");
    fs::write(&path, yaml).unwrap();
    path
}

/// `waypost serve`, up.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
    log: BufReader<std::process::ChildStderr>,
}

impl Served {
    fn start(config: &Path) -> Self {
        let mut command = program();
        command
            .arg("serve")
            .arg("--config")
            .arg(config)
            .stderr(Stdio::piped());
        command.args("--listen 127.0.0.1:0 --admin 127.0.0.1:0 --log-format json".split(' '));
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut served = Self {
            child,
            url: String::new(),
            log,
        };
        let line: Value = serde_json::from_str(&served.wait_for("listening")).unwrap();
        served.url = format!("http://{}/mcp", line["mcp"].as_str().unwrap());
        served
    }

    pub(crate) async fn start_blocking(config: PathBuf) -> Self {
        let start = tokio::task::spawn_blocking(move || Self::start(&config));
        start.await.unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Reads the log on to the line that says so, and gives it.
    fn wait_for(&mut self, message: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.log.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the log ended without `{message}`");
            if line.contains(message) {
                return line;
            }
        }
    }

    /// Everything it has still to say.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        rest
    }

    fn code(mut self) -> Option<i32> {
        // Nobody may wait for a full pipe.
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // After an ordinary end there is nothing to kill.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[test]
fn a_wrong_configuration_is_told_with_place_and_hint_and_exits_78() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        &folder,
        "upstreams:\n  a: { url: http://h/mcp, timeot: 5s }\nlisten: nowhere\n",
    );
    for command in ["serve", "check"] {
        let output = run(&[command, "--config", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(78), "{command}");
        let said = text(&output.stderr);
        let place = format!("{}:2:27: error: `upstreams.a.timeot`", path.display());
        assert!(said.contains(&place), "{said}");
        assert!(said.contains("hint: did you mean `timeout`?"), "{said}");
        assert!(said.contains("`listen`"), "all at once: {said}");
    }
}

#[test]
fn nothing_to_serve_is_an_error_that_says_where_a_file_is_looked_for() {
    let empty = TempDir::new().unwrap();
    for command in ["check", "serve"] {
        let mut program = program();
        program.arg(command).current_dir(&empty);
        let output = program.env("HOME", empty.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{command}");
        let said = text(&output.stderr);
        assert!(said.contains("no configuration file was found"), "{said}");
        assert!(said.contains("hint: write `./waypost.yaml`"), "{said}");
    }
    let left = fs::read_dir(empty.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_without_a_terminal_that_was_closed_does_not_end_it() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let folder = TempDir::new().unwrap();
    let yaml = format!("upstreams: {{ demo: {{ url: '{}' }} }}", demo.url);
    let config = file(&folder, &yaml);
    let code = tokio::task::spawn_blocking(move || {
        let served = Served::start(&config);
        served.signal("HUP");
        served.signal("TERM");
        served.code()
    });
    assert_eq!(code.await.unwrap(), Some(0));
    demo.stop().await;
}

#[test]
fn an_address_in_use_is_a_clear_error_and_exits_1() {
    let taken = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "{}");
    let config = path.to_str().unwrap();
    for flag in ["--listen", "--admin"] {
        let other = if flag == "--listen" {
            "--admin"
        } else {
            "--listen"
        };
        let output = run(&[
            "serve",
            "--config",
            config,
            flag,
            &address,
            other,
            "127.0.0.1:0",
        ]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("error: cannot listen on `{address}`")),
            "{said}"
        );
        assert!(said.contains(&format!("with `{flag}`")), "{said}");
    }
    let output = run(&["demo", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("hint: "),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_damaged_state_file_is_a_clear_error_and_exits_1() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("waypost.db");
    fs::write(&database, "garbage ".repeat(1_000)).unwrap();
    let path = file(&folder, "{ listen: 127.0.0.1:0, admin: 127.0.0.1:0 }");
    let output = run(&["serve", "--config", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("is damaged") && said.contains("hint: move it away"),
        "{said}"
    );
}

#[test]
fn schema_is_json_and_add_key_prints_key_and_hash() {
    let schema: Value = serde_json::from_slice(&run(&["schema"]).stdout).unwrap();
    assert_eq!(schema["type"], "object");
    let said = text(&run(&["auth", "add-key", "ci"]).stdout);
    let key = said
        .split_whitespace()
        .find(|word| word.starts_with("wp_"))
        .unwrap();
    let hash = waypost_config::KeyHash::of(key).to_string();
    assert!(said.contains(&hash), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn check_shows_upstreams_and_names() {
    let demo = demo_tasks(ANY_PORT, tasks::Options::default())
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let yaml = format!(
        "upstreams:\n  tasks: {{ url: '{}' }}\n  gone: {{ url: 'http://127.0.0.1:1/mcp' }}\n\
         state: {{ path: '{}' }}\n",
        demo.url,
        folder.path().join("never.db").display()
    );
    let path = file(&folder, &yaml);
    let config = path.to_str().unwrap().to_owned();
    let output = tokio::task::spawn_blocking(move || run(&["check", "--config", &config]));
    let output = output.await.unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let row = |begins: &str| {
        let line = said.lines().find(|line| line.starts_with(begins));
        line.unwrap_or_else(|| panic!("no `{begins}` in\n{said}"))
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row("tasks "),
        ["tasks", "up", "modern", "2026-07-28", "yes"]
    );
    assert_eq!(row("gone ")[..2], ["gone", "down"]);
    assert_eq!(
        row("tool  tasks_greet "),
        ["tool", "tasks_greet", "11", "tasks", "greet"]
    );
    assert!(
        !folder.path().join("never.db").exists(),
        "checking writes no state"
    );
    demo.stop().await;
}

#[test]
fn check_says_where_a_missing_program_comes_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        &folder,
        "upstreams:\n  time: { command: uvx, args: [x], env: { PATH: /nowhere } }\n  \
         code: { command: uvx, args: [y], env: { PATH: /nowhere } }\n  \
         own: { command: no-such, env: { PATH: /elsewhere } }\n",
    );
    let output = run(&["check", "--config", path.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(said.matches("`uvx` comes with uv").count(), 1, "{said}");
    // What `env` says may be secret, so the path is not shown.
    let hint = "hint: install `no-such`, or give its whole path as `command`; PATH is `***`";
    assert!(said.contains(hint), "{said}");
    let row = said.lines().find(|line| line.starts_with("time "));
    let row = row.unwrap_or_default();
    assert!(
        row.contains("`uvx` was not found") && !row.contains("/nowhere"),
        "{row}"
    );
}

#[test]
fn check_offline_connects_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(
        &folder,
        "upstreams: { gone: { url: 'http://127.0.0.1:1/mcp', required: true } }",
    );
    let config = path.to_str().unwrap();
    assert!(
        run(&["check", "--offline", "--config", config])
            .status
            .success()
    );
    let output = run(&["check", "--config", config]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("`gone`"),
        "{}",
        text(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn r42_sigterm_ends_children_and_exits_0() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    let script = format!(
        "{} demo-server tasks --stdio; echo gone > {}",
        env!("CARGO_BIN_EXE_waypost"),
        gone.display()
    );
    let yaml = json!({
        "upstreams": { "child": { "command": "sh", "args": ["-c", script], "required": true } },
        "state": { "path": folder.path().join("waypost.db") },
    });
    let path = file(&folder, &yaml.to_string());
    let served = Served::start_blocking(path).await;
    let client = Client::new(&served.url);
    let there = async || {
        tool_names(&client)
            .await
            .contains(&"child_greet".to_owned())
    };
    crate::support::until("the child's tools", there).await;
    let started = Instant::now();
    served.signal("TERM");
    let code = tokio::task::spawn_blocking(move || served.code())
        .await
        .unwrap();
    assert_eq!(code, Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert!(gone.exists(), "the child was asked to leave and waited for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[expect(clippy::disallowed_methods, reason = "the call never ends by itself")]
async fn r42_a_second_signal_ends_it_at_once() {
    let silent = never_answers(Silence::Calls).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let yaml = json!({
        "upstreams": { "silent": { "url": silent.url } },
        "state": { "path": folder.path().join("waypost.db") },
        "drain_grace": "5m",
    });
    let path = file(&folder, &yaml.to_string());
    let mut served = Served::start_blocking(path).await;
    let client = Client::new(&served.url);
    let there = async || !tool_names(&client).await.is_empty();
    crate::support::until("the tools", there).await;
    let tool = tool_names(&client).await.remove(0);
    let call = tokio::spawn(async move { client.tool(&tool, json!({})).await });
    assert!(
        silent
            .seen()
            .wait_for(|seen| seen.count("tools/call") == 1)
            .await
    );
    let started = Instant::now();
    served.signal("TERM");
    let served = tokio::task::spawn_blocking(move || {
        served.wait_for("draining");
        served
    });
    let served = served.await.unwrap();
    served.signal("INT");
    tokio::task::spawn_blocking(move || served.code())
        .await
        .unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    assert!(call.await.unwrap().is_err());
    silent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn r36_secrets_are_in_no_log_line_whatever_goes_wrong() {
    let refusing = http_errors(Refusal::Unauthorized).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let header = json!({ "Authorization": "Bearer canary-header" });
    let child = json!({ "SECRET_TOKEN": "canary-variable" });
    let yaml = json!({
        "upstreams": {
            "refused": { "url": "http://127.0.0.1:1/mcp?api_key=canary-query", "headers": header },
            "unauthorized": { "url": format!("{}?api_key=canary-query", refusing.url), "headers": header },
            "child": { "command": "sh", "args": ["-c", "exit 3"], "env": child },
        },
        "state": { "path": folder.path().join("waypost.db"), "keys": ["canary-key-0123456789abcdef0123456789abcdef"] },
        "auth": { "keys": [{ "name": "ci", "hash": waypost_config::KeyHash::of("canary-bearer").to_string() }] },
        "log": { "level": "trace" },
    });
    let path = file(&folder, &yaml.to_string());
    let served = Served::start_blocking(path).await;
    let client = Client::new(&served.url);
    for key in ["canary-bearer", "canary-wrong"] {
        let post = client.post("tools/list", json!({}));
        let post = post.header("authorization", &format!("Bearer {key}"));
        client.ask(post).await.unwrap();
    }
    assert!(
        refusing
            .seen()
            .wait_for(|seen| seen.count("server/discover") >= 1)
            .await
    );
    served.signal("TERM");
    let log = tokio::task::spawn_blocking(move || served.rest())
        .await
        .unwrap();
    assert!(log.contains("unauthorized"), "{log}");
    let line = log.lines().find(|line| line.contains("canary"));
    assert_eq!(line, None, "a secret in the log");
    refusing.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_killed_waypost_takes_its_children_along() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    // Lives on when its input ends, so only a signal can have ended it. Nobody reads what the
    // shell says of the `sleep` that the signal ended too.
    let script = format!(
        "exec 2>/dev/null; trap 'echo gone > {}; exit' TERM; {} demo-server tasks --stdio; \
         while :; do sleep 1; done",
        gone.display(),
        env!("CARGO_BIN_EXE_waypost")
    );
    let yaml = json!({
        "upstreams": { "child": { "command": "sh", "args": ["-c", script] } },
        "state": { "path": folder.path().join("waypost.db") },
    });
    let path = file(&folder, &yaml.to_string());
    let served = Served::start_blocking(path).await;
    let client = Client::new(&served.url);
    let there = async || {
        tool_names(&client)
            .await
            .contains(&"child_greet".to_owned())
    };
    crate::support::until("the child's tools", there).await;
    served.signal("KILL");
    crate::support::until("the end of the child", async || gone.exists()).await;
}
