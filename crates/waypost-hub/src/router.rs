//! Why a call goes where it goes.

use std::sync::Arc;
use std::time::Duration;

use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::param;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

use crate::call::{Call, CallHeaders, View};
use crate::catalog::entry::{Entry, Kind};
use crate::catalog::{Missing, list};
use crate::error::{CallError, Kind as ErrorKind};
use crate::finish::{self, Asked, Caller};
use crate::forward;
use crate::hop;
use crate::hub::{Hub, is_unknown};
use crate::listen;
use crate::member::Member;
use crate::meta;
use crate::naming;
use crate::questions::{self, Made, Target};
use crate::reads::{Found, Missed};
use crate::reply::Reply;
use crate::upstream::CallFuture;
use crate::{carry, discover};

/// So many ways out of an ambiguity are told in words; all are in the error's data.
const WAYS: usize = 8;

impl Hub {
    /// Answers a call: from memory, or by one upstream or several.
    pub fn call(self: &Arc<Self>, mut call: Call) -> CallFuture<'static> {
        let hub = Arc::clone(self);
        carry::strip_extensions(&mut call, &self.makeup.load().expose);
        if let Some(kind) = Kind::of_list(&call.method) {
            return Box::pin(hub.list(kind, call));
        }
        match call.method.as_str() {
            method::TOOLS_CALL if hub.searches(&call.view) && !hub.goes_on(&call) => {
                Box::pin(meta::serve(hub, Box::new(call)))
            }
            method::TOOLS_CALL => Box::pin(hub.tool(Box::new(call))),
            method::TASKS_GET | method::TASKS_UPDATE | method::TASKS_CANCEL => {
                Box::pin(hub.task(call))
            }
            method::PROMPTS_GET => Box::pin(hub.prompt(call)),
            method::RESOURCES_READ => Box::pin(hub.resource(call)),
            method::COMPLETE => Box::pin(hub.complete(call)),
            method::LISTEN => Box::pin(listen::open(hub, call)),
            method::DISCOVER => Box::pin(hub.discover(call)),
            _ => Box::pin(hub.exposed_method(call)),
        }
    }

    async fn discover(self: Arc<Self>, call: Call) -> Result<Reply, CallError> {
        self.first_look(&call.view).await;
        let catalog = self.catalog();
        let makeup = self.makeup();
        let (instructions, expose) = (makeup.instructions, &makeup.expose);
        let answer = discover::answer(&catalog, &call.view, instructions, expose);
        Ok(finish::own(answer))
    }

    async fn list(self: Arc<Self>, kind: Kind, call: Call) -> Result<Reply, CallError> {
        self.first_look(&call.view).await;
        let catalog = self.catalog();
        if !discover::offers(&catalog, &call.view, kind.capability()) {
            return Ok(method_not_found(&call.method));
        }
        let makeup = self.makeup.load();
        let desk = list::Desk {
            cursors: &self.cursors,
            by_caller: makeup.by_caller,
            ttl_most: makeup.list_ttl,
        };
        Ok(finish::own(list::answer(&catalog, kind, &call, desk)))
    }

    pub(crate) async fn tool(self: Arc<Self>, mut call: Box<Call>) -> Result<Reply, CallError> {
        let name = required(&call.params, "name")?;
        let (made, shown) = self.target(Kind::Tool, &call, &name).await?;
        let arguments = call.params.get("arguments").cloned();
        let (said, seen) = (&call.headers, shown.seen_params());
        if !said.absent
            && let Err(mismatch) = param::check(seen, arguments.as_ref(), &said.params)
        {
            let error = ErrorObject::new(code::HEADER_MISMATCH, &mismatch.to_string());
            return Ok(Reply::error(error));
        }
        let target = match self.choose(&name, shown, &mut call).await? {
            Ok(target) => target,
            Err(reply) => return Ok(reply),
        };
        if let Some(own) = &target.arguments {
            match own.complete(call.params.get("arguments")) {
                Ok(None) => {}
                Ok(Some(arguments)) => call.params.set("arguments", arguments),
                Err(bad) => {
                    let error = ErrorObject::new(code::INVALID_PARAMS, &bad.to_string());
                    return Ok(Reply::error(error));
                }
            }
        }
        call.params.set("name", Raw::string(&target.original));
        let caller = Caller::of(&call);
        let reply = hop::send(&self, &target.member, call, |call| {
            let (hub, target) = (Arc::clone(&self), &target);
            async move {
                let call = hub.with_param_headers(target, call)?;
                let Target {
                    member, original, ..
                } = target;
                hub.desk.call(member, original, *call).await
            }
        })
        .await?;
        let member = Arc::clone(&target.member);
        finish::from(reply, &member, caller.of_target(made, target), &self)
    }

    /// What a name stands for: where its caller comes back with an answer, what it stood for when it
    /// was asked.
    async fn target(
        &self,
        kind: Kind,
        call: &Call,
        name: &str,
    ) -> Result<(Made, Target), CallError> {
        let made = Made::of(call, kind, name);
        if questions::comes_back(call) {
            let current = self.catalog().find(kind, &call.view, name).cloned();
            let current = current.map(|entry| Target::of(&entry));
            let elsewhere = self.questions.elsewhere(call, &made, current.as_ref());
            if let Some(target) = elsewhere.or(current) {
                return Ok((made, target));
            }
        }
        let entry = self.find(kind, call, name).await?;
        Ok((made, Target::of(&entry)))
    }

    /// Whether a call goes on that was made when the view was not searched.
    fn goes_on(&self, call: &Call) -> bool {
        let name = call.params.string("name").unwrap_or_default();
        let made = Made::of(call, Kind::Tool, &name);
        self.questions.know(call, &made)
    }

    /// Repeats arguments in headers as the tool's schema wants it now.
    fn with_param_headers(
        &self,
        target: &Target,
        mut call: Box<Call>,
    ) -> Result<Box<Call>, CallError> {
        let catalog = self.catalog();
        let (member, original) = (&target.member, &target.original);
        let entry = catalog.of_member(Kind::Tool, &call.view, member, original);
        let declared = entry.map_or(&*target.params, |entry| &*entry.params);
        let headers = param::headers(declared, call.params.get("arguments"))
            .map_err(|e| CallError::unknown(format!("`arguments`: {e}")))?;
        let others = std::mem::take(&mut call.headers).params;
        let others = others
            .into_iter()
            .filter(|(n, _)| !declared.iter().any(|d| d.header == *n));
        call.headers = CallHeaders {
            params: headers.into_iter().chain(others).collect(),
            absent: false,
        };
        Ok(call)
    }

    pub(crate) async fn prompt(self: Arc<Self>, mut call: Call) -> Result<Reply, CallError> {
        let name = required(&call.params, "name")?;
        let (made, target) = self.target(Kind::Prompt, &call, &name).await?;
        let Target {
            member, original, ..
        } = target.clone();
        call.params.set("name", Raw::string(&original));
        let caller = Caller::of(&call).of_target(made, target);
        Box::pin(self.forward_for(caller, &member, call, Some(&original))).await
    }

    pub(crate) async fn resource(self: Arc<Self>, mut call: Call) -> Result<Reply, CallError> {
        let uri = required(&call.params, "uri")?;
        self.first_look(&call.view).await;
        let (member, original) = match self.owner(&call.view, &uri).await? {
            Ok(found) => found,
            Err(missing) => return Ok(Reply::error(no_resource(&uri, &missing))),
        };
        call.params.set("uri", Raw::string(&original));
        let found = self.reads.find(&member, &call, &original).await;
        let caller = Caller::of(&call).asked(Asked {
            exposed: uri,
            original,
        });
        let missed = match found {
            Found::Answer(result) => {
                return finish::from(Reply::complete(result), &member, caller, &self);
            }
            Found::Missed(missed) => Some(missed),
            Found::Nothing => None,
        };
        let lead = missed.as_ref().and_then(Missed::lead);
        let caller = caller.keeping(missed);
        let reply = Box::pin(self.forward_for(caller, &member, call, None)).await;
        if let (Err(_), Some(lead)) = (&reply, lead) {
            lead.end();
        }
        reply
    }

    async fn complete(self: Arc<Self>, mut call: Call) -> Result<Reply, CallError> {
        self.first_look(&call.view).await;
        if !discover::offers(&self.catalog(), &call.view, "completions") {
            return Ok(method_not_found(&call.method));
        }
        let reference = call.params.get("ref").and_then(|raw| raw.as_object().ok());
        let mut reference = reference.ok_or_else(|| missing("ref"))?;
        let member = match reference.string("type").as_deref() {
            Some("ref/prompt") => {
                let name = required(&reference, "name")?;
                let entry = self.find(Kind::Prompt, &call, &name).await?;
                reference.set("name", Raw::string(&entry.original));
                Arc::clone(&entry.member)
            }
            Some("ref/resource") => {
                let uri = required(&reference, "uri")?;
                let catalog = self.catalog();
                let template = catalog.find(Kind::Template, &call.view, &uri);
                let owner = match template {
                    Some(entry) => Ok((Arc::clone(&entry.member), entry.original.to_string())),
                    None => self.owner(&call.view, &uri).await?,
                };
                let (member, original) = match owner {
                    Ok(found) => found,
                    Err(missing) => return Ok(Reply::error(no_resource(&uri, &missing))),
                };
                reference.set("uri", Raw::string(&original));
                member
            }
            _ => {
                return Err(CallError::unknown(
                    "`ref.type` must be `ref/prompt` or `ref/resource`",
                ));
            }
        };
        call.params.set("ref", reference.into());
        Box::pin(self.forward(&member, call, None)).await
    }

    async fn task(self: Arc<Self>, call: Call) -> Result<Reply, CallError> {
        let handle = call.params.string("taskId").unwrap_or_default();
        self.await_tasks(&call, &[handle], Duration::MAX).await;
        let caller = Caller::of(&call);
        let send = |member: Arc<Member>, call| {
            let hub = &self;
            async move {
                let send = |call: Box<Call>| forward::send(&hub.background, &member, *call, None);
                Box::pin(hop::send(hub, &member, Box::new(call), send)).await
            }
        };
        let catalog = self.catalog();
        let (reply, member) = self.desk.tasks_method(&catalog, call, send).await?;
        match member {
            Some(member) => finish::from(reply, &member, caller, &self),
            None => Ok(reply),
        }
    }

    /// Waits while the upstream of one of these handles is still starting, as long as a call to
    /// it may take and no longer than `most`: a task outlives a restart of the gateway.
    pub(crate) async fn await_tasks(&self, call: &Call, handles: &[String], most: Duration) {
        if !call.meta.capabilities.has_tasks() {
            return;
        }
        let starting = || {
            let catalog = self.catalog();
            let lacking = handles
                .iter()
                .filter_map(|handle| self.desk.lacks(&catalog, call, handle));
            // In between it is known and not in the catalogue yet.
            let is_starting =
                |m: &Arc<Member>| is_unknown(m) || (m.learned().is_some() && !m.is_listed());
            lacking.filter(is_starting).map(|m| m.timeout(None)).max()
        };
        if let Some(patience) = starting() {
            let until = tokio::time::Instant::now() + patience.min(most);
            self.wait_until(until, || starting().is_none()).await;
        }
    }

    /// A method of an extension that the file exposes: the first upstream that advertises it.
    async fn exposed_method(self: Arc<Self>, call: Call) -> Result<Reply, CallError> {
        let makeup = self.makeup();
        let exposing = makeup
            .expose
            .iter()
            .find(|e| e.methods.contains(&call.method));
        let Some(extension) = exposing else {
            return Ok(method_not_found(&call.method));
        };
        let catalog = self.catalog();
        let has = |m: &&Arc<Member>| {
            m.learned()
                .is_some_and(|l| l.extensions().contains(&extension.id))
        };
        let member = catalog.shown(&call.view).find(has).cloned();
        match member {
            Some(member) => Box::pin(self.forward(&member, call, None)).await,
            None => Ok(method_not_found(&call.method)),
        }
    }

    /// Sends a call that can never become a task.
    async fn forward(
        self: &Arc<Self>,
        member: &Arc<Member>,
        call: Call,
        target: Option<&str>,
    ) -> Result<Reply, CallError> {
        let caller = Caller::of(&call);
        Box::pin(self.forward_for(caller, member, call, target)).await
    }

    async fn forward_for(
        self: &Arc<Self>,
        caller: Caller,
        member: &Arc<Member>,
        mut call: Call,
        target: Option<&str>,
    ) -> Result<Reply, CallError> {
        let caller = caller.without_tasks();
        call.meta.capabilities = call.meta.capabilities.without_tasks();
        call.headers = CallHeaders::default();
        let target = target.map(str::to_owned);
        let reply = hop::send(self, member, Box::new(call), |call| {
            let (hub, member, target) = (Arc::clone(self), Arc::clone(member), target.clone());
            async move {
                hub.desk
                    .stateful(&member, *call, |call| async {
                        let send = forward::send(&hub.background, &member, call, target.as_deref());
                        Box::pin(send).await
                    })
                    .await
            }
        })
        .await?;
        finish::from(reply, member, caller, self)
    }

    /// Whose a resource is, and what it is called there. One that may belong to an upstream which
    /// is still starting waits for it as long as a call to it may take.
    async fn owner(
        &self,
        view: &View,
        uri: &str,
    ) -> Result<Result<(Arc<Member>, String), Missing>, CallError> {
        let look = || self.catalog().resource_owner(view, uri);
        if let Some(patience) = self.awaited(view, uri) {
            let until = tokio::time::Instant::now() + patience;
            let is_over = || self.awaited(view, uri).is_none();
            Box::pin(self.wait_until(until, is_over)).await;
        }
        let found = look();
        let Err(Missing::Unheard {
            unheard,
            candidates,
        }) = &found
        else {
            return Ok(found);
        };
        let catalog = self.catalog();
        let members = || unheard.iter().filter_map(|name| catalog.member(name));
        if let Some(member) = members().find(|m| is_unknown(m)) {
            return Err(still_starting(member));
        }
        match (candidates.as_slice(), members().next()) {
            ([_], Some(member)) => Err(never_heard(member)),
            // Each can be asked for by its name.
            _ => Ok(Err(Missing::Ambiguous(candidates.clone()))),
        }
    }

    /// Waits no longer than `most` while an upstream is still starting that may have one of these.
    pub(crate) async fn await_owners(&self, view: &View, uris: &[String], most: Duration) {
        if uris.is_empty() {
            return;
        }
        self.first_look(view).await;
        let until = tokio::time::Instant::now() + most;
        let is_over = || uris.iter().all(|uri| self.awaited(view, uri).is_none());
        self.wait_until(until, is_over).await;
    }

    /// How long to wait for those that are still starting and may have this resource; `None` is
    /// not at all.
    fn awaited(&self, view: &View, uri: &str) -> Option<Duration> {
        let catalog = self.catalog();
        let Err(Missing::Unheard { unheard, .. }) = catalog.resource_owner(view, uri) else {
            return None;
        };
        let members = unheard.iter().filter_map(|name| catalog.member(name));
        // In between it is known and not in the catalogue yet.
        let is_starting = |m: &&Arc<Member>| is_unknown(m) || m.learned().is_some();
        members.filter(is_starting).map(|m| m.timeout(None)).max()
    }

    /// What the view shows under `name`. A name that may belong to an upstream which is still
    /// starting waits for it as long as a call to it may take.
    pub(crate) async fn find(
        &self,
        kind: Kind,
        call: &Call,
        name: &str,
    ) -> Result<Arc<Entry>, CallError> {
        let found = || self.catalog().find(kind, &call.view, name).cloned();
        if let Some(entry) = found() {
            return Ok(entry);
        }
        let catalog = self.catalog();
        let prefixed = |m: &Arc<Member>| catalog.may_name(&call.view, m, name);
        let could = |m: &&Arc<Member>| is_unknown(m) && prefixed(m);
        let patience = catalog
            .shown(&call.view)
            .filter(could)
            .map(|m| m.timeout(None))
            .max();
        if let Some(patience) = patience {
            let until = tokio::time::Instant::now() + patience;
            let nobody = || !catalog.shown(&call.view).any(|m| could(&m));
            Box::pin(self.wait_until(until, || found().is_some() || nobody())).await;
        }
        if let Some(entry) = found() {
            return Ok(entry);
        }
        if let Some(member) = catalog.shown(&call.view).find(could) {
            return Err(still_starting(member));
        }
        let never = |m: &&Arc<Member>| m.learned().is_none() && prefixed(m);
        if let Some(member) = catalog.shown(&call.view).find(never) {
            return Err(never_heard(member));
        }
        let unread = |m: &&Arc<Member>| m.is_unread(kind) && prefixed(m);
        match catalog.shown(&call.view).find(unread) {
            Some(member) => Err(self::unread(kind, member)),
            None => Err(CallError::unknown(format!(
                "unknown {} `{}`",
                word(kind),
                clip(name, NAME)
            ))),
        }
    }
}

