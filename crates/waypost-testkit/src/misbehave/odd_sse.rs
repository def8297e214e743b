//! Event streams that are legal and seldom seen: CR or CRLF lines, comments, several `data`
//! lines, empty events, split anywhere, inside characters too.

use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::fake::{event_stream, fake_now, text};
use crate::run::Running;

/// The text of the answer: one, two, three and four bytes a character.
pub const TEXT: &str = "aé€𝄞";

/// How lines end, and into how large pieces the stream is cut.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// `"\r"`, `"\r\n"` or `"\n"`.
    pub line_end: &'static str,
    /// Bytes per piece; at least 1.
    pub piece: usize,
}

/// `tools/call` answers [`TEXT`] in the given shape.
///
/// # Errors
///
/// When no port is free.
pub async fn odd_sse(shape: Shape) -> io::Result<Running> {
    fake_now(move |rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        // Raw characters: `serde_json` escapes none of them.
        let result = text(TEXT).to_string();
        let lines = [
            ": a comment".to_owned(),
            "retry: 1000".to_owned(),
            "id: 1".to_owned(),
            "data:".to_owned(),
            String::new(),
            "event: message".to_owned(),
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{},", rpc.id),
            format!("data:\"result\":{result}}}"),
            String::new(),
        ];
        let whole: String = lines
            .iter()
            .flat_map(|line| [line, shape.line_end])
            .collect();
        let whole = Bytes::from(whole);
        let pieces = stream::unfold(whole, move |mut rest| async move {
            if rest.is_empty() {
                return None;
            }
            // So that each piece is a read of its own.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let piece = rest.split_to(shape.piece.clamp(1, rest.len()));
            Some((Ok::<_, io::Error>(piece), rest))
        });
        event_stream(Body::from_stream(pieces))
    })
    .await
}

/// Notifications of other requests and a second answer on the stream of `tools/call`.
///
/// # Errors
///
/// When no port is free.
pub async fn chatty_sse() -> io::Result<Running> {
    fake_now(|rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        let stray = json!({
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": { "progressToken": "nobody's", "progress": 1 },
        });
        let asks = json!({ "jsonrpc": "2.0", "id": 1, "method": "roots/list" });
        let end = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": text("done") });
        let late = json!({ "jsonrpc": "2.0", "id": rpc.id, "result": text("late") });
        let frames = [stray, asks, end, late].map(|frame| format!("data: {frame}\n\n"));
        event_stream(Body::from(frames.concat()))
    })
    .await
}
