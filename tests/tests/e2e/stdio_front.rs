//! `waypost stdio`: the program as a host launches it, in-process and as a bridge.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};
use waypost_testkit::demo::{demo_all, legacy_all};
use waypost_testkit::kit::legacy::{self, Revision};
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;

use crate::process::{Home, Served, alive, pid_in, program, run, signal};
use crate::stage::quick;
use crate::support::{SOON, until};

const KINDS: [Kind; 2] = [Kind::ModernPipe, Kind::LegacyPipe(Revision::Nov2025)];

/// A configuration with the demo servers behind, over HTTP and as a child.
fn config(url: &str, home: &Home) {
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstate: {{ path: {} }}\nupstreams:\n  \
         web: {{ url: '{url}', required: true }}\n  \
         child: {{ command: '{}', args: [demo-server, everything, --stdio], required: true }}\n",
        home.path().join("waypost.db").display(),
        program().display(),
    );
    std::fs::write(home.config(), yaml).unwrap();
}

fn command(home: &Home) -> Vec<String> {
    let program = program().display().to_string();
    let config = home.config().display().to_string();
    let words = [
        &program,
        "stdio",
        "--log-level",
        "warn",
        "--config",
        &config,
    ];
    words.map(str::to_owned).to_vec()
}

fn bridge(url: &str) -> Vec<String> {
    let program = program().display().to_string();
    let words = [&program, "stdio", "--log-level", "warn", "--connect", url];
    words.map(str::to_owned).to_vec()
}

/// What every client does: list, call, progress, be asked, log, read, be told.
async fn tour(kind: Kind, command: Vec<String>) {
    let peer = Peer::connect(kind, &Target::Command(command))
        .await
        .unwrap();
    // A child may still be starting.
    let listed = async || {
        let tools = peer.list("tools").await.unwrap();
        ["web_", "child_"].iter().all(|prefix| {
            let named = |tool: &Value| tool["name"].as_str().unwrap().starts_with(prefix);
            tools.iter().any(named)
        })
    };
    until("the tools of both servers", listed).await;
    for prefix in ["web", "child"] {
        let name = |tool: &str| format!("{prefix}_{tool}");
        let plain = peer
            .tool(&name("test_simple_text"), json!({}))
            .await
            .unwrap();
        assert!(plain.text().contains("simple text"), "{plain:?}");
        let progress = peer
            .tool(&name("test_tool_with_progress"), json!({}))
            .await
            .unwrap();
        assert!(progress.progress().len() >= 2, "{progress:?}");
        let asked = json!({ "message": "who?" });
        let asked = peer
            .call(&name("test_elicitation"), asked, &Answers::usual())
            .await
            .unwrap();
        assert_eq!(asked.asked.len(), 1, "{asked:?}");
        assert!(!asked.is_tool_error() && asked.code() == 0, "{asked:?}");
    }
    peer.set_level("debug").await.unwrap();
    let logged = peer
        .tool("child_test_tool_with_logging", json!({}))
        .await
        .unwrap();
    assert!(!logged.logs().is_empty(), "{logged:?}");
    peer.watch(&[]).await.unwrap();
    assert_eq!(peer.close().await.unwrap().unwrap().code(), Some(0));
}

#[tokio::test]
async fn both_eras_are_served_in_process() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    for kind in KINDS {
        let home = Home::new("");
        config(&demo.url, &home);
        Box::pin(tour(kind, command(&home))).await;
    }
    demo.stop().await;
}

#[tokio::test]
async fn both_eras_are_bridged_to_a_daemon() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let served = Served::start(&home).await;
    for kind in KINDS {
        Box::pin(tour(kind, bridge(&served.url))).await;
    }
    demo.stop().await;
}

/// `waypost stdio` with its pipes in hand.
struct Launched {
    child: Child,
    /// `None` once it is closed.
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
}

impl Launched {
    fn start(command: &[String]) -> Self {
        let (program, arguments) = command.split_first().unwrap();
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, to, from }
    }

    async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        let to = self.to.as_mut().unwrap();
        to.write_all(line.as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = timeout(SOON, self.from.next_line()).await.unwrap();
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
        self.send(message).await;
        loop {
            let message = self.read().await;
            if message["id"] == method {
                return message;
            }
        }
    }

    async fn initialize(&mut self) {
        let able = json!({ "elicitation": {} });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": able,
            "clientInfo": { "name": "test", "version": "1" } });
        let answer = self.ask("initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.send(ready).await;
    }

    async fn code(&mut self) -> Option<i32> {
        let status = timeout(SOON, self.child.wait()).await.unwrap();
        status.unwrap().code()
    }
}

