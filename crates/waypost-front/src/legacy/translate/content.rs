//! Kinds of content that came with later versions, for clients of earlier ones: their schemas
//! list the kinds, so that one they do not know would cost them the whole answer.

use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// The first versions with these kinds of content.
const AUDIO_SINCE: &str = "2025-03-26";
const LINKS_SINCE: &str = "2025-06-18";

/// Names what is in an audio content that became a resource.
const AUDIO_URI: &str = "dev.waypost:audio";

/// Puts what `version` has no word for in the nearest one it has.
pub(super) fn fit(version: &str, method: &str, result: &mut Object) {
    // Versions are dates, so that their texts are in order.
    if version >= LINKS_SINCE {
        return;
    }
    match method {
        method::TOOLS_CALL => each(result, "content", |block| plain(version, block)),
        method::PROMPTS_GET => each(result, "messages", |message| {
            let mut message = message.as_object().ok()?;
            let block = plain(version, message.get("content")?)?;
            message.set("content", block);
            Some(message.into())
        }),
        _ => {}
    }
}

/// Replaces the members of an array for which `change` has another.
fn each(result: &mut Object, member: &str, change: impl Fn(&Raw) -> Option<Raw>) {
    let all = result.get(member).and_then(Raw::as_array);
    let all = all.unwrap_or_default();
    let changed: Vec<_> = all.iter().map(change).collect();
    if changed.iter().any(Option::is_some) {
        let new = changed.iter().zip(&all);
        let new = new.map(|(new, old)| new.as_ref().unwrap_or(old));
        result.set(member, Raw::array(new));
    }
}

fn plain(version: &str, block: &Raw) -> Option<Raw> {
    let block = block.as_object().ok()?;
    let mut plain = match &*block.string("type")? {
        "audio" if version < AUDIO_SINCE => Object::from_iter([
            ("type", Raw::string("resource")),
            ("resource", embedded(&block).into()),
        ]),
        "resource_link" => Object::from_iter([
            ("type", Raw::string("text")),
            ("text", Raw::string(&link(&block))),
        ]),
        _ => return None,
    };
    for kept in ["annotations", "_meta"] {
        if let Some(raw) = block.get(kept) {
            plain.set(kept, raw.clone());
        }
    }
    Some(plain.into())
}

fn embedded(audio: &Object) -> Object {
    let mut resource = Object::from_iter([("uri", Raw::string(AUDIO_URI))]);
    for (from, to) in [("mimeType", "mimeType"), ("data", "blob")] {
        if let Some(raw) = audio.get(from) {
            resource.set(to, raw.clone());
        }
    }
    resource
}

fn link(link: &Object) -> String {
    let uri = link.string("uri").unwrap_or_default();
    let name = link.string("title").or_else(|| link.string("name"));
    name.map_or_else(|| uri.clone(), |name| format!("{name}: {uri}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(version: &str, given: &Value, expected: &Value) {
        let object = |value: &Value| Raw::from(value).as_object().unwrap();
        let mut result = object(&json!({ "content": [given, { "type": "text", "text": "1.0" }] }));
        fit(version, "tools/call", &mut result);
        let got = Raw::from(result).decode::<Value>().unwrap();
        assert_eq!(&got["content"][0], expected, "{version}");
        assert_eq!(got["content"][1]["text"], "1.0", "{version}");
        let mut result = object(&json!({ "messages": [{ "role": "user", "content": given }] }));
        fit(version, "prompts/get", &mut result);
        let got = Raw::from(result).decode::<Value>().unwrap();
        let expected = json!([{ "role": "user", "content": expected }]);
        assert_eq!(got["messages"], expected, "{version}");
    }

    #[test]
    fn r33_a_client_gets_no_kind_of_content_that_its_version_does_not_have() {
        let link = json!({ "type": "resource_link", "uri": "file:///a", "name": "a",
            "annotations": { "priority": 1.0 } });
        let text = json!({ "type": "text", "text": "a: file:///a",
            "annotations": { "priority": 1.0 } });
        let audio = json!({ "type": "audio", "data": "AAAA", "mimeType": "audio/wav" });
        let embedded = json!({ "type": "resource", "resource": { "uri": "dev.waypost:audio",
            "mimeType": "audio/wav", "blob": "AAAA" } });
        let image = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        for (version, links, sounds) in [
            ("2024-11-05", &text, &embedded),
            ("2025-03-26", &text, &audio),
            ("2025-06-18", &link, &audio),
            ("2025-11-25", &link, &audio),
        ] {
            check(version, &link, links);
            check(version, &audio, sounds);
            check(version, &image, &image);
        }
    }
}
