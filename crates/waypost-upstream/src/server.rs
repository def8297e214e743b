//! One server, whatever it speaks and however it is reached: the choice of the era (design: era
//! of an upstream) and nothing else.

mod doubt;
mod process;

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout};
use waypost_config::config::UpstreamEra;
use waypost_hub::call::{Call, Comeback, Principal, Session};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::reply::{End, Reply};
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};
use waypost_wire::code;
use waypost_wire::result::OWN_STATE;
use waypost_wire::version;

use self::doubt::Doubt;
use crate::event::EraKnown;
use crate::fault::Fault;
use crate::flight::Want;
use crate::http::HttpUpstream;
use crate::legacy::{Legacy, Unanswered, unopened};
use crate::outcome::unknown_task;
use crate::probe::Discovery;
use crate::stdio::Processes;

/// How long a server that was asked in vain whether it still has sessions is not asked again.
const DOUBT_LEAST: Duration = Duration::from_secs(5);

/// One server.
pub(crate) struct Server {
    name: Arc<str>,
    startup_timeout: Duration,
    /// Asks which era it is of, rather than being told.
    asks: bool,
    transport: Transport,
    legacy: Legacy,
    spoken: Spoken,
    /// Held while it is found out what the server speaks.
    deciding: Mutex<Decided>,
    /// It was found to speak otherwise while nobody looked.
    turned: Notify,
}

/// What came of the last attempts to find out.
#[derive(Debug, Default)]
struct Decided {
    /// Why one failed.
    failed: Option<String>,
    /// When it was doubted in vain that the server has sessions.
    doubted: Option<Instant>,
}

/// How it is reached without a session.
#[derive(Debug)]
pub(crate) enum Transport {
    Http(Arc<HttpUpstream>),
    Stdio(Processes),
}

/// What is spoken with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy,
}

impl Server {
    pub(crate) fn new(
        name: Arc<str>,
        era: UpstreamEra,
        startup_timeout: Duration,
        transport: Transport,
        legacy: Legacy,
    ) -> Self {
        let told = match era {
            UpstreamEra::Auto => None,
            UpstreamEra::Modern => Some(Era::Modern),
            UpstreamEra::Legacy | UpstreamEra::Sse => Some(Era::Legacy),
        };
        Self {
            name,
            startup_timeout,
            asks: told.is_none(),
            transport,
            legacy,
            spoken: Spoken::new(told),
            deciding: Mutex::default(),
            turned: Notify::new(),
        }
    }

    async fn facts(&self, known: Option<&str>, want: Want) -> Result<Facts, CallError> {
        let mut decided = self.deciding.lock().await;
        // Until it is known how this one comes out.
        decided.failed = None;
        // This is the look that was asked for.
        let _turned = self.turned.notified().now_or_never();
        let before = self.spoken.get().or_else(|| known.map(era_of));
        let facts = match before {
            _ if self.asks => Box::pin(self.ask(before, want)).await,
            Some(Era::Legacy) => self.legacy.discover().await.map_err(|f| self.fail(f)),
            Some(Era::Modern) | None => Box::pin(self.modern(want)).await?.modern(&self.name),
        };
        decided.failed = facts.as_ref().err().map(ToString::to_string);
        let facts = facts?;
        self.speak(&facts);
        Ok(facts)
    }

    /// Speaks with the server as it described itself.
    fn speak(&self, facts: &Facts) {
        let era = era_of(&facts.protocol);
        if !self.spoken.set(era) {
            return;
        }
        if era == Era::Modern {
            self.legacy.retire();
        }
        EraKnown {
            upstream: &self.name,
            protocol: &facts.protocol,
        }
        .emit();
    }

