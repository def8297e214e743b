//! From what was written to what is meant: every rule that is about more than a key's type.

mod access;
mod endpoint;
mod family;
mod names;
mod reach;
mod settings;
mod shaping;
mod upstream;

use std::path::Path;
use std::sync::LazyLock;

use crate::check;
use crate::config::{Auth, Config};
use crate::node::Node;
use crate::path::KeyPath;
use crate::problem::{Problem, Report};
use crate::raw::Raw;
use crate::shape::{self, Shape};

static SHAPE: LazyLock<Shape> = LazyLock::new(shape::root);

/// Checks everything and gives all problems; the configuration only if none is an error.
pub(crate) fn compile(root: &Node, folder: &Path) -> (Option<Config>, Vec<Problem>) {
    let mut report = Report::new(root);
    let json = check::fit(&SHAPE, root, &mut report);
    let config = match serde_json::from_str::<Raw>(&json) {
        Ok(raw) => Some(config(raw, folder, &mut report)),
        Err(_) => {
            // What fits the shape can be read, as the shape is made from the raw structs.
            report.error(&KeyPath::default(), "the settings cannot be read");
            None
        }
    };
    let failed = report.has_errors();
    (config.filter(|_| !failed), report.into_problems())
}

/// Whether the file may have this key at its top.
pub(crate) fn is_top_level(key: &str) -> bool {
    matches!(&*SHAPE, Shape::Keys(keys) if keys.iter().any(|known| known.name == key))
}

/// The settings whose names are known, those of single upstreams being none.
pub(crate) fn plain_keys() -> Vec<Vec<&'static str>> {
    fn below(shape: &'static Shape, path: &[&'static str], all: &mut Vec<Vec<&'static str>>) {
        let Shape::Keys(keys) = shape else {
            return all.push(path.to_vec());
        };
        for key in keys {
            below(&key.shape, &[path, &[key.name.as_str()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    below(&SHAPE, &[], &mut all);
    all
}

fn config(raw: Raw, folder: &Path, report: &mut Report<'_>) -> Config {
    let top = KeyPath::default();
    let listen = access::address(&raw.listen, &top.key("listen"), report);
    let admin = access::address(&raw.admin.listen, &top.key("admin").key("listen"), report);
    let auth = Auth {
        keys: access::keys(&raw.auth.keys, &top.key("auth").key("keys"), report),
    };
    access::exposure(&raw, listen, admin, report);
    let page_size = endpoint::page_size(raw.page_size, &top.key("page_size"), report);
    let servers = raw.upstreams.0.iter().map(|(name, _)| name);
    let servers = servers.chain(raw.mcp_servers.0.iter().map(|(name, _)| name));
    let declared: Vec<String> = servers.cloned().collect();
    let upstreams = upstream::all(raw.upstreams, raw.mcp_servers, folder, report);
    let above = (page_size, raw.discovery);
    let endpoints = endpoint::all(raw.endpoints, (&declared, &upstreams), above, report);
    endpoint::bound(
        &raw.auth.keys,
        &endpoints,
        &top.key("auth").key("keys"),
        report,
    );
    Config {
        listen,
        admin,
        admin_token: access::admin_token(raw.admin.token, report),
        auth,
        front: settings::front(raw.front, &top.key("front"), report),
        limits: settings::limits(&raw.limits, &top.key("limits"), report),
        naming: settings::naming(&raw.naming, &top.key("naming"), report),
        tasks: settings::tasks(&raw.tasks, &top.key("tasks"), report),
        cache: settings::cache(&raw.cache, &top.key("cache"), report),
        state: settings::state(raw.state, folder, &top.key("state"), report),
        log: settings::log(raw.log, &top.key("log"), report),
        drain_grace: settings::duration_or_zero(&raw.drain_grace, &top.key("drain_grace"), report),
        instructions: raw.instructions,
        extensions_expose: settings::extensions(
            raw.extensions,
            &top.key("extensions").key("expose"),
            report,
        ),
        reload: raw.reload,
        page_size,
        discovery: raw.discovery,
        upstreams,
        endpoints,
    }
}
