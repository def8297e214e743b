//! An upstream's stream under a timeout that progress extends, and only what belongs on it.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::raw::Raw;

use super::{Token, Watch};
use crate::error::CallError;
use crate::lifecycle::Tasks;
use crate::own;
use crate::reply::{Event, EventStream};

/// The stream of one call.
pub(super) struct Guarded {
    live: Arc<Mutex<Live>>,
    rules: Rules,
    keeper: Keeper,
}

/// The upstream's side. Shared with whoever ends it at the ceiling, and with nobody else.
enum Live {
    Open(EventStream, Watch),
    /// It is over, by this failure if nobody has been told yet.
    Over(Option<CallError>),
}

/// What passes, and for how long.
pub(super) struct Rules {
    pub(super) token: Option<Token>,
    /// The caller set a log level.
    pub(super) logs: bool,
    pub(super) timeout: Duration,
    pub(super) ceiling: Instant,
    pub(super) sleep: Pin<Box<Sleep>>,
}

/// Who sees to the ceiling when the stream is not read.
enum Keeper {
    Nobody,
    /// Nobody yet: a stream waits for its reader only once it has given it something.
    Later(Tasks),
    /// A task, until this is dropped.
    Task {
        _running: oneshot::Sender<()>,
    },
}

impl Guarded {
    /// With `background` the call ends at its ceiling whether or not anybody reads.
    pub(super) fn new(
        events: EventStream,
        watch: Watch,
        rules: Rules,
        background: Option<&Tasks>,
    ) -> Self {
        Self {
            live: Arc::new(Mutex::new(Live::Open(events, watch))),
            rules,
            keeper: background.map_or(Keeper::Nobody, |tasks| Keeper::Later(tasks.clone())),
        }
    }
}

impl Stream for Guarded {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let polled = lock(&this.live).poll(&mut this.rules, cx);
        if matches!(polled, Poll::Ready(Some(Ok(Event::Notification(_))))) {
            this.keeper.begin(&this.live, this.rules.ceiling);
        }
        polled
    }
}

// === impl Live ===

impl Live {
    fn poll(
        &mut self,
        rules: &mut Rules,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, CallError>>> {
        let (events, watch) = match self {
            Self::Open(events, watch) => (events, watch),
            Self::Over(error) => return Poll::Ready(error.take().map(Err)),
        };
        let last = loop {
            // First: a server that never pauses must not talk its time away.
            if rules.sleep.as_mut().poll(cx).is_ready() {
                let error = watch.timed_out();
                break Err(watch.failed(error));
            }
            match events.poll_next_unpin(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(mut event))) => {
                    if !rules.admit(&mut event) {
                        continue;
                    }
                    let Event::End(end) = &event else {
                        return Poll::Ready(Some(Ok(event)));
                    };
                    watch.ended(end);
                    break Ok(event);
                }
                Poll::Ready(Some(Err(error))) => break Err(watch.failed(error)),
                Poll::Ready(None) => {
                    let error = CallError::no_end_of(&watch.member.name);
                    break Err(watch.failed(error));
                }
            }
        };
        *self = Self::Over(None);
        Poll::Ready(Some(last))
    }

    /// Cancels the call, if it still runs.
    fn time_out(&mut self) {
        if let Self::Open(_, watch) = self {
            let error = watch.timed_out();
            *self = Self::Over(Some(watch.failed(error)));
        }
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Keeper ===

impl Keeper {
    /// Begins to see to the ceiling.
    fn begin(&mut self, live: &Arc<Mutex<Live>>, ceiling: Instant) {
        let Self::Later(tasks) = self else { return };
        let (running, over) = oneshot::channel::<()>();
        // It must not keep alive what its reader dropped.
        let live = Arc::downgrade(live);
        tasks.spawn_here(|stop| async move {
            tokio::select! {
                _ = over => {}
                () = stop.cancelled() => {}
                () = sleep_until(ceiling) => {
                    if let Some(live) = live.upgrade() {
                        lock(&live).time_out();
                    }
                }
            }
        });
        *self = Self::Task { _running: running };
    }
}

// === impl Rules ===

impl Rules {
    /// Puts the caller's token back and takes out what is said of this hop; `false` for what does not belong on this stream.
    fn admit(&mut self, event: &mut Event) -> bool {
        let Event::Notification(notification) = event else {
            return true;
        };
        own::unsign(&mut notification.params);
        match notification.method.as_str() {
            method::PROGRESS => {
                let said = notification
                    .params
                    .get(meta::PROGRESS_TOKEN)
                    .and_then(Raw::as_i64);
                let said = said.and_then(|n| u64::try_from(n).ok());
                let Some(token) = self.token.as_ref().filter(|token| said == Some(token.ours))
                else {
                    return false;
                };
                notification
                    .params
                    .set(meta::PROGRESS_TOKEN, token.caller.clone());
                let next = (Instant::now() + self.timeout).min(self.ceiling);
                self.sleep.as_mut().reset(next);
                true
            }
            method::MESSAGE => self.logs,
            // These belong on a subscription's stream or come from a client.
            method::TOOLS_CHANGED
            | method::PROMPTS_CHANGED
            | method::RESOURCES_CHANGED
            | method::RESOURCE_UPDATED
            | method::TASK_STATUS
            | method::ACKNOWLEDGED
            | method::CANCELLED => false,
            // An extension's; whoever exposes it knows what it means.
            _ => true,
        }
    }
}
