//! One server of the session era, as one that answers stateless calls.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use waypost_hub::call::{Call, Principal, Session as ClientSession};
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::Reply;
use waypost_hub::upstream::Facts;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::drive::Drive;
use super::exchange::Exchange;
use super::key::Key;
use super::level::Level;
use super::link::Dial;
use super::listen;
use super::parked::{PREFIX, Parked};
use super::pool::{Pool, Settings};
use super::session::Session;
use super::translate;
use super::url_mode::Visits;
use crate::fault::Fault;

/// One server of the session era.
#[derive(Debug)]
pub(crate) struct Legacy {
    upstream: Arc<str>,
    pool: Arc<Pool>,
    parked: Arc<Parked>,
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
        Self {
            upstream: Arc::clone(&settings.upstream),
            startup_timeout: settings.startup_timeout,
            pool: Pool::new(settings, dial, tasks),
            parked: Arc::new(Parked::new(room)),
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
            Ok(_) => Ok(session.facts.clone()),
            Err(Fault::SessionLost) => {
                let session = self.pool.renew(None, &session).await?;
                Ok(session.facts.clone())
            }
            // It may be at work on a call and answer nothing else meanwhile.
            Err(Fault::Late(_)) if session.table.idle_since().is_none() => {
                Ok(session.facts.clone())
            }
            Err(fault) => {
                if matches!(fault, Fault::Late(_)) {
                    session.close();
                }
                Err(fault)
            }
        }
    }

    /// Opens the first session over a connection that is there already, in the half of the time
    /// that is left.
    ///
    /// # Errors
    /// As [`Legacy::discover`].
    pub(crate) async fn begin(&self, dial: Arc<dyn Dial>) -> Result<Facts, Fault> {
        let within = self.startup_timeout / 2;
        let session = self.pool.home_over(&dial, within).await?;
        Ok(session.facts.clone())
    }

    /// Answers `call`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, CallError> {
        let fail = |fault: Fault| fault.into_call(&self.upstream);
        match &*call.method {
            method::DISCOVER => {
                let session = self.pool.home().await.map_err(fail)?;
                return Ok(described(&session));
            }
            method::LISTEN => {
                let session = self.pool.of(&call).await.map_err(fail)?;
                return Ok(listen::open(session, &self.upstream, &self.tasks, &call).await);
            }
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                let error = ErrorObject::new(code::METHOD_NOT_FOUND, "the server has no tasks");
                return Ok(Reply::error(error));
            }
            _ => {}
        }
        let state = call.params.string("requestState");
        if let Some(state) = state.filter(|state| state.starts_with(PREFIX)) {
            return self.resume(&state, &call).await;
        }
        let session = self.pool.of(&call).await.map_err(fail)?;
        self.start(session, call).await.map_err(fail)
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
        let waiting = self.parked.take(state).ok_or_else(unknown)?;
        let (told, outlet) = waiting.exchange.resume(call);
        for answer in &told {
            if let Some(response) = answer.response() {
                waiting.table.say(response);
            }
        }
        if let Some(visits) = Visits::of(&told) {
            visits.pay(&waiting).await;
        }
        outlet
            .reply()
            .await
            .map_err(|fault| fault.into_call(&self.upstream))
    }

    /// The tag of what answers calls of this caller now.
    pub(crate) fn instance(
        &self,
        principal: &Principal,
        session: Option<&ClientSession>,
    ) -> Option<Arc<str>> {
        let mut call = Call::own(method::TOOLS_CALL, Object::new());
        call.principal = principal.clone();
        call.session = session.cloned();
        let key = Key::of(&call, self.pool.settings.isolation);
        let session = self.pool.current(&key)?;
        Some(Arc::clone(session.instance()))
    }

    /// Whether any session serves.
    pub(crate) fn serves(&self) -> bool {
        self.pool.serves()
    }

    /// Resolves when the session of Waypost's own calls is lost.
    pub(crate) async fn lost(&self) {
        self.pool.lost().await;
    }

    /// Opens no more sessions and ends all.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        self.pool.close()
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
