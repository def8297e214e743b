//! Takes requests and says nothing, not even a status line.

use std::io;

use super::fake::fake;
use crate::run::Running;

/// What stays without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// `tools/call`; the rest is answered.
    Calls,
    /// Everything, `server/discover` too.
    Everything,
}

/// A test sees the client give up as `seen().aborted("tools/call")`.
///
/// # Errors
///
/// When no port is free.
pub async fn never_answers(silence: Silence) -> io::Result<Running> {
    fake(move |rpc| async move {
        if silence == Silence::Everything || rpc.method == "tools/call" {
            std::future::pending::<()>().await;
        }
        rpc.honest(false)
    })
    .await
}
