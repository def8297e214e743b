//! The questions of collapsed tasks: each is one round of the caller's own call.
//!
//! The caller gets an `input_required` result; its retry becomes `tasks/update`, and the wait
//! goes on in the retry's stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use waypost_wire::message::Notification;
use waypost_wire::meta::PROGRESS_TOKEN;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{INPUT_REQUESTS, INPUT_RESPONSES, REQUEST_STATE};
use waypost_wire::task::Status;

use crate::asks;
use crate::call::Call;
use crate::error::{CallError, Kind, Origin};
use crate::event::request_id_field;
use crate::generate::Notifier;
use crate::registry::now_ms;
use crate::reply::{End, Reply};
use crate::shared::{self, Answer, Shared, again};
use crate::tasks::collapse::Wait;
use crate::tasks::event::{PollFailed, Reason};
use crate::tasks::parked::{Asked, Claim, REPEATABLE, Recorded, Ticket, Waiting};
use crate::tasks::progress::Progress;
use crate::tasks::remote::{Guard, Look, Remote};
use crate::tasks::state::{
    Binding, History, Kind as StateKind, Round, RoundId, State, unknown_state,
};
use crate::tasks::{Desk, Job};

/// Changes of a task that a slow caller is not yet told.
const ROOM: usize = 16;

/// Who listens beside a question whose task is gone, with what had it, notices that too within this
/// time, and tells what has become of it.
const HEARD_WITHIN: Duration = Duration::from_secs(3);

/// Asks the caller what the task asks, and lets the task wait for the answer.
pub(crate) fn ask(
    desk: &Arc<Desk>,
    job: &Job,
    guard: Guard,
    (born, progress, history): (Instant, Progress, History),
    task: &Object,
) -> Result<End, CallError> {
    let Some(place) = desk.parked.place(&job.member) else {
        guard.cancel(Reason::Full);
        return Err(full());
    };
    let round = Round {
        id: rand::random(),
        issuer: desk.issuer,
        task: guard.remote().id.clone(),
        instance: guard.remote().instance.as_deref().map(str::to_owned),
        born_ms: now_ms().saturating_sub(millis(born.elapsed())),
        history,
        asked: Vec::new(),
    };
    let id = round.id;
    let Some((questions, keys)) = questions(desk, &job.member.name, &job.call, round, task) else {
        guard.cancel(Reason::Broken);
        return Err(CallError::new(Kind::Internal, Origin::Gateway));
    };
    let waiting = desk.parked.park(id, place, Asked { keys, progress });
    attend(desk, waiting, guard);
    Ok(questions)
}

fn full() -> CallError {
    CallError::new(Kind::Throttled, Origin::Gateway)
        .detail("too many calls wait for an answer of their caller")
}

/// Asks the caller of a round that waits what the task asks by now, in place of what it asked;
/// `None` when somebody just came back.
pub(crate) fn ask_anew(
    desk: &Arc<Desk>,
    waiting: &Waiting,
    (wait, job): (Wait, &Job),
    round: Round,
    task: &Object,
) -> Option<End> {
    let (questions, keys) = questions(desk, &job.member.name, &job.call, round, task)?;
    let progress = wait.progress().clone();
    let waiting = waiting.ask(Asked { keys, progress })?;
    attend(desk, waiting, wait.into_guard());
    Some(questions)
}

/// The questions of a task as the caller of `call` gets them, and their keys.
fn questions(
    desk: &Desk,
    upstream: &str,
    call: &Call,
    round: Round,
    task: &Object,
) -> Option<(End, Vec<String>)> {
    let requests = task.get(INPUT_REQUESTS)?;
    let keys = keys_of(requests);
    let kept = desk.times().input_wait + REPEATABLE;
    let state = State {
        upstream: upstream.to_owned(),
        expires_ms: now_ms().saturating_add(millis(kept)),
        kind: StateKind::Round(round.asking(&keys)),
    };
    let sealed = desk.states.seal(&state, &Binding::of(call))?;
    let result = Object::from_iter([
        ("resultType", Raw::string("input_required")),
        (INPUT_REQUESTS, requests.clone()),
        (REQUEST_STATE, Raw::string(&sealed)),
    ]);
    Some((End::InputRequired(result), keys))
}

