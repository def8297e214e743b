//! The HTTP client that upstreams of either era are reached by.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::Connector;
use crate::fault::{ConnectFault, Fault};

/// How long an unused connection is kept. Common servers close theirs after 5 s; a request
/// written into that moment is lost and, unless nothing of it was sent, must not be repeated.
const IDLE: Duration = Duration::from_secs(4);

/// A pool of connections that belong to the runtime they were opened on.
pub(crate) type HttpClient = Client<Connector, Full<Bytes>>;

/// A pool that keeps at most so many connections unused.
pub(crate) fn client(connector: Connector, unused: usize) -> HttpClient {
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(unused)
        .build(connector)
}

/// Why a request got no response.
pub(crate) fn send_fault(error: &legacy::Error) -> Fault {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(connect) = cause.downcast_ref::<ConnectFault>() {
            return Fault::Connect(connect.clone());
        }
        if let Some(hyper) = cause.downcast_ref::<hyper::Error>()
            && hyper.is_parse()
        {
            return Fault::NotHttp;
        }
        next = cause.source();
    }
    if error.is_connect() {
        return Fault::Connect(ConnectFault::Other);
    }
    Fault::Closed
}
