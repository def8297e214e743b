//! The admin listener: health, readiness, metrics, and what is known of the upstreams.
//!
//! It has a port of its own, so that what operators see is never one path rule away from what
//! clients see. Probes and metrics need no credentials: names of upstreams and tools are all that
//! metrics tell. Beyond loopback there is nothing else until `admin.token` is set.

mod endpoints;
pub(crate) mod guard;
pub(crate) mod metrics;
pub(crate) mod time;
mod tools;
mod upstreams;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use waypost_hub::hub::Hub;

use self::guard::Guard;
use crate::reload;

/// What the admin listener looks at.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) hub: Arc<Hub>,
    pub(crate) metrics: PrometheusHandle,
    /// How reloads went.
    pub(crate) reloads: Arc<reload::Status>,
    /// Cancelled as soon as the process is to end.
    pub(crate) draining: CancellationToken,
}

/// Everything the listener answers. `guard` knows what whom is shown.
pub(crate) fn routes(admin: Admin, guard: Arc<Guard>) -> Router {
    let api = Router::new()
        .route("/api/v1/upstreams", get(list_upstreams))
        .route("/api/v1/endpoints", get(list_endpoints))
        .route("/api/v1/tools/pending", get(tools::pending))
        .route("/api/v1/tools/approve", post(tools::approve))
        .route("/api/v1/config", get(show_config))
        .route_layer(from_fn_with_state(Arc::clone(&guard), guard::token));
    Router::new()
        .route("/healthz", get(healthy))
        .route("/health", get(healthy))
        .route("/readyz", get(ready))
        .route("/ready", get(ready))
        .route("/metrics", get(render_metrics))
        .merge(api)
        .fallback(nothing_here)
        .layer(from_fn_with_state(guard, guard::host))
        .with_state(Arc::new(admin))
}

pub(crate) fn guard(config: &waypost_config::Config) -> Arc<Guard> {
    let loopback = config.admin.ip().is_loopback();
    Arc::new(Guard::new(loopback, config.admin_token.clone()))
}

/// The process runs. Nothing else may make this fail: whoever asks restarts the process.
async fn healthy() -> Response {
    json_answer(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Traffic is welcome: the first connect attempts are over and every required upstream answers.
/// The others never count; one that flaps must not take the whole gateway out.
async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    let readiness = admin.hub.readiness();
    let status = if admin.draining.is_cancelled() {
        "draining"
    } else if !readiness.starting.is_empty() {
        "starting"
    } else if !readiness.missing.is_empty() {
        "a required upstream is missing"
    } else {
        "ready"
    };
    let code = match status {
        "ready" => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let missing: Vec<&str> = readiness.missing.iter().map(|name| &**name).collect();
    let body = if code == StatusCode::OK || missing.is_empty() {
        json!({ "status": status })
    } else {
        // Names are no secret, and what else would one look for?
        json!({ "status": status, "missing": missing })
    };
    json_answer(code, &body)
}

async fn render_metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = admin.metrics.render();
    text.push_str(&metrics::states(&admin.hub.members(), &admin.hub.catalog()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], text).into_response()
}

async fn list_upstreams(State(admin): State<Arc<Admin>>) -> Response {
    let catalog = admin.hub.catalog();
    let body = upstreams::list(&admin.hub.members(), &admin.hub.replacements(), &catalog);
    answer(StatusCode::OK, Body::from(body.as_bytes().clone()))
}

async fn list_endpoints(State(admin): State<Arc<Admin>>) -> Response {
    json_answer(StatusCode::OK, &endpoints::list(&admin.hub.catalog()))
}

/// How reading the configuration again went; nothing of what is in it.
async fn show_config(State(admin): State<Arc<Admin>>) -> Response {
    json_answer(StatusCode::OK, &admin.reloads.json())
}

async fn nothing_here() -> Response {
    refusal(StatusCode::NOT_FOUND, "nothing here")
}

fn refusal(code: StatusCode, why: &str) -> Response {
    json_answer(code, &json!({ "error": why }))
}

fn json_answer(code: StatusCode, body: &serde_json::Value) -> Response {
    answer(code, Body::from(body.to_string()))
}

fn answer(code: StatusCode, body: Body) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (code, [(CONTENT_TYPE, kind)], body).into_response()
}
