//! The server behind everything: one tool, answered as fast as it can be.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The text of the tool's answer.
pub(crate) const ANSWER: &str = "hello from the server";

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    _accepting: JoinSet<()>,
}

pub(crate) async fn start() -> anyhow::Result<Server> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener));
    Ok(Server {
        address,
        _accepting: accepting,
    })
}

async fn accept(listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => { connections.spawn(serve(stream)); }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream) {
    // Whoever was served may leave in any way.
    drop(stream.set_nodelay(true));
    drop(
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await,
    );
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = message
        .get("method")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let answer = match result(method) {
        Some(result) => json!({ "jsonrpc": "2.0", "id": message.get("id"), "result": result }),
        None => json!({
            "jsonrpc": "2.0",
            "id": message.get("id"),
            "error": { "code": -32601, "message": "no such method" },
        }),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

fn result(method: &str) -> Option<Value> {
    let text = json!({ "type": "string" });
    let schema = json!({ "type": "object", "properties": { "text": text } });
    Some(match method {
        "tools/call" => json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": ANSWER }],
        }),
        "tools/list" => json!({
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
            "tools": [{ "name": "echo", "description": "Answers.", "inputSchema": schema }],
        }),
        "server/discover" => json!({
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "public",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
        }),
        _ => return None,
    })
}
