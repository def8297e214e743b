//! Errors that concern our own hop and not the caller: the upstream found our headers or our
//! version wrong.

use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use waypost_wire::code;
use waypost_wire::text::{SENTENCE, clip};

use crate::call::Call;
use crate::error::{CallError, Kind};
use crate::hub::Hub;
use crate::member::Member;
use crate::reply::{End, Reply};

/// Sends `call` by `send`; should the upstream refuse our headers (`-32020`) or our version
/// (`-32022`), looks at it anew and sends once more. Neither refusal has executed anything.
///
/// The call is boxed: futures within futures would each move it.
///
/// # Errors
/// What `send` reports, and [`Kind::BadUpstream`] when the second try is refused too: the
/// caller's own headers were right, so the upstream's code would only mislead it.
pub(crate) async fn send<F, S>(
    hub: &Hub,
    member: &Arc<Member>,
    call: Box<Call>,
    send: S,
) -> Result<Reply, CallError>
where
    S: Fn(Box<Call>) -> F,
    F: Future<Output = Result<Reply, CallError>>,
{
    let again = call.clone();
    let reply = send(call).await?;
    let Reply::End(End::Error(error)) = &reply else {
        return guard(reply, member);
    };
    if !concerns_us(error.code()) {
        return Ok(reply);
    }
    tracing::warn!(
        upstream = &*member.name,
        code = error.code(),
        said = &*clip(&error.message(), SENTENCE),
        "refused our headers or version, looking at it anew"
    );
    // Boxed: it is seldom needed, and the future is held for as long as the call takes.
    Box::pin(look_anew(hub, member)).await;
    match Box::pin(send(again)).await? {
        Reply::End(End::Error(error)) if concerns_us(error.code()) => {
            Err(refused(member, error.code()))
        }
        reply => guard(reply, member),
    }
}

/// Whether an error is about our own request, and nothing was executed.
pub(crate) fn concerns_us(error: i64) -> bool {
    matches!(error, code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION)
}

/// The answer to a caller whose request was right.
pub(crate) fn refused(member: &Arc<Member>, code: i64) -> CallError {
    CallError::upstream(Kind::BadUpstream, &member.name)
        .detail(format!("refuses our request with {code}"))
}

/// The same refusal at the end of a stream comes too late for another try.
fn guard(reply: Reply, member: &Arc<Member>) -> Result<Reply, CallError> {
    let member = Arc::clone(member);
    reply.map_end(move |end| match end {
        End::Error(error) if concerns_us(error.code()) => Err(refused(&member, error.code())),
        end => Ok(end),
    })
}

async fn look_anew(hub: &Hub, member: &Arc<Member>) {
    let learned_at = || member.learned().map(|l| l.learned_at);
    let before = learned_at();
    member.wake.notify_one();
    let until = Instant::now() + member.settings.list_timeout;
    hub.wait_until(until, || learned_at() != before).await;
}
