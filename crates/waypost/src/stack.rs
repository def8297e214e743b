//! In what order things happen to a request.
//!
//! Two seams, because rules need two kinds of facts: some know the HTTP request alone, others
//! what is called on which upstream. Each list reads from the outside in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::trace::TraceLayer;
use tracing::Span;
use waypost_config::Config;
use waypost_front::{Calls, Parts, Views};
use waypost_hub::call::{Call, View};
use waypost_hub::hub::Hub;
use waypost_policy::audit::AuditLayer;
use waypost_policy::authenticate::AuthenticateLayer;
use waypost_policy::in_flight::InFlightLayer;
use waypost_policy::origin::OriginGuardLayer;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest wait for a whole request body, once its head is there.
const BODY: Duration = Duration::from_secs(30);

/// The HTTP seam: decided with the head of the request alone. `listen` is the address bound.
pub fn http(config: &Config, listen: SocketAddr, hub: &Arc<Hub>) -> Router {
    let everything = ServiceBuilder::new()
        // First, so that every line and every refusal can be found again.
        .layer(SetRequestIdLayer::new(REQUEST_ID, Ids::default()))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                // The front and the audit have lines of their own for all of these.
                .on_request(())
                .on_response(())
                .on_body_chunk(())
                .on_eos(())
                .on_failure(()),
        )
        // One bad request is not an outage.
        .layer(CatchPanicLayer::custom(panicked))
        // Over the limit it is refused at once and before any work: a queue would only hide the
        // overload. An answer counts until its last byte.
        .layer(InFlightLayer::new(config.limits.in_flight))
        // Cheap, needs headers only, and spares strangers' pages the sight of everything below.
        .layer(OriginGuardLayer::new(listen, &config.front));
    // Only for endpoints: a client that looks for OAuth gets its 404 without a key.
    let endpoints = ServiceBuilder::new()
        // Who it is, for everything below.
        .layer(AuthenticateLayer::new(&config.auth.keys));
    // No deadline for the first byte here: a caller that takes only JSON gets it with its answer,
    // and that may take as long as the call may.
    // The size of a body is the front's to check, which knows what answer a client understands.
    waypost_front::routes(parts(config, hub))
        .route_layer(endpoints)
        .layer(everything)
}

/// The call seam: decided with the method, the target and the caller. A call's deadline is the
/// hub's, which knows the upstream's timeout and what extends it.
fn calls(hub: &Arc<Hub>) -> Calls {
    let hub = Arc::clone(hub);
    let calls = ServiceBuilder::new()
        // Records refusals too.
        .layer(AuditLayer)
        .service(service_fn(move |call: Call| hub.call(call)));
    BoxCloneSyncService::new(calls)
}

fn parts(config: &Config, hub: &Arc<Hub>) -> Parts {
    Parts {
        calls: calls(hub),
        views: views(hub),
        keep_alive: config.front.keep_alive,
        strict_headers: config.front.strict_headers,
        json_depth: config.limits.json_depth,
        request_body: config.limits.request_body,
        body_timeout: BODY,
    }
}

/// `/mcp/<name>` is the upstream of that name, alone.
fn views(hub: &Arc<Hub>) -> Views {
    let hub = Arc::clone(hub);
    Arc::new(move |name| {
        let view = View::Upstream(name.into());
        hub.shows_view(&view).then_some(view)
    })
}

/// Every line that is written while a request is worked on carries its id.
fn span<B>(request: &Request<B>) -> Span {
    let id = request.headers().get(REQUEST_ID);
    let request_id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
    tracing::info_span!("request", request_id)
}

/// Ids that are short, new and cheap: a number that counts, behind one that tells processes apart.
#[derive(Clone, Debug)]
struct Ids {
    process: u32,
    next: Arc<AtomicU64>,
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            process: rand::random(),
            next: Arc::default(),
        }
    }
}

impl MakeRequestId for Ids {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = format!("{:08x}-{number:x}", self.process);
        Some(RequestId::new(HeaderValue::try_from(id).ok()?))
    }
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
mod tests;
