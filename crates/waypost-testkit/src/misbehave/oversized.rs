//! Answers `tools/call` with more than anybody wants.

use std::io;

use super::fake::{fake_now, text};
use crate::run::Running;

/// A valid result whose text is `size` bytes long.
///
/// # Errors
///
/// When no port is free.
pub async fn oversized(size: usize) -> io::Result<Running> {
    fake_now(move |rpc| match rpc.method.as_str() {
        "tools/call" => rpc.ok(&text(&"x".repeat(size))),
        _ => rpc.honest(false),
    })
    .await
}
