//! Questions that send the user to a URL (elicitation in `url` mode).

use serde_json::{Value, json};

use super::counts::Counts;
use super::mrtr;
use crate::kit::fail::Fail;
use crate::kit::out::Out;
use crate::kit::schema::text;
use crate::kit::server::ToolCall;

const KEY: &str = "opened";
/// The code of 2025-11-25 for a call that needs a URL to be opened first.
const URL_REQUIRED: i64 = -32042;

/// Answers `test_elicitation_url` and `test_url_required`.
pub(crate) async fn call(call: &ToolCall<'_>, counts: &Counts, out: &Out) -> Result<Value, Fail> {
    let in_session = call
        .request
        .session()
        .is_some_and(|session| !session.is_empty());
    if call.name == "test_url_required" && in_session {
        // Whoever comes a second time is taken to have opened it.
        if counts.next(call.name, call.request) == 1 {
            let fail = Fail::with_code(URL_REQUIRED, "a URL must be opened first");
            return Err(fail.with_data(json!({ "elicitations": [params(call.name, true)] })));
        }
        return Ok(text("the URL was opened"));
    }
    let answer = call.request.input_responses()?.and_then(|all| all.get(KEY));
    let Some(answer) = answer else {
        if !call.request.has_elicitation("url") {
            let url = json!({ "elicitation": { "url": {} } });
            return Err(Fail::missing_capability(&url));
        }
        let question =
            json!({ "method": "elicitation/create", "params": params(call.name, in_session) });
        return Ok(mrtr::question(KEY, &question));
    };
    if in_session {
        let done = json!({ "elicitationId": call.name });
        out.notify("notifications/elicitation/complete", done).await;
    }
    let action = answer.get("action").and_then(Value::as_str);
    Ok(text(format!(
        "URL elicitation: {}",
        action.unwrap_or("none")
    )))
}

/// Only the session era gives the question an id of its own.
fn params(id: &str, in_session: bool) -> Value {
    let mut params = json!({
        "mode": "url",
        "message": "Please open this page.",
        "url": "https://example.com/open",
    });
    if let (true, Some(members)) = (in_session, params.as_object_mut()) {
        members.insert("elicitationId".into(), id.into());
    }
    params
}
