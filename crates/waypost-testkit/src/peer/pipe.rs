//! A server at the other end of a pipe: a child process, or anything that reads and writes lines.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::router::Router;
use crate::kit::spawn::spawn;

const QUEUE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// Lines in both directions.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) router: Router,
    /// Dropping it closes the server's input.
    pub(super) outgoing: mpsc::Sender<Value>,
    reader: JoinHandle<()>,
    child: Option<Child>,
}

impl Pipe {
    /// Starts `command`; it is killed when this is dropped.
    pub(super) fn start(command: &[String]) -> io::Result<Self> {
        let [program, arguments @ ..] = command else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an empty command",
            ));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let mut pipe = Self::over(output, input);
        pipe.child = Some(child);
        Ok(pipe)
    }

    /// Reads from `from`, writes to `to`.
    pub(super) fn over<R, W>(from: R, to: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (outgoing, lines) = mpsc::channel(QUEUE);
        spawn(write(lines, to));
        let router = Router::default();
        let reader = spawn(read(from, router.clone(), outgoing.downgrade()));
        Self {
            router,
            outgoing,
            reader,
            child: None,
        }
    }

    /// Closes the server's input and waits for its end; the exit status of a child.
    pub(super) async fn close(self) -> io::Result<Option<ExitStatus>> {
        drop(self.outgoing);
        drop(tokio::time::timeout(PATIENCE, self.reader).await);
        let Some(mut child) = self.child else {
            return Ok(None);
        };
        match tokio::time::timeout(PATIENCE, child.wait()).await {
            Ok(status) => status.map(Some),
            Err(_) => {
                child.kill().await?;
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the child did not end",
                ))
            }
        }
    }
}

async fn write(mut lines: mpsc::Receiver<Value>, mut to: impl AsyncWrite + Unpin) {
    while let Some(message) = lines.recv().await {
        let line = format!("{message}\n");
        if to.write_all(line.as_bytes()).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    drop(to.shutdown().await);
}

async fn read(
    from: impl AsyncRead + Unpin + Send,
    router: Router,
    answers: mpsc::WeakSender<Value>,
) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A test client is strict about nothing: what is no message is kept for the test to see.
        let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
        if let Some(refusal) = router.deliver(message).await
            && let Some(answers) = answers.upgrade()
        {
            drop(answers.send(refusal).await);
        }
    }
    router.close();
}
