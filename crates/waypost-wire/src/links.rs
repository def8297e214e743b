//! Where a result names resources by URI, and how such a URI is replaced.
//!
//! Nothing else of a result changes by that, white space included. What holds no URI at all is not
//! read: whether it may is seen from its bytes.

use memchr::memmem;

use crate::meta::META;
use crate::object::Object;
use crate::raw::Raw;

/// The member of `_meta`, of results and of tools, that says with which resource they are shown
/// (extension: MCP Apps).
pub const UI: &str = "ui";
/// The member of [`UI`] that names it.
pub const UI_RESOURCE: &str = "resourceUri";
/// The same in `_meta` itself, as the extension's drafts had it.
pub const UI_RESOURCE_FLAT: &str = "ui/resourceUri";

/// What a result is the answer to, as far as it says where URIs may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A tool's: content blocks.
    Call,
    /// A prompt's: messages with content blocks.
    Prompt,
    /// A resource's contents.
    Contents,
    /// A task, which may hold the answer of a tool.
    Task,
}

/// Replaces the URIs that `change` gives another for.
pub fn replace(
    result: &mut Object,
    answer: Answer,
    change: &mut dyn FnMut(&str) -> Option<String>,
) {
    let find: fn(&Raw, &mut Vec<Raw>) = match answer {
        Answer::Call => blocks,
        Answer::Prompt => messages,
        Answer::Contents => contents,
        Answer::Task => {
            return replace_in(result, "result", finished, change);
        }
    };
    let member = match answer {
        Answer::Prompt => "messages",
        Answer::Contents => "contents",
        Answer::Call | Answer::Task => "content",
    };
    replace_in(result, member, find, change);
    replace_in(result, META, meta, change);
}

/// The URIs in the `_meta` of a definition, as a tool has one that is shown with a resource.
pub fn ui_uris(definition: &Object) -> Vec<Raw> {
    let mut found = Vec::new();
    if let Some(raw) = definition.get(META).filter(|raw| may_hold(raw)) {
        meta(raw, &mut found);
    }
    found
}

fn replace_in(
    object: &mut Object,
    member: &str,
    find: fn(&Raw, &mut Vec<Raw>),
    change: &mut dyn FnMut(&str) -> Option<String>,
) {
    let Some(raw) = object.get(member).filter(|raw| may_hold(raw)) else {
        return;
    };
    let mut found = Vec::new();
    find(raw, &mut found);
    let changed = found.into_iter().filter_map(|old| {
        let new = change(&old.as_str()?)?;
        Some((old, Raw::string(&new)))
    });
    let changed: Vec<(Raw, Raw)> = changed.collect();
    if !changed.is_empty() {
        let raw = raw.with_parts(&changed);
        object.set(member, raw);
    }
}

/// Whether one of the keys may be in there: they all end alike, however those two letters are
/// spelled.
fn may_hold(raw: &Raw) -> bool {
    let bytes = raw.as_bytes();
    let endings: [&[u8]; 3] = [b"ri\"", b"\\u0072", b"\\u0069"];
    endings.iter().any(|end| memmem::find(bytes, end).is_some())
}

fn blocks(content: &Raw, found: &mut Vec<Raw>) {
    for block in content.as_array().unwrap_or_default() {
        one_block(&block, found);
    }
}

fn one_block(block: &Raw, found: &mut Vec<Raw>) {
    if !may_hold(block) {
        return;
    }
    let Ok(block) = block.as_object() else { return };
    match block.str("type").as_deref() {
        Some("resource_link") => found.extend(block.get("uri").cloned()),
        Some("resource") => {
            let resource = block.get("resource").and_then(|raw| raw.as_object().ok());
            found.extend(resource.and_then(|resource| resource.get("uri").cloned()));
        }
        _ => {}
    }
}

fn messages(messages: &Raw, found: &mut Vec<Raw>) {
    for message in messages.as_array().unwrap_or_default() {
        let message = message.as_object().ok();
        let content = message.as_ref().and_then(|message| message.get("content"));
        match content {
            Some(one) if one.is_object() => one_block(one, found),
            // In some versions of the protocol it was a list.
            Some(several) => blocks(several, found),
            None => {}
        }
    }
}

fn contents(contents: &Raw, found: &mut Vec<Raw>) {
    for one in contents.as_array().unwrap_or_default() {
        let one = one.as_object().ok();
        found.extend(one.and_then(|one| one.get("uri").cloned()));
    }
}

