use axum::body::Body;
use futures_util::FutureExt as _;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use waypost_hub::error::CallError;
use waypost_hub::hub::Parts as HubParts;
use waypost_hub::keys::Keys;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::member::Member;
use waypost_hub::registry::Learned;
use waypost_hub::reply::Reply;
use waypost_hub::store::{Store, StoreError};
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::*;

/// Longer than anything here waits, except a call for its answer.
const SLOW: Duration = Duration::from_secs(200);

fn object(value: &Value) -> Object {
    Raw::from(value).as_object().unwrap()
}

/// A server with one tool, which takes its time.
#[derive(Debug)]
struct Slow;

impl Upstream for Slow {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        let facts = Facts {
            versions: vec!["2026-07-28".to_owned()],
            capabilities: object(&json!({ "tools": {} })),
            ..Facts::default()
        };
        Box::pin(std::future::ready(Ok(facts)))
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            if call.method == "tools/list" {
                let tool = json!({ "name": "think", "inputSchema": { "type": "object" } });
                return Ok(Reply::complete(object(&json!({ "tools": [tool] }))));
            }
            tokio::time::sleep(SLOW).await;
            Ok(Reply::complete(object(&json!({ "content": [] }))))
        })
    }
}

/// Remembers nothing.
#[derive(Debug)]
struct Forgetful;

impl Store for Forgetful {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn save(&self, _: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    fn forget(&self, _: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}

async fn stack(yaml: &str) -> Stack {
    let (config, hub) = hub(yaml).await;
    Stack::new(&config, config.listen, &hub, None)
}

pub(crate) async fn hub(yaml: &str) -> (Arc<Config>, Arc<Hub>) {
    let config = Arc::new(waypost_config::parse_str(yaml).unwrap().config);
    let member = |settings: &waypost_config::Upstream| {
        Arc::new(Member::new(settings.clone(), Arc::new(Slow)))
    };
    let hub = Hub::new(HubParts {
        members: config.upstreams.iter().map(member).collect(),
        config: Arc::clone(&config),
        store: Arc::new(Forgetful),
        keys: Keys::new(vec![vec![7; 32]]).unwrap(),
        background: Tasks::default(),
    });
    hub.start().await;
    (config, hub)
}

/// A call of the slow tool, whose caller accepts these media types.
fn think(accept: &str) -> Request<Body> {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "s_think", "arguments": {},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            }
        }
    });
    Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("accept", accept)
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "s_think")
        .body(Body::from(body.to_string()))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_may_take_as_long_for_a_caller_of_json_as_for_one_of_streams() {
    let stack = stack("upstreams: { s: { command: s } }").await;
    for accept in ["application/json", "application/json, text/event-stream"] {
        let before = tokio::time::Instant::now();
        let response = stack.http().oneshot(think(accept)).await.unwrap();
        let status = response.status();
        let body = Body::new(response.into_body());
        let body = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(
            body.contains(r#""content":[]"#),
            "{accept}: {status} {body}"
        );
        assert!(before.elapsed() >= SLOW);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_when_calls_are_given_up_is_given() {
    let (_config, hub) = hub("upstreams: { s: { command: s } }").await;
    let params = object(&json!({ "name": "s_think", "arguments": {} }));
    let begin = || {
        Box::pin(LastWords::call(
            &hub,
            Call::own("tools/call", params.clone()),
        ))
    };
    let mut ready = begin();
    assert!(tokio::time::timeout(SLOW / 4, &mut ready).await.is_err());
    tokio::time::advance(SLOW).await;
    let mut late = begin();
    assert!((&mut late).now_or_never().is_none());
    hub.give_up_calls();
    assert!(matches!(ready.now_or_never(), Some(Ok(Reply::End(_)))));
    assert!(matches!(late.now_or_never(), Some(Err(_))));
    assert!(matches!(begin().now_or_never(), Some(Err(_))), "a new one");
}
