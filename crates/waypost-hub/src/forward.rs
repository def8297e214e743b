//! Sends one call to one upstream: permit, progress token, timeout, the watch on its health.

mod guarded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use waypost_wire::raw::Raw;

use crate::call::{Call, Comeback};
use crate::error::{CallError, Kind, Origin};
use crate::event::CallFinished;
use crate::lifecycle::Tasks;
use crate::limit::Permit;
use crate::member::Member;
use crate::own;
use crate::reply::{End, Reply};
use crate::status::State;
use guarded::{Guarded, Rules};

/// Progress tokens towards upstreams. Two clients may use the same token at once, and a server
/// that both share must be able to tell them apart.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(1);

/// Longest wait beside questions that are open: `tasks.input_wait` ends it sooner.
const LISTENING: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Sends `call`, whose names are already the upstream's. `target` is the original name of the
/// tool or prompt, for timeouts and metrics.
///
/// The timeout starts anew with each progress notification, up to the ceiling, which `background`
/// keeps where the reply is not read. Dropping the future or the reply cancels the call at the
/// upstream.
///
/// # Errors
/// What the upstream's connection reports, [`Kind::Throttled`] with no permit left,
/// [`Kind::Timeout`], and [`Kind::Unavailable`] for an upstream that cannot be called now.
pub async fn send(
    background: &Tasks,
    member: &Arc<Member>,
    call: Call,
    target: Option<&str>,
) -> Result<Reply, CallError> {
    usable(member)?;
    // Only answers give the upstream something to do.
    let permit = if call.comeback != Comeback::Answers {
        None
    } else {
        let permit = member.permits().permit().ok_or_else(|| {
            CallError::upstream(Kind::Throttled, &member.name)
                .detail("too many calls in flight")
                .retryable()
        })?;
        Some(permit)
    };
    dispatch(Some(background), member, call, target, permit).await
}

/// As [`send`], but without a permit: for the few short calls of Waypost's own about a task,
/// which must get through above all where callers fill the upstream.
///
/// # Errors
/// As [`send`]; never [`Kind::Throttled`] of Waypost's own.
pub(crate) async fn send_own(member: &Arc<Member>, call: Call) -> Result<Reply, CallError> {
    usable(member)?;
    dispatch(None, member, call, None, None).await
}

async fn dispatch(
    background: Option<&Tasks>,
    member: &Arc<Member>,
    mut call: Call,
    target: Option<&str>,
    permit: Option<Permit>,
) -> Result<Reply, CallError> {
    // Every line about the request names its upstream from here on.
    tracing::Span::current().record("upstream", &*member.name);
    call.meta.client_info.get_or_insert_with(own::client_info);
    let logs = call.meta.log_level.is_some();
    let listens = call.comeback == Comeback::Listens;
    let token = call.meta.progress_token.take();
    let token = token.map(|token| Token::replace(&mut call, token));
    let mut watch = Watch {
        member: Arc::clone(member),
        request_id: Arc::clone(&call.request_id),
        method: call.method.clone(),
        target: target.map(str::to_owned),
        started: Instant::now(),
        finished: false,
        listens,
        _permit: permit,
    };
    let timeout = if listens {
        LISTENING
    } else {
        member.timeout(target)
    };
    let until = watch.started + timeout;
    let reply = tokio::time::timeout_at(until, member.upstream.call(call)).await;
    match reply.unwrap_or_else(|_| Err(watch.timed_out())) {
        Ok(Reply::End(end)) => {
            watch.ended(&end);
            Ok(Reply::End(end))
        }
        Ok(Reply::Stream(events)) => {
            let ceiling = watch.started + member.settings.timeout_ceiling.max(timeout);
            // The same deadline goes on: the head of a stream is no progress.
            let sleep = Box::pin(tokio::time::sleep_until(until));
            let rules = Rules {
                token,
                logs,
                timeout,
                ceiling,
                sleep,
            };
            let guarded = Guarded::new(events, watch, rules, background);
            Ok(Reply::Stream(guarded.boxed()))
        }
        Err(error) => Err(watch.failed(error)),
    }
}

/// Refuses at once where a call could only hang.
pub(crate) fn usable(member: &Member) -> Result<(), CallError> {
    let refuse = |detail: &'static str| {
        let error = CallError::upstream(Kind::Unavailable, &member.name);
        let last = member.status.report().last_error;
        Err(match last {
            Some(last) => error.detail(format!("{detail}: {last}")).retryable(),
            None => error.detail(detail).retryable(),
        })
    };
    match member.status.state() {
        State::Disabled => refuse("disabled"),
        // The others may have come back since they were last looked at.
        State::Starting | State::Up | State::Degraded | State::AuthRequired | State::Down => Ok(()),
    }
}

/// The caller's progress token and the one that stands for it at the upstream.
struct Token {
    caller: Raw,
    ours: u64,
}

impl Token {
    fn replace(call: &mut Call, caller: Raw) -> Self {
        let ours = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        call.meta.progress_token = Some(Raw::from_serialize(&ours));
        Self { caller, ours }
    }
}

/// Sees to it that each call is counted once, also one that is dropped, and holds its permit
/// until then: a permit given back with the head of a stream would bound nothing.
struct Watch {
    member: Arc<Member>,
    request_id: Arc<str>,
    method: String,
    target: Option<String>,
    started: Instant,
    finished: bool,
    /// It waits beside questions that are open.
    listens: bool,
    _permit: Option<Permit>,
}

impl Watch {
    fn ended(&mut self, end: &End) {
        // The server said nothing.
        let silent = self.listens && matches!(end, End::InputRequired(_));
        if !silent {
            self.member.status.answered();
        }
        self.emit(end.word());
    }

    fn failed(&mut self, error: CallError) -> CallError {
        // A caller's or our own fault says nothing about the server.
        let upstream = matches!(error.origin, Origin::Upstream(_));
        let again = upstream && self.member.status.failed(&error.to_string());
        if again && error.is_unreachable() {
            self.member.wake.notify_one();
        }
        self.emit(error.kind.as_str());
        error
    }

    fn timed_out(&self) -> CallError {
        let seconds = self.started.elapsed().as_secs_f64();
        CallError::upstream(Kind::Timeout, &self.member.name).detail(format!(
            "no answer within {seconds:.1} s, the call was cancelled"
        ))
    }

    fn emit(&mut self, outcome: &'static str) {
        self.finished = true;
        // The questions were counted, and so will be what comes of the answers.
        if self.listens && matches!(outcome, "cancelled" | "input_required") {
            return;
        }
        CallFinished {
            request_id: &self.request_id,
            upstream: &self.member.name,
            method: &self.method,
            target: self.target.as_deref(),
            outcome,
            took: self.started.elapsed(),
        }
        .emit();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.finished {
            self.emit("cancelled");
        }
    }
}
