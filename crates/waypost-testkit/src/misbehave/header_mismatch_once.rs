//! Refuses the first `tools/call` with `-32020`, as a server does whose tools changed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use serde_json::Value;

use super::fake::fake_now;
use crate::run::Running;

/// Every later call succeeds.
///
/// # Errors
///
/// When no port is free.
pub async fn header_mismatch_once() -> io::Result<Running> {
    let refused = AtomicBool::new(false);
    fake_now(move |rpc| {
        if rpc.method == "tools/call" && !refused.swap(true, Ordering::SeqCst) {
            return rpc.fail(
                StatusCode::BAD_REQUEST,
                -32020,
                "header mismatch",
                &Value::Null,
            );
        }
        rpc.honest(false)
    })
    .await
}
