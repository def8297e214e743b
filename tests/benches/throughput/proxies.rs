//! What stands between load and server: nginx as the yardstick, and Waypost.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use waypost_tests::interop::from_xtask;

use crate::process;

const START: Duration = Duration::from_secs(20);

/// A running nginx. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Nginx {
    pub(crate) address: SocketAddr,
    child: std::process::Child,
    file: PathBuf,
}

impl Nginx {
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        // nginx cannot tell which port it got, so it is given one that was free a moment ago.
        let address = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let file = folder.join("nginx.conf");
        std::fs::write(&file, nginx_conf(folder, address, upstream))?;
        let child = Self::command(&file).spawn();
        let child = child.context("cannot start `nginx`")?;
        let nginx = Self {
            address,
            child,
            file,
        };
        let begun = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            anyhow::ensure!(begun.elapsed() < START, "nginx does not listen");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(nginx)
    }

    fn command(file: &Path) -> std::process::Command {
        let mut command = std::process::Command::new("nginx");
        command.arg("-c").arg(file);
        command
    }

    /// The workers do the work; the master only watches them.
    pub(crate) fn pids(&self) -> anyhow::Result<Vec<u32>> {
        process::children(self.child.id())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killed, the master would leave its workers behind.
        let stopped = Self::command(&self.file).args(["-s", "stop"]).status();
        if stopped.is_ok_and(|status| status.success()) {
            drop(self.child.wait());
        }
    }
}

fn nginx_conf(folder: &Path, address: SocketAddr, upstream: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream server {{
        server {upstream};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address} reuseport;
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
"
    )
}

/// A running Waypost. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Waypost {
    pub(crate) address: SocketAddr,
    child: Child,
    _logging: JoinSet<()>,
}

impl Waypost {
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> anyhow::Result<Self> {
        let file = folder.join("waypost.yaml");
        let state = folder.join("waypost.db");
        // A line per call would measure the log; nginx writes none either.
        let config = format!(
            "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstate: {{ path: {} }}\n\
             log: {{ level: \"warn,waypost::daemon=info\" }}\n\
             upstreams: {{ bench: {{ url: \"http://{upstream}/mcp\", required: true }} }}\n",
            state.display()
        );
        std::fs::write(&file, config)?;
        let mut command = Command::new(from_xtask("WAYPOST_BIN")?);
        command
            .args(["serve", "--config"])
            .arg(&file)
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("cannot start Waypost")?;
        let log = child.stderr.take().context("Waypost has no log")?;
        let mut log = BufReader::new(log);
        let (address, admin) = addresses(&mut log).await?;
        let mut logging = JoinSet::new();
        logging.spawn(async move {
            // A log that nobody reads would stop whoever writes it.
            drop(tokio::io::copy_buf(&mut log, &mut tokio::io::sink()).await);
        });
        let begun = Instant::now();
        while !process::answers_ok(admin, "/readyz").await? {
            anyhow::ensure!(begun.elapsed() < START, "Waypost is not ready");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            address,
            child,
            _logging: logging,
        })
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.child.id().into_iter().collect()
    }
}

/// The addresses in the log line that tells what port 0 became.
async fn addresses(log: &mut BufReader<ChildStderr>) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let mut lines = log.lines();
    let mut said = String::new();
    while let Some(line) = tokio::time::timeout(START, lines.next_line()).await?? {
        let value = |name: &str| {
            let words = line.split_whitespace();
            words
                .filter_map(|word| word.strip_prefix(name))
                .find_map(|value| value.parse().ok())
        };
        if let (Some(mcp), Some(admin)) = (value("mcp="), value("admin=")) {
            return Ok((mcp, admin));
        }
        said.push_str(&line);
        said.push('\n');
    }
    anyhow::bail!("Waypost ended before it listened:\n{said}")
}