/// Serves the retry of a call whose task asked.
///
/// # Errors
/// [`unknown_state`] for a round that is over, [`CallError::unknown_task`] when the upstream's
/// process that had the task is gone.
pub(crate) fn resume(
    desk: &Arc<Desk>,
    job: Job,
    round: &Round,
    expires_ms: u64,
) -> Result<Reply, CallError> {
    let responses = job.call.params.get(INPUT_RESPONSES).cloned();
    if responses.as_ref().is_some_and(|raw| !raw.is_object()) {
        return Err(CallError::unknown("`inputResponses` must be an object"));
    }
    if responses.as_ref().map_or(0, |raw| keys_of(raw).len()) > asks::MOST {
        let text = format!("`inputResponses` has more than {} answers", asks::MOST);
        return Err(CallError::unknown(text));
    }
    let left = Duration::from_millis(expires_ms.saturating_sub(now_ms()));
    let job = job.at_asker(round.instance.as_deref());
    let foreign = round.issuer != desk.issuer && !left.is_zero();
    let until = foreign.then(|| Instant::now() + left);
    let (principal, session) = (&job.call.principal, job.call.session.as_ref());
    let instance = job.member.upstream.instance(principal, session);
    let is_gone = instance.as_deref() != round.instance.as_deref();
    let token = job.call.meta.progress_token.clone();
    let begin = |ticket| {
        if is_gone {
            return forgotten(ticket);
        }
        let remote = Remote::new(&job.member, instance, round.task.clone(), &job.call);
        go_on(desk, job, remote, (round, expires_ms), ticket, responses)
    };
    match desk.parked.claim(round.id, until, begin) {
        Claim::Gone => Err(unknown_state()),
        Claim::Given(answer) => again(&answer).map(Reply::End),
        Claim::Begun(_) if is_gone => Err(CallError::unknown_task()),
        Claim::Begun(work) | Claim::Joined(work) => Ok(Reply::Stream(work.events(under(token)))),
    }
}

/// Each caller has asked for progress under a token of its own, or for none.
fn under(token: Option<Raw>) -> impl FnMut(Notification) -> Option<Notification> {
    move |mut notification| {
        notification.params.set(PROGRESS_TOKEN, token.clone()?);
        Some(notification)
    }
}

/// The process or session that had the task is gone, and the round is used up.
fn forgotten(ticket: Ticket) -> Shared {
    Shared::new(ROOM, move |_| async move {
        drop(ticket);
        shared::answer(Err(CallError::unknown_task()))
    })
}

fn go_on(
    desk: &Arc<Desk>,
    job: Job,
    remote: Remote,
    (round, expires_ms): (&Round, u64),
    ticket: Ticket,
    responses: Option<Raw>,
) -> Shared {
    let born = born(round);
    // Others may come to wait for it, with tokens of their own or without: each puts its own in.
    let progress = Progress::new(Some(Raw::null()));
    // From here on the task is cancelled when nobody waits, even before the first poll.
    let wait = Wait::resume(desk, Arc::new(job), remote, progress, born).after(round);
    let desk = Arc::clone(desk);
    // A round that is asked anew has states that were made later than this one.
    let kept = desk.times().input_wait + REPEATABLE;
    let used = Used {
        round: round.clone(),
        until_ms: expires_ms.max(now_ms().saturating_add(millis(kept))),
    };
    Shared::new(ROOM, move |notifier| {
        answer(desk, wait, used, ticket, responses, notifier)
    })
}

/// When the task of a round was made.
pub(crate) fn born(round: &Round) -> Instant {
    let age = Duration::from_millis(now_ms().saturating_sub(round.born_ms));
    let now = Instant::now();
    now.checked_sub(age).unwrap_or(now)
}

