//! Waypost as a process of its own, for what signals and crashes do to it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use waypost_testkit::client::Client;

use crate::support::{SOON, get, until};

/// The built program: what the runner names, else the one beside these tests.
pub(crate) fn program() -> PathBuf {
    let named = std::env::var_os("WAYPOST_BIN").map(PathBuf::from);
    let path = named.unwrap_or_else(|| {
        let own = std::env::current_exe().unwrap();
        own.parent().and_then(Path::parent).unwrap().join("waypost")
    });
    assert!(
        path.exists(),
        "no program at {}\n\nhint: run `cargo xtask test`, or `cargo build` first",
        path.display()
    );
    path
}

/// Runs the program to its end.
pub(crate) async fn run(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.args(arguments).envs(env.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true);
    timeout(SOON, command.output()).await.unwrap().unwrap()
}

/// A folder with a configuration; the state goes there too.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new(yaml: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::write(home.config(), yaml).unwrap();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("waypost.yaml")
    }
}

/// `waypost serve`. It is killed when this is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) url: String,
    pub(crate) admin: String,
    log: Arc<Mutex<String>>,
}

impl Served {
    /// Started, listening, and ready.
    pub(crate) async fn start(home: &Home) -> Self {
        Self::start_with(home, &[]).await
    }

    pub(crate) async fn start_with(home: &Home, env: &[(&str, &str)]) -> Self {
        Self::start_at(home, "127.0.0.1:0", env).await
    }

    /// At this address.
    pub(crate) async fn start_at(home: &Home, address: &str, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program());
        command.arg("serve").arg("--config").arg(home.config());
        command.args(["--listen", address]);
        command.args("--admin 127.0.0.1:0 --log-format json".split(' '));
        command.envs(env.iter().copied()).kill_on_drop(true);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        keep(child.stderr.take().unwrap(), Arc::clone(&log));
        let mut served = Self {
            child,
            url: String::new(),
            admin: String::new(),
            log,
        };
        let line = served.wait_for_log("\"listening\"").await;
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = |key: &str| line[key].as_str().unwrap().to_owned();
        served.url = format!("http://{}/mcp", address("mcp"));
        served.admin = format!("http://{}", address("admin"));
        let ready = async || get(&format!("{}/readyz", served.admin)).await.status == 200;
        until("readiness", ready).await;
        served
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.url)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Everything logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a log line with this in it.
    pub(crate) async fn wait_for_log(&self, text: &str) -> String {
        let find = || {
            let log = self.log.lock().unwrap();
            let found = log.lines().find(|line| line.contains(text));
            found.map(str::to_owned)
        };
        until(&format!("{text} in the log"), async || find().is_some()).await;
        find().unwrap()
    }

    pub(crate) async fn signal(&self, name: &str) {
        signal(self.pid(), name).await;
    }

    /// Waits for the end and gives the exit code.
    pub(crate) async fn code(&mut self) -> Option<i32> {
        let status = timeout(SOON, self.child.wait()).await.unwrap();
        status.unwrap().code()
    }
}

#[expect(clippy::disallowed_methods, reason = "ends with the pipe it reads")]
fn keep(stderr: tokio::process::ChildStderr, log: Arc<Mutex<String>>) {
    drop(tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    }));
}

pub(crate) async fn signal(pid: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{name} {pid}")])
        .status()
        .await;
    assert!(sent.unwrap().success());
}

/// Whether a process runs; one that only waits to be reaped does not.
pub(crate) async fn alive(pid: u32) -> bool {
    let asked = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .await
        .unwrap();
    let state = String::from_utf8(asked.stdout).unwrap();
    !state.trim().is_empty() && !state.trim_start().starts_with('Z')
}

/// The number in a file that a child writes.
pub(crate) async fn pid_in(file: &Path) -> u32 {
    let read = || std::fs::read_to_string(file).ok()?.trim().parse().ok();
    until("a process id", async || read().is_some()).await;
    read().unwrap()
}
