//! The stdio transport: one JSON message a line, in both directions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dispatch;
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
    let running = Running::default();
    let tracker = TaskTracker::new();
    let stop = CancellationToken::new();
    let mut input = BufReader::new(input).split(b'\n');
    while let Some(line) = input.next_segment().await? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match Message::parse(&line) {
            Ok(Message::Request(request)) => {
                start(&server, request, &lines, &running, &tracker, &stop);
            }
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                let id = params
                    .get("requestId")
                    .map(Value::to_string)
                    .unwrap_or_default();
                let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(cancel) = running.remove(&id) {
                    cancel.cancel();
                }
            }
            Ok(Message::Notification { .. }) => {}
            Err((id, fail)) => drop(lines.send(fail.to_response(&id)).await),
        }
    }
    // The client is gone: subscriptions end with their result, calls are dropped.
    stop.cancel();
    for (_, cancel) in running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .drain()
    {
        cancel.cancel();
    }
    tracker.close();
    tracker.wait().await;
    Ok(())
}

fn start(
    server: &Arc<dyn Server>,
    request: Request,
    lines: &mpsc::Sender<Value>,
    running: &Running,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) {
    let key = request.id.to_string();
    let cancel = CancellationToken::new();
    running
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(key.clone(), cancel.clone());
    let (server, lines, running, stop) = (
        Arc::clone(server),
        lines.clone(),
        Arc::clone(running),
        stop.clone(),
    );
    let work = async move {
        // A cancelled request gets no answer.
        if let Some(answer) = cancel
            .run_until_cancelled(run(server, request, &lines, stop))
            .await
        {
            running
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&key);
            drop(lines.send(answer).await);
        }
    };
    super::spawn::spawn(tracker.track_future(work));
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
