//! A call as it travels inside: the stateless dialect, whatever the client spoke.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::id::Id;
use waypost_wire::message::Outcome;
use waypost_wire::meta::RequestMeta;
use waypost_wire::object::Object;

use crate::aftermath::Aftermath;
use crate::limit::SharedPermit;
use crate::upstream::BoxFuture;

/// Who calls. Two principals never see each other's tasks or states.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(
    /// None is Waypost itself, which no name makes anybody else.
    Option<Arc<str>>,
);

impl Principal {
    /// The name of every caller while nobody has to authenticate.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// The name under which Waypost itself is logged.
    pub const OWN: &'static str = "waypost";

    /// A principal by its name.
    pub fn new(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// Waypost itself.
    pub const fn own() -> Self {
        Self(None)
    }

    /// Whether this is Waypost itself.
    pub fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// Whoever calls without credentials where none are asked for.
    pub fn anonymous() -> Self {
        Self::new(Self::ANONYMOUS)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(Self::OWN)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which part of the catalogue an endpoint shows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// `/mcp`: every upstream.
    All,
    /// `/mcp/<upstream>`: one alone.
    Upstream(Arc<str>),
    /// `/mcp/<endpoint>`: what the file says of the endpoint. What that is, the catalogue knows.
    Endpoint(Arc<str>),
}

impl View {
    /// The last part of its path. No upstream has the name of an endpoint.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Upstream(name) | Self::Endpoint(name) => Some(name),
        }
    }
}

/// A client's lasting connection, for servers that keep something for each: what they keep for
/// one must not reach another.
#[derive(Clone, Debug)]
pub struct Session(Arc<Kept>);

/// Puts what a server asks to the client of a session, outside of any of its calls.
pub trait Asks: fmt::Debug + Send + Sync {
    /// Asks the client; `None` where nothing reaches it now. The future gives its answer, or `None`
    /// once nobody can give one; dropped, the question is taken back.
    fn ask(&self, method: &str, params: &Object) -> Option<BoxFuture<'static, Option<Outcome>>>;
}

#[derive(Debug)]
struct Kept {
    id: Arc<str>,
    released: CancellationToken,
    /// How often its roots became others, where the client tells.
    roots: Option<watch::Sender<u64>>,
    asks: Option<Arc<dyn Asks>>,
    declared: Option<ClientCapabilities>,
}

impl Session {
    /// The session with this id, which no other has, until `released` fires.
    pub fn new(id: &str, released: CancellationToken) -> Self {
        Self::with(id, released, None)
    }

    /// The same of a client that tells when its roots change ([`Session::roots_changed`]).
    pub fn with_roots(id: &str, released: CancellationToken) -> Self {
        Self::with(id, released, Some(watch::Sender::new(0)))
    }

    fn with(id: &str, released: CancellationToken, roots: Option<watch::Sender<u64>>) -> Self {
        Self(Arc::new(Kept {
            id: id.into(),
            released,
            roots,
            asks: None,
            declared: None,
        }))
    }

    /// The same of a client that declared this; a call of it may declare less.
    #[must_use]
    pub fn declaring(mut self, declared: ClientCapabilities) -> Self {
        if let Some(kept) = Arc::get_mut(&mut self.0) {
            kept.declared = Some(declared);
        }
        self
    }

    /// The same of a client that can be asked outside of its calls.
    #[must_use]
    pub fn asked_by(mut self, asks: Arc<dyn Asks>) -> Self {
        if let Some(kept) = Arc::get_mut(&mut self.0) {
            kept.asks = Some(asks);
        }
        self
    }

    /// Tells it from all others; not to be shown to anybody.
    pub fn id(&self) -> &Arc<str> {
        &self.0.id
    }

    /// Fires when what is kept for it is to be freed: the client ended it or has been silent for
    /// long. The same session may come again after that, with a new signal.
    pub fn released(&self) -> &CancellationToken {
        &self.0.released
    }

    /// What the client declared, as far as that is known apart from its calls.
    pub fn declared(&self) -> Option<&ClientCapabilities> {
        self.0.declared.as_ref()
    }

    /// Asks the client, outside of its calls; see [`Asks::ask`].
    pub fn ask(
        &self,
        method: &str,
        params: &Object,
    ) -> Option<BoxFuture<'static, Option<Outcome>>> {
        self.0.asks.as_ref()?.ask(method, params)
    }

    /// The client says that its roots are others now.
    pub fn roots_changed(&self) {
        if let Some(roots) = &self.0.roots {
            roots.send_modify(|count| *count += 1);
        }
    }

    /// Changes whenever the client's roots do; `None` for a client that does not tell.
    pub fn roots(&self) -> Option<watch::Receiver<u64>> {
        self.0.roots.as_ref().map(watch::Sender::subscribe)
    }
}

/// HTTP headers of the request that routing and validation look at, values as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallHeaders {
    /// `Mcp-Param-*`: the lower-case full header name and the value, not decoded.
    pub params: Vec<(String, String)>,
    /// The client's transport, or its protocol, repeats nothing in headers: none is missed.
    pub absent: bool,
}

/// What a call that brings a request state wants of what waits behind it. Clients can only
/// answer; the others are Waypost's own, for clients that are asked by requests and may take
/// their time with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comeback {
    /// The call goes on with these answers.
    #[default]
    Answers,
    /// Nothing is answered yet, and the state stays good. What the call has to say meanwhile
    /// comes here: notifications, its end, and [`crate::reply::End::InputRequired`] when other
    /// questions are open than before or another took the call up. An end of that kind without
    /// `requestState` says that there is nothing to listen to.
    Listens,
    /// Nobody will answer: what waits may stop. It has no other effect and no useful answer.
    GivesUp,
}

