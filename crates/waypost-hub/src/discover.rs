//! `server/discover`: all upstreams as one server.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_config::config::{ExposedExtension, TaskPolicy};
use waypost_wire::capability::TASKS;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::{CACHE_SCOPE, RESULT_TYPE, TTL_MS};
use waypost_wire::text::clip;
use waypost_wire::version;

use crate::call::View;
use crate::catalog::Catalog;
use crate::catalog::build::Warning;
use crate::member::Member;
use crate::reply::Reply;

/// MCP Apps: carried without further settings, its resources are ordinary ones.
const UI: &str = "io.modelcontextprotocol/ui";

/// How long a client may keep the answer. What changes it comes without a notification.
const TTL: u64 = 5_000;

/// Characters of one upstream's instructions.
const MAX_INSTRUCTIONS: usize = 4 << 10;
/// Bytes of all together.
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
    for id in carried(expose) {
        for member in catalog.shown(view) {
            let Some(settings) = member
                .learned()
                .and_then(|l| l.extensions().get(id).cloned())
            else {
                continue;
            };
            // The first in the file's order; of others `conflicts` tells the operator.
            if !all.contains(id) {
                all.set(id, settings);
            }
        }
    }
    all
}

fn carried(expose: &[ExposedExtension]) -> impl Iterator<Item = &str> {
    std::iter::once(UI).chain(expose.iter().map(|e| e.id.as_str()))
}

/// Upstreams whose settings of an extension are not shown, because those of one before them
/// differ.
pub(crate) fn conflicts(members: &[Arc<Member>], expose: &[ExposedExtension]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for id in carried(expose) {
        let mut shown: Option<Raw> = None;
        for member in members.iter().filter(|m| !m.settings.disabled) {
            let learned = member.learned();
            let settings = learned.and_then(|l| l.extensions().get(id).cloned());
            let differs = |settings: &Raw| shown.as_ref().is_some_and(|first| first != settings);
            if settings.as_ref().is_some_and(differs) {
                warnings.push(Warning {
                    upstream: Arc::clone(&member.name),
                    text: format!(
                        "its settings of extension `{id}` differ from an earlier upstream's, \
                         which are shown"
                    ),
                });
            }
            shown = shown.or(settings);
        }
    }
    warnings
}

fn instructions(catalog: &Catalog, view: &View) -> Option<String> {
    let mut all = String::new();
    for member in catalog.shown(view) {
        let Some(text) = member.learned().and_then(|l| l.facts.instructions.clone()) else {
            continue;
        };
        let text = clip(text.trim(), MAX_INSTRUCTIONS);
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
