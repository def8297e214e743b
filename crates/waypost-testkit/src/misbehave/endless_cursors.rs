//! Lists that never end: every page of `tools/list` names another one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::fake::fake_now;
use crate::run::Running;

/// How the next page is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursors {
    /// Always the same cursor.
    Same,
    /// A new cursor and a new tool each time.
    New,
}

/// Only the list misbehaves.
///
/// # Errors
///
/// When no port is free.
pub async fn endless_cursors(cursors: Cursors) -> io::Result<Running> {
    let pages = AtomicU64::new(0);
    fake_now(move |rpc| {
        if rpc.method != "tools/list" {
            return rpc.honest(false);
        }
        let page = match cursors {
            Cursors::Same => 0,
            Cursors::New => pages.fetch_add(1, Ordering::SeqCst),
        };
        let name = format!("tool_{page}");
        rpc.ok(&json!({
            "resultType": "complete",
            "tools": [{ "name": name, "inputSchema": { "type": "object" } }],
            "nextCursor": format!("page-{page}"),
            "ttlMs": 0,
            "cacheScope": "public",
        }))
    })
    .await
}