fn meta() -> Value {
    json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {} })
}

/// A child that writes its process id down, and its configuration.
fn with_child(home: &Home) -> std::path::PathBuf {
    let pid = home.path().join("pid");
    let script = format!(
        "echo $$$$ > '{}'; exec '{}' demo-server everything --stdio",
        pid.display(),
        program().display()
    );
    let yaml = format!(
        "state: {{ path: {} }}\nupstreams: {{ c: {{ command: sh, args: [-c, {script:?}] }} }}\n",
        home.path().join("waypost.db").display()
    );
    std::fs::write(home.config(), yaml).unwrap();
    pid
}

#[tokio::test]
async fn r1_the_end_of_input_and_a_signal_both_end_it_and_its_children() {
    for by_signal in [false, true] {
        let home = Home::new("");
        let file = with_child(&home);
        let mut launched = Launched::start(&command(&home));
        let probe = launched
            .ask("server/discover", json!({ "_meta": meta() }))
            .await;
        assert_eq!(probe["result"]["supportedVersions"], json!(["2026-07-28"]));
        launched.initialize().await;
        let pid = pid_in(&file).await;
        assert!(alive(pid).await);
        if by_signal {
            signal(launched.child.id().unwrap(), "TERM").await;
        } else {
            launched.to = None;
        }
        assert_eq!(launched.code().await, Some(0), "by a signal: {by_signal}");
        until("the child to be gone", async || !alive(pid).await).await;
    }
}

#[tokio::test]
async fn r42_after_a_signal_calls_finish_and_new_ones_are_told_why_they_do_not_begin() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    told_to_end(&command(&home)).await;
    let served = Served::start(&home).await;
    told_to_end(&bridge(&served.url)).await;
}

