//! A raw TCP server that answers exactly what a test says, byte for byte.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which connection it came on, from 0.
    pub connection: usize,
    pub line: String,
    pub headers: Vec<(String, String)>,
    /// `null` without a body.
    pub body: serde_json::Value,
}

#[allow(
    dead_code,
    reason = "two test programs share this, and neither needs all"
)]
impl Seen {
    /// The JSON-RPC method, or the HTTP method of a request without one; `answer` for an answer.
    pub fn what(&self) -> &str {
        match (&self.body, self.body["method"].as_str()) {
            (serde_json::Value::Null, _) => self.line.split(' ').next().unwrap(),
            (_, Some(method)) => method,
            (_, None) => "answer",
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n == name);
        let first = all.next().map(|(_, value)| value.as_str());
        assert!(all.next().is_none(), "`{name}` came twice");
        first
    }

    /// The JSON-RPC id as text.
    pub fn id(&self) -> String {
        self.body["id"].to_string()
    }
}

/// What the server does for one request, in order.
#[allow(
    dead_code,
    reason = "two test programs share this, and neither needs all"
)]
pub enum Step {
    Send(Vec<u8>),
    /// One write per piece, each flushed.
    Pieces(Vec<u8>, usize),
    /// Waits to be told.
    When(Arc<Notify>),
    /// Sends what comes until the client closes or nothing will come any more.
    Relay(Arc<tokio::sync::Mutex<mpsc::Receiver<Vec<u8>>>>),
    /// Closes the connection.
    Close,
    /// Reads until the client closes.
    Hang,
}

type Script = dyn Fn(usize, &Seen) -> Vec<Step> + Send + Sync;

/// The running server.
pub struct Fake {
    pub port: u16,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    /// How many connections the client has closed.
    pub gone: watch::Receiver<usize>,
}

impl Fake {
    /// Starts it; `script` gets the number of the request, from 0, and the request.
    pub async fn start(script: impl Fn(usize, &Seen) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (gone_tx, gone) = watch::channel(0);
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Arc::clone(&seen),
            gone: gone_tx,
        });
        let connections = AtomicUsize::new(0);
        drop(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                drop(tokio::spawn(serve(stream, number, Arc::clone(&shared))));
            }
        }));
        Self { port, seen, gone }
    }

    /// A server that always answers the same bytes; `{id}` stands for the request's id.
    pub async fn always(answer: impl Fn(&Seen) -> String + Send + Sync + 'static) -> Self {
        Self::start(move |_, seen| vec![Step::Send(answer(seen).into_bytes())]).await
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    pub fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

struct Shared {
    script: Box<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    gone: watch::Sender<usize>,
}

async fn serve(mut stream: TcpStream, connection: usize, shared: Arc<Shared>) {
    stream.set_nodelay(true).unwrap();
    while let Some(request) = read_request(&mut stream, connection).await {
        let number = {
            let mut seen = shared.seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        for step in (shared.script)(number, &request) {
            match step {
                Step::Send(bytes) => drop(stream.write_all(&bytes).await),
                Step::Pieces(bytes, size) => {
                    for piece in bytes.chunks(size) {
                        drop(stream.write_all(piece).await);
                        tokio::task::yield_now().await;
                    }
                }
                Step::When(told) => told.notified().await,
                Step::Relay(from) => relay(&mut stream, &mut *from.lock().await).await,
                Step::Close => return,
                Step::Hang => {
                    let mut rest = [0; 64];
                    while matches!(stream.read(&mut rest).await, Ok(1..)) {}
                }
            }
        }
    }
    shared.gone.send_modify(|gone| *gone += 1);
}

async fn relay(stream: &mut TcpStream, from: &mut mpsc::Receiver<Vec<u8>>) {
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            bytes = from.recv() => match bytes {
                Some(bytes) => drop(stream.write_all(&bytes).await),
                None => return,
            },
            read = stream.read(&mut rest) => if !matches!(read, Ok(1..)) {
                return;
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, connection: usize) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some(Seen {
        connection,
        line,
        headers,
        body: match &*body {
            [] => serde_json::Value::Null,
            body => serde_json::from_slice(body).unwrap(),
        },
    })
}

/// A response with a content length.
pub fn http(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// A JSON answer with this `result`.
pub fn result(seen: &Seen, result: &str) -> String {
    let id = seen.id();
    http(
        "200 OK",
        "application/json",
        &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
    )
}

/// A JSON answer with this `error` under this id.
pub fn error(status: &str, id: &str, error: &str) -> String {
    http(
        status,
        "application/json",
        &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#),
    )
}

/// The head of an event stream whose chunks follow.
pub const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// One chunk of a chunked body.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
