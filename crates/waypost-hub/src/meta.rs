//! Search mode: serves the tools that stand for all others.
//!
//! What they find, describe and call is what the view shows; nothing here looks past its filters.
//! A call through them becomes the call that it stands for before it is routed, so that tasks,
//! questions, progress and errors are those of a direct one.

pub(crate) mod answer;

use std::sync::Arc;

use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use crate::call::{Call, View};
use crate::catalog::Catalog;
use crate::catalog::entry::{Entry, Kind};
use crate::error::{CallError, Kind as ErrorKind};
use crate::hub::Hub;
use crate::reply::Reply;
use crate::router::required;
use crate::search::meta::{Act, LIMIT, LIMIT_MOST, MetaTool};

/// Serves a `tools/call` of a view that is searched.
///
/// # Errors
/// [`ErrorKind::UnknownTarget`] for any name but those of the gateway's own tools; what the call
/// that one of them stands for reports.
pub(crate) async fn serve(hub: Arc<Hub>, call: Box<Call>) -> Result<Reply, CallError> {
    let name = required(&call.params, "name")?;
    let Some(tool) = MetaTool::named(&name) else {
        return Err(CallError::unknown(format!(
            "unknown tool `{}`: hint: look for tools with `find_tools`, use them with `call_tool`",
            clip(&name, NAME)
        )));
    };
    let arguments = match call.params.get("arguments").filter(|raw| !raw.is_null()) {
        None => Object::new(),
        Some(raw) => match raw.as_object() {
            Ok(arguments) => arguments,
            Err(wrong) => return Ok(answer::refusal(&format!("`arguments`: {wrong}"))),
        },
    };
    match tool.act {
        Act::Find => find(&hub, &call, tool.kind, &arguments).await,
        Act::Describe => describe(&hub, &call, tool.kind, &arguments).await,
        Act::Use => Box::pin(make(hub, call, tool.kind, arguments)).await,
    }
}

/// Makes the call that this one stands for: its name and arguments take the place of ours, byte
/// for byte, and everything else stays.
async fn make(
    hub: Arc<Hub>,
    mut call: Box<Call>,
    kind: Kind,
    mut arguments: Object,
) -> Result<Reply, CallError> {
    let key = kind.name_member();
    let Some(name) = arguments.remove(key).filter(Raw::is_string) else {
        return Ok(answer::missing(key));
    };
    call.params.remove("name");
    call.params.remove("arguments");
    call.params.set(key, name);
    if let Some(inner) = arguments.remove("arguments") {
        call.params.set("arguments", inner);
    }
    // Which parameters travel in headers is not to be seen in the list that the client has.
    call.headers.absent = true;
    match kind {
        Kind::Tool => Box::pin(hub.tool(call)).await,
        Kind::Prompt => {
            method::PROMPTS_GET.clone_into(&mut call.method);
            let reply = Box::pin(hub.prompt(*call)).await?;
            reply.map_end(answer::from_prompt)
        }
        Kind::Resource | Kind::Template => {
            method::RESOURCES_READ.clone_into(&mut call.method);
            let reply = Box::pin(hub.resource(*call)).await?;
            reply.map_end(answer::from_resource)
        }
    }
}

async fn describe(
    hub: &Arc<Hub>,
    call: &Call,
    kind: Kind,
    arguments: &Object,
) -> Result<Reply, CallError> {
    let key = kind.name_member();
    let Some(name) = arguments.string(key) else {
        return Ok(answer::missing(key));
    };
    let template = || {
        hub.catalog()
            .find(Kind::Template, &call.view, &name)
            .cloned()
    };
    let found = match template().filter(|_| kind == Kind::Resource) {
        Some(entry) => Ok(entry),
        None => Box::pin(hub.find(kind, call, &name)).await,
    };
    match found {
        Ok(entry) => Ok(answer::definition(&entry)),
        // The model can look for another one; it would not see an error of the protocol.
        Err(error) if error.kind == ErrorKind::UnknownTarget => {
            Ok(answer::refusal(error.detail.as_deref().unwrap_or_default()))
        }
        Err(error) => Err(error),
    }
}

async fn find(
    hub: &Arc<Hub>,
    call: &Call,
    kind: Kind,
    arguments: &Object,
) -> Result<Reply, CallError> {
    let Some(query) = arguments.string("query") else {
        return Ok(answer::missing("query"));
    };
    let limit = match arguments.get("limit").filter(|raw| !raw.is_null()) {
        None => LIMIT,
        Some(limit) => match limit.as_i64() {
            Some(limit) => usize::try_from(limit).unwrap_or(1).clamp(1, LIMIT_MOST),
            None => return Ok(answer::refusal("`limit` must be a whole number")),
        },
    };
    hub.first_look(&call.view).await;
    let catalog = hub.catalog();
    let wanted = arguments.string("upstream");
    let upstream = match wanted.as_deref() {
        None => None,
        Some(name) => match shown(&catalog, &call.view, name) {
            Some(upstream) => Some(upstream),
            None => return Ok(answer::no_upstream(&catalog, &call.view, name)),
        },
    };
    let kinds: &[Kind] = match kind {
        Kind::Resource | Kind::Template => &[Kind::Resource, Kind::Template],
        Kind::Tool | Kind::Prompt => &[kind],
    };
    let mut all = Vec::new();
    for kind in kinds {
        make_index(&catalog, *kind, &call.view).await;
        let found = search(&catalog, *kind, call, (&query, limit, upstream.as_deref()));
        all.push((*kind, found));
    }
    Ok(answer::found(&all))
}

/// The upstream of this name, or with it among its former ones, if the view shows it.
fn shown(catalog: &Catalog, view: &View, name: &str) -> Option<Arc<str>> {
    let member = catalog.member(name)?;
    let shown = catalog.shown(view).any(|shown| Arc::ptr_eq(shown, member));
    shown.then(|| Arc::clone(&member.name))
}

/// Indexes what was not searched yet since it changed. Thousands of definitions take a while to
/// read, and the thread may have calls to look after.
async fn make_index(catalog: &Catalog, kind: Kind, view: &View) {
    let table = catalog.table_of(kind, view);
    let Some(table) = table.filter(|table| !table.is_indexed()).cloned() else {
        return;
    };
    let made = tokio::task::spawn_blocking(move || table.index().len());
    // Should it fail, whoever searches makes it.
    drop(made.await);
}

/// What a view has for a query: at most so many, of all upstreams or one.
fn search(
    catalog: &Catalog,
    kind: Kind,
    call: &Call,
    (query, limit, upstream): (&str, usize, Option<&str>),
) -> Vec<Arc<Entry>> {
    let Some(table) = catalog.table_of(kind, &call.view) else {
        return Vec::new();
    };
    let entries: Vec<&Arc<Entry>> = table.entries().collect();
    let of_upstream = |at: usize| {
        let entry = entries.get(at);
        upstream.is_none_or(|name| entry.is_some_and(|entry| entry.is_of(name)))
    };
    let hits = table.index().search_among(query, limit, of_upstream);
    let found = hits.iter().filter_map(|hit| entries.get(hit.document));
    found.map(|entry| Arc::clone(entry)).collect()
}
