//! A stateless request: one POST, whose stream is the request; closing it gives the request up.

use bytes::Bytes;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Outcome, Request};
use waypost_wire::meta::{META, PROGRESS_TOKEN, PROTOCOL_VERSION};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::result::ResultType;

use super::fault::Fault;
use super::link;
use super::{Answer, Read, Way};
use crate::in_flight::Slot;
use crate::stdio::unanswered::Begun;

/// Pages of one list; no sane one has more.
const MOST_PAGES: usize = 100;

/// A request on its way.
#[derive(Debug)]
pub(super) struct Call {
    way: Way,
    request: Request,
    version: String,
    /// What the host wrote.
    line: Bytes,
}

impl Call {
    pub(super) fn new(way: &Way, request: Request, meta: &Object, line: Bytes) -> Self {
        Self {
            way: way.clone(),
            version: meta.string(PROTOCOL_VERSION).unwrap_or_default(),
            request,
            line,
        }
    }

    /// To its answer. Cancelled, the daemon sees the connection close.
    pub(super) async fn run(self, slot: Slot) {
        let Request { method, params, .. } = &self.request;
        let begun = self.way.unanswered.begins(method, params);
        let cancelled = slot.cancelled().clone();
        let Some(end) = cancelled.run_until_cancelled(self.to_end()).await else {
            return;
        };
        // The id is free before the host can know that it is.
        drop(slot);
        match end {
            Ok(answer) => {
                self.learn(&answer);
                self.note_questions(begun, &answer);
                self.way.outbox.send([answer.message].into()).await;
            }
            Err(fault) => {
                if is_retryable(&fault.error()) {
                    self.way.unanswered.failed(begun);
                }
                self.way.fail(&self.request.id, &fault).await;
            }
        }
    }

    fn note_questions(&self, begun: Begun, answer: &Answer) {
        match &answer.outcome {
            Outcome::Result(result) => {
                let result = result.as_object().unwrap_or_default();
                if ResultType::of(&result) == ResultType::InputRequired {
                    self.way.unanswered.asked(begun, &result);
                }
            }
            Outcome::Error(error) if is_retryable(error) => self.way.unanswered.failed(begun),
            Outcome::Error(_) => {}
        }
    }

    async fn to_end(&self) -> Result<Answer, Fault> {
        if self.request.method != method::TOOLS_CALL {
            return self.once().await;
        }
        if !self.knows_tool() {
            self.list().await;
        }
        let answer = self.once().await?;
        if !answer.is_mismatch() {
            return Ok(answer);
        }
        // The tool wants other headers by now; nothing was executed.
        self.way.params.forget();
        self.list().await;
        self.once().await
    }

    async fn once(&self) -> Result<Answer, Fault> {
        let Request { id, method, params } = &self.request;
        let mut headers = link::mirrored(&self.version, method, params);
        if method == method::TOOLS_CALL {
            self.way.params.put(&mut headers, params);
        }
        let mut reply = self.way.link.post(self.line.clone(), headers).await?;
        while let Some(line) = reply.next().await? {
            match Read::of(id, &line)? {
                Read::Answer(answer) => return Ok(answer),
                Read::Before(message) => {
                    self.look(&message);
                    self.way.outbox.send([line].into()).await;
                }
            }
        }
        Err(Fault::BrokenOff)
    }

    /// A call without arguments has nothing to repeat.
    fn knows_tool(&self) -> bool {
        let params = &self.request.params;
        let arguments = params.get("arguments").and_then(|raw| raw.as_object().ok());
        let none = arguments.is_none_or(|arguments| arguments.is_empty());
        none || self.way.params.put(&mut http::HeaderMap::new(), params)
    }

    /// Reads the list of tools as this caller sees it. Where that fails the call is sent as it
    /// is: the daemon has the last word.
    async fn list(&self) {
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            match self.page(cursor).await {
                Ok(Some(next)) => cursor = Some(next),
                Ok(None) | Err(_) => break,
            }
        }
        let name = self.request.params.string("name").unwrap_or_default();
        self.way.params.unknown(&name);
    }

    async fn page(&self, cursor: Option<Raw>) -> Result<Option<Raw>, Fault> {
        let mut params = Object::new();
        if let Some(cursor) = cursor {
            params.set("cursor", cursor);
        }
        let meta = self.request.params.get(META);
        let mut meta = meta
            .and_then(|raw| raw.as_object().ok())
            .unwrap_or_default();
        meta.remove(PROGRESS_TOKEN);
        params.set(META, meta.into());
        let id = Id::number(0);
        let body = message::encode_request(&id, method::TOOLS_LIST, &params);
        let headers = link::mirrored(&self.version, method::TOOLS_LIST, &params);
        let mut reply = self.way.link.post(body, headers).await?;
        while let Some(message) = reply.next().await? {
            if let Ok(Message::Response(_, Outcome::Result(result))) = Message::parse(&message) {
                self.way.params.learn(&result);
                let result = result.as_object().unwrap_or_default();
                return Ok(result.get("nextCursor").cloned());
            }
        }
        Ok(None)
    }

    /// What passes by may say what later calls need.
    fn learn(&self, answer: &Answer) {
        if self.request.method == method::TOOLS_LIST
            && let Outcome::Result(result) = &answer.outcome
        {
            self.way.params.learn(result);
        }
    }

    fn look(&self, message: &Message) {
        if self.request.method == method::LISTEN
            && let Message::Notification(told) = message
            && told.method == method::TOOLS_CHANGED
        {
            self.way.params.forget();
        }
    }
}

/// Whether Waypost says so: the request can be sent once more as it was.
fn is_retryable(error: &ErrorObject) -> bool {
    let data = error.data().and_then(|data| data.as_object().ok());
    let says = data.and_then(|data| data.get("retryable")?.decode());
    says.unwrap_or(false)
}
