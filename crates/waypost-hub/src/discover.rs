//! `server/discover`: all upstreams as one server.

use serde_json::{Map, Value, json};
use waypost_config::config::{ExposedExtension, TaskPolicy};
use waypost_wire::capability::TASKS;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, RESULT_TYPE, TTL_MS};
use waypost_wire::version;

use crate::call::View;
use crate::catalog::Catalog;
use crate::reply::Reply;

/// MCP Apps: carried without further settings, its resources are ordinary ones.
const UI: &str = "io.modelcontextprotocol/ui";

/// How long a client may keep the answer. What changes it comes without a notification.
const TTL: u64 = 5_000;

/// Bytes of one upstream's instructions, and of all together.
const MAX_INSTRUCTIONS: usize = 4 << 10;
const MAX_ALL_INSTRUCTIONS: usize = 16 << 10;

/// The union of what a view's upstreams can do.
pub(crate) fn answer(
    catalog: &Catalog,
    view: &View,
    with_instructions: bool,
    expose: &[ExposedExtension],
) -> Reply {
    let mut capabilities = capabilities(catalog, view);
    let extensions = extensions(catalog, view, expose);
    if !extensions.is_empty() {
        capabilities.set("extensions", extensions.into());
    }
    let mut result: Object = [
        (
            "supportedVersions",
            Raw::from_serialize(version::MODERN_VERSIONS),
        ),
        ("capabilities", capabilities.into()),
        (RESULT_TYPE, Raw::string("complete")),
        (TTL_MS, Raw::from_serialize(&TTL)),
        (CACHE_SCOPE, Raw::string("private")),
    ]
    .into_iter()
    .collect();
    if with_instructions && let Some(text) = instructions(catalog, view) {
        result.set("instructions", Raw::string(&text));
    }
    Reply::complete(result)
}

/// Whether any upstream of the view has a capability. Tools are always there: an upstream that
/// comes up later brings them, and a client that was told "none" would never ask.
pub(crate) fn offers(catalog: &Catalog, view: &View, capability: &str) -> bool {
    capability == "tools"
        || catalog
            .shown(view)
            .any(|m| m.learned().is_some_and(|l| l.has(capability)))
}

fn capabilities(catalog: &Catalog, view: &View) -> Object {
    let mut all = Map::new();
    for name in ["tools", "prompts", "resources", "completions", "logging"] {
        if !offers(catalog, view, name) {
            continue;
        }
        all.insert(
            name.to_owned(),
            match name {
                // The gateway itself tells of changes, whichever upstream they come from.
                "tools" | "prompts" => json!({ "listChanged": true }),
                "resources" => {
                    json!({ "listChanged": true, "subscribe": subscribes(catalog, view) })
                }
                _ => json!({}),
            },
        );
    }
    Raw::from(&Value::Object(all))
        .as_object()
        .unwrap_or_default()
}

fn subscribes(catalog: &Catalog, view: &View) -> bool {
    catalog
        .shown(view)
        .filter_map(|m| m.learned())
        .any(|learned| {
            let resources = learned.facts.capabilities.get("resources");
            let resources = resources.and_then(|raw| raw.as_object().ok());
            resources
                .and_then(|r| r.get("subscribe").and_then(Raw::as_bool))
                .unwrap_or_default()
        })
}

fn extensions(catalog: &Catalog, view: &View, expose: &[ExposedExtension]) -> Object {
    let mut all = Object::new();
    let tasks = catalog.shown(view).any(|member| {
        let shown = matches!(
            member.settings.tasks,
            TaskPolicy::Auto | TaskPolicy::Passthrough
        );
        shown && member.has_tasks()
    });
    if tasks {
        // Exactly `{}`: a widely used client switches tasks off for anything else.
        all.set(TASKS, Raw::empty_object());
    }
    let carried = std::iter::once(UI).chain(expose.iter().map(|e| e.id.as_str()));
    for id in carried {
        for member in catalog.shown(view) {
            let Some(settings) = member
                .learned()
                .and_then(|l| l.extensions().get(id).cloned())
            else {
                continue;
            };
            match all.get(id) {
                None => all.set(id, settings),
                Some(first) if *first == settings => {}
                Some(_) => tracing::warn!(
                    upstream = &*member.name,
                    extension = id,
                    "its settings differ from an earlier upstream's, which are shown"
                ),
            }
        }
    }
    all
}

fn instructions(catalog: &Catalog, view: &View) -> Option<String> {
    let mut all = String::new();
    for member in catalog.shown(view) {
        let Some(text) = member.learned().and_then(|l| l.facts.instructions.clone()) else {
            continue;
        };
        let text: String = clip(text.trim(), MAX_INSTRUCTIONS);
        if text.is_empty() || all.len() + text.len() > MAX_ALL_INSTRUCTIONS {
            continue;
        }
        if !all.is_empty() {
            all.push_str("\n\n");
        }
        all.push_str(&format!("## {}\n\n{text}", member.name));
    }
    (!all.is_empty()).then_some(all)
}

fn clip(text: &str, limit: usize) -> String {
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= limit);
    text.get(..end.last().unwrap_or(0))
        .unwrap_or_default()
        .to_owned()
}