#[tokio::test]
async fn a_call_that_is_open_at_the_end_of_the_grace_is_told_so() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let yaml = std::fs::read_to_string(home.config()).unwrap();
    std::fs::write(home.config(), format!("drain_grace: 1s\n{yaml}")).unwrap();
    let mut launched = Launched::start(&command(&home));
    launched.initialize().await;
    // It is asked, and never answers.
    let arguments = json!({ "message": "who?" });
    let params = json!({ "name": "web_test_elicitation", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": "asked", "method": "tools/call", "params": params });
    launched.send(call).await;
    assert_eq!(launched.read().await["method"], "elicitation/create");
    signal(launched.child.id().unwrap(), "TERM").await;
    let mut last = launched.read().await;
    while last["method"].is_string() {
        last = launched.read().await;
    }
    assert_eq!(last["id"], "asked", "{last}");
    let text = last["error"]["message"].to_string();
    assert!(text.contains("stopped before the call was over"), "{text}");
    assert_eq!(launched.code().await, Some(0));
}

async fn begins_nothing(launched: &mut Launched) {
    // The signal may take a moment to arrive.
    let refused = async {
        loop {
            let answer = launched.ask("prompts/list", json!({})).await;
            if answer["error"].is_object() {
                break answer;
            }
        }
    };
    let refusal = timeout(SOON, refused).await.unwrap_or_default();
    let error = &refusal["error"];
    assert_eq!(error["message"], "Waypost is shutting down", "{refusal}");
    assert_eq!(error["data"]["retryable"], true);
    let modern = json!({ "_meta": meta() });
    let refusal = launched.ask("tools/list", modern).await;
    assert_eq!(refusal["error"]["message"], "Waypost is shutting down");
    let pong = launched.ask("ping", json!({})).await;
    assert!(pong["result"].is_object(), "{pong}");
}

async fn told_to_end(command: &[String]) {
    let mut launched = Launched::start(command);
    launched.initialize().await;
    let list = launched.ask("tools/list", json!({})).await;
    assert!(list["result"]["tools"].is_array(), "{list}");
    // It is asked, and answers once new calls have been refused.
    let arguments = json!({ "message": "who?" });
    let params = json!({ "name": "web_test_elicitation", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": "asked", "method": "tools/call", "params": params });
    launched.send(call).await;
    let question = launched.read().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    signal(launched.child.id().unwrap(), "TERM").await;
    begins_nothing(&mut launched).await;
    let said = json!({ "action": "accept", "content": { "username": "a", "email": "b" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": said });
    launched.send(answer).await;
    let end = launched.read().await;
    assert_eq!(end["id"], "asked");
    assert!(end["result"]["content"].is_array(), "{end}");
    assert_eq!(launched.code().await, Some(0));
}

#[tokio::test]
async fn after_a_signal_what_a_server_asked_in_a_result_can_be_answered() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let served = Served::start(&home).await;
    // One gives a state and the other does not; both keep nothing at Waypost.
    for tool in ["request_state", "elicitation"] {
        for command in [command(&home), bridge(&served.url)] {
            answers_after_a_signal(&command, tool).await;
        }
    }
}

async fn answers_after_a_signal(command: &[String], tool: &str) {
    let mut launched = Launched::start(command);
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    let name = format!("web_test_input_required_result_{tool}");
    let mut params = json!({ "name": name, "arguments": {}, "_meta": meta });
    let asked = launched.ask("tools/call", params.clone()).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let requests = result["inputRequests"].as_object().unwrap();
    let said = json!({ "action": "accept", "content": { "ok": true, "name": "Ada" } });
    let answers = requests.keys().map(|key| (key.clone(), said.clone()));
    params["inputResponses"] = Value::Object(answers.collect());
    if result["requestState"].is_string() {
        params["requestState"] = result["requestState"].clone();
    }
    assert_eq!(result["requestState"].is_string(), tool == "request_state");
    signal(launched.child.id().unwrap(), "TERM").await;
    let refused = async {
        let modern = json!({ "_meta": meta });
        while launched.ask("tools/list", modern.clone()).await["error"].is_null() {}
    };
    timeout(SOON, refused).await.unwrap();
    let end = launched.ask("tools/call", params).await;
    assert_eq!(end["result"]["resultType"], "complete", "{end}");
    assert_eq!(launched.code().await, Some(0));
}

#[tokio::test]
async fn a_bridge_outlives_its_daemon_and_the_session_stays_good() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let listen = format!("{address}");
    let mut served = Served::start_at(&home, &listen, &[]).await;
    let mut launched = Launched::start(&bridge(&served.url));
    launched.initialize().await;
    let list = launched.ask("tools/list", json!({})).await;
    assert!(list["result"]["tools"].is_array(), "{list}");
    served.signal("KILL").await;
    served.code().await;
    let error = launched.ask("tools/list", json!({})).await;
    assert_eq!(error["error"]["code"], -32603);
    let text = error["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("cannot reach Waypost") && text.contains("`waypost serve`"),
        "{text}"
    );
    let modern = launched
        .ask("prompts/list", json!({ "_meta": meta() }))
        .await;
    assert_eq!(modern["error"]["code"], -32603, "{modern}");
    let mut served = Served::start_at(&home, &listen, &[]).await;
    let list = launched.ask("tools/list", json!({})).await;
    assert!(list["result"]["tools"].is_array(), "{list}");
    let modern = launched
        .ask("prompts/list", json!({ "_meta": meta() }))
        .await;
    assert!(modern["result"]["prompts"].is_array(), "{modern}");
    // One with other keys does not know the session.
    served.signal("KILL").await;
    // Its address is free once it is gone.
    served.code().await;
    let elsewhere = Home::new("");
    config(&demo.url, &elsewhere);
    let served = Served::start_at(&elsewhere, &listen, &[]).await;
    let list = launched.ask("tools/list", json!({})).await;
    assert!(list["result"]["tools"].is_array(), "{list}");
    drop((served, demo));
}

#[tokio::test]
async fn a_host_that_leaves_a_question_open_does_not_hold_up_the_end() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let served = Served::start(&home).await;
    for command in [command(&home), bridge(&served.url)] {
        let mut launched = Launched::start(&command);
        launched.initialize().await;
        for (id, tool) in [(1, "web_test_elicitation"), (2, "child_test_elicitation")] {
            let params = json!({ "name": tool, "arguments": { "message": "who?" } });
            launched
                .send(
                    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }),
                )
                .await;
            while launched.read().await["method"] != "elicitation/create" {}
        }
        let before = Instant::now();
        launched.to = None;
        for _ in 0..2 {
            let answer = loop {
                let message = launched.read().await;
                if message["id"].is_u64() && message["method"].is_null() {
                    break message;
                }
            };
            assert!(answer["result"].to_string().contains("cancel"), "{answer}");
        }
        assert_eq!(launched.code().await, Some(0), "{command:?}");
        let took = before.elapsed();
        assert!(
            took < Duration::from_secs(15),
            "{took:?} of a grace of 20 s"
        );
    }
    drop((served, demo));
}

#[tokio::test]
async fn a_bridge_to_nowhere_says_so_and_waits_for_requests() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", port.local_addr().unwrap());
    drop(port);
    let output = run(&["stdio", "--connect", &url], &[]).await;
    assert_eq!(output.status.code(), Some(0), "its input is over");
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    let says = format!("cannot reach Waypost at `{url}`: ");
    assert!(text.contains(&says) && text.contains("hint="), "{text}");
}

