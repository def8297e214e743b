//! Breaks the connection off in the middle of the answer to `tools/call`.

use std::io;

use axum::body::Body;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::fake::{event_stream, fake_now};
use crate::run::Running;

/// Where it breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// In the JSON body.
    InJson,
    /// In the event stream, after a progress notification.
    AfterProgress,
    /// The event stream ends properly, but without an answer in it.
    WithoutAnswer,
}

/// Everything else is answered.
///
/// # Errors
///
/// When no port is free.
pub async fn closes_mid_body(at: Break) -> io::Result<Running> {
    fake_now(move |rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        let token = rpc
            .params
            .get("_meta")
            .and_then(|meta| meta.get("progressToken"));
        let progress = json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": { "progressToken": token, "progress": 1 },
        });
        let event = format!("data: {progress}\n\n");
        match at {
            Break::InJson => {
                let start = format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"cont",
                    rpc.id
                );
                ([(CONTENT_TYPE, "application/json")], broken_off(start)).into_response()
            }
            Break::AfterProgress => event_stream(broken_off(event)),
            Break::WithoutAnswer => event_stream(Body::from(event)),
        }
    })
    .await
}

fn broken_off(start: String) -> Body {
    let end = stream::once(async {
        // Gives the start time to leave: an error at once would swallow it.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        Err(io::Error::from(io::ErrorKind::ConnectionReset))
    });
    Body::from_stream(stream::iter([Ok(Bytes::from(start))]).chain(end))
}
