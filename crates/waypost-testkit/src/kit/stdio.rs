//! The stdio transport: one JSON message a line, in both directions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dispatch;
use super::legacy::Options;
use super::out::Out;
use super::request::{Message, Request};
use super::server::Server;

/// The requests at work, by their id as JSON text.
type Running = Arc<Mutex<HashMap<String, CancellationToken>>>;

/// Serves `server` on this process's standard input and output, until the input ends.
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve_stdio(server: impl Server) -> std::io::Result<()> {
    serve(Arc::new(server), tokio::io::stdin(), tokio::io::stdout()).await
}

/// As [`serve_stdio`], in the session era (and, if `options` say so, in both).
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve_stdio_legacy(server: impl Server, options: Options) -> std::io::Result<()> {
    serve_legacy(
        Arc::new(server),
        options,
        tokio::io::stdin(),
        tokio::io::stdout(),
    )
    .await
}

/// As [`serve_stdio_legacy`], over any pipe.
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve_legacy<R, W>(
    server: Arc<dyn Server>,
    options: Options,
    input: R,
    output: W,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin,
{
    super::legacy::stdio::serve(server, options, input, output).await
}

/// As [`serve_stdio`], over any pipe.
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve<R, W>(server: Arc<dyn Server>, input: R, mut output: W) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin,
{
    let (lines, mut written) = mpsc::channel::<Value>(64);
    let reader = super::spawn::spawn(read(server, input, lines));
    while let Some(message) = written.recv().await {
        output.write_all(format!("{message}\n").as_bytes()).await?;
        output.flush().await?;
    }
    reader.await.map_err(std::io::Error::other)?
}

async fn read<R>(
    server: Arc<dyn Server>,
    input: R,
    lines: mpsc::Sender<Value>,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send,
{
    let mut all = Lines::new(server, lines);
    let mut input = BufReader::new(input).split(b'\n');
    while let Some(line) = input.next_segment().await? {
        if !line.trim_ascii().is_empty() {
            all.receive(&line).await;
        }
    }
    all.end().await;
    Ok(())
}

/// The requests of one pipe, and where their answers go.
pub(crate) struct Lines {
    server: Arc<dyn Server>,
    lines: mpsc::Sender<Value>,
    running: Running,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Lines {
    pub(crate) fn new(server: Arc<dyn Server>, lines: mpsc::Sender<Value>) -> Self {
        Self {
            server,
            lines,
            running: Running::default(),
            tracker: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Takes one line.
    pub(crate) async fn receive(&mut self, line: &[u8]) {
        match Message::parse(line) {
            Ok(Message::Request(request)) => self.start(request),
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                let id = params
                    .get("requestId")
                    .map(Value::to_string)
                    .unwrap_or_default();
                if let Some(cancel) = lock(&self.running).remove(&id) {
                    cancel.cancel();
                }
            }
            Ok(Message::Notification { .. }) => {}
            Err((id, fail)) => drop(self.lines.send(fail.to_response(&id)).await),
        }
    }

    /// The client is gone: subscriptions end with their result, calls are dropped.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        for (_, cancel) in lock(&self.running).drain() {
            cancel.cancel();
        }
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn start(&self, request: Request) {
        let key = request.id.to_string();
        let cancel = CancellationToken::new();
        lock(&self.running).insert(key.clone(), cancel.clone());
        let (server, lines, running, stop) = (
            Arc::clone(&self.server),
            self.lines.clone(),
            Arc::clone(&self.running),
            self.stop.clone(),
        );
        let work = async move {
            // A cancelled request gets no answer.
            if let Some(answer) = cancel
                .run_until_cancelled(run(server, request, &lines, stop))
                .await
            {
                lock(&running).remove(&key);
                drop(lines.send(answer).await);
            }
        };
        super::spawn::spawn(self.tracker.track_future(work));
    }
}

fn lock(running: &Running) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    server: Arc<dyn Server>,
    request: Request,
    lines: &mpsc::Sender<Value>,
    stop: CancellationToken,
) -> Value {
    if let Err(fail) = request.check_meta().and_then(|()| request.check_version()) {
        return fail.to_response(&request.id);
    }
    let (out, mut said) = Out::new();
    let mut answer = std::pin::pin!(dispatch::answer(server, request, out, stop));
    let end = loop {
        tokio::select! {
            biased;
            Some(message) = said.recv() => drop(lines.send(message).await),
            end = &mut answer => break end,
        }
    };
    while let Ok(message) = said.try_recv() {
        drop(lines.send(message).await);
    }
    end
}
