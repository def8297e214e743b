//! Words of the stateless era in those of the session era, and back.

mod content;
mod tools;

use waypost_hub::reply::End;
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::meta::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, META, PROGRESS_TOKEN, PROTOCOL_VERSION,
    RequestMeta, SERVER_INFO, SUBSCRIPTION_ID,
};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, RESULT_TYPE, TTL_MS};
use waypost_wire::version;

/// The first version that has modes of elicitation, and event ids before the first event.
pub(crate) const LATEST: &str = "2025-11-25";

/// `_meta` of the stateless call that stands for a session request. What the session knows goes
/// where each stateless request says it; a client cannot say it in another way.
pub(crate) fn request_meta(
    mut said: Object,
    capabilities: ClientCapabilities,
    client_info: Option<Raw>,
    log_level: Option<Raw>,
) -> RequestMeta {
    for own in [
        PROTOCOL_VERSION,
        CLIENT_INFO,
        CLIENT_CAPABILITIES,
        LOG_LEVEL,
        SUBSCRIPTION_ID,
        SERVER_INFO,
    ] {
        said.remove(own);
    }
    RequestMeta {
        protocol_version: version::MODERN.into(),
        client_info,
        capabilities,
        log_level,
        progress_token: said.remove(PROGRESS_TOKEN),
        rest: said,
    }
}

/// What a client can do, in words of the stateless era. Tasks of neither kind: a session gets
/// plain answers, whatever its `initialize` declared. Nor that it tells when its roots change
/// ([`tells_roots`]): the stateless era has no word for that, and only a server that has a session
/// for this client alone can be told.
pub(crate) fn capabilities(mut declared: Object) -> ClientCapabilities {
    declared.remove("tasks");
    if let Some(Ok(mut roots)) = declared.get("roots").map(Raw::as_object) {
        roots.remove("listChanged");
        declared.set("roots", roots.into());
    }
    ClientCapabilities::new(declared).without_tasks()
}

/// Whether the client says that it tells when its roots change.
pub(crate) fn tells_roots(declared: &Object) -> bool {
    let roots = declared.get("roots").and_then(|raw| raw.as_object().ok());
    let tells = roots.and_then(|roots| roots.get("listChanged").and_then(Raw::as_bool));
    tells.unwrap_or_default()
}

/// The same for a client that cannot be asked anything on this request.
pub(crate) fn without_questions(capabilities: &ClientCapabilities) -> ClientCapabilities {
    let mut object = capabilities.object().clone();
    for kind in ["elicitation", "sampling", "roots"] {
        object.remove(kind);
    }
    ClientCapabilities::new(object)
}

/// A result without what the schemas of sessions do not know.
pub(crate) fn result(method: &str, result: &mut Object) {
    for own in [RESULT_TYPE, TTL_MS, CACHE_SCOPE] {
        result.remove(own);
    }
    strip_meta(result);
    if method == method::TOOLS_LIST {
        tools::plain(result);
    }
}

/// A notification without the mark of a stream that only exists inside.
pub(crate) fn notification(notification: &mut Notification) {
    strip_meta(&mut notification.params);
}

fn strip_meta(object: &mut Object) {
    let Some(meta) = object.get(META) else { return };
    let mut meta = meta.as_object().unwrap_or_default();
    meta.remove(SERVER_INFO);
    meta.remove(SUBSCRIPTION_ID);
    if meta.is_empty() {
        object.remove(META);
    } else {
        object.set(META, meta.into());
    }
}

/// The end of a call, in the client's words; what a session did not agree on a version for is as
/// the latest has it.
pub(crate) fn end(version: Option<&str>, method: &str, end: End) -> End {
    match end {
        End::Complete(mut object) => {
            result(method, &mut object);
            content::fit(version.unwrap_or(LATEST), method, &mut object);
            End::Complete(object)
        }
        End::Error(error) => End::Error(self::error(method, error)),
        // No session client is told of tasks, and questions were asked.
        End::Task(_) | End::InputRequired(_) => End::Error(ErrorObject::new(
            code::INTERNAL_ERROR,
            "the server answered something that sessions have no words for",
        )),
    }
}

/// A server's error with the code that a session server would use; one of a session server has it.
pub(crate) fn error(method: &str, error: ErrorObject) -> ErrorObject {
    if let Some(said) = error.said() {
        return match said == error.code() {
            true => error,
            false => error.with_code(said),
        };
    }
    match error.code() {
        code::INVALID_PARAMS if method == method::RESOURCES_READ => {
            error.with_code(code::FORMER_RESOURCE_NOT_FOUND)
        }
        // The client did not say that it can do what the server needs.
        code::MISSING_CAPABILITY => error.with_code(code::INVALID_REQUEST),
        // About headers and versions that the client never sent.
        code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION => error.with_code(code::INTERNAL_ERROR),
        _ => error,
    }
}

