//! The session era over a pipe.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::connection::Connection;
use super::http::is_modern;
use super::log::{Log, Reader};
use super::message::Incoming;
use super::options::{Fault, Options};
use super::sessions::Sessions;
use crate::kit::server::Server;
use crate::kit::spawn::spawn;
use crate::kit::stdio::Lines;

/// The exit code of a server that crashes.
const CRASHED: i32 = 3;
/// What a child prints that does not know what standard output is for.
const STRAY: &[&str] = &[
    "Server v1.0 running",
    "",
    r#"{"level":"info","message":"JSON, but no JSON-RPC"}"#,
    "[1, 2, 3]",
];

/// Serves `server` over any pipe until the input ends.
///
/// # Errors
///
/// When reading or writing fails.
pub(crate) async fn serve<R, W>(
    server: Arc<dyn Server>,
    options: Options,
    input: R,
    output: W,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin,
{
    let options = Arc::new(options);
    let sessions = Sessions::default();
    let connection = Connection::new(Arc::clone(&server), Arc::clone(&options), sessions);
    let reader = connection.out.read(Some(0));
    let fault = options.fault;
    let modern = options.modern.then(|| {
        let (lines, written) = mpsc::channel(64);
        let forward = spawn(forward(written, connection.out.clone()));
        (Lines::new(server, lines), forward)
    });
    let read = spawn(async move {
        let result = read(&connection, modern, fault, input).await;
        connection.close();
        result
    });
    write(reader, fault, output).await?;
    read.await.map_err(std::io::Error::other)?
}

async fn forward(mut from: mpsc::Receiver<Value>, to: Log) {
    while let Some(message) = from.recv().await {
        to.push(message);
    }
}

async fn read<R>(
    connection: &Connection,
    mut modern: Option<(Lines, JoinHandle<()>)>,
    fault: Option<Fault>,
    input: R,
) -> std::io::Result<()>
where
    R: AsyncRead + Unpin + Send,
{
    let mut input = BufReader::new(input).split(b'\n');
    while let Some(line) = input.next_segment().await? {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some((lines, _)) = &mut modern
            && is_modern(None, &line)
        {
            lines.receive(&line).await;
            continue;
        }
        match Incoming::parse(&line) {
            Ok(Incoming::Request(request)) => {
                if fault == Some(Fault::Crash) && request.params.get("name") == Some(&"echo".into())
                {
                    crash();
                }
                if fault == Some(Fault::SilentProbe) && request.method == "server/discover" {
                    continue;
                }
                connection.receive(Incoming::Request(request));
            }
            Ok(message) => {
                if let (Some((lines, _)), Incoming::Notification { method, params }) =
                    (&mut modern, &message)
                {
                    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                    lines.receive(message.to_string().as_bytes()).await;
                }
                connection.receive(message);
            }
            Err((id, fail)) => connection.out.push(fail.to_response(&id)),
        }
    }
    if fault == Some(Fault::Lingers) {
        std::future::pending::<()>().await;
    }
    if let Some((lines, forward)) = modern {
        lines.end().await;
        forward.await.map_err(std::io::Error::other)?;
    }
    Ok(())
}

/// Ends the process as a fault does: with last words and no answer.
#[expect(
    clippy::exit,
    clippy::print_stderr,
    reason = "this is what a crash looks like from outside"
)]
fn crash() {
    eprintln!("thread 'main' panicked at demo.rs:7:");
    eprintln!("the demo server was told to crash");
    std::process::exit(CRASHED);
}

async fn write<W>(mut reader: Reader, fault: Option<Fault>, mut output: W) -> std::io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    while let Some((_, message)) = reader.next().await {
        if fault == Some(Fault::StrayLines) {
            for line in STRAY {
                output.write_all(format!("{line}\n").as_bytes()).await?;
            }
        }
        output.write_all(format!("{message}\n").as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}
