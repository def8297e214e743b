//! Programs that people use as they are: hosts in front of Waypost, everyday servers behind it.
//!
//! Each has an empty home, and of the network only this machine: a proxy that is not there stands
//! between it and everything else.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::Options;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Server, from_xtask};

/// How long one run of a host may take.
const RUN: Duration = Duration::from_secs(90);
const NOTE: &str = "what the note says";

/// A home with a folder to work in, where a note lies.
struct Desk(TempDir);

impl Desk {
    fn new() -> anyhow::Result<Self> {
        // Servers that guard folders compare resolved paths.
        let desk = Self(tempfile::tempdir_in(std::env::temp_dir().canonicalize()?)?);
        std::fs::create_dir(desk.work())?;
        std::fs::write(desk.work().join("note.txt"), NOTE)?;
        Ok(desk)
    }

    fn work(&self) -> std::path::PathBuf {
        self.0.path().join("work")
    }

    fn note(&self) -> String {
        self.work().join("note.txt").display().to_string()
    }

    /// Runs a host to its end; what it printed.
    async fn run(&self, mut command: Command, env: &[(&str, &str)]) -> anyhow::Result<String> {
        command.env_clear().current_dir(self.work());
        command.envs(env.iter().copied()).env("HOME", self.0.path());
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            command.env(proxy, "http://127.0.0.1:9");
        }
        command.env("NO_PROXY", "127.0.0.1,localhost");
        let path = std::env::var_os("PATH").context("no `PATH`")?;
        command.env("PATH", path).kill_on_drop(true);
        let output = command.stdin(Stdio::null()).output();
        let output = timeout(RUN, output).await;
        let output = output.with_context(|| format!("{command:?} hangs"))??;
        let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{command:?} failed:\n{printed}");
        Ok(printed)
    }
}

fn with<A: AsRef<OsStr>>(mut command: Command, arguments: &[A]) -> Command {
    command.args(arguments);
    command
}

/// Everyday servers, as they are configured for any host.
fn everyday(interop: &Interop, folder: &Path) -> String {
    let folder = folder.display().to_string();
    let server = |name: &str| {
        interop.package(&format!(
            "@modelcontextprotocol/server-{name}/dist/index.js"
        ))
    };
    let upstream = |name: &str, more: &[&str]| interop.stdio_upstream(name, &server(name), more);
    [
        upstream("filesystem", &[&folder]),
        upstream("everything", &["stdio"]),
        upstream("memory", &[]),
    ]
    .join("\n")
}

/// Clients of both eras use everyday servers.
#[tokio::test]
async fn everyday_servers_work_behind_waypost() -> anyhow::Result<()> {
    let (interop, desk) = (Interop::find()?, Desk::new()?);
    let gateway = Gateway::start(&everyday(&interop, &desk.work())).await?;
    let answers = Answers::usual();
    for kind in Kind::MATRIX.into_iter().filter(|kind| !kind.is_pipe()) {
        let peer = Peer::connect(kind, &Target::Url(gateway.url.clone())).await?;
        let call = async |tool: &str, args: Value| peer.call(tool, args, &answers).await;
        let read = call("filesystem_read_text_file", json!({ "path": desk.note() })).await?;
        ensure!(read.text() == NOTE, "{kind:?}: {read:?}");
        let refused = call("filesystem_read_text_file", json!({ "path": "/etc/hosts" })).await?;
        ensure!(refused.is_tool_error(), "{kind:?}: {refused:?}");
        let echo = call("everything_echo", json!({ "message": "hi" })).await?;
        ensure!(echo.text() == "Echo: hi", "{kind:?}: {echo:?}");
        let long = json!({ "duration": 0.5, "steps": 5 });
        let long = call("everything_trigger-long-running-operation", long).await?;
        ensure!(long.progress().len() == 5, "{kind:?}: {long:?}");
        let sampling = json!({ "prompt": "Well?", "maxTokens": 10 });
        let sampled = call("everything_trigger-sampling-request", sampling).await?;
        ensure!(
            sampled.text().contains("sampled text"),
            "{kind:?}: {sampled:?}"
        );
        let asked = call("everything_trigger-elicitation-request", json!({})).await?;
        ensure!(asked.asked.len() == 1, "{kind:?}: {asked:?}");
        ensure!(!asked.is_tool_error(), "{kind:?}: {asked:?}");
        let graph = call("memory_read_graph", json!({})).await?;
        ensure!(graph.text().contains("entities"), "{kind:?}: {graph:?}");
        peer.close().await?;
    }
    Ok(())
}

