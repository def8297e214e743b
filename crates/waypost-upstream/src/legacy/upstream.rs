//! One server of the session era, as one that answers stateless calls.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;
use waypost_hub::call::{Call, Carrier, Comeback, Principal, Session as ClientSession};
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::shared;
use waypost_hub::upstream::Facts;
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::level::Level;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::OWN_STATE;

use super::drive::Drive;
use super::exchange::Exchange;
use super::key::Key;
use super::legs::Wants;
use super::link::Dial;
use super::listen;
use super::parked::Parked;
use super::pool::{Pool, Settings};
use super::repeats::{Claim, Going, Repeats};
use super::session::Session;
use super::tasks::{self, Supports};
use super::translate;
use super::url_mode::Visits;
use crate::fault::Fault;
use crate::outcome::unknown_task;

/// Why a call was not answered.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// By the server; one that was not executed may be sent once more, as it came.
    Fault(Fault),
    /// Goes on with what was begun before, or was not for the server.
    Other(CallError),
}

/// One server of the session era.
#[derive(Debug)]
pub(crate) struct Legacy {
    upstream: Arc<str>,
    pool: Arc<Pool>,
    parked: Arc<Parked>,
    repeats: Repeats,
    supports: Supports,
    tasks: Tasks,
    startup_timeout: Duration,
}

impl Legacy {
    /// `room` bounds the calls that wait for an answer of their caller, here and elsewhere.
    pub(crate) fn new(
        settings: Settings,
        dial: Arc<dyn Dial>,
        tasks: &Tasks,
        room: Arc<Semaphore>,
    ) -> Self {
        let (startup_timeout, patience) = (settings.startup_timeout, settings.patience);
        Self {
            upstream: Arc::clone(&settings.upstream),
            startup_timeout,
            pool: Pool::new(settings, dial, tasks),
            parked: Arc::new(Parked::new(room, patience)),
            repeats: Repeats::new(tasks),
            supports: Supports::default(),
            tasks: tasks.clone(),
        }
    }

    /// What the server said of itself, in a session that it still knows.
    ///
    /// # Errors
    /// Why no session can be opened; [`Fault::Modern`] for a server that wants none.
    pub(crate) async fn discover(&self) -> Result<Facts, Fault> {
        let session = self.pool.home().await?;
        let patience = self.startup_timeout / 2;
        match session.ask_within("ping", &Object::new(), patience).await {
            // Any answer is a sign of life.
            Ok(_) | Err(Fault::Malformed(Malformed::Wrong { .. })) => Ok(shown(&session)),
            Err(Fault::SessionLost) => {
                let session = self.pool.renew(None, &session).await?;
                Ok(shown(&session))
            }
            // It may be at work on a call and answer nothing else meanwhile.
            Err(Fault::Late(_)) if session.table.idle_since().is_none() => Ok(shown(&session)),
            Err(fault) => {
                if matches!(fault, Fault::Late(_)) {
                    session.close();
                }
                Err(fault)
            }
        }
    }

    /// Opens the first session over a connection that is there already, in the half of the time
    /// that is left; and says what answers in it: where a call has begun to open one of its own,
    /// that serves both.
    ///
    /// # Errors
    /// As [`Legacy::discover`].
    pub(crate) async fn begin(&self, dial: Arc<dyn Dial>) -> Result<(Facts, Arc<str>), Fault> {
        let within = self.startup_timeout / 2;
        let session = self.pool.home_over(&dial, within).await?;
        Ok((shown(&session), Arc::clone(session.instance())))
    }

    async fn listen(&self, call: &Call) -> Result<Reply, Fault> {
        // To subscribe twice does what once does.
        let mut again = call.awaits_servers;
        loop {
            let session = self.pool.of(call).await?;
            if !call.carrier.admits(Some(session.instance())) {
                return Ok(unknown_task());
            }
            match listen::open(session, &self.upstream, call).await {
                Err(Fault::SessionLost | Fault::Forgotten) if std::mem::take(&mut again) => {}
                opened => return opened,
            }
        }
    }

