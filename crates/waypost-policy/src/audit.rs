//! One line for each call: who, what, how it ended. Refusals of the layers below are among them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_util::{Stream, StreamExt as _};
use tower::{Layer, Service};
use tracing::Span;
use waypost_hub::call::{Call, Comeback, Principal, View};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event, EventStream, Reply};
use waypost_hub::search::meta;
use waypost_hub::upstream::CallFuture;
use waypost_wire::method;
use waypost_wire::text::{NAME, clip};

use crate::event::CallAudited;

/// Writes an audit line, target `waypost::audit`, when a call ends or is given up.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditLayer;

/// The service that [`AuditLayer`] makes.
#[derive(Clone, Debug)]
pub struct Audit<S> {
    inner: S,
}

/// What the line will say. Dropping it writes the line.
struct Line {
    request_id: Arc<str>,
    principal: Principal,
    view: View,
    method: String,
    target: String,
    outcome: &'static str,
    code: Option<i64>,
    /// It waits beside questions that are open.
    listens: bool,
    started: Instant,
    /// The request's, which knows the upstream once the hub does.
    span: Span,
}

/// A reply's stream that knows its line.
struct Audited {
    events: EventStream,
    line: Line,
}

// === impl AuditLayer ===

impl<S> Layer<S> for AuditLayer {
    type Service = Audit<S>;

    fn layer(&self, inner: S) -> Audit<S> {
        Audit { inner }
    }
}

// === impl Audit ===

impl<S> Service<Call> for Audit<S>
where
    S: Service<Call, Response = Reply, Error = CallError>,
    S::Future: Send + 'static,
{
    type Response = Reply;
    type Error = CallError;
    type Future = CallFuture<'static>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> CallFuture<'static> {
        let line = Line::of(&call);
        let reply = self.inner.call(call);
        let Some(mut line) = line else {
            return Box::pin(reply);
        };
        Box::pin(async move {
            match reply.await {
                Err(error) => {
                    line.failed(&error);
                    Err(error)
                }
                Ok(Reply::End(end)) => {
                    line.ended(&end);
                    Ok(Reply::End(end))
                }
                Ok(Reply::Stream(events)) => Ok(Reply::Stream(Audited { events, line }.boxed())),
            }
        })
    }
}

// === impl Line ===

impl Line {
    /// `None` where nobody would read it: then nothing is copied for it either.
    fn of(call: &Call) -> Option<Self> {
        CallAudited::is_wanted().then(|| Self {
            request_id: Arc::clone(&call.request_id),
            principal: call.principal.clone(),
            view: call.view.clone(),
            method: clip(&call.method, NAME).into_owned(),
            target: target(call),
            outcome: "cancelled",
            code: None,
            listens: call.comeback == Comeback::Listens,
            started: Instant::now(),
            span: Span::current(),
        })
    }

    fn ended(&mut self, end: &End) {
        self.outcome = end.word();
        if let End::Error(error) = end {
            self.code = Some(error.code());
        }
    }

    fn failed(&mut self, error: &CallError) {
        self.outcome = error.kind.as_str();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The questions have their line, and so has what comes of the answers.
        if self.listens && matches!(self.outcome, "cancelled" | "input_required") {
            return;
        }
        let line = CallAudited {
            request_id: &self.request_id,
            principal: self.principal.as_str(),
            view: self.view.name(),
            method: &self.method,
            target: Some(&*self.target).filter(|target| !target.is_empty()),
            outcome: self.outcome,
            code: self.code,
            took: self.started.elapsed(),
        };
        // The end of a stream is reached outside of the request's span.
        self.span.in_scope(|| line.emit());
    }
}

/// What is called. Of a task's handle only the upstream: who has the rest has the task. What is no
/// handle may be one that was mangled.
fn target(call: &Call) -> String {
    let member = method::name_member(&call.method);
    let name = member.and_then(|member| call.params.string(member));
    let name = name.unwrap_or_default();
    if member == Some("taskId") {
        let upstream = name.split_once('~').map(|(upstream, _)| upstream);
        clip(upstream.unwrap_or_default(), NAME).into_owned()
    } else if let Some(inner) = through(call) {
        // In search mode the name alone would say nothing.
        format!("{name} {}", clip(&inner, NAME))
    } else {
        clip(&name, NAME).into_owned()
    }
}

fn through(call: &Call) -> Option<String> {
    let is_tool = call.method == method::TOOLS_CALL;
    is_tool.then(|| meta::target(&call.params)).flatten()
}

// === impl Audited ===

impl Stream for Audited {
    type Item = Result<Event, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = ready!(self.events.poll_next_unpin(cx));
        match &event {
            Some(Ok(Event::End(end))) => self.line.ended(end),
            Some(Err(error)) => self.line.failed(error),
            Some(Ok(Event::Notification(_))) | None => {}
        }
        Poll::Ready(event)
    }
}

#[cfg(test)]
mod tests;
