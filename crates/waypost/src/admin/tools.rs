//! `/api/v1/tools`: pinned tools that are not as they were.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_hub::pins::Approval;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::{Admin, answer, json_answer, refusal};

/// Bytes of a request: some for each of very many tools.
const MOST: usize = 16 << 20;

/// Longest wait for the whole of it.
const WITHIN: Duration = Duration::from_secs(30);

/// `{"pending": [...]}` in the order of lists; definitions are as the servers sent them.
pub(super) async fn pending(State(admin): State<Arc<Admin>>) -> Response {
    let catalog = admin.hub.catalog();
    let of = catalog.members.iter().flat_map(|member| {
        let pending = catalog.pending(&member.name).iter();
        pending.map(|pending| {
            let before = pending.before.clone().unwrap_or_else(Raw::null);
            Object::from_iter([
                ("upstream", Raw::string(&member.name)),
                ("tool", Raw::string(&pending.tool)),
                ("change", Raw::string(pending.change())),
                ("held", Raw::bool(pending.held)),
                ("digest", Raw::string(&pending.digest.to_string())),
                ("before", before),
                ("now", pending.now.clone()),
            ])
        })
    });
    let all: Vec<Raw> = of.map(Raw::from).collect();
    let body = Raw::from(Object::from_iter([("pending", Raw::array(&all))]));
    answer(StatusCode::OK, Body::from(body.as_bytes().clone()))
}

/// Takes `{"tools": [{"upstream", "tool", "digest"}]}` and answers with those of them that were
/// approved: the digest says what was looked at.
pub(super) async fn approve(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    if !is_from_no_page(request.headers()) {
        let why = "send this as `application/json`, and not from a web page";
        return refusal(StatusCode::FORBIDDEN, why);
    }
    // Probes have no other places than those of requests like this one.
    let body = match timeout(WITHIN, to_bytes(request.into_body(), MOST)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return refusal(StatusCode::PAYLOAD_TOO_LARGE, "too many tools at once"),
        Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let tools = body.get("tools").and_then(Value::as_array);
    let wanted: Option<Vec<Approval>> =
        tools.and_then(|tools| tools.iter().map(approval).collect());
    let Some(wanted) = wanted else {
        let why = "send `{\"tools\": [{\"upstream\", \"tool\", \"digest\"}]}`";
        return refusal(StatusCode::BAD_REQUEST, why);
    };
    match admin.hub.approve(&wanted).await {
        Ok(approved) => {
            let approved = approved.iter().map(
                |one| json!({ "upstream": one.upstream, "tool": one.tool, "digest": one.digest }),
            );
            let approved: Vec<Value> = approved.collect();
            json_answer(StatusCode::OK, &json!({ "approved": approved }))
        }
        Err(error) => {
            tracing::error!(%error, source = %error.source, "an approval is not stored");
            refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the state cannot be written",
            )
        }
    }
}

/// Pages of other sites can send requests to this machine, but none with this type unasked, and
/// none without saying where they are from.
fn is_from_no_page(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    let is_json = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    is_json && !headers.contains_key(ORIGIN)
}

fn approval(tool: &Value) -> Option<Approval> {
    let text = |key: &str| Some(tool.get(key)?.as_str()?.to_owned());
    Some(Approval {
        upstream: text("upstream")?,
        tool: text("tool")?,
        digest: text("digest")?,
    })
}