fn finished(result: &Raw, found: &mut Vec<Raw>) {
    let Ok(result) = result.as_object() else {
        return;
    };
    if let Some(content) = result.get("content") {
        blocks(content, found);
    }
    if let Some(raw) = result.get(META) {
        meta(raw, found);
    }
}

fn meta(raw: &Raw, found: &mut Vec<Raw>) {
    let Ok(meta) = raw.as_object() else { return };
    let ui = meta.get(UI).and_then(|raw| raw.as_object().ok());
    found.extend(ui.and_then(|ui| ui.get(UI_RESOURCE).cloned()));
    found.extend(meta.get(UI_RESOURCE_FLAT).cloned());
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[track_caller]
    fn check(answer: Answer, result: &str, expected: &str) {
        let mut result = Object::parse(&Bytes::from(result.to_owned())).unwrap();
        replace(&mut result, answer, &mut |uri| {
            uri.strip_prefix("x:").map(|rest| format!("a+x:{rest}"))
        });
        assert_eq!(Raw::from(result).text(), expected);
    }

    #[test]
    fn r30_only_the_uris_of_a_result_become_others() {
        check(
            Answer::Call,
            r#"{"content":[ {"type":"resource_link", "uri":"x:1" ,"name":"x:2","size":1.0} , {"type":"text","text":"x:\"uri\""},{"uri":"x:\"","type":"resource_link"},{"type":"resource","resource":{ "uri" : "x:4", "text":"uri" }, "uri":"x:"},{"type":"resource_link","uri":"y:1"}],"structuredContent":{"uri":"x:5"},"_meta":{"ui":{"resourceUri":"x:6", "csp":[ ]},"ui/resourceUri":"x:6","uri":"x:7"}}"#,
            r#"{"content":[ {"type":"resource_link", "uri":"a+x:1" ,"name":"x:2","size":1.0} , {"type":"text","text":"x:\"uri\""},{"uri":"a+x:\"","type":"resource_link"},{"type":"resource","resource":{ "uri" : "a+x:4", "text":"uri" }, "uri":"x:"},{"type":"resource_link","uri":"y:1"}],"structuredContent":{"uri":"x:5"},"_meta":{"ui":{"resourceUri":"a+x:6", "csp":[ ]},"ui/resourceUri":"a+x:6","uri":"x:7"}}"#,
        );
        for key in ["\\u0075r\\u0069", "u\\u0072i", "\\u0075ri"] {
            let with = |uri: &str| {
                format!(r#"{{"content":[{{"type":"resource_link","{key}":"{uri}"}}]}}"#)
            };
            check(Answer::Call, &with("\\u0078:1"), &with("a+x:1"));
        }
    }

    #[test]
    fn r30_uris_are_found_wherever_the_answer_has_them() {
        check(
            Answer::Prompt,
            r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"x:1"}},{"content":[{"type":"resource","resource":{"uri":"x:2"}}]}],"uri":"x:"}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a+x:1"}},{"content":[{"type":"resource","resource":{"uri":"a+x:2"}}]}],"uri":"x:"}"#,
        );
        check(
            Answer::Contents,
            r#"{"contents":[{"uri":"x:1","text":"uri"},{"uri":"x:2", "_meta":{"uri":"x:3"}}]}"#,
            r#"{"contents":[{"uri":"a+x:1","text":"uri"},{"uri":"a+x:2", "_meta":{"uri":"x:3"}}]}"#,
        );
        check(
            Answer::Task,
            r#"{"taskId":"x:","result":{"content":[{"type":"resource_link","uri":"x:1"}],"_meta":{"ui":{"resourceUri":"x:2"}}}}"#,
            r#"{"taskId":"x:","result":{"content":[{"type":"resource_link","uri":"a+x:1"}],"_meta":{"ui":{"resourceUri":"a+x:2"}}}}"#,
        );
    }

    #[test]
    fn what_is_of_another_shape_stays() {
        for (answer, result) in [
            (Answer::Call, r#"{"content":"uri"}"#),
            (
                Answer::Call,
                r#"{"content":[1,{"type":"resource_link","uri":1},{"type":"resource","resource":"uri"}],"_meta":[]}"#,
            ),
            (Answer::Prompt, r#"{"messages":[1,{"content":"x:uri"},{}]}"#),
            (Answer::Contents, r#"{"contents":{"uri":"x:1"}}"#),
            (Answer::Task, r#"{"result":"uri"}"#),
        ] {
            check(answer, result, result);
        }
    }
}