/// What a server asks, as it is asked in `version`.
pub(crate) fn question(version: &str, method: &str, params: &mut Object) {
    // Before there were modes, an elicitation was a form, and that is what none means.
    if method == "elicitation/create" && version != LATEST {
        let form = params.get("mode").map(Raw::text) == Some("\"form\"");
        if form {
            params.remove("mode");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(value: &Value) -> Object {
        Raw::from(value).as_object().unwrap()
    }

    #[track_caller]
    fn stripped(method: &str, given: &Value, expected: &Value) {
        let mut got = object(given);
        result(method, &mut got);
        assert_eq!(got, object(expected));
    }

    #[test]
    fn results_lose_what_sessions_do_not_know_and_nothing_else() {
        let info = json!({ "name": "waypost" });
        stripped(
            "resources/read",
            &json!({ "contents": [], "resultType": "complete", "ttlMs": 1, "cacheScope": "private",
                "_meta": { "io.modelcontextprotocol/serverInfo": info } }),
            &json!({ "contents": [] }),
        );
        stripped(
            "tools/call",
            &json!({ "content": [], "_meta": { "x/y": 1.0, "dev.waypost/upstream": "a",
                "io.modelcontextprotocol/serverInfo": info } }),
            &json!({ "content": [], "_meta": { "x/y": 1.0, "dev.waypost/upstream": "a" } }),
        );
    }

    #[test]
    fn r79_no_tool_demands_a_task_of_a_session() {
        stripped(
            "tools/list",
            &json!({ "tools": [
                { "name": "a", "execution": { "taskSupport": "required" }, "inputSchema": {} },
                { "name": "b", "execution": { "taskSupport": "optional", "x": 1 } },
                { "name": "c", "description": "\"taskSupport\"" },
            ] }),
            &json!({ "tools": [
                { "name": "a", "inputSchema": {} },
                { "name": "b", "execution": { "x": 1 } },
                { "name": "c", "description": "\"taskSupport\"" },
            ] }),
        );
    }

    #[test]
    fn r28_a_session_is_told_only_of_results_that_are_objects() {
        stripped(
            "tools/list",
            &json!({ "tools": [
                { "name": "a", "outputSchema": { "type": "array" } },
                { "name": "b", "outputSchema": { "properties": {} } },
                { "name": "c", "outputSchema": { "x": [{}], "type": "object" } },
                { "name": "d", "outputSchema": { "type": ["object", "null"] } },
                { "name": "e", "description": "\"outputSchema\"" },
            ] }),
            &json!({ "tools": [
                { "name": "a" },
                { "name": "b" },
                { "name": "c", "outputSchema": { "x": [{}], "type": "object" } },
                { "name": "d" },
                { "name": "e", "description": "\"outputSchema\"" },
            ] }),
        );
    }

    #[test]
    fn r79_tasks_are_never_declared() {
        let declared = json!({ "tasks": { "list": {} }, "roots": {},
            "extensions": { "io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {} } });
        let got = capabilities(object(&declared));
        assert!(!got.has_tasks());
        let ui = json!({ "io.modelcontextprotocol/ui": {} });
        let expected = json!({ "roots": {}, "extensions": ui });
        assert_eq!(Raw::from(got.object()), Raw::from(&object(&expected)));
    }

    #[test]
    fn roots_are_declared_without_a_promise_to_tell_of_changes() {
        for (given, expected) in [
            (json!({ "listChanged": true, "x": 1 }), json!({ "x": 1 })),
            (json!({ "listChanged": true }), json!({})),
            (json!({}), json!({})),
        ] {
            let got = capabilities(object(&json!({ "roots": given })));
            assert_eq!(got.object(), &object(&json!({ "roots": expected })));
        }
    }

    #[track_caller]
    fn code_of(method: &str, given: i64, expected: i64) {
        let data = json!({ "uri": "x:y" });
        let got = error(method, ErrorObject::with_data(given, "m", &data));
        assert_eq!(got.code(), expected);
        assert_eq!(got.message(), "m");
        assert_eq!(got.data(), Some(Raw::from(&data)));
    }

    #[test]
    fn r72_codes_are_those_of_the_session_era() {
        code_of("resources/read", -32602, -32002);
        for method in ["tools/call", "prompts/get", "resources/list"] {
            code_of(method, -32602, -32602);
            code_of(method, -32002, -32002);
        }
        code_of("resources/read", -32002, -32002);
        code_of("tools/call", -32021, -32600);
        // A server's own code, whatever a draft meant by it.
        code_of("tools/call", -32003, -32003);
        code_of("tools/call", -32020, -32603);
        code_of("tools/call", -32022, -32603);
        code_of("tools/call", -32042, -32042);
        code_of("tools/call", -32601, -32601);
    }

    #[test]
    fn codes_of_session_servers_are_their_own() {
        for code in [
            -32602, -32002, -32020, -32021, -32022, -32042, -32050, -32099, -32003, 42,
        ] {
            let data = json!({ "uri": "x:y" });
            let given = ErrorObject::with_data(code, "m", &data);
            for today in [code, -32602, -32603] {
                let got = error("resources/read", given.meaning(today));
                assert_eq!(got.as_bytes(), given.as_bytes());
            }
            // Whatever else it was taken for on its way.
            let other = given.meaning(-32603).with_code(-32021);
            assert_eq!(error("tools/call", other).code(), code);
        }
    }

    #[test]
    fn modes_of_elicitation_are_for_versions_that_have_them() {
        let given = json!({ "mode": "form", "message": "?" });
        for (version, mode) in [("2025-06-18", false), (LATEST, true)] {
            let mut params = object(&given);
            question(version, "elicitation/create", &mut params);
            assert_eq!(params.contains("mode"), mode, "{version}");
        }
    }
}
