//! HTTP+SSE of 2024-11-05, client side: a pipe made of one stream and many POSTs.

use std::io;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::manners::Manners;
use super::pipe::Pipe;
use crate::client::{Arriving, Client, Post};
use crate::kit::spawn::spawn;
use crate::peer::url::resolve;

/// How much of a message may be under way.
const BUFFER: usize = 64 * 1024;

/// Opens the stream at `url` and waits for its `endpoint`; `more` headers go with every request.
pub(super) async fn open(url: &str, more: &[(String, String)]) -> io::Result<Pipe> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let get = Post {
        http_method: Method::GET,
        headers,
        message: Value::Null,
        raw: Some(bytes::Bytes::new()),
    };
    let mut arriving = Client::new(url).send(Manners::dress(more, get)).await?;
    let event = arriving.event().await?.unwrap_or_default();
    if event.name != "endpoint" {
        return Err(io::Error::other("the first event is no `endpoint`"));
    }
    let endpoint = resolve(url, event.data.trim());
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    let (lines, down) = tokio::io::duplex(BUFFER);
    let closed = CancellationToken::new();
    let guard = closed.clone().drop_guard();
    let more = more.to_vec();
    spawn(async move {
        up(theirs, endpoint, &more).await;
        drop(guard);
    });
    spawn(closed.run_until_cancelled_owned(relay(arriving, down)));
    Ok(Pipe::over(lines, ours))
}

async fn up(from: DuplexStream, endpoint: String, more: &[(String, String)]) {
    let client = Client::new(endpoint);
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let post = Post {
            http_method: Method::POST,
            headers,
            message: Value::Null,
            raw: Some(line.into()),
        };
        if let Err(error) = client.ask(Manners::dress(more, post)).await {
            tracing::debug!(%error, "a POST broke off");
        }
    }
}

async fn relay(mut arriving: Arriving, mut to: DuplexStream) {
    while let Ok(Some(message)) = arriving.next().await {
        if to
            .write_all(format!("{message}\n").as_bytes())
            .await
            .is_err()
        {
            return;
        }
    }
}