/// What the file makes of everyday servers.
#[tokio::test]
async fn r05_a20_everyday_servers_are_shaped() -> anyhow::Result<()> {
    let (interop, desk) = (Interop::find()?, Desk::new()?);
    let everyday = everyday(&interop, &desk.work());
    let everything = "tools: { deny: [get-env], rename: { echo: say }, \
         describe: { echo: 'Says it again.' }, set_params: { get-sum: { b: 40 } } }, \
         prompts: { deny: ['*'] }, resources: { deny: ['*'] }, required: true }";
    let filesystem = "tools: { allow: ['read_*', 'list_*'] }, required: true }";
    let mut lines = everyday.lines().map(str::to_owned).collect::<Vec<_>>();
    for (line, settings) in lines.iter_mut().zip([filesystem, everything]) {
        *line = line.replace("required: true }", settings);
    }
    let gateway = Gateway::start(&lines.join("\n")).await?;
    let answers = Answers::usual();
    for kind in Kind::MATRIX.into_iter().filter(|kind| !kind.is_pipe()) {
        let peer = Peer::connect(kind, &Target::Url(gateway.url.clone())).await?;
        let call = async |tool: &str, args: Value| peer.call(tool, args, &answers).await;
        let said = call("everything_say", json!({ "message": "hi" })).await?;
        ensure!(said.text() == "Echo: hi", "{kind:?}: {said:?}");
        let sum = call("everything_get-sum", json!({ "a": 2 })).await?;
        ensure!(sum.text().contains("42"), "{kind:?}: {sum:?}");
        let listed = call("filesystem_list_allowed_directories", json!({})).await?;
        ensure!(listed.text().contains("Allowed"), "{kind:?}: {listed:?}");
        for (tool, arguments) in [
            ("everything_get-env", json!({})),
            ("everything_echo", json!({ "message": "hi" })),
            ("everything_get-sum", json!({ "a": 2, "b": 3 })),
            (
                "filesystem_write_file",
                json!({ "path": desk.note(), "content": "" }),
            ),
        ] {
            let refused = call(tool, arguments).await?;
            ensure!(refused.code() == -32602, "{kind:?} {tool}: {refused:?}");
        }
        peer.close().await?;
    }
    Ok(())
}

/// Its own home, a model of ours, and no way to anything else.
struct ClaudeCode<'a> {
    interop: &'a Interop,
    desk: Desk,
    model: Server,
}

impl<'a> ClaudeCode<'a> {
    /// With a model that wants the note read by this tool.
    async fn new(interop: &'a Interop, tool: &str) -> anyhow::Result<Self> {
        let desk = Desk::new()?;
        let arguments = json!({ "path": desk.note() }).to_string();
        let mut model = interop.node("model.mjs");
        let model = Server::start(model.args([tool, &arguments])).await?;
        Ok(Self {
            interop,
            desk,
            model,
        })
    }

