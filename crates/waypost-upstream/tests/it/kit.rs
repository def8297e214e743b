//! What every test here needs.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use waypost_hub::call::{Call, Principal};
use waypost_hub::error::CallError;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::reply::{End, Reply};
use waypost_hub::upstream::Upstream;
use waypost_upstream::Parts;
use waypost_wire::object::Object;

/// Everything must happen within this; nothing waits that long unless it is broken.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub fn parts() -> Parts {
    Parts {
        tasks: Tasks::default(),
        cores: 0,
        response_limit: 64 * 1024 * 1024,
        env: Arc::new(std::env::vars_os().collect()),
        tls: Default::default(),
        tell_callers: Arc::new(true.into()),
        parked: Arc::new(tokio::sync::Semaphore::new(100)),
        answer_within: Duration::from_secs(600),
        places: waypost_upstream::Places::new(128),
        guard: None,
    }
}

/// The upstream `u` with these settings, as YAML in flow style.
pub fn upstream(settings: &str) -> Arc<dyn Upstream> {
    upstream_with(settings, &parts())
}

pub fn upstream_with(settings: &str, parts: &Parts) -> Arc<dyn Upstream> {
    let yaml = format!("upstreams: {{ u: {{ {settings} }} }}");
    let config = waypost_config::parse_str(&yaml).unwrap().config;
    waypost_upstream::connect(&config.upstreams[0], parts).unwrap()
}

pub fn object(json: &str) -> Object {
    Object::parse(&Bytes::from(json.to_owned())).unwrap()
}

/// A call of the tool `name`.
pub fn tool(name: &str) -> Call {
    let params = serde_json::json!({ "name": name, "arguments": {} });
    Call::own("tools/call", object(&params.to_string()))
}

/// Waits for `future`, which must not take long.
pub fn in_time<'a, T>(
    future: impl Future<Output = T> + 'a,
) -> Pin<Box<dyn Future<Output = T> + 'a>> {
    Box::pin(async move {
        let done = tokio::time::timeout(DEADLINE, future).await;
        done.unwrap_or_else(|_| panic!("nothing happened in time"))
    })
}

/// Calls and waits for the end.
pub async fn end_of(upstream: &dyn Upstream, call: Call) -> Result<End, CallError> {
    in_time(async { upstream.call(call).await?.into_end().await }).await
}

/// The result of a call that must complete.
pub async fn complete(upstream: &dyn Upstream, call: Call) -> Object {
    match end_of(upstream, call).await {
        Ok(End::Complete(result)) => result,
        other => panic!("{other:?}"),
    }
}

/// The text of the failure of a call that must fail.
pub async fn failure(upstream: &dyn Upstream) -> CallError {
    match end_of(upstream, tool("t")).await {
        Err(error) => error,
        Ok(end) => panic!("{end:?}"),
    }
}

/// A reply that must be a stream.
pub fn stream(reply: Reply) -> waypost_hub::reply::EventStream {
    match reply {
        Reply::Stream(events) => events,
        Reply::End(end) => panic!("{end:?}"),
    }
}

/// Which process answers now.
pub fn instance(upstream: &dyn Upstream) -> Option<Arc<str>> {
    upstream.instance(&Principal::anonymous(), None)
}
