//! Peers written in other languages: where they are installed, how one is started and read.
//!
//! `cargo xtask test` installs them and says where in the environment. Without that a test that
//! needs a peer fails; it is never skipped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

/// How long a peer may take to start; Python is slow on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long one run of a client may take.
const RUN: Duration = Duration::from_secs(120);

/// The installed peers.
#[derive(Debug)]
pub struct Interop {
    home: PathBuf,
    scripts: PathBuf,
}

impl Interop {
    /// The peers `cargo xtask test` has installed.
    ///
    /// # Errors
    /// When the tests were started in another way, or the installation is not there.
    pub fn find() -> anyhow::Result<Self> {
        let home = from_xtask("WAYPOST_INTEROP")?;
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        Ok(Self { home, scripts })
    }

    /// A Node script of `tests/interop`.
    #[must_use]
    pub fn node(&self, script: &str) -> Command {
        let mut command = Command::new(self.home.join("bin/node"));
        command
            .args(self.node_arguments(script))
            .env("WAYPOST_INTEROP", &self.home);
        command
    }

    /// What Node must be given to run a script, for those who start Node themselves.
    pub(crate) fn node_arguments(&self, script: &str) -> [PathBuf; 3] {
        [
            "--import".into(),
            self.scripts.join("resolve.mjs"),
            self.scripts.join(script),
        ]
    }

    /// A Python script of `tests/interop`, with the SDK 2.x.
    #[must_use]
    pub fn python(&self, script: &str) -> Command {
        self.python_of("venv", script)
    }

    /// A Python script of `tests/interop`, with the SDK 1.x.
    #[must_use]
    pub fn session_python(&self, script: &str) -> Command {
        self.python_of("venv-v1", script)
    }

    fn python_of(&self, venv: &str, script: &str) -> Command {
        let mut command = Command::new(self.home.join(venv).join("bin/python"));
        command
            .arg(self.scripts.join(script))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A peer that speaks MCP over pipes, as an upstream in Waypost's configuration. `command` is
    /// one of ours.
    #[must_use]
    pub fn stdio_upstream(&self, name: &str, command: &Command, more: &[&str]) -> String {
        let command = command.as_std();
        let arguments = command.get_args().map(|word| word.to_string_lossy());
        let arguments: Vec<_> = arguments
            .chain(more.iter().map(|word| (*word).into()))
            .collect();
        // A string of JSON is one of YAML, whatever is in the path.
        format!(
            "{name}: {{ command: {:?}, args: {arguments:?}, env: {{ WAYPOST_INTEROP: {:?}, \
             PYTHONDONTWRITEBYTECODE: '1' }}, required: true }}",
            command.get_program(),
            self.home
        )
    }

    /// A program that an npm package brings, by the path in `node_modules`.
    #[must_use]
    pub fn package(&self, script: &str) -> Command {
        let mut command = Command::new(self.node_program());
        command.arg(self.home.join("npm/node_modules").join(script));
        command
    }

    /// A program of an npm package that needs no Node.
    #[must_use]
    pub fn program(&self, path: &str) -> Command {
        Command::new(self.home.join("npm/node_modules").join(path))
    }

    /// A file of `tests/interop`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.scripts.join(name)
    }

    /// The command line of the conformance suite, without arguments.
    pub(crate) fn suite(&self) -> Command {
        let package = "npm/node_modules/@modelcontextprotocol/conformance/dist/index.js";
        let mut command = Command::new(self.home.join("bin/node"));
        command
            .arg(self.home.join(package))
            .env("WAYPOST_INTEROP", &self.home);
        command
    }

    /// Node itself.
    pub(crate) fn node_program(&self) -> PathBuf {
        self.home.join("bin/node")
    }
}

/// A path that only `cargo xtask test` sets.
///
/// # Errors
/// When it is not set, or names nothing that exists.
pub fn from_xtask(variable: &str) -> anyhow::Result<PathBuf> {
    let hint = "\n\nhint: run `cargo xtask test`";
    let path = std::env::var_os(variable).map(PathBuf::from);
    let path = path.with_context(|| format!("`{variable}` is not set{hint}"))?;
    anyhow::ensure!(
        path.exists(),
        "`{variable}` names nothing: {}{hint}",
        path.display()
    );
    Ok(path)
}

/// A peer that serves. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Its MCP endpoint.
    pub url: String,
    /// Its end is the server's end.
    _stdin: Option<ChildStdin>,
    _child: Child,
}

impl Server {
    /// Starts a server script and waits until it says where it listens.
    ///
    /// # Errors
    /// When it ends, or says nothing in time.
    pub async fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the peer has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START, lines.next_line()).await??;
        let line = line.with_context(|| format!("{command:?} ended before it listened"))?;
        let said: Value = serde_json::from_str(&line)?;
        let url = said
            .get("url")
            .and_then(Value::as_str)
            .context("the peer named no URL")?;
        Ok(Self {
            url: url.to_owned(),
            _stdin: stdin,
            _child: child,
        })
    }
}

/// What a client script reported, step by step.
#[derive(Debug)]
pub struct Steps(Vec<Value>);

impl Steps {
    /// Runs a client script to its end.
    ///
    /// # Errors
    /// When it fails, takes too long, or prints anything but steps; with all it printed.
    pub async fn run<A: AsRef<OsStr>>(
        mut command: Command,
        arguments: &[A],
    ) -> anyhow::Result<Self> {
        let output = command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(RUN, output)
            .await
            .with_context(|| format!("{command:?} hangs"))??;
        let printed = String::from_utf8(output.stdout)?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "{command:?} failed:\n{printed}\n{complaints}"
        );
        let steps: Result<Vec<_>, _> = printed.lines().map(serde_json::from_str).collect();
        let steps = Self(steps.with_context(|| format!("{command:?} printed:\n{printed}"))?);
        steps.step("done")?;
        Ok(steps)
    }

    /// The step of that name.
    ///
    /// # Errors
    /// When the script did not come that far.
    pub fn step(&self, name: &str) -> anyhow::Result<&Value> {
        let found = self
            .0
            .iter()
            .find(|step| step.get("step").is_some_and(|step| step == name));
        found.with_context(|| format!("no step `{name}` in {:?}", self.0))
    }

    /// One field of the step of that name.
    ///
    /// # Errors
    /// When the step or the field is not there.
    pub fn field(&self, step: &str, name: &str) -> anyhow::Result<&Value> {
        let field = self.step(step)?.get(name);
        field.with_context(|| format!("the step `{step}` has no `{name}`: {:?}", self.0))
    }
}
