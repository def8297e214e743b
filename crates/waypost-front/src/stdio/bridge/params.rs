//! Which arguments of which tools are repeated in headers, as far as it was seen.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue};
use waypost_wire::object::Object;
use waypost_wire::param::{self, ParamHeader};
use waypost_wire::raw::Raw;

/// Names of tools that are remembered: hosts make some up.
const MOST: usize = 20_000;

/// What the lists of tools that came by said; nothing that one says later is forgotten before.
#[derive(Debug, Default)]
pub(super) struct Params(Mutex<HashMap<String, Vec<ParamHeader>>>);

impl Params {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<ParamHeader>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a page of a list.
    pub(super) fn learn(&self, result: &Raw) {
        let result = result.as_object().unwrap_or_default();
        let tools = result.get("tools").and_then(Raw::as_array);
        let mut known = self.lock();
        for tool in tools.unwrap_or_default() {
            let Ok(tool) = tool.as_object() else { continue };
            let Some(name) = tool.string("name") else {
                continue;
            };
            let declared = tool.get("inputSchema").map(param::declared);
            // A tool whose annotations are broken is the daemon's to hide.
            let declared = declared.and_then(Result::ok).unwrap_or_default();
            if known.len() < MOST || known.contains_key(&name) {
                known.insert(name, declared);
            }
        }
    }

    /// Takes note that no list has this tool.
    pub(super) fn unknown(&self, name: &str) {
        let mut known = self.lock();
        if known.len() < MOST {
            known.entry(name.to_owned()).or_default();
        }
    }

    /// The lists are others now.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    /// Adds the headers for a call; `false` when nothing is known of its tool.
    pub(super) fn put(&self, headers: &mut HeaderMap, params: &Object) -> bool {
        let known = self.lock();
        let name = params.str("name").unwrap_or_default();
        let Some(declared) = known.get(&*name) else {
            return false;
        };
        // Arguments that cannot be read are refused by the daemon.
        let found = param::headers(declared, params.get("arguments")).unwrap_or_default();
        for (name, value) in found {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_a_list_names_become_headers() {
        let params = Params::default();
        let call = Raw::from(&json!({ "name": "a", "arguments": { "r": "é", "n": 3 } }));
        let call = call.as_object().unwrap();
        let mut headers = HeaderMap::new();
        assert!(!params.put(&mut headers, &call), "nothing is known yet");
        let schema = json!({ "type": "object", "properties": {
            "r": { "type": "string", "x-mcp-header": "Region" }, "n": { "type": "integer" } } });
        params.learn(&Raw::from(
            &json!({ "tools": [{ "name": "a", "inputSchema": schema }] }),
        ));
        assert!(params.put(&mut headers, &call));
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["mcp-param-region"], "=?base64?w6k=?=");
        params.forget();
        assert!(!params.put(&mut headers, &call));
    }
}
