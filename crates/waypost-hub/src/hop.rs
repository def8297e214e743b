//! Errors that concern our own hop and not the caller: the upstream found our headers or our
//! version wrong.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::text::{SENTENCE, clip};

use crate::call::Call;
use crate::error::{CallError, Kind};
use crate::event::request_id_field;
use crate::hub::Hub;
use crate::member::Member;
use crate::reply::{End, Reply};

/// Between two looks at whether there is news, where nobody tells.
const LOOK: Duration = Duration::from_millis(50);

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
    let request_id = Arc::clone(&call.request_id);
    let reply = send(call).await?;
    let Reply::End(End::Error(error)) = &reply else {
        return guard(reply, member);
    };
    if !concerns_us(error.code()) {
        return Ok(reply);
    }
    let (within, news) = (member.settings.list_timeout, hub.progressing());
    // Boxed: it is seldom needed, and the future is held for as long as the call takes.
    Box::pin(look_anew(member, (error, &request_id), within, Some(news))).await;
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

/// An upstream has refused a request of ours so: has it looked at anew and waits until something is
/// learned of it, for so long at most. Of one that has left nothing is. `news` tells when to see
/// whether there is some.
pub(crate) async fn look_anew(
    member: &Member,
    (refusal, request_id): (&ErrorObject, &str),
    within: Duration,
    mut news: Option<watch::Receiver<u64>>,
) {
    tracing::warn!(
        request_id = request_id_field(request_id),
        upstream = &*member.name,
        code = refusal.code(),
        said = &*clip(&refusal.message(), SENTENCE),
        "refused our headers or version, looking at it anew"
    );
    let learned_at = || member.learned().map(|learned| learned.learned_at);
    let before = learned_at();
    member.wake.notify_one();
    let looked = async {
        while learned_at() == before {
            match &mut news {
                Some(news) => match news.changed().await {
                    Ok(()) => {}
                    Err(_) => return,
                },
                None => sleep(LOOK).await,
            }
        }
    };
    tokio::select! {
        biased;
        () = member.left() => {}
        _ = timeout(within, looked) => {}
    }
}