    /// Finds out what the server is; `before` is what was spoken with it.
    async fn ask(&self, before: Option<Era>, want: Want) -> Result<Facts, CallError> {
        let mut refused = None;
        if before == Some(Era::Legacy) {
            match self.legacy.discover().await {
                Ok(facts) => return Ok(facts),
                Err(fault) if no_longer_fits(&fault) => refused = Some(fault),
                Err(fault) => return Err(self.fail(fault)),
            }
        }
        let discovery = match &self.transport {
            Transport::Http(http) => Box::pin(http.probe()).await?,
            Transport::Stdio(stdio) if before == Some(Era::Modern) => {
                self.described(stdio.home(), want).await?
            }
            Transport::Stdio(stdio) => return self.probe_process(stdio.home(), want).await,
        };
        match discovery {
            Discovery::Modern(facts) => Ok(facts),
            // A process that was known is asked on the pipe that it has.
            Discovery::Unrecognised(_) if before == Some(Era::Modern) => match &self.transport {
                Transport::Http(http) => Box::pin(self.succeeded(http, discovery)).await,
                Transport::Stdio(_) => discovery.modern(&self.name),
            },
            Discovery::Legacy | Discovery::Unrecognised(_) => match refused {
                Some(fault) => Err(self.fail(fault)),
                None => self
                    .legacy
                    .discover()
                    .await
                    .map_err(|fault| self.fail(fault)),
            },
        }
    }

    /// What a server is that was modern and does not describe itself any more. It is what a proxy
    /// without a route says too, so only a session shows that it has changed and not failed.
    async fn succeeded(
        &self,
        http: &Arc<HttpUpstream>,
        discovery: Discovery,
    ) -> Result<Facts, CallError> {
        let Ok(facts) = self.legacy.discover().await else {
            return discovery.modern(&self.name);
        };
        // The route may have come back meanwhile, to a server that has sessions besides.
        match Box::pin(http.probe()).await {
            Ok(Discovery::Modern(facts)) => {
                self.legacy.retire();
                Ok(facts)
            }
            _ => Ok(facts),
        }
    }

    async fn modern(&self, want: Want) -> Result<Discovery, CallError> {
        match &self.transport {
            Transport::Http(http) => Box::pin(http.probe()).await,
            Transport::Stdio(stdio) => self.described(stdio.home(), want).await,
        }
    }

    /// What is spoken, found out where nobody has yet. Whoever comes while another asks takes
    /// what that one learns.
    async fn era(&self) -> Result<Era, CallError> {
        loop {
            if let Some(era) = self.spoken.get() {
                return Ok(era);
            }
            if let Ok(deciding) = self.deciding.try_lock() {
                drop(deciding);
                let facts = Box::pin(self.facts(None, Want::Call)).await?;
                return Ok(era_of(&facts.protocol));
            }
            let failed = self.deciding.lock().await.failed.clone();
            if self.spoken.get().is_none()
                && let Some(failed) = failed
            {
                let error = CallError::upstream(Kind::Unavailable, &self.name).retryable();
                return Err(error.detail(failed));
            }
            // Or that one has left before it learned anything.
        }
    }

