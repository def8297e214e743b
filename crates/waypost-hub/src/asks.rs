//! What a server asks of a caller, against what the caller declared.

use serde_json::{Map, Value, json};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::error::ErrorObject;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// Questions of one result, and answers of one retry: each is looked for among the others, and
/// each answer is remembered as sent, one after the other.
pub(crate) const MOST: usize = 256;

/// What is asked, where all of it can be read and is of a known kind; a repeated key could mean
/// one thing here and another at the caller, and nobody can declare a kind that is not known. More
/// than 256 questions nobody answers.
pub fn questions(input_requests: &Raw) -> Option<Object> {
    let known = |request: &Raw| {
        let method = request.as_object().ok()?.string("method")?;
        ClientCapabilities::needed_for(&method)
    };
    let requests = input_requests.as_object().ok()?;
    let readable =
        requests.len() <= MOST && requests.iter().all(|(_, request)| known(request).is_some());
    readable.then_some(requests)
}

/// Why [`questions`] reads nothing there, to be said of the server.
pub fn unreadable(input_requests: &Raw) -> String {
    let count = input_requests.as_object().map_or(0, |all| all.len());
    if count > MOST {
        return format!("its `inputRequests` are {count}, more than {MOST}");
    }
    "its `inputRequests` cannot be read".to_owned()
}

/// The capabilities that `inputRequests` need and the caller did not declare, in the shape of
/// client capabilities; `None` when everything asked for is declared.
///
/// Several servers ask whatever they like; what the caller did not declare must never reach it.
pub fn undeclared(input_requests: &Object, declared: &ClientCapabilities) -> Option<Value> {
    let mut missing = Map::new();
    for (_, request) in input_requests.iter() {
        let Ok(request) = request.as_object() else {
            continue;
        };
        let method = request.string("method").unwrap_or_default();
        let Some(needed) = ClientCapabilities::needed_for(&method) else {
            continue;
        };
        if !declared.has(needed) {
            missing.insert(needed.to_owned(), json!({}));
        } else if needed == "elicitation" {
            let mode = if is_url(&request) { "url" } else { "form" };
            if !elicits(declared, mode) {
                missing.insert(needed.to_owned(), json!({ mode: {} }));
            }
        }
    }
    (!missing.is_empty()).then_some(Value::Object(missing))
}

/// The error that a caller gets instead of a question it cannot answer.
pub fn refusal(upstream: &str, missing: &Value) -> ErrorObject {
    let names: Vec<_> = missing
        .as_object()
        .into_iter()
        .flatten()
        .map(|(k, _)| k.as_str())
        .collect();
    let message = format!(
        "upstream `{upstream}` asks for `{}`, which the request does not declare",
        names.join("`, `")
    );
    ErrorObject::missing_capability(&message, missing)
}

fn is_url(request: &Object) -> bool {
    let params = request.get("params").and_then(|raw| raw.as_object().ok());
    params.is_some_and(|params| params.get("mode").map(Raw::text) == Some("\"url\""))
}

/// Whether a way of eliciting is declared. Naming none means forms.
fn elicits(declared: &ClientCapabilities, mode: &str) -> bool {
    let elicitation = declared
        .object()
        .get("elicitation")
        .and_then(|raw| raw.as_object().ok());
    let elicitation = elicitation.unwrap_or_default();
    let named = |mode: &str| elicitation.get(mode).is_some_and(Raw::is_object);
    named(mode) || (mode == "form" && !named("url"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Object {
        Raw::from(value).as_object().unwrap()
    }

    #[track_caller]
    fn check(declared: &Value, requests: &Value, missing: Option<&Value>) {
        let declared = ClientCapabilities::new(object(declared));
        assert_eq!(undeclared(&object(requests), &declared).as_ref(), missing);
    }

    #[test]
    fn questions_of_no_known_kind_are_not_passed_on() {
        let many = |count: usize| {
            let one = |n| (format!("k{n}"), json!({ "method": "roots/list" }));
            Raw::from(&Value::Object((0..count).map(one).collect()))
        };
        assert!(questions(&many(MOST)).is_some() && questions(&many(MOST + 1)).is_none());
        assert_eq!(
            unreadable(&many(MOST + 1)),
            "its `inputRequests` are 257, more than 256"
        );
        let known = json!({ "a": { "method": "roots/list" } });
        assert_eq!(questions(&Raw::from(&known)), Some(object(&known)));
        for odd in [
            json!({ "method": "tools/call" }),
            json!({ "method": "" }),
            json!({ "method": 1 }),
            json!({ "params": {} }),
            json!([]),
        ] {
            let requests = json!({ "a": { "method": "roots/list" }, "b": odd });
            assert_eq!(questions(&Raw::from(&requests)), None, "{requests}");
        }
    }

    #[test]
    fn only_what_is_not_declared_is_missing() {
        let form = json!({"a": {"method": "elicitation/create", "params": {"message": "?"}}});
        let url = json!({"a": {"method": "elicitation/create", "params": {"mode": "url"}}});
        check(&json!({"elicitation": {}}), &form, None);
        check(&json!({}), &form, Some(&json!({"elicitation": {}})));
        check(
            &json!({"elicitation": {}}),
            &url,
            Some(&json!({"elicitation": {"url": {}}})),
        );
        check(&json!({"elicitation": {"url": {}}}), &url, None);
        check(
            &json!({"elicitation": {"url": {}}}),
            &form,
            Some(&json!({"elicitation": {"form": {}}})),
        );
        check(
            &json!({"elicitation": {"url": {}, "form": {}}}),
            &form,
            None,
        );
        let roots =
            json!({"r": {"method": "roots/list"}, "s": {"method": "sampling/createMessage"}});
        check(
            &json!({"roots": {}}),
            &roots,
            Some(&json!({"sampling": {}})),
        );
    }
}
