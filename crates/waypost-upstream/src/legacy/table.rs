//! What of one session's messages belongs to whom.

mod asking;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::Session as ClientSession;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Notification, Outcome, Request};
use waypost_wire::meta;
use waypost_wire::method;
use waypost_wire::object::Object;

use super::aim::{Audience, Nobody, target};
use super::exchange::Exchange;
use super::listeners::Listeners;
use super::outbox::Outbox;
use super::outside::Outside;
use super::pool::Pool;
use super::question::Whose;
use super::{tasks, url_mode};
use crate::ear::{Ear, Heard};
use crate::event::{Ignored, TaskAbandoned};
use crate::fault::{Fault, How};
use crate::stdio::{Abandoned, Sort};

/// Smaller numbers are left to whoever spoke on the same connection before.
const FIRST_ID: u64 = 16;

/// Questions kept for the next call; more are refused.
const EARLY: usize = 16;

/// Visits remembered as over.
const VISITS: usize = 1024;

type Plain = oneshot::Sender<Result<Outcome, Fault>>;

/// The calls and questions in flight at one session.
#[derive(Debug)]
pub(crate) struct Table {
    upstream: Arc<str>,
    audience: Audience,
    /// What the server was told that it may ask.
    declared: ClientCapabilities,
    state: Mutex<State>,
    next_id: AtomicU64,
    pub(crate) outbox: Outbox,
    pub(crate) outside: Outside,
    pub(crate) listeners: Listeners,
    /// Where the session of Waypost's own calls is, which hears of lists that changed here too;
    /// none for that session itself.
    others: Weak<Pool>,
    gone: CancellationToken,
    /// A call has ended.
    ended: Notify,
    /// A visit to an address is over.
    visited: Notify,
}

#[derive(Debug)]
struct State {
    open: BTreeMap<u64, Arc<Exchange>>,
    /// Requests of our own.
    plain: HashMap<u64, Plain>,
    /// Those of both that were written.
    sent: HashSet<u64>,
    /// And those that were given up and may still run.
    adrift: Abandoned,
    /// Asked before any call was there to carry it.
    early: Vec<Request>,
    /// Who was asked for which visit.
    visiting: HashMap<String, Weak<Exchange>>,
    visits: HashSet<String>,
    gone: Option<Fault>,
    used: Instant,
}