    fn send(&self, era: Era, call: Call) -> CallFuture<'_> {
        match (era, &self.transport) {
            (Era::Modern, _) if call.comeback == Comeback::Listens => {
                // Without sessions a call that asks is over, whatever its state looks like.
                Box::pin(ready(Ok(Reply::nothing_to_hear())))
            }
            (Era::Legacy, _) => Box::pin(self.in_session(call)),
            // What a process or session had, a server without has not.
            (Era::Modern, Transport::Http(_)) if !call.carrier.admits(None) => {
                Box::pin(ready(Ok(unknown_task())))
            }
            (Era::Modern, Transport::Http(http)) => Box::pin(self.at_endpoint(http, call)),
            (Era::Modern, Transport::Stdio(stdio)) => Box::pin(self.at_process(stdio, call)),
        }
    }

    /// Sends `call` without a session, or in one where the server turns out to want that now.
    async fn at_endpoint(&self, http: &Arc<HttpUpstream>, call: Call) -> Result<Reply, CallError> {
        let answered = http.exchange(&call).await;
        let doubt = Doubt::of(&call.method, &answered).filter(|_| self.asks);
        if let Some(doubt) = doubt
            && Box::pin(self.returns()).await
            && doubt == Doubt::MaySendAgain
            // Nothing that was begun goes on elsewhere.
            && !call.params.contains("requestState")
        {
            let answered = Box::pin(self.legacy.call(call)).await;
            return answered.map_err(|unanswered| unanswered.into_call(&self.name));
        }
        match answered {
            Ok(answered) => Ok(answered.reply),
            Err(fault) => Err(self.fail(fault)),
        }
    }

    /// Sends `call` to a process without a session, or in one where the process turns out to be
    /// of a server that has come back with sessions.
    async fn at_process(&self, stdio: &Processes, call: Call) -> Result<Reply, CallError> {
        // One that has described itself is what it is; and nothing that was begun goes on elsewhere.
        let known = || stdio.home().current().is_some_and(|s| s.is_described());
        let begins = self.asks && !call.params.contains("requestState") && !known();
        let again = begins.then(|| call.clone());
        let reply = stdio.call(call).await.map_err(|fault| self.fail(fault))?;
        let refused = matches!(&reply, Reply::End(End::Error(error)) if unopened::says_so(error));
        match again.filter(|_| refused) {
            Some(again) if Box::pin(self.returns()).await => {
                let answered = Box::pin(self.legacy.call(again)).await;
                answered.map_err(|unanswered| unanswered.into_call(&self.name))
            }
            _ => Ok(reply),
        }
    }

    /// Whether the server is certainly spoken to in sessions from now on. Whoever comes while
    /// another asks takes what that one learns.
    async fn returns(&self) -> bool {
        let mut decided = self.deciding.lock().await;
        if self.spoken.get() == Some(Era::Legacy) {
            return true;
        }
        let recent = |doubted: Instant| doubted.elapsed() < DOUBT_LEAST;
        if decided.doubted.is_some_and(recent) {
            return false;
        }
        let asked = Box::pin(self.ask(Some(Era::Modern), Want::Call));
        match timeout(self.startup_timeout, asked).await {
            Ok(Ok(facts)) if era_of(&facts.protocol) == Era::Legacy => {
                self.speak(&facts);
                self.turned.notify_one();
                self.leave_idle();
                true
            }
            _ => {
                decided.doubted = Some(Instant::now());
                false
            }
        }
    }

    /// Sends `call` in a session, or without one where the server turns out to want none any more.
    async fn in_session(&self, call: Call) -> Result<Reply, CallError> {
        // What goes on with something in a session means nothing outside of it.
        let state = call.params.string("requestState");
        let begins = !state.is_some_and(|state| state.starts_with(OWN_STATE));
        let again = (self.asks && begins).then(|| call.clone());
        let unanswered = match self.legacy.call(call).await {
            Ok(reply) => return Ok(reply),
            Err(unanswered) => unanswered,
        };
        match (again, &unanswered) {
            (Some(again), Unanswered::Fault(fault))
                if fault.not_executed() && Box::pin(self.turns(is_doubtful(fault))).await =>
            {
                self.send(Era::Modern, again).await
            }
            _ => Err(unanswered.into_call(&self.name)),
        }
    }

    /// Whether the server is certainly spoken to without sessions from now on. Whoever comes while
    /// another asks takes what that one learns; without `doubt` nobody asks.
    async fn turns(&self, doubt: bool) -> bool {
        if self.spoken.get() == Some(Era::Modern) {
            return true;
        }
        if !doubt {
            return false;
        }
        let mut decided = self.deciding.lock().await;
        if self.spoken.get() == Some(Era::Modern) {
            return true;
        }
        let recent = |doubted: Instant| doubted.elapsed() < DOUBT_LEAST;
        if decided.doubted.is_some_and(recent) {
            return false;
        }
        let facts = match &self.transport {
            Transport::Http(http) => {
                match timeout(self.startup_timeout, Box::pin(http.probe())).await {
                    Ok(Ok(Discovery::Modern(facts))) => Some(facts),
                    _ => None,
                }
            }
            Transport::Stdio(stdio) => self.successor(stdio.home()).await,
        };
        match facts {
            Some(facts) => {
                self.speak(&facts);
                self.turned.notify_one();
                true
            }
            None => {
                decided.doubted = Some(Instant::now());
                false
            }
        }
    }

    /// Ends a process that was started without a session meanwhile, unless it is at work.
    fn leave_idle(&self) {
        let Transport::Stdio(stdio) = &self.transport else {
            return;
        };
        let left = stdio.home().current();
        if let Some(speaker) = left.filter(|speaker| !speaker.calls.is_busy()) {
            speaker.child.close();
        }
    }

    fn fail(&self, fault: Fault) -> CallError {
        fault.into_call(&self.name)
    }
}

