//! The one place where this crate starts background work.

use std::future::Future;

use tokio::task::JoinHandle;

/// Spawns `work`.
#[expect(
    clippy::disallowed_methods,
    reason = "test servers do not know the daemon's lifecycle; each has its own stop signal"
)]
pub(crate) fn spawn<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(work)
}
