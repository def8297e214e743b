//! `initialize`: what `server/discover` says, in the words of a session (2025-11-25: lifecycle).

use waypost_hub::call::Call;
use waypost_hub::own;
use waypost_hub::reply::End;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::meta::{META, SERVER_INFO};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::version;

use crate::Calls;
use crate::events::Events;
use crate::legacy::exchange;
use crate::legacy::ticket::Ticket;
use crate::legacy::translate::{self, LATEST};
use crate::modern::Asker;
use crate::rescue;

/// Bytes of what a client says of itself: it has to fit into each of its requests' headers.
const MOST_SAID: usize = 2 << 10;

/// A session that may begin, and what its client is told.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) ticket: Ticket,
    pub(crate) result: Object,
}

/// Answers `initialize`. `lasting` is whether there will be a session.
///
/// # Errors
/// The error to answer with: the params are wrong, or discovery failed.
pub(crate) async fn answer(
    calls: &Calls,
    asker: &Asker,
    params: &Object,
    lasting: bool,
) -> Result<Greeting, ErrorObject> {
    let ticket = ticket(params)?;
    let discovered = discover(calls, asker, &ticket).await?;
    let result = result(&ticket.version, &discovered, lasting);
    Ok(Greeting { ticket, result })
}

/// Some clients offer a version that has no sessions; they get the latest that has.
fn agreed(offered: &str) -> &str {
    if version::is_legacy(offered) {
        offered
    } else {
        LATEST
    }
}

fn ticket(params: &Object) -> Result<Ticket, ErrorObject> {
    let offered = exchange::text(params, "protocolVersion")?;
    let object = |member: &str| match params.get(member) {
        None => Ok(Object::new()),
        Some(raw) => raw.as_object().map_err(|_| {
            let text = format!("`params.{member}` must be an object");
            ErrorObject::new(code::INVALID_PARAMS, &text)
        }),
    };
    let declared = fitting(object("capabilities")?)?;
    let tells_roots = translate::tells_roots(&declared);
    let capabilities = translate::capabilities(declared);
    let info = object("clientInfo")?;
    let info = (!info.is_empty()).then(|| slim(&info)).transpose()?;
    Ok(Ticket {
        tells_roots,
        ..Ticket::new(agreed(&offered), capabilities, info)
    })
}

/// Of capabilities that are too long what servers can ask for stays.
fn fitting(declared: Object) -> Result<Object, ErrorObject> {
    if declared.encoded_len() <= MOST_SAID {
        return Ok(declared);
    }
    let known = ["elicitation", "sampling", "roots"];
    let kept = declared.iter().filter(|(key, _)| known.contains(key));
    let kept: Object = kept.map(|(key, raw)| (key, raw.clone())).collect();
    if kept.encoded_len() <= MOST_SAID {
        Ok(kept)
    } else {
        Err(too_long("capabilities"))
    }
}

/// Icons and the like are for those who show them.
fn slim(info: &Object) -> Result<Raw, ErrorObject> {
    let shown = ["name", "title", "version"];
    let kept = info.iter().filter(|(key, _)| shown.contains(key));
    let kept: Object = kept.map(|(key, raw)| (key, raw.clone())).collect();
    if kept.encoded_len() <= MOST_SAID {
        Ok(kept.into())
    } else {
        Err(too_long("clientInfo"))
    }
}

fn too_long(member: &str) -> ErrorObject {
    let text = format!("`params.{member}` is longer than {MOST_SAID} bytes");
    ErrorObject::new(code::INVALID_PARAMS, &text)
}

async fn discover(calls: &Calls, asker: &Asker, ticket: &Ticket) -> Result<Object, ErrorObject> {
    let meta = translate::request_meta(
        Object::new(),
        ticket.capabilities.clone(),
        ticket.client_info.clone(),
        None,
    );
    let ids = (std::sync::Arc::clone(&asker.request_id), Id::number(0));
    let caller = (asker.principal.clone(), asker.view.clone());
    let call = Call::new(
        ids,
        method::DISCOVER.to_owned(),
        Object::new(),
        meta,
        caller,
    );
    let end = match Events::of(calls.clone(), call).await {
        Ok(events) => events.into_end().await,
        Err(error) => Err(error),
    };
    match end.map_err(|error| rescue::call_error(&error).1)? {
        End::Complete(result) => Ok(result),
        End::Error(error) => Err(translate::error(method::DISCOVER, error)),
        End::InputRequired(_) | End::Task(_) => {
            let text = "discovery did not complete";
            Err(ErrorObject::new(code::INTERNAL_ERROR, text))
        }
    }
}

fn result(version: &str, discovered: &Object, lasting: bool) -> Object {
    let capabilities = discovered.get("capabilities");
    let capabilities = capabilities.and_then(|raw| raw.as_object().ok());
    let capabilities = translate::capabilities(capabilities.unwrap_or_default());
    let mut capabilities = capabilities.object().clone();
    if !lasting {
        only_calls(&mut capabilities);
    }
    let meta = discovered.get(META).and_then(|raw| raw.as_object().ok());
    let info = meta.and_then(|meta| meta.get(SERVER_INFO).cloned());
    let mut result = Object::from_iter([
        ("protocolVersion", Raw::string(version)),
        ("capabilities", capabilities.into()),
        ("serverInfo", info.unwrap_or_else(own::info)),
    ]);
    if let Some(text) = discovered.get("instructions") {
        result.set("instructions", text.clone());
    }
    result
}

/// Without a session nothing is remembered for a client, and nobody can tell it of changes.
fn only_calls(capabilities: &mut Object) {
    capabilities.remove("logging");
    for list in ["tools", "prompts", "resources"] {
        if capabilities.contains(list) {
            capabilities.set(list, Raw::empty_object());
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

    #[test]
    fn r33_the_version_is_the_clients_where_it_has_sessions() {
        for known in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
            assert_eq!(agreed(known), known);
        }
        for other in ["2026-07-28", "2099-01-01", "1.0", ""] {
            assert_eq!(agreed(other), LATEST);
        }
    }

    #[test]
    fn what_a_client_says_of_itself_stays_short() {
        let icon = "x".repeat(100_000);
        let params = object(&json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "roots": {}, "experimental": { "x": icon } },
            "clientInfo": { "name": "c", "version": "1", "icons": [icon] },
        }));
        let ticket = ticket(&params).unwrap();
        assert!(ticket.capabilities.has("roots"));
        assert_eq!(
            ticket.client_info.unwrap().text(),
            r#"{"name":"c","version":"1"}"#
        );
        let params = object(&json!({
            "protocolVersion": "2025-06-18", "clientInfo": { "name": icon },
        }));
        assert_eq!(super::ticket(&params).unwrap_err().code(), -32602);
    }

    #[test]
    fn capabilities_are_the_discovered_ones_without_tasks() {
        let discovered = object(&json!({
            "capabilities": {
                "tools": { "listChanged": true }, "logging": {}, "completions": {},
                "extensions": { "io.modelcontextprotocol/tasks": {} },
            },
            "instructions": "be kind",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "w", "version": "1" } },
        }));
        let expected = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": { "listChanged": true }, "logging": {}, "completions": {} },
            "serverInfo": { "name": "w", "version": "1" },
            "instructions": "be kind",
        });
        let got = |lasting| {
            let result = result("2025-06-18", &discovered, lasting);
            Raw::from(result).decode::<Value>().unwrap()
        };
        assert_eq!(got(true), expected);
        let alone = json!({ "tools": {}, "completions": {} });
        assert_eq!(got(false)["capabilities"], alone);
    }
}