impl Table {
    pub(crate) fn new(
        upstream: &Arc<str>,
        audience: Audience,
        declared: ClientCapabilities,
        others: Weak<Pool>,
        client: Option<ClientSession>,
    ) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            others,
            audience,
            declared,
            state: Mutex::new(State {
                open: BTreeMap::new(),
                plain: HashMap::new(),
                sent: HashSet::new(),
                adrift: Abandoned::default(),
                early: Vec::new(),
                visiting: HashMap::new(),
                visits: HashSet::new(),
                gone: None,
                used: Instant::now(),
            }),
            next_id: AtomicU64::new(FIRST_ID),
            outbox: Outbox::default(),
            outside: Outside::new(client),
            listeners: Listeners::default(),
            gone: CancellationToken::new(),
            ended: Notify::new(),
            visited: Notify::new(),
        }
    }

    /// Makes a place for the answer to a call.
    ///
    /// # Errors
    /// Why the session is gone; nothing was sent.
    pub(crate) fn open(&self, exchange: &Arc<Exchange>) -> Result<u64, Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        if let Some(fault) = &state.gone {
            return Err(fault.clone().in_session(false));
        }
        state.used = Instant::now();
        state.open.insert(id, Arc::clone(exchange));
        // One that waits for a task has no caller to be asked.
        let early = if exchange.may_ask() && exchange.task().is_none() {
            std::mem::take(&mut state.early)
        } else {
            Vec::new()
        };
        drop(state);
        for request in early {
            // The call's own stream may be the first that reaches the client, and the call be over
            // before the answer.
            if !self.put_outside(&request) {
                self.put_to(exchange, request, Whose::Early);
            }
        }
        Ok(id)
    }

    /// Makes a place for the answer to a request of our own.
    ///
    /// # Errors
    /// Why the session is gone.
    pub(crate) fn plain(&self) -> Result<(u64, oneshot::Receiver<Result<Outcome, Fault>>), Fault> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer_in, answer) = oneshot::channel();
        let mut state = self.state();
        if let Some(fault) = &state.gone {
            return Err(fault.clone());
        }
        state.plain.insert(id, answer_in);
        Ok((id, answer))
    }

    /// How many requests of our own wait for an answer.
    #[cfg(test)]
    pub(crate) fn plain_open(&self) -> usize {
        self.state().plain.len()
    }

    /// Nobody waits for `id` any more, whose answer may still come; `true` where the server may be
    /// at work on it.
    pub(crate) fn close(&self, id: u64) -> bool {
        let mut state = self.state();
        // What asks the server in vain is no use of it.
        if state.open.contains_key(&id) {
            state.used = Instant::now();
        }
        let adrift = state.give_up(id);
        drop(state);
        self.ended.notify_waiters();
        adrift
    }

    /// Nothing runs for `id`.
    pub(crate) fn forget(&self, id: u64) {
        let mut state = self.state();
        state.take(id);
        state.used = Instant::now();
        drop(state);
        self.ended.notify_waiters();
    }

    /// There will be no answer for `id`, and this is why. After some faults the server may be at
    /// work on it.
    pub(crate) fn failed(&self, id: u64, fault: Fault) -> Fault {
        let sent = self.state().sent.contains(&id);
        match fault {
            Fault::Closed | Fault::NoEnd | Fault::Late(_) => drop(self.close(id)),
            _ => self.forget(id),
        }
        fault.of_request(sent)
    }

    /// Takes out a call that is still open, whose answer may still come.
    pub(super) fn withdraw_call(&self, call: &Arc<Exchange>) -> Option<u64> {
        let mut state = self.state();
        let mut open = state.open.iter();
        let id = open.find_map(|(id, other)| Arc::ptr_eq(call, other).then_some(*id))?;
        state.give_up(id);
        drop(state);
        self.ended.notify_waiters();
        Some(id)
    }

    /// The upstream's name.
    pub(super) fn upstream(&self) -> &str {
        &self.upstream
    }

    /// A call waits for its caller from now on.
    pub(crate) fn parked(&self) {
        self.ended.notify_waiters();
    }

    /// Whether nothing can be sent any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_cancelled()
    }

    /// Why nothing can be sent any more, where the connection broke although nobody wanted that.
    pub(crate) fn broken(&self) -> Option<Fault> {
        let gone = self.state().gone.clone();
        gone.filter(|fault| match fault {
            Fault::SessionLost | Fault::Stopping => false,
            Fault::Exited { exit, .. } => exit.how != How::Stopped,
            _ => true,
        })
    }

    /// Nothing begins any more; what is open goes on.
    pub(crate) fn shut(&self) {
        self.state().gone.get_or_insert(Fault::SessionLost);
    }

    /// The same where nothing was in use for so long; otherwise until when that cannot be. In one
    /// step: a call that comes this moment is either open or begins elsewhere.
    pub(crate) fn expire(&self, idle: Duration) -> Option<Instant> {
        let mut state = self.state();
        let now = Instant::now();
        let since = if state.open.is_empty() && !self.listeners.any() {
            state.used
        } else {
            now
        };
        if since + idle > now {
            return Some(since + idle);
        }
        state.gone.get_or_insert(Fault::SessionLost);
        None
    }

    /// Resolves when nothing can be sent any more.
    pub(crate) async fn went(&self) {
        self.gone.cancelled().await;
    }

    /// Since when no call is open; `None` while there is one.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.open.is_empty().then_some(state.used)
    }

    /// The answer to a call came after its caller had gone. A task that it made is nobody's.
    pub(crate) fn late(&self, outcome: &Outcome) {
        let Some(task) = tasks::made(outcome) else {
            return self.ignore("late_answer");
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let params: Object = [("taskId", task)].into_iter().collect();
        // Nobody waits for the answer to this one.
        self.stop(
            None,
            message::encode_request(&Id::number(id), method::TASKS_CANCEL, &params),
        );
        let upstream = &self.upstream;
        TaskAbandoned { upstream }.emit();
    }

    /// The caller of this call is about to be asked for the visits that it wants.
    pub(crate) fn expect_visits(&self, call: &Arc<Exchange>) {
        let mut state = self.state();
        for id in call.elicitations() {
            if state.visiting.len() >= VISITS {
                state.visiting.retain(|_, call| call.strong_count() > 0);
            }
            if state.visiting.len() < VISITS {
                state.visiting.insert(id, Arc::downgrade(call));
            }
        }
    }

    /// Resolves when the visits of these elicitations are over.
    pub(crate) async fn visits(&self, elicitations: &[String]) {
        loop {
            let visited = self.visited.notified();
            {
                let state = self.state();
                if elicitations.iter().all(|id| state.visits.contains(id)) {
                    return;
                }
            }
            visited.await;
        }
    }

    fn answer(&self, of: Option<u64>, id: Option<&Id>, outcome: Outcome) {
        let id = match (id, &outcome) {
            (Some(id), _) => id.as_number(),
            // The server could not read a request.
            (None, Outcome::Error(_)) => of.or_else(|| self.only()),
            (None, Outcome::Result(_)) => None,
        };
        let mut state = self.state();
        state.used = Instant::now();
        let (exchange, plain) = id.map(|id| state.take(id)).unwrap_or_default();
        let adrift = id.and_then(|id| state.adrift.answered(id));
        drop(state);
        self.ended.notify_waiters();
        match (exchange, plain, adrift) {
            (Some(exchange), ..) => {
                if let Some(late) = exchange.answered(outcome) {
                    self.late(&late);
                }
                self.rehome(exchange.take_left());
            }
            (None, Some(plain), _) => drop(plain.send(Ok(outcome))),
            (None, None, Some(Sort::Work)) => self.late(&outcome),
            (None, None, Some(_)) => self.ignore("late_answer"),
            (None, None, None) => self.ignore("other_answer"),
        }
    }

    /// The one request in flight, where an error without an id can be about no other.
    fn only(&self) -> Option<u64> {
        let state = self.state();
        let mut ids = state.sent.iter();
        let only = ids.next().copied().filter(|_| ids.next().is_none());
        only.filter(|_| !state.adrift.any())
    }

    fn notify(&self, of: Option<u64>, notification: Notification) {
        let told = match &*notification.method {
            method::PROGRESS => self.progress(notification),
            method::MESSAGE => self.log(of, notification),
            method::CANCELLED => self.withdraw(&notification),
            // Who subscribed to a resource did so here, and it may be this session's own.
            method::RESOURCE_UPDATED => self.listeners.tell(&notification),
            method::TOOLS_CHANGED | method::PROMPTS_CHANGED | method::RESOURCES_CHANGED => {
                let elsewhere = self.others.upgrade();
                let elsewhere = elsewhere.is_some_and(|pool| pool.tell_home(&notification));
                self.listeners.tell(&notification) || elsewhere
            }
            url_mode::COMPLETE => self.visit(notification),
            _ => {
                let call = of.and_then(|id| self.state().open.get(&id).cloned());
                call.is_some_and(|call| call.pass(notification))
            }
        };
        if !told {
            self.ignore("unmatched");
        }
    }

    fn progress(&self, notification: Notification) -> bool {
        let Some(token) = notification.params.get(meta::PROGRESS_TOKEN) else {
            return false;
        };
        let call = {
            let state = self.state();
            state
                .open
                .values()
                .find(|call| call.has_token(token))
                .cloned()
        };
        call.is_some_and(|call| call.pass(notification))
    }

    /// A log message that names no call passes only where it can tell nobody what another said.
    fn log(&self, of: Option<u64>, notification: Notification) -> bool {
        let call = {
            let state = self.state();
            let (open, adrift) = (&state.open, state.adrift.any_call());
            match (of, self.audience) {
                (Some(id), _) => open.get(&id).cloned(),
                (None, Audience::One) => open.values().find(|call| call.wants_log()).cloned(),
                (None, Audience::Many) if open.len() == 1 && !adrift => {
                    open.values().next().cloned()
                }
                (None, Audience::Many | Audience::Nobody) => None,
            }
        };
        call.is_some_and(|call| call.pass(notification))
    }

    fn withdraw(&self, notification: &Notification) -> bool {
        let Some(Ok(id)) = notification.params.get("requestId").cloned().map(Id::new) else {
            return false;
        };
        let mut state = self.state();
        state.early.retain(|request| request.id != id);
        let outside = self.outside.withdraw(&id);
        let open: Vec<_> = state.open.values().cloned().collect();
        drop(state);
        outside || open.iter().any(|call| call.withdraw(&id))
    }

    fn visit(&self, notification: Notification) -> bool {
        let Some(id) = notification.params.string("elicitationId") else {
            return false;
        };
        let mut state = self.state();
        if state.visits.len() >= VISITS {
            state.visits.clear();
        }
        let call = state.visiting.remove(&id).and_then(|call| call.upgrade());
        state.visits.insert(id);
        drop(state);
        // Before the call goes on, which may end it.
        if let Some(call) = call {
            call.pass(notification);
        }
        self.visited.notify_waiters();
        true
    }

    pub(super) fn ignore(&self, reason: &'static str) {
        let upstream = &self.upstream;
        Ignored { upstream, reason }.emit();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a request out whose answer will not come any more.
    fn take(&mut self, id: u64) -> (Option<Arc<Exchange>>, Option<Plain>) {
        self.sent.remove(&id);
        (self.open.remove(&id), self.plain.remove(&id))
    }

    /// Takes a request out whose answer may still come.
    fn give_up(&mut self, id: u64) -> bool {
        let sent = self.sent.contains(&id);
        let sort = match self.take(id) {
            (Some(call), _) if call.task().is_some() => Sort::AboutTask,
            (Some(_), _) => Sort::Work,
            (None, Some(_)) => Sort::Aside,
            (None, None) => return false,
        };
        if sent {
            self.adrift.remember(id, sort);
        }
        sent
    }

    /// A call of the one client that has the session, for a question that names none.
    fn target(&self, request: &Request) -> Result<Arc<Exchange>, Nobody> {
        target(&self.open, (Audience::One, false), (None, None), request)
    }
}

impl Ear for Table {
    fn hear(&self, heard: Heard) {
        match heard.message {
            Message::Response(id, outcome) => self.answer(heard.of, id.as_ref(), outcome),
            Message::Notification(notification) => self.notify(heard.of, notification),
            Message::Request(request) => self.asked(heard.of, request),
        }
    }

    fn spoiled(&self, id: u64, fault: Fault) {
        let mut state = self.state();
        let (exchange, plain) = state.take(id);
        state.adrift.answered(id);
        drop(state);
        self.ended.notify_waiters();
        if let Some(exchange) = exchange {
            exchange.fail(fault);
            self.rehome(exchange.take_left());
        } else if let Some(plain) = plain {
            drop(plain.send(Err(fault)));
        }
    }

    fn gone(&self, fault: &Fault) {
        let mut state = self.state();
        state
            .gone
            .get_or_insert_with(|| fault.clone().of_request(false));
        // A session that the server has forgotten has no common channel that broke: each request
        // in flight learns for itself whether it ran.
        let (open, plain) = if matches!(fault, Fault::SessionLost) {
            Default::default()
        } else {
            (
                std::mem::take(&mut state.open),
                std::mem::take(&mut state.plain),
            )
        };
        let sent = state.sent.clone();
        drop(state);
        let fault_of = |id| fault.clone().in_session(sent.contains(&id));
        for (id, exchange) in open {
            exchange.lost(fault_of(id));
        }
        for (id, answer) in plain {
            drop(answer.send(Err(fault_of(id))));
        }
        self.outside.clear();
        self.listeners.end(fault);
        self.gone.cancel();
        self.ended.notify_waiters();
    }

    fn sending(&self, id: u64) -> bool {
        let mut state = self.state();
        let wanted = state.open.contains_key(&id) || state.plain.contains_key(&id);
        if wanted {
            state.sent.insert(id);
        }
        wanted
    }

    /// Resolves when every call is answered or waits for its caller.
    fn idle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            loop {
                let ended = self.ended.notified();
                if self.state().open.values().all(|call| call.is_parked()) {
                    return;
                }
                ended.await;
            }
        })
    }
}
