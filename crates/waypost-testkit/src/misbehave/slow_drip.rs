//! Sends the answer to `tools/call` a byte at a time.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::fake::{event_stream, fake_now, text};
use crate::run::Running;

/// One byte of the event stream every `every`.
///
/// # Errors
///
/// When no port is free.
pub async fn slow_drip(every: Duration) -> io::Result<Running> {
    fake_now(move |rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        let answer = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": text("done") });
        let bytes = format!("data: {answer}\n\n").into_bytes().into_iter();
        let drip = stream::unfold(bytes, move |mut bytes| async move {
            tokio::time::sleep(every).await;
            let byte = bytes.next()?;
            Some((Ok::<_, io::Error>(Bytes::from(vec![byte])), bytes))
        });
        event_stream(Body::from_stream(drip))
    })
    .await
}