/// Where an upstream notes which of its processes or sessions a call went to. That is known only
/// when it goes: the first call of a caller opens what carries it, and one that was lost on its
/// way goes to another.
#[derive(Clone, Debug, Default)]
pub struct Carrier {
    last: Option<Arc<Mutex<Option<Arc<str>>>>>,
    /// Whether the call is for `only` and nothing else.
    is_bound: bool,
    only: Option<Arc<str>>,
}

impl Carrier {
    /// One that somebody will look at; into any other nothing is noted.
    pub fn watched() -> Self {
        Self {
            last: Some(Arc::default()),
            ..Self::default()
        }
    }

    /// One for a call about what `instance` has, which another may have under the same id for
    /// somebody else: an upstream sends it nowhere else. `None` for what is in no process or
    /// session. It is watched too.
    pub fn only(instance: Option<&Arc<str>>) -> Self {
        Self {
            is_bound: true,
            only: instance.cloned(),
            ..Self::watched()
        }
    }

    /// The call goes to this process or session now.
    pub fn note(&self, instance: &Arc<str>) {
        self.set(Some(instance));
    }

    /// Notes where the call is about to go, and says whether it may: the upstream answers one that
    /// may not as it would if the task were unknown, and sends nothing.
    #[must_use]
    pub fn admits(&self, instance: Option<&Arc<str>>) -> bool {
        self.set(instance);
        !self.is_bound || self.only.as_ref() == instance
    }

    /// Whether what the call is for is gone: as far as was noted, it went nowhere or would have
    /// gone to another. Its answer is about nothing then.
    pub fn is_astray(&self) -> bool {
        self.is_bound && self.instance() != self.only
    }

    fn set(&self, instance: Option<&Arc<str>>) {
        if let Some(last) = &self.last {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = instance.cloned();
        }
    }

    /// Notes into `other` what was noted here last: for a call that gets the answer of another.
    pub fn tell(&self, other: &Self) {
        if let Some(instance) = self.instance() {
            other.note(&instance);
        }
    }

    /// The last that was noted: once there is an answer, the one that gave it.
    pub fn instance(&self) -> Option<Arc<str>> {
        let last = self.last.as_ref()?;
        last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One request with all its context.
#[derive(Clone, Debug)]
pub struct Call {
    /// For the log: finds the request's lines again.
    pub request_id: Arc<str>,
    /// The JSON-RPC id of the client's request: names its subscription. Towards a server each
    /// connection uses ids of its own.
    pub id: Id,
    /// As the client sent it, so perhaps none of [`waypost_wire::method`].
    pub method: String,
    /// Without `_meta`.
    pub params: Object,
    /// What `_meta` said: version, capabilities, client, progress token and the rest.
    pub meta: RequestMeta,
    /// Whose tasks, states and rights count.
    pub principal: Principal,
    /// Which endpoint it came in on; what that does not show is unknown to the call.
    pub view: View,
    /// The client's session, where it has one.
    pub session: Option<Session>,
    /// Those of the client's request.
    pub headers: CallHeaders,
    /// What it comes back for with the request state that it brings.
    pub comeback: Comeback,
    /// Where it went, for whoever needs to know; clones share it.
    pub carrier: Carrier,
    /// What its answer means once it is dropped.
    pub aftermath: Aftermath,
    /// Of a `subscriptions/listen`: its acknowledgement waits until the servers themselves have
    /// answered about its resources, as long as a call may take, and the first of them that refuses
    /// or fails is its answer. Otherwise it comes soon, and says what will be told of.
    pub awaits_servers: bool,
    /// When its caller was let in; what it sends may be read much later.
    pub since: Instant,
    /// Of a `subscriptions/listen` that is to take the place of another: what both share, so that
    /// they count as one listener.
    pub seat: Option<SharedPermit>,
}

impl Call {
    /// A call of somebody, to what it names, with nothing special to it.
    pub fn new(
        (request_id, id): (Arc<str>, Id),
        method: String,
        params: Object,
        meta: RequestMeta,
        (principal, view): (Principal, View),
    ) -> Self {
        Self {
            request_id,
            id,
            method,
            params,
            meta,
            principal,
            view,
            session: None,
            headers: CallHeaders::default(),
            comeback: Comeback::Answers,
            carrier: Carrier::default(),
            aftermath: Aftermath::default(),
            awaits_servers: false,
            since: Instant::now(),
            seat: None,
        }
    }

    /// A call of Waypost's own, as itself: discovery, lists, polls.
    pub fn own(method: &str, params: Object) -> Self {
        let (meta, id) = (crate::own::meta(), ("waypost".into(), Id::number(0)));
        let caller = (Principal::own(), View::All);
        Self::new(id, method.to_owned(), params, meta, caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_becomes_waypost_itself_by_a_name() {
        let own = Call::own("tools/list", Object::new()).principal;
        let named = Principal::new(own.as_str());
        assert!(own.is_own() && !named.is_own());
        assert_ne!(own, named);
    }

    #[test]
    fn a_bound_call_goes_to_nothing_else() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let bound = Carrier::only(Some(&a));
        assert!(bound.is_astray(), "it has gone nowhere yet");
        assert!(bound.admits(Some(&a)) && !bound.is_astray());
        assert!(!bound.admits(Some(&b)) && bound.is_astray());
        assert!(!bound.admits(None) && bound.is_astray());
        let nowhere = Carrier::only(None);
        assert!(!nowhere.is_astray() && nowhere.admits(None));
        assert!(!nowhere.admits(Some(&a)) && nowhere.is_astray());
        let free = Carrier::watched();
        assert!(free.admits(Some(&a)) && free.admits(None) && !free.is_astray());
    }
}