async fn answer(
    desk: Arc<Desk>,
    mut wait: Wait,
    used: Used,
    ticket: Ticket,
    responses: Option<Raw>,
    notifier: Notifier,
) -> Answer {
    let responses = responses.map(|raw| only(&ticket, &used.round, raw));
    let responses = responses.map(|raw| (keys_of(&raw), raw));
    // Who has no question any more has nothing to tell.
    if let Some((keys, responses)) = responses.filter(|(keys, _)| !keys.is_empty()) {
        let told = match unsent(&desk, &used, &ticket, responses).await {
            Ok(Some(responses)) => wait.remote().update(responses).await,
            // They may have arrived, as below.
            Ok(None) => {
                note_sent_before(&wait);
                Ok(Ok(()))
            }
            Err(error) => Err(error),
        };
        match told {
            Ok(Ok(())) => wait.answered(keys),
            // The state is used up, so nobody can answer better: the task is of no use any more.
            Ok(Err(error)) => {
                wait.cancel(Reason::Broken);
                return give(&desk, ticket, Ok(End::Error(error)));
            }
            Err(error) if error.retryable => {
                let put_back = put_back(&desk, wait, used.round.id, ticket);
                return shared::answer(Err(put_back.err().unwrap_or(error)));
            }
            // It may have arrived. Then polling shows it; else the question comes again.
            Err(error) => {
                note_failure(&wait, &error);
                wait.answered(keys);
            }
        }
    }
    let end = wait.run(None, notifier).await;
    give(&desk, ticket, end)
}

/// Those of the answers that were asked for.
fn only(ticket: &Ticket, round: &Round, responses: Raw) -> Raw {
    let Ok(all) = responses.as_object() else {
        return responses;
    };
    let is_asked = |key: &str| match ticket.asked() {
        // Another process asked.
        [] => round.asks(key),
        asked => asked.iter().any(|asked| asked == key),
    };
    if all.iter().all(|(key, _)| is_asked(key)) {
        return responses;
    }
    let left = all.iter().filter(|(key, _)| is_asked(key));
    let left: Object = left.map(|(key, value)| (key, value.clone())).collect();
    left.into()
}

/// A state that is used now.
#[derive(Clone, Debug)]
struct Used {
    round: Round,
    /// When no state of the round opens any more.
    until_ms: u64,
}

/// Those of the answers that nobody has sent yet, and the store says from now on that somebody has;
/// `None` when there are none. An earlier process may have sent the others just before it was
/// killed, also with this state, and two states may ask the same: the task itself shows whether
/// they arrived.
async fn unsent(
    desk: &Desk,
    used: &Used,
    ticket: &Ticket,
    responses: Raw,
) -> Result<Option<Raw>, CallError> {
    let mut left = responses.as_object().unwrap_or_default();
    let keys = keys_of(&responses);
    for key in &keys {
        if !is_first(desk, used, ticket, used.round.question(key)).await? {
            left.remove(key);
        }
    }
    Ok(match left.len() {
        0 => None,
        all if all == keys.len() => Some(responses),
        _ => Some(left.into()),
    })
}

/// Whether nobody has used this yet, and the store says from now on that somebody has.
async fn is_first(
    desk: &Desk,
    used: &Used,
    ticket: &Ticket,
    name: String,
) -> Result<bool, CallError> {
    let before = ticket.marks().of(&name);
    if before == Recorded::Yes {
        return Ok(true);
    }
    match desk.store.use_state(&name, used.until_ms).await {
        Ok(first) => {
            // Else most likely by ourselves, in the try that was given up.
            let ours = first || before == Recorded::Perhaps;
            if ours {
                ticket.marks().set(name, Recorded::Yes);
            }
            Ok(ours)
        }
        // What cannot be remembered is not done: it could be done twice.
        Err(error) => {
            if error.is_late() {
                ticket.marks().set(name, Recorded::Perhaps);
            }
            Err(CallError::new(Kind::Unavailable, Origin::Gateway)
                .detail("cannot remember that the answers were sent, so they were not")
                .retryable()
                .source(error))
        }
    }
}

