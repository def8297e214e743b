//! `waypost tools`: pinned tools that are not as they were, at a daemon that runs.
//!
//! Only the daemon knows what its servers list now, so it is asked, at its admin listener.

mod diff;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_config::Config;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::exit::Fatal;
use crate::output::{print, printable};
use crate::serve::runtime;

/// For one question to the daemon.
const WITHIN: Duration = Duration::from_secs(30);

/// Bytes of its answer.
const MOST: usize = 256 << 20;

/// A tool that is not as it was, as the daemon tells it.
#[derive(Debug)]
struct Pending {
    upstream: String,
    tool: String,
    change: String,
    held: bool,
    digest: String,
    before: Option<Raw>,
    now: Raw,
}

/// Prints what became of each, line by line.
pub(crate) fn pending(config: &Config) -> Result<(), Fatal> {
    let all = runtime()?.block_on(ask(config))?;
    print(&told(&all));
    Ok(())
}

fn told(all: &[Pending]) -> String {
    if all.is_empty() {
        return "every pinned tool is as it was approved".to_owned();
    }
    let texts: Vec<String> = all.iter().map(Pending::text).collect();
    texts.join("\n\n")
}

/// Trusts what is pending now: of one upstream, or one tool, or all.
pub(crate) fn approve(
    config: &Config,
    target: Option<&str>,
    digest: Option<&str>,
) -> Result<(), Fatal> {
    let runtime = runtime()?;
    let mut wanted = runtime.block_on(ask(config))?;
    wanted.retain(|pending| {
        target.is_none_or(|target| pending.is(target))
            && digest.is_none_or(|digest| pending.digest.starts_with(digest))
    });
    if wanted.is_empty() {
        let Some(target) = target else {
            print("every pinned tool is as it was approved");
            return Ok(());
        };
        let error = anyhow!("nothing of `{}` waits for an approval", printable(target));
        return Err(Fatal::hint(
            error,
            "`waypost tools pending` shows what does",
        ));
    }
    let tools: Vec<Value> = wanted.iter().map(Pending::approval).collect();
    let body = json!({ "tools": tools }).to_string();
    let path = "/api/v1/tools/approve";
    let answer = runtime.block_on(send(config, Method::POST, path, body))?;
    let answer: Value = answer.decode().unwrap_or_default();
    let approved = answer.get("approved").and_then(Value::as_array);
    let approved = approved.cloned().unwrap_or_default();
    let mut late = Vec::new();
    for pending in &wanted {
        let name = pending.name();
        if approved.contains(&pending.approval()) {
            print(&format!("approved `{name}`"));
        } else {
            late.push(format!("`{name}`"));
        }
    }
    if late.is_empty() {
        return Ok(());
    }
    let error = anyhow!("became another meanwhile: {}", late.join(", "));
    Err(Fatal::hint(
        error,
        "look again with `waypost tools pending`",
    ))
}

async fn ask(config: &Config) -> Result<Vec<Pending>, Fatal> {
    let path = "/api/v1/tools/pending";
    let answer = send(config, Method::GET, path, String::new()).await?;
    let answer = answer
        .as_object()
        .context("it answers with something else")?;
    let all = answer.get("pending").and_then(Raw::as_array);
    let all = all.unwrap_or_default();
    let all: Option<Vec<_>> = all.iter().map(Pending::read).collect();
    Ok(all.context("it answers with something else")?)
}

async fn send(config: &Config, method: Method, path: &str, body: String) -> Result<Raw, Fatal> {
    let at = reachable(config.admin);
    if at.port() == 0 {
        let error = anyhow!("the configuration lets the system choose the admin port");
        return Err(Fatal::hint(error, "name the one in its log with `--admin`"));
    }
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://{at}{path}"));
    request = request.header(CONTENT_TYPE, "application/json");
    if let Some(token) = &config.admin_token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
        let mut value = value.map_err(|_| anyhow!("`admin.token` cannot be sent"))?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .context("cannot ask")?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let talk = async {
        let response = client.request(request).await.map_err(|error| {
            let error = anyhow::Error::from(error).context(format!("nobody answers at `{at}`"));
            Fatal::hint(error, "start `waypost serve`, or name its `--admin`")
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST).collect().await;
        let body = body.map_err(|error| anyhow!("its answer broke off: {error}"))?;
        Ok::<_, Fatal>((status, body.to_bytes()))
    };
    let late = |_| anyhow!("`{at}` did not answer within {} s", WITHIN.as_secs());
    let (status, body) = timeout(WITHIN, talk).await.map_err(late)??;
    let body = Raw::parse(&body).unwrap_or_else(|_| Raw::null());
    if status == StatusCode::OK {
        return Ok(body);
    }
    let why = body.as_object().ok().and_then(|body| body.string("error"));
    let why = printable(&why.unwrap_or_else(|| "no reason given".to_owned()));
    Err(anyhow!("`{at}` refuses with {status}: {why}").into())
}

/// An address that every interface listens on is reached on this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

impl Pending {
    fn read(raw: &Raw) -> Option<Self> {
        let object: Object = raw.as_object().ok()?;
        Some(Self {
            upstream: object.string("upstream")?,
            tool: object.string("tool")?,
            change: object.string("change")?,
            held: object.get("held")?.as_bool()?,
            digest: object.string("digest")?,
            before: object.get("before").filter(|raw| !raw.is_null()).cloned(),
            now: object.get("now")?.clone(),
        })
    }

    fn name(&self) -> String {
        printable(&format!("{}/{}", self.upstream, self.tool))
    }

    /// Whether it is the tool of this name, or of the upstream of this name.
    fn is(&self, target: &str) -> bool {
        match target.split_once('/') {
            Some((upstream, tool)) => self.upstream == upstream && self.tool == tool,
            None => self.upstream == target,
        }
    }

    fn approval(&self) -> Value {
        json!({ "upstream": self.upstream, "tool": self.tool, "digest": self.digest })
    }

    fn text(&self) -> String {
        let held = if self.held { ", held back" } else { "" };
        let digest: String = self.digest.chars().take(12).collect();
        let mut lines = vec![format!(
            "{} ({}{held}, digest {digest})",
            self.name(),
            self.change
        )];
        lines.extend(diff::diff(self.before.as_ref(), &self.now));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nothing_waits_one_line_says_so() {
        assert_eq!(told(&[]), "every pinned tool is as it was approved");
    }
}
