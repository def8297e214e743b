//! What the tools of search mode answer.

use std::sync::Arc;

use waypost_wire::meta::META;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::RESULT_TYPE;
use waypost_wire::text::{NAME, clip};

use crate::call::View;
use crate::catalog::Catalog;
use crate::catalog::entry::{Entry, Kind};
use crate::error::CallError;
use crate::finish;
use crate::reply::{End, Reply};

/// What of a definition helps nobody to choose; `describe_tool` has it.
const LEFT_OUT: [&str; 4] = ["outputSchema", "icons", "execution", META];

/// The best ones of each kind, with their schemas.
pub(super) fn found(all: &[(Kind, Vec<Arc<Entry>>)]) -> Reply {
    let lists = all.iter().map(|(kind, entries)| {
        let entries: Vec<Raw> = entries.iter().map(|entry| short(entry)).collect();
        (kind.list_member(), Raw::array(&entries))
    });
    let mut result: Object = lists.collect();
    if all.iter().all(|(_, entries)| entries.is_empty()) {
        let hint = "nothing has a word of this query: say it in other words";
        result.set("hint", Raw::string(hint));
    }
    structured(result.into())
}

fn short(entry: &Entry) -> Raw {
    let Ok(mut definition) = entry.definition.as_object() else {
        return entry.definition.clone();
    };
    for member in LEFT_OUT {
        definition.remove(member);
    }
    definition.into()
}

/// One definition, as a list would have it.
pub(super) fn definition(entry: &Entry) -> Reply {
    structured(entry.definition.clone())
}

/// A JSON object, and its text for clients that look at that only.
fn structured(object: Raw) -> Reply {
    let text = text(object.text());
    own([
        ("content", Raw::array([&text])),
        ("structuredContent", object),
    ])
}

/// What the model did wrong, where it can see it and try again.
pub(crate) fn refusal(why: &str) -> Reply {
    own([
        ("content", Raw::array([&text(why)])),
        ("isError", Raw::bool(true)),
    ])
}

/// A refusal of arguments without this one.
pub(super) fn missing(argument: &str) -> Reply {
    refusal(&format!("`{argument}` is missing or no string"))
}

/// A refusal of an upstream that the view does not show.
pub(super) fn no_upstream(catalog: &Catalog, view: &View, name: &str) -> Reply {
    let all: Vec<String> = catalog
        .shown(view)
        .map(|member| format!("`{}`", member.name))
        .collect();
    refusal(&format!(
        "no server `{}` here: hint: leave `upstream` out, or give one of {}",
        clip(name, NAME),
        all.join(", ")
    ))
}

fn own<const N: usize>(members: [(&str, Raw); N]) -> Reply {
    let mut result: Object = members.into_iter().collect();
    result.set(RESULT_TYPE, Raw::string("complete"));
    finish::own(Reply::complete(result))
}

fn text(text: &str) -> Raw {
    let block: Object = [("type", Raw::string("text")), ("text", Raw::string(text))]
        .into_iter()
        .collect();
    block.into()
}

/// The result of `prompts/get` as that of a tool: what the messages hold, and with who says it as
/// structured content.
#[expect(clippy::unnecessary_wraps, reason = "as `Reply::map_end` wants it")]
pub(super) fn from_prompt(end: End) -> Result<End, CallError> {
    let End::Complete(mut result) = end else {
        return Ok(end);
    };
    let messages = result.get("messages").and_then(Raw::as_array);
    let blocks = messages
        .unwrap_or_default()
        .into_iter()
        .flat_map(|message| {
            let content = message
                .as_object()
                .ok()
                .and_then(|mut m| m.remove("content"));
            // In some versions of the protocol it was a list.
            content.map_or_else(Vec::new, |one| one.as_array().unwrap_or_else(|| vec![one]))
        });
    let blocks: Vec<Raw> = blocks.collect();
    let (meta, kind) = (result.remove(META), result.remove(RESULT_TYPE));
    let members = [
        Some(("content", Raw::array(&blocks))),
        Some(("structuredContent", result.into())),
        kind.map(|kind| (RESULT_TYPE, kind)),
        meta.map(|meta| (META, meta)),
    ];
    Ok(End::Complete(members.into_iter().flatten().collect()))
}

/// The result of `resources/read` as that of a tool: each of the contents as an embedded resource.
#[expect(clippy::unnecessary_wraps, reason = "as `Reply::map_end` wants it")]
pub(super) fn from_resource(end: End) -> Result<End, CallError> {
    let End::Complete(mut result) = end else {
        return Ok(end);
    };
    let contents = result.get("contents").and_then(Raw::as_array);
    let blocks = contents.unwrap_or_default().into_iter().map(|one| {
        let block: Object = [("type", Raw::string("resource")), ("resource", one)]
            .into_iter()
            .collect();
        block.into()
    });
    let blocks: Vec<Raw> = blocks.collect();
    let (meta, kind) = (result.remove(META), result.remove(RESULT_TYPE));
    let members = [
        Some(("content", Raw::array(&blocks))),
        kind.map(|kind| (RESULT_TYPE, kind)),
        meta.map(|meta| (META, meta)),
    ];
    Ok(End::Complete(members.into_iter().flatten().collect()))
}
