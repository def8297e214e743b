//! In what order things happen to a request.
//!
//! Two seams, because rules need two kinds of facts: some know the HTTP request alone, others
//! what is called on which upstream. Each list reads from the outside in.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body::Body;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use waypost_config::Config;
use waypost_front::legacy::Sessions;
use waypost_front::{Calls, Endpoints, Parts, Routes, Views};
use waypost_hub::call::{Call, View};
use waypost_hub::hub::Hub;
use waypost_policy::audit::AuditLayer;
use waypost_policy::authenticate::AuthenticateLayer;
use waypost_policy::in_flight::InFlightLayer;
use waypost_policy::origin::OriginGuardLayer;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message;

use crate::identify::IdentifyLayer;
use crate::last_words::LastWords;
use crate::latest::Latest;
use crate::runtime::Answers;

/// Longest wait for a whole request body, once its head is there.
const BODY: Duration = Duration::from_secs(30);

/// Makes both seams, for each core its own: whatever a request clones on its way is counted, and
/// cores that count in one place wait for each other. Only the limit is one for all.
pub(crate) struct Stack {
    listen: SocketAddr,
    hub: Arc<Hub>,
    sessions: Option<Sessions>,
    in_flight: InFlightLayer,
    /// What goes by the configuration, of each seam that was made.
    made: Mutex<Made>,
}

struct Made {
    config: Arc<Config>,
    /// Make it anew.
    again: Vec<Again>,
}

type Again = Box<dyn Fn(&Stack, &Config) + Send + Sync>;

impl Stack {
    /// `listen` is the address that was bound; without `sessions` clients of that era are refused.
    pub(crate) fn new(
        config: &Arc<Config>,
        listen: SocketAddr,
        hub: &Arc<Hub>,
        sessions: Option<&Sessions>,
    ) -> Self {
        Self {
            listen,
            hub: Arc::clone(hub),
            sessions: sessions.cloned(),
            in_flight: InFlightLayer::new(config.limits.in_flight),
            made: Mutex::new(Made {
                config: Arc::clone(config),
                again: Vec::new(),
            }),
        }
    }

    /// From now on requests are for this configuration, whatever connection they come on.
    pub(crate) fn apply(&self, config: &Arc<Config>) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.config = Arc::clone(config);
        self.in_flight.set(config.limits.in_flight);
        for again in &made.again {
            again(self, config);
        }
    }

    /// What bounds and counts the requests of all cores.
    pub(crate) fn in_flight(&self) -> &InFlightLayer {
        &self.in_flight
    }

    /// The HTTP seam: decided with the head of the request alone.
    pub(crate) fn http<B>(&self) -> impl Answers<B> + use<B>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = Latest::new(self.by_config::<B>(&made.config));
        let slot = latest.clone();
        made.again.push(Box::new(move |stack, config| {
            slot.set(stack.by_config::<B>(config));
        }));
        ServiceBuilder::new()
            // First, so that every line and every refusal can be found again.
            .layer(IdentifyLayer::new())
            // One bad request is not an outage.
            .layer(CatchPanicLayer::custom(panicked))
            // Over the limit it is refused at once and before any work: a queue would only hide the
            // overload. An answer counts until its last byte.
            .layer(self.in_flight.clone())
            // What follows is another one after a reload.
            .service(latest)
    }

    /// The part of the HTTP seam that goes by the configuration.
    fn by_config<B>(&self, config: &Config) -> impl Answers<B, Body: From<Bytes>> + Sync + use<B>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        // Only for endpoints: a client that looks for OAuth gets its 404 without a key.
        let endpoints = ServiceBuilder::new()
            // Who it is, for everything below.
            .layer(AuthenticateLayer::new(&config.auth.keys))
            .service(Endpoints::new(parts(
                config,
                &self.hub,
                self.sessions.as_ref(),
            )));
        // No deadline for the first byte here: a caller that takes only JSON gets it with its
        // answer, and that may take as long as the call may.
        // The size of a body is the front's to check, which knows what answer a client understands.
        let front = Routes::new(endpoints)
            .with_sse(config.front.sse)
            .with_keys(!config.auth.keys.is_empty());
        ServiceBuilder::new()
            // Cheap, needs headers only, and spares strangers' pages the sight of everything below.
            .layer(OriginGuardLayer::new(self.listen, &config.front))
            .service(front)
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

/// What the front is made of, over HTTP and on a pipe.
pub(crate) fn parts(config: &Config, hub: &Arc<Hub>, sessions: Option<&Sessions>) -> Parts {
    Parts {
        calls: calls(hub),
        views: views(config, hub),
        keep_alive: config.front.keep_alive,
        modern: config.front.eras.modern,
        sessions: sessions.cloned(),
        strict_headers: config.front.strict_headers,
        json_depth: config.limits.json_depth,
        request_body: config.limits.request_body,
        body_timeout: BODY,
        draining: hub.draining(),
    }
}

/// The call seam: decided with the method, the target and the caller. A call's deadline is the
/// hub's, which knows the upstream's timeout and what extends it.
fn calls(hub: &Arc<Hub>) -> Calls {
    let hub = Arc::clone(hub);
    let calls = ServiceBuilder::new()
        // Records refusals too.
        .layer(AuditLayer)
        // When all has to end, so do calls.
        .service(service_fn(move |call: Call| LastWords::call(&hub, call)));
    BoxCloneSyncService::new(calls)
}

/// `/mcp/<name>` is the upstream or the endpoint of that name. Who is bound to an endpoint gets
/// that at `/mcp`, and nothing anywhere else.
fn views(config: &Config, hub: &Arc<Hub>) -> Views {
    let hub = Arc::clone(hub);
    let keys = config.auth.keys.iter();
    let bound = keys.filter_map(|key| Some((key.name.clone(), key.endpoint.as_deref()?.into())));
    let bound: HashMap<String, Arc<str>> = bound.collect();
    Arc::new(move |principal, name| {
        let endpoint = bound.get(principal.as_str());
        let views = match (endpoint, name) {
            (Some(endpoint), "") => [Some(View::Endpoint(Arc::clone(endpoint))), None],
            (Some(_), _) => return None,
            (None, "") => return Some(View::All),
            (None, name) => {
                let name: Arc<str> = name.into();
                let endpoint = View::Endpoint(Arc::clone(&name));
                [Some(View::Upstream(name)), Some(endpoint)]
            }
        };
        views
            .into_iter()
            .flatten()
            .find(|view| hub.shows_view(view))
    })
}

/// What was said in panic is for the log.
#[expect(clippy::needless_pass_by_value, reason = "the layer wants it so")]
fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(
        panic = text.unwrap_or("?"),
        "a request met a bug in Waypost"
    );
    failure(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
}

fn failure(status: StatusCode, text: &str) -> Response {
    let error = ErrorObject::new(code::INTERNAL_ERROR, text);
    let body = message::encode_error(None, &error);
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], body).into_response()
}

#[cfg(test)]
pub(crate) mod tests;