/// Whether a call that failed so, and was not executed, is reason enough to ask the server anew
/// what it speaks.
fn is_doubtful(fault: &Fault) -> bool {
    match fault {
        Fault::Modern => true,
        Fault::NoSession { code } => {
            matches!(*code, code::METHOD_NOT_FOUND | code::INVALID_PARAMS)
        }
        _ => false,
    }
}

/// Whether a server that had sessions refuses them in a way that one of another era would.
fn no_longer_fits(fault: &Fault) -> bool {
    match fault {
        Fault::Modern | Fault::NoSession { .. } | Fault::Version => true,
        Fault::Status { status, .. } => matches!(status, 400 | 404 | 405 | 406 | 415 | 422),
        _ => false,
    }
}

fn era_of(protocol: &str) -> Era {
    if version::is_legacy(protocol) {
        Era::Legacy
    } else {
        Era::Modern
    }
}

impl Upstream for Server {
    fn discover<'a>(&'a self, known: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(self.facts(known, Want::Look))
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        match self.spoken.get() {
            Some(era) => self.send(era, call),
            None => Box::pin(async move {
                let era = Box::pin(self.era()).await?;
                self.send(era, call).await
            }),
        }
    }

    fn instance(&self, principal: &Principal, session: Option<&Session>) -> Option<Arc<str>> {
        match (self.spoken.get()?, &self.transport) {
            (Era::Legacy, _) => self.legacy.instance(principal, session),
            (Era::Modern, Transport::Http(_)) => None,
            (Era::Modern, Transport::Stdio(stdio)) => {
                let speaker = stdio.current(principal, session)?;
                Some(Arc::clone(speaker.child.instance()))
            }
        }
    }

    fn parked(&self) -> usize {
        self.legacy.parked()
    }

    fn awaits(&self, state: &str) -> bool {
        self.legacy.awaits(state)
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let lost: BoxFuture<'_, ()> = match (self.spoken.get(), &self.transport) {
            (Some(Era::Legacy), _) => Box::pin(self.legacy.lost()),
            (Some(Era::Modern), Transport::Stdio(stdio)) => {
                let last = stdio.home().last();
                Box::pin(async move {
                    match last {
                        Some(speaker) => speaker.child.lost().await,
                        None => std::future::pending().await,
                    }
                })
            }
            (Some(Era::Modern), Transport::Http(_)) | (None, _) => Box::pin(std::future::pending()),
        };
        Box::pin(async {
            tokio::select! {
                () = lost => {}
                () = self.turned.notified() => {}
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let sessions = self.legacy.close();
        let process = match &self.transport {
            Transport::Http(_) => None,
            Transport::Stdio(stdio) => Some(stdio.close()),
        };
        Box::pin(async move {
            sessions.await;
            if let Some(process) = process {
                process.await;
            }
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .field("spoken", &self.spoken.get())
            .finish_non_exhaustive()
    }
}

/// What is spoken, once that is known; read with every call.
#[derive(Debug)]
struct Spoken(AtomicU8);

impl Spoken {
    fn new(era: Option<Era>) -> Self {
        Self(AtomicU8::new(code(era)))
    }

    fn get(&self) -> Option<Era> {
        let now = self.0.load(Ordering::Acquire);
        [Era::Modern, Era::Legacy]
            .into_iter()
            .find(|era| code(Some(*era)) == now)
    }

    /// `true` when that is news.
    fn set(&self, era: Era) -> bool {
        let now = code(Some(era));
        self.0.swap(now, Ordering::AcqRel) != now
    }
}

fn code(era: Option<Era>) -> u8 {
    match era {
        None => 0,
        Some(Era::Modern) => 1,
        Some(Era::Legacy) => 2,
    }
}
