//! In what order things happen to a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use waypost_config::Config;
use waypost_front::{Calls, Parts};
use waypost_hub::call::{Call, View};
use waypost_hub::hub::Hub;

/// Longest wait for a whole request body, once its head is there.
const BODY: Duration = Duration::from_secs(30);

/// The HTTP seam: what is decided with the request's head alone. `listen` is the address that was
/// bound.
pub fn http(config: &Config, listen: SocketAddr, hub: &Arc<Hub>) -> Router {
    let _ = listen;
    let layers = ServiceBuilder::new()
        // One bad request is not an outage.
        .layer(CatchPanicLayer::new());
    let parts = Parts {
        calls: calls(config, hub),
        views: views(hub),
        keep_alive: config.front.keep_alive,
        strict_headers: config.front.strict_headers,
        json_depth: config.limits.json_depth,
        request_body: config.limits.request_body,
        body_timeout: BODY,
    };
    waypost_front::routes(parts).layer(layers)
}

/// The call seam: what needs the method and the target.
fn calls(_config: &Config, hub: &Arc<Hub>) -> Calls {
    let hub = Arc::clone(hub);
    let hub = service_fn(move |call: Call| hub.call(call));
    BoxCloneSyncService::new(hub)
}

/// `/mcp/<name>` is the upstream of that name, alone.
fn views(hub: &Arc<Hub>) -> waypost_front::Views {
    let hub = Arc::clone(hub);
    Arc::new(move |name| {
        let view = View::Upstream(name.into());
        hub.shows_view(&view).then_some(view)
    })
}