fn note_sent_before(wait: &Wait) {
    let remote = wait.remote();
    tracing::warn!(
        request_id = request_id_field(remote.request_id()),
        upstream = &*remote.member.name,
        "answers to a task were marked as sent before, perhaps by an earlier process, and are not sent again"
    );
}

fn give(desk: &Arc<Desk>, ticket: Ticket, end: Result<End, CallError>) -> Answer {
    let answer = shared::answer(end);
    ticket.give(&answer);
    sweep_later(desk);
    answer
}

/// Forgets an answer that was given now when its time has come.
pub(crate) fn sweep_later(desk: &Arc<Desk>) {
    // Without it a large answer would stay until somebody else comes back with a state.
    let parked = Arc::clone(&desk.parked);
    desk.background.spawn(|stop| async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(REPEATABLE) => parked.sweep(),
        }
    });
}

/// The upstream certainly did not get the answers: the same state may bring them again.
///
/// # Errors
/// [`Kind::Throttled`] where there is no place to wait for that: the task is cancelled then.
fn put_back(desk: &Arc<Desk>, wait: Wait, id: RoundId, ticket: Ticket) -> Result<(), CallError> {
    let Some(place) = desk.parked.place(&wait.remote().member) else {
        wait.cancel(Reason::Full);
        return Err(full());
    };
    let asked = Asked {
        keys: ticket.asked().to_vec(),
        progress: wait.progress().clone(),
    };
    attend(desk, desk.parked.park(id, place, asked), wait.into_guard());
    // The round waits again, or somebody has it by now: either is none of the ticket's.
    drop(ticket);
    Ok(())
}

/// Gives up a task whose caller does not come back, and the place of one that is gone with what had
/// it.
fn attend(desk: &Arc<Desk>, waiting: Waiting, guard: Guard) {
    let patience = desk.times().input_wait;
    let gone = async |remote: &Remote| {
        remote.ended().await;
        tokio::time::sleep(HEARD_WITHIN).await;
    };
    let desk = Arc::clone(desk);
    let background = desk.background.clone();
    background.spawn(|stop| async move {
        tokio::select! {
            // The state outlives this process: whoever comes next may take the answer.
            () = stop.cancelled() => {}
            // Whoever has it now has a guard of its own.
            () = waiting.over() => {}
            () = gone(guard.remote()) => {
                if waiting.give(&shared::answer(Err(CallError::unknown_task()))) {
                    sweep_later(&desk);
                }
            }
            () = tokio::time::sleep(patience) => {
                if let Some(Asked { keys, .. }) = waiting.expire()
                    && is_still_asked(guard.remote(), &keys).await
                {
                    guard.cancel(Reason::InputWait);
                    return;
                }
            }
        }
        guard.let_go();
    });
}

/// Another replica may have taken the answer: then the task does not ask this any more, for a
/// key is never used twice.
async fn is_still_asked(remote: &Remote, keys: &[String]) -> bool {
    match remote.get().await {
        Ok(Look::Task(task)) => {
            let requests = task.members.get(INPUT_REQUESTS);
            let open = requests.map(keys_of).unwrap_or_default();
            task.status == Status::InputRequired
                && (keys.is_empty() || open.iter().any(|key| keys.contains(key)))
        }
        Ok(Look::Error(_) | Look::Gone) => false,
        Err(_) => true,
    }
}

fn note_failure(wait: &Wait, error: &CallError) {
    let remote = wait.remote();
    PollFailed {
        request_id: remote.request_id(),
        upstream: &remote.member.name,
        failures: 1,
        error: &error.to_string(),
    }
    .emit();
}

fn keys_of(object: &Raw) -> Vec<String> {
    let object = object.as_object().unwrap_or_default();
    object.iter().map(|(key, _)| key.to_owned()).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
