//! Who shares a session.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_config::config::{Declared, Isolation};
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::own;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::aim::Audience;
use super::handshake::Hello;

/// Whose calls one session carries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Waypost's own: lists, discovery, subscriptions.
    Service,
    /// Everybody's, Waypost's own included.
    Shared,
    /// One caller's.
    Principal(Principal),
    /// One client session's.
    Session(Arc<str>),
}

impl Key {
    /// The session that this call belongs to.
    pub(crate) fn of(call: &Call, isolation: Isolation) -> Self {
        Self::of_caller(&call.principal, call.session.as_ref(), isolation)
    }

    /// The session that calls of this caller belong to.
    pub(crate) fn of_caller(
        principal: &Principal,
        session: Option<&Session>,
        isolation: Isolation,
    ) -> Self {
        match isolation {
            Isolation::Shared => Self::Shared,
            _ if is_own(principal, session) => Self::Service,
            Isolation::Principal => Self::Principal(principal.clone()),
            Isolation::Session => match session {
                Some(session) => Self::Session(Arc::clone(session.id())),
                None => Self::Principal(principal.clone()),
            },
        }
    }

    /// The session of Waypost's own calls.
    pub(crate) fn home(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Shared => Self::Shared,
            Isolation::Principal | Isolation::Session => Self::Service,
        }
    }

    /// Whether it lasts as long as the upstream does.
    pub(crate) fn is_home(&self) -> bool {
        matches!(self, Self::Service | Self::Shared)
    }

    /// Who hears what names no call.
    pub(crate) fn audience(&self) -> Audience {
        match self {
            Self::Service => Audience::Nobody,
            // Several clients share the credentials of one principal, and all who need none are
            // one.
            Self::Shared | Self::Principal(_) => Audience::Many,
            Self::Session(_) => Audience::One,
        }
    }

    /// What the session says of its client. `call` is the one that it is opened for.
    pub(crate) fn hello(&self, call: Option<&Call>, declare: &[Declared]) -> Hello {
        let ours = || Hello {
            capabilities: Object::new(),
            client_info: own::info(),
        };
        match (self, call) {
            (Self::Session(_), Some(call)) => Hello {
                capabilities: declared(call),
                client_info: call.meta.client_info.clone().unwrap_or_else(own::info),
            },
            // One caller's calls declare now this, now that; what the one at hand cannot answer
            // is refused when it is asked.
            (Self::Principal(_), Some(call)) => Hello {
                capabilities: carried(&[Declared::Sampling, Declared::Roots]),
                client_info: call.meta.client_info.clone().unwrap_or_else(own::info),
            },
            // Servers show tools only to clients that could answer their questions.
            (Self::Service, _) => Hello {
                capabilities: carried(&[Declared::Sampling, Declared::Roots]),
                ..ours()
            },
            (Self::Shared | Self::Principal(_) | Self::Session(_), _) => Hello {
                capabilities: carried(declare),
                ..ours()
            },
        }
    }
}

fn is_own(principal: &Principal, session: Option<&Session>) -> bool {
    session.is_none() && principal.is_own()
}

/// What the client of a session declared.
fn declared(call: &Call) -> Object {
    // Not what the call at hand declares: one that cannot be asked may come first.
    let session = call.session.as_ref();
    let whole = session.and_then(Session::declared);
    let whole = whole.unwrap_or(&call.meta.capabilities);
    let mut declared = whole.without_tasks().object().clone();
    let tells = session.is_some_and(|session| session.roots().is_some());
    if let Some(Ok(mut roots)) = declared.get("roots").map(Raw::as_object)
        && tells
    {
        roots.set("listChanged", Raw::from(&Value::Bool(true)));
        declared.set("roots", roots.into());
    }
    declared
}

/// What Waypost can carry to a caller: elicitation, and what else is named.
fn carried(declare: &[Declared]) -> Object {
    let mut all = Map::new();
    all.insert("elicitation".to_owned(), json!({ "form": {}, "url": {} }));
    for kind in declare {
        let name = match kind {
            Declared::Sampling => "sampling",
            Declared::Roots => "roots",
        };
        all.insert(name.to_owned(), json!({}));
    }
    Raw::from(&Value::Object(all))
        .as_object()
        .unwrap_or_default()
}