    /// Answers `call`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, Unanswered> {
        match &*call.method {
            method::DISCOVER => {
                let session = self.pool.home().await?;
                return Ok(described(&session));
            }
            method::LISTEN => return Ok(self.listen(&call).await?),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                return Ok(self.task(&call).await?);
            }
            _ => {}
        }
        let state = call.params.string("requestState");
        if let Some(state) = state.filter(|state| state.starts_with(OWN_STATE)) {
            return Ok(self.resume(&state, &call).await?);
        }
        let session = self.pool.of(&call).await?;
        let reply = match &*call.method {
            method::TOOLS_CALL if tasks::has(&session.facts) => self.tool(session, call).await,
            method::TOOLS_LIST => {
                let reply = self.start(session, call).await;
                if let Ok(Reply::End(End::Complete(list))) = &reply {
                    self.supports.learn(list);
                }
                reply
            }
            _ => self.start(session, call).await,
        };
        Ok(reply?)
    }

    /// Calls a tool of a server that has tasks of its own.
    async fn tool(&self, session: Arc<Session>, mut call: Call) -> Result<Reply, Fault> {
        let name = call.params.string("name").unwrap_or_default();
        if !self.supports.demanded(&name) {
            let again = call.clone();
            let reply = self.start(Arc::clone(&session), call).await?;
            if !tasks::refused_plainly(&reply) {
                return Ok(reply);
            }
            self.supports.demand(&name);
            call = again;
        }
        if !call.meta.capabilities.has_tasks() {
            return Ok(tasks::demanded());
        }
        call.params.set("task", Raw::empty_object());
        self.start(session, call).await
    }

    /// Answers what is asked about a task. It lives in the session that made it.
    async fn task(&self, call: &Call) -> Result<Reply, CallError> {
        let key = Key::of(call, self.pool.settings.isolation);
        let session = self.pool.current(&key);
        let session = session.filter(|session| tasks::has(&session.facts));
        match session {
            Some(session) => tasks::answer(&session, &self.upstream, call).await,
            None => Ok(unknown_task()),
        }
    }

    async fn start(&self, session: Arc<Session>, call: Call) -> Result<Reply, Fault> {
        if let Some(level) = call.meta.log_level.as_ref().and_then(Level::read) {
            session.log_from(level).await;
        }
        let (exchange, outlet) = Exchange::new(&self.upstream, &call);
        let drive = Drive {
            pool: Arc::clone(&self.pool),
            parked: Arc::clone(&self.parked),
            exchange,
            params: translate::params(&call),
            call,
        };
        // A call goes on when its caller has got a question instead of the answer.
        self.tasks.spawn(|stop| drive.run(session, stop));
        outlet.reply().await
    }

    /// Goes on with a call that waits for these answers.
    async fn resume(&self, state: &str, call: &Call) -> Result<Reply, CallError> {
        let unknown = || CallError::unknown("unknown or expired request state");
        if call.comeback == Comeback::Listens {
            let waiting = self.parked.get(state).ok_or_else(unknown)?;
            let reply = waiting.exchange.listen(call).reply().await;
            return reply.map_err(|fault| fault.into_call(&self.upstream));
        }
        if call.comeback == Comeback::GivesUp {
            // What it is about may go on already, or be over.
            let waiting = self.parked.take(state).ok_or_else(unknown)?;
            waiting.exchange.abandon();
            let text = "the call was given up";
            return Ok(Reply::error(ErrorObject::new(code::INVALID_REQUEST, text)));
        }
        let goes_on = || {
            let waiting = self.parked.take(state)?;
            // Looked at for all who come with this state.
            let carrier = Carrier::watched();
            let mut resumed = call.clone();
            resumed.carrier = carrier.clone();
            let (told, outlet) = waiting.exchange.resume(&resumed);
            for answer in &told {
                if let Some(response) = answer.response() {
                    waiting.table.say_of(Some(&waiting.exchange), response);
                }
            }
            let visits = Visits::of(&told).map(|visits| (visits, waiting));
            Some(Going {
                outlet,
                carrier,
                visits,
            })
        };
        match self.repeats.claim(state, goes_on).ok_or_else(unknown)? {
            Claim::Ended(answer, carrier) => {
                carrier.tell(&call.carrier);
                shared::again(&answer).map(Reply::End)
            }
            Claim::Going(work, carrier) => {
                let wants = Wants::of(call);
                let events = work.events(move |notification| wants.hear(notification));
                let mine = call.carrier.clone();
                let events = events.inspect(move |event| {
                    if matches!(event, Ok(Event::End(_))) {
                        carrier.tell(&mine);
                    }
                });
                first(events.boxed()).await
            }
        }
    }

    /// The tag of what answers calls of this caller now.
    pub(crate) fn instance(
        &self,
        principal: &Principal,
        session: Option<&ClientSession>,
    ) -> Option<Arc<str>> {
        let key = Key::of_caller(principal, session, self.pool.settings.isolation);
        let session = self.pool.current(&key)?;
        Some(Arc::clone(session.instance()))
    }

    /// How many calls wait for an answer of their caller.
    pub(crate) fn parked(&self) -> usize {
        self.parked.count()
    }

    /// Whether a call with this state waits for its caller.
    pub(crate) fn awaits(&self, state: &str) -> bool {
        self.parked.get(state).is_some()
    }

    /// Resolves when the session of Waypost's own calls is lost.
    pub(crate) async fn lost(&self) {
        self.pool.lost().await;
    }

    /// The server wants no sessions any more: all go when their calls are done.
    pub(crate) fn retire(&self) {
        self.pool.retire();
    }

    /// Opens no more sessions and ends all.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.pool.close()
    }
}

impl Unanswered {
    /// The failure as the hub knows it.
    pub(crate) fn into_call(self, upstream: &Arc<str>) -> CallError {
        match self {
            Self::Fault(fault) => fault.into_call(upstream),
            Self::Other(error) => error,
        }
    }
}

impl From<Fault> for Unanswered {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<CallError> for Unanswered {
    fn from(error: CallError) -> Self {
        Self::Other(error)
    }
}

/// What the server is to whoever calls it. That it tells when its lists change is true of every
/// one: several do without having said so.
fn shown(session: &Session) -> Facts {
    let mut facts = tasks::shown(session.facts.clone());
    for listed in ["tools", "prompts", "resources"] {
        let capability = facts.capabilities.get(listed);
        if let Some(Ok(mut capability)) = capability.map(Raw::as_object) {
            capability.set("listChanged", Raw::bool(true));
            facts.capabilities.set(listed, capability.into());
        }
    }
    facts
}

/// A reply whose first message is there; alone, it is the whole.
async fn first(mut events: EventStream) -> Result<Reply, CallError> {
    match events.next().await {
        Some(Ok(Event::End(end))) => Ok(Reply::End(end)),
        Some(Ok(event)) => {
            let first = stream::iter([Ok(event)]);
            Ok(Reply::Stream(first.chain(events).boxed()))
        }
        Some(Err(error)) => Err(error),
        None => Err(CallError::no_end()),
    }
}

fn described(session: &Session) -> Reply {
    let facts = &session.facts;
    let mut result = Object::from_iter([
        ("supportedVersions", Raw::from_serialize(&facts.versions)),
        ("capabilities", Raw::from(&facts.capabilities)),
    ]);
    if let Some(instructions) = &facts.instructions {
        result.set("instructions", Raw::string(instructions));
    }
    Reply::complete(result)
}
