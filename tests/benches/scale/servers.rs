//! The upstreams: one listener, a path for each. Their tools are recorded definitions of real
//! servers, with names that differ.

#![expect(
    clippy::indexing_slicing,
    reason = "a JSON value gives null for what it lacks"
)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Tools of each.
pub(crate) const TOOLS: usize = 100;

/// Running servers. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Servers {
    address: SocketAddr,
    _accepting: JoinSet<()>,
}

/// The lists by path.
type Lists = Arc<HashMap<String, String>>;

impl Servers {
    pub(crate) async fn start(count: usize) -> anyhow::Result<Self> {
        let recorded = recorded()?;
        let mut definitions = recorded.iter().cycle();
        let mut lists = HashMap::new();
        for number in 0..count {
            let own = definitions.by_ref().take(TOOLS).enumerate();
            let own = own.map(|(at, tool)| {
                let mut tool = tool.clone();
                let name = tool["name"].as_str().unwrap_or_default();
                tool["name"] = json!(format!("{name}_{at}"));
                tool
            });
            let tools: Vec<Value> = own.collect();
            lists.insert(path(number), json!(tools).to_string());
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::new(lists)));
        Ok(Self {
            address,
            _accepting: accepting,
        })
    }

    pub(crate) fn url(&self, number: usize) -> String {
        format!("http://{}{}", self.address, path(number))
    }
}

fn path(number: usize) -> String {
    format!("/{number}/mcp")
}

fn recorded() -> anyhow::Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/catalogue");
    let read = |name: &str| -> anyhow::Result<Value> {
        let text = std::fs::read(folder.join(name)).with_context(|| name.to_owned())?;
        Ok(serde_json::from_slice(&text)?)
    };
    let mut tools = Vec::new();
    for listed in read("servers.json")?.as_array().context("no list")? {
        let server = listed["server"].as_str().context("no name")?;
        let recorded = read(&format!("{server}.json"))?;
        tools.extend(recorded["tools"].as_array().cloned().unwrap_or_default());
    }
    Ok(tools)
}

async fn accept(listener: TcpListener, lists: Lists) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, Arc::clone(&lists)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, lists: Lists) {
    // Whoever was served may leave in any way.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| answer(request, Arc::clone(&lists)));
    let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(serving.await);
}

async fn answer(
    request: Request<Incoming>,
    lists: Lists,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let id = &message["id"];
    let fresh = "\"resultType\":\"complete\",\"ttlMs\":3600000,\"cacheScope\":\"public\"";
    let outcome = match (message["method"].as_str(), lists.get(&path)) {
        (Some("tools/list"), Some(tools)) => format!("\"result\":{{{fresh},\"tools\":{tools}}}"),
        (Some("server/discover"), Some(_)) => format!(
            "\"result\":{{{fresh},\"supportedVersions\":[\"2026-07-28\"],\
             \"capabilities\":{{\"tools\":{{}}}}}}"
        ),
        _ => "\"error\":{\"code\":-32601,\"message\":\"no such method\"}".to_owned(),
    };
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{outcome}}}");
    let mut response = Response::new(Full::new(Bytes::from(text)));
    let json = http::HeaderValue::from_static("application/json");
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}