/// A list of it is not known, so nobody can say that something is not in it.
pub(crate) fn unread(kind: Kind, member: &Member) -> CallError {
    CallError::upstream(ErrorKind::Unavailable, &member.name)
        .detail(format!("its list of {}s could not be read yet", word(kind)))
        .retryable()
}

pub(crate) fn still_starting(member: &Member) -> CallError {
    CallError::upstream(ErrorKind::Unavailable, &member.name)
        .detail("still starting")
        .retryable()
}

pub(crate) fn never_heard(member: &Member) -> CallError {
    let error = CallError::upstream(ErrorKind::Unavailable, &member.name).retryable();
    match member.status.report().last_error {
        Some(last) => error.detail(format!("nothing is known of it yet: {last}")),
        None => error.detail("nothing is known of it yet"),
    }
}

/// A text member that the method cannot do without.
pub(crate) fn required(params: &Object, member: &'static str) -> Result<String, CallError> {
    params.string(member).ok_or_else(|| missing(member))
}

fn missing(member: &str) -> CallError {
    CallError::unknown(format!("`params.{member}` is missing or of the wrong kind"))
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool",
        Kind::Prompt => "prompt",
        Kind::Resource | Kind::Template => "resource",
    }
}

fn method_not_found(method: &str) -> Reply {
    let message = format!("method `{}` not found", clip(method, NAME));
    Reply::error(ErrorObject::new(code::METHOD_NOT_FOUND, &message))
}

fn no_resource(uri: &str, missing: &Missing) -> ErrorObject {
    let said = clip(uri, NAME);
    let (message, data) = match missing {
        Missing::Unknown => (
            format!("no upstream has the resource `{said}`"),
            serde_json::json!({ "uri": uri }),
        ),
        Missing::Ambiguous(names)
        | Missing::Unheard {
            candidates: names, ..
        } => {
            let forms = names.iter().map(|name| naming::qualified_uri(name, uri));
            let forms: Vec<String> = forms.collect();
            let ways = forms.iter().take(WAYS);
            let ways: Vec<_> = ways.map(|form| format!("`{}`", clip(form, NAME))).collect();
            let more = if forms.len() > WAYS {
                ", or another"
            } else {
                ""
            };
            (
                format!(
                    "several upstreams could have the resource `{said}`: hint: name one with {}{more}",
                    ways.join(" or ")
                ),
                serde_json::json!({ "uri": uri, "candidates": forms }),
            )
        }
    };
    ErrorObject::with_data(code::INVALID_PARAMS, &message, &data)
}