    async fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let command = self
            .interop
            .package("@anthropic-ai/claude-code/cli-wrapper.cjs");
        let env = [
            ("ANTHROPIC_BASE_URL", self.model.url.as_str()),
            ("ANTHROPIC_API_KEY", "dummy"),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            ("DISABLE_AUTOUPDATER", "1"),
            // The tool is offered to the model at once, not only after a search for it.
            ("ENABLE_TOOL_SEARCH", "false"),
        ];
        self.desk.run(with(command, arguments), &env).await
    }

    /// `mcp list` finds it, and the model's wish for one call is fulfilled.
    async fn lists_and_calls(&self, tool: &str) -> anyhow::Result<()> {
        let listed = self.run(&["mcp", "list"]).await?;
        ensure!(listed.contains("Connected"), "{listed}");
        let prompt = ["-p", "read the note", "--allowedTools", tool];
        let answer = self.run(&prompt).await?;
        ensure!(
            answer.contains("the tool said") && answer.contains(NOTE),
            "{answer}"
        );
        Ok(())
    }
}

const READ: &str = "mcp__waypost__filesystem_read_text_file";

/// Lets it list and call; gives the gateway, which has counted what came.
async fn claude_code_over(transport: &str, more: &str) -> anyhow::Result<Gateway> {
    let interop = Interop::find()?;
    let claude = ClaudeCode::new(&interop, READ).await?;
    let upstreams = everyday(&interop, &claude.desk.work());
    let gateway = Gateway::with(&upstreams, more).await?;
    let url = match transport {
        "sse" => gateway.sse_url(),
        _ => gateway.url.clone(),
    };
    let add = ["mcp", "add", "--transport", transport, "waypost", &url];
    claude.run(&add).await?;
    claude.lists_and_calls(READ).await?;
    Ok(gateway)
}

