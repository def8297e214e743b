//! Answers `tools/call` under an id nobody asked with.

use std::io;

use serde_json::json;

use super::fake::{fake_now, text};
use crate::run::Running;

/// The rest is answered properly.
///
/// # Errors
///
/// When no port is free.
pub async fn wrong_id() -> io::Result<Running> {
    fake_now(|rpc| {
        if rpc.method != "tools/call" {
            return rpc.honest(false);
        }
        let mut other = rpc.clone();
        other.id = json!("somebody else's");
        other.ok(&text("done"))
    })
    .await
}
