//! The way down of everything that answers requests, whoever asked for it.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_hub::lifecycle::FAREWELL;

use crate::assemble::Assembled;

/// What telling upstreams of the tasks that were cut off may take beyond the drain grace.
const CANCELS: Duration = Duration::from_secs(1);

/// What ending the children may take beyond that, and whatever takes a farewell.
const CHILDREN: Duration = FAREWELL.saturating_add(Duration::from_millis(500));

/// Longest wait for the state to be closed.
const STATE: Duration = Duration::from_secs(2);

impl Assembled {
    /// The way down begins: streams without end get their graceful one, so that only real work is
    /// left. When all of it is over, where clients get this grace.
    pub(crate) fn begin_drain(&self, grace: Duration) -> Instant {
        self.hub.begin_drain();
        if let Some(sessions) = &self.sessions {
            sessions.begin_drain();
        }
        Instant::now() + grace + CANCELS + CHILDREN
    }

    /// The time for calls is over: each gives its caller an error.
    pub(crate) fn give_up_calls(&self) {
        self.hub.give_up_calls();
        if let Some(sessions) = &self.sessions {
            sessions.give_up_calls();
        }
    }

    /// The rest of it, once no client is served any more; `last` is what its beginning gave.
    /// Whether everything ended by itself.
    pub(crate) async fn end(self, last: Instant, hurry: &CancellationToken) -> bool {
        // Whose tasks ran for calls that were dropped is told so while there still are connections
        // and children to tell it through.
        let settled = tokio::time::timeout(CANCELS, self.hub.settled());
        hurry.run_until_cancelled(settled).await;
        // The children are asked to leave only now: calls were still using them.
        self.background.stop_signal().cancel();
        let left = last.saturating_duration_since(Instant::now());
        let children = self.background.drain(left);
        let children = hurry.run_until_cancelled(children).await;
        // The second signal ends this wait too, and so does a disk that hangs.
        let closed = within(STATE, hurry, self.database.close()).await;
        children == Some(true) && closed
    }
}

/// Whether `work` was done within `limit` and before anybody hurried.
pub(crate) async fn within(
    limit: Duration,
    hurry: &CancellationToken,
    work: impl Future<Output = ()>,
) -> bool {
    let done = hurry.run_until_cancelled(tokio::time::timeout(limit, work));
    matches!(done.await, Some(Ok(())))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn r42_a_state_that_cannot_be_closed_does_not_hold_up_the_end() {
        let hurry = CancellationToken::new();
        let before = Instant::now();
        assert!(within(STATE, &hurry, std::future::ready(())).await);
        assert!(!within(STATE, &hurry, pending()).await);
        assert_eq!(before.elapsed(), STATE);
        hurry.cancel();
        assert!(!within(STATE, &hurry, pending()).await);
        assert_eq!(
            before.elapsed(),
            STATE,
            "the second signal is not waited out"
        );
    }
}