/// Whether any client has sent this method.
async fn has_had(gateway: &Gateway, method: &str) -> anyhow::Result<bool> {
    let metrics = gateway.metrics().await?;
    let is_it = |line: &&str| {
        line.starts_with("waypost_requests_total{")
            && line.contains(&format!(r#"method="{method}""#))
    };
    let count = metrics.lines().find(is_it);
    Ok(count.is_some_and(|line| !line.ends_with(" 0")))
}

#[tokio::test]
async fn claude_code_lists_and_calls() -> anyhow::Result<()> {
    let gateway = claude_code_over("http", "").await?;
    for method in [
        "server/discover",
        "subscriptions/listen",
        "tools/list",
        "tools/call",
    ] {
        ensure!(has_had(&gateway, method).await?, "no `{method}`");
    }
    ensure!(!has_had(&gateway, "initialize").await?, "it has a session");
    Ok(())
}

#[tokio::test]
async fn claude_code_falls_back_to_a_session() -> anyhow::Result<()> {
    let gateway = claude_code_over("http", "front: { eras: [legacy] }").await?;
    ensure!(has_had(&gateway, "initialize").await?, "it has no session");
    Ok(())
}

#[tokio::test]
async fn claude_code_speaks_http_sse() -> anyhow::Result<()> {
    claude_code_over("sse", "front: { sse: true }").await?;
    Ok(())
}

#[tokio::test]
async fn claude_code_starts_waypost_itself() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let claude = ClaudeCode::new(&interop, READ).await?;
    let upstreams = everyday(&interop, &claude.desk.work());
    let gateway = Gateway::start(&upstreams).await?;
    let waypost = from_xtask("WAYPOST_BIN")?.display().to_string();
    let bridge = [&waypost, "stdio", "--connect", &gateway.url];
    let add = [&["mcp", "add", "waypost", "--"], bridge.as_slice()].concat();
    claude.run(&add).await?;
    claude.lists_and_calls(READ).await
}

#[tokio::test]
async fn the_inspector_calls_in_every_era() -> anyhow::Result<()> {
    let (interop, desk) = (Interop::find()?, Desk::new()?);
    let legacy = legacy_everything(ANY_PORT, Options::default()).await?;
    let modern = demo_everything(ANY_PORT).await?;
    let upstreams = format!(
        "legacy: {{ url: '{}', required: true }}\nmodern: {{ url: '{}', required: true }}",
        legacy.url, modern.url
    );
    let gateway = Gateway::start(&upstreams).await?;
    let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    for era in ["legacy", "auto", "modern"] {
        for upstream in ["legacy", "modern"] {
            let command = with(interop.package(script), &["--cli", &gateway.url]);
            let command = with(command, &["--transport", "http", "--protocol-era", era]);
            let tool = format!("{upstream}_echo");
            let command = with(command, &["--method", "tools/call", "--tool-name", &tool]);
            let command = with(command, &["--tool-arg", "message=from the inspector"]);
            let printed = desk.run(command, &[]).await?;
            ensure!(printed.contains("from the inspector"), "{era}: {printed}");
        }
    }
    Ok(())
}

/// Its stdio client opens a session or none; the proxy itself opens one to look around.
#[tokio::test]
async fn mcp_remote_relays_both_eras() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let legacy = legacy_everything(ANY_PORT, Options::default()).await?;
    let upstream = format!("peer: {{ url: '{}', required: true }}", legacy.url);
    let gateway = Gateway::start(&upstream).await?;
    let home = tempfile::tempdir()?;
    let script = interop.package("mcp-remote/dist/proxy.js");
    let script = script.as_std();
    let mut command = vec!["env".to_owned(), format!("HOME={}", home.path().display())];
    let words = std::iter::once(script.get_program()).chain(script.get_args());
    command.extend(words.map(|word| word.to_string_lossy().into_owned()));
    command.extend([gateway.url.clone(), "--allow-http".to_owned()]);
    for kind in Kind::MATRIX.into_iter().filter(|kind| kind.is_pipe()) {
        let target = Target::Command(command.clone());
        let peer = Box::pin(Peer::connect(kind, &target)).await;
        let peer = peer.with_context(|| format!("{kind:?}"))?;
        let echo = peer.tool("peer_echo", json!({ "message": "hi" })).await?;
        ensure!(echo.text() == r#"{"message":"hi"}"#, "{kind:?}: {echo:?}");
        let args = json!({ "message": "Who?" });
        let asked = peer
            .call("peer_test_elicitation", args, &Answers::usual())
            .await?;
        ensure!(
            asked.text().contains("action=accept"),
            "{kind:?}: {asked:?}"
        );
    }
    Ok(())
}

async fn demo() -> anyhow::Result<(Gateway, waypost_testkit::run::Running)> {
    let demo = legacy_everything(ANY_PORT, Options::default()).await?;
    let upstream = format!("peer: {{ url: '{}', required: true }}", demo.url);
    Ok((Gateway::start(&upstream).await?, demo))
}

#[tokio::test]
async fn gemini_cli_connects() -> anyhow::Result<()> {
    let (interop, desk) = (Interop::find()?, Desk::new()?);
    let (gateway, _demo) = demo().await?;
    let gemini = || interop.package("@google/gemini-cli/bundle/gemini.js");
    let env = [
        ("GEMINI_API_KEY", "dummy"),
        ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
    ];
    let add = ["mcp", "add", "--transport", "http", "waypost", &gateway.url];
    desk.run(with(gemini(), &add), &env).await?;
    let listed = desk.run(with(gemini(), &["mcp", "list"]), &env).await?;
    ensure!(listed.contains("Connected"), "{listed}");
    Ok(())
}

/// Its packages for other systems are not to be had everywhere.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[tokio::test]
async fn opencode_connects() -> anyhow::Result<()> {
    let (interop, desk) = (Interop::find()?, Desk::new()?);
    let (gateway, _demo) = demo().await?;
    let server = json!({ "type": "remote", "url": gateway.url, "enabled": true });
    let config = json!({ "mcp": { "waypost": server }, "autoupdate": false });
    std::fs::write(desk.work().join("opencode.json"), config.to_string())?;
    let program = interop.program("opencode-linux-x64-baseline/bin/opencode");
    let env = [
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ];
    let listed = desk.run(with(program, &["mcp", "list"]), &env).await?;
    ensure!(
        listed.contains("waypost") && listed.contains("connected"),
        "{listed}"
    );
    Ok(())
}