#[tokio::test]
async fn a_bridge_that_is_started_before_its_daemon_answers_once_that_is_there() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let url = format!("http://{address}/mcp");
    let mut child = Command::new(program())
        .args(["stdio", "--connect", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut initialize = async |id: u32| {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" }
        });
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params });
        to.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let line = timeout(SOON, from.next_line()).await.unwrap();
        serde_json::from_str::<Value>(&line.unwrap().unwrap()).unwrap()
    };
    let early = initialize(1).await;
    let said = early["error"]["message"].as_str().unwrap();
    assert!(
        said.contains("cannot reach Waypost") && said.contains("tries again"),
        "{said}"
    );
    let options = legacy::Options::default();
    let demo = legacy_all(address, quick(), options).await.unwrap();
    let answer = initialize(2).await;
    assert_eq!(
        answer["result"]["protocolVersion"], "2025-11-25",
        "{answer}"
    );
    demo.stop().await;
}

#[tokio::test]
async fn a_bridge_shows_the_key_of_its_environment() {
    let demo = demo_all(ANY_PORT, quick()).await.unwrap();
    let home = Home::new("");
    config(&demo.url, &home);
    let added = run(&["auth", "add-key", "me"], &[]).await;
    let text = String::from_utf8(added.stdout).unwrap();
    let word = |prefix: &str| {
        let mut words = text.split(|c: char| c.is_whitespace() || "\"'`{},".contains(c));
        words
            .find(|word| word.starts_with(prefix))
            .unwrap()
            .to_owned()
    };
    let (key, hash) = (word("wp_"), word("sha256:"));
    let mut yaml = std::fs::read_to_string(home.config()).unwrap();
    yaml.push_str(&format!(
        "auth: {{ keys: [{{ name: me, hash: '{hash}' }}] }}\n"
    ));
    std::fs::write(home.config(), yaml).unwrap();
    let served = Served::start(&home).await;
    let refused = run(&["stdio", "--connect", &served.url], &[]).await;
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("answered HTTP 401") && text.contains("`WAYPOST_KEY`"),
        "{text}"
    );
    let let_in = run(
        &["stdio", "--connect", &served.url],
        &[("WAYPOST_KEY", &key)],
    )
    .await;
    assert_eq!(let_in.status.code(), Some(0), "{let_in:?}");
    demo.stop().await;
}

#[tokio::test]
async fn nothing_but_messages_is_on_standard_output() {
    let home = Home::new("");
    with_child(&home);
    let words = command(&home).into_iter();
    let words = words.map(|word| {
        if word == "warn" {
            "trace".to_owned()
        } else {
            word
        }
    });
    let words: Vec<_> = words.collect();
    let mut launched = Launched::start(&words);
    launched.initialize().await;
    launched.ask("tools/list", json!({})).await;
    let Launched {
        mut child,
        to,
        from,
    } = launched;
    drop(to);
    let mut rest = String::new();
    let mut from = from.into_inner();
    timeout(SOON, from.read_to_string(&mut rest))
        .await
        .unwrap()
        .unwrap();
    for line in rest.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
    }
    let status = timeout(Duration::from_secs(20), child.wait())
        .await
        .unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
}
