//! The session that a host has at the daemon (2025-11-25 and earlier: transports).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use waypost_wire::header::{PROTOCOL_VERSION, SESSION_ID};
use waypost_wire::message::{self, Outcome, Request};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::in_flight::Slot;
use crate::legacy::serve::INITIALIZED;
use crate::stdio::bridge::reply::Reply;
use crate::stdio::bridge::{Answer, Fault, Way};

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Longest wait for the daemon to take a message that has no answer.
const TAKEN: Duration = Duration::from_secs(10);

/// Longest wait for a request to arrive before it is said to be given up: the two travel on
/// connections of their own.
const ARRIVED: Duration = Duration::from_secs(2);

/// Longest wait for the end of the session.
const FAREWELL: Duration = Duration::from_secs(1);

/// A stream that ended is opened again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_millis(500);
const AGAIN_MOST: Duration = Duration::from_secs(30);

/// How often the stream of a request is looked for where it broke off.
const ATTEMPTS: u32 = 5;

/// The session, once there is one; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    way: Way,
    open: Arc<Mutex<Option<Open>>>,
}

#[derive(Clone, Debug)]
struct Open {
    headers: HeaderMap,
    /// Ends its standing stream.
    over: CancellationToken,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Call {
    session: Session,
    request: Request,
    /// What the host wrote.
    line: Bytes,
}

impl Session {
    pub(crate) fn new(way: &Way) -> Self {
        Self {
            way: way.clone(),
            open: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the session, once there is one.
    fn headers(&self) -> HeaderMap {
        let open = self.lock();
        open.as_ref()
            .map(|open| open.headers.clone())
            .unwrap_or_default()
    }

    pub(crate) fn call(&self, request: Request, line: Bytes) -> Call {
        Call {
            session: self.clone(),
            request,
            line,
        }
    }

    /// Passes on a notification of the host, in its place among the host's messages.
    pub(crate) async fn notify(&self, name: &str, line: Bytes) {
        self.tell(line).await;
        if name == INITIALIZED {
            self.listen();
        }
    }

    /// Passes on a message that has no answer.
    pub(crate) async fn tell(&self, line: Bytes) {
        let told = async {
            let mut reply = self.way.link.post(line, self.headers()).await?;
            reply.next().await
        };
        let why = match tokio::time::timeout(TAKEN, told).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(_))) => "the daemon refused it".to_owned(),
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "the daemon did not take it in time".to_owned(),
        };
        tracing::warn!(why, "a message of the host was lost");
    }

    /// `initialize` was answered.
    fn opened(&self, headers: &HeaderMap, answer: &Answer) {
        let Outcome::Result(result) = &answer.outcome else {
            return;
        };
        let result = result.as_object().unwrap_or_default();
        let mut named = HeaderMap::new();
        if let Some(id) = headers.get(SESSION_ID) {
            named.insert(HeaderName::from_static(SESSION_ID), id.clone());
        }
        let version = result.string("protocolVersion").unwrap_or_default();
        if let Ok(version) = HeaderValue::from_str(&version) {
            named.insert(HeaderName::from_static(PROTOCOL_VERSION), version);
        }
        let open = Open {
            headers: named,
            over: CancellationToken::new(),
        };
        let before = self.lock().replace(open);
        // The host forgot all of it.
        if let Some(before) = before {
            let way = self.way.clone();
            let tasks = way.tasks.clone();
            tasks.spawn_here(|stop| async move {
                stop.run_until_cancelled(close(&way, before)).await;
            });
        }
    }

    /// Opens the stream for what belongs to no request, and keeps it open.
    fn listen(&self) {
        let Some(open) = self.lock().clone() else {
            return;
        };
        let way = self.way.clone();
        let tasks = way.tasks.clone();
        tasks.spawn_here(|stop| async move {
            let over = open.over.clone();
            tokio::select! {
                () = stop.cancelled() => {}
                () = over.cancelled() => {}
                () = stand(way, open) => {}
            }
        });
    }

    /// The host has gone: the daemon need not keep anything for it.
    pub(crate) async fn end(&self) {
        let open = self.lock().take();
        if let Some(open) = open {
            close(&self.way, open).await;
        }
    }
}

/// The daemon need not keep anything for a session.
async fn close(way: &Way, open: Open) {
    open.over.cancel();
    if open.headers.contains_key(SESSION_ID) {
        let ended = way.link.bare(Method::DELETE, open.headers);
        drop(tokio::time::timeout(FAREWELL, ended).await);
    }
}

/// Relays the standing stream, over and over, until the daemon has none.
async fn stand(way: Way, open: Open) {
    let mut wait = AGAIN_FIRST;
    let mut last: Option<String> = None;
    loop {
        let got = way
            .link
            .bare(Method::GET, from(&open.headers, last.as_deref()))
            .await;
        match got {
            Ok(mut reply) if reply.is_stream() => {
                wait = AGAIN_FIRST;
                while let Ok(Some(message)) = reply.next().await {
                    way.outbox.send([message].into()).await;
                }
                last = reply.last.take().or(last);
                let retry = reply.retry.map(Duration::from_millis);
                wait = retry.unwrap_or(wait).min(AGAIN_MOST);
            }
            Ok(reply) if reply.status.is_server_error() => {}
            // 405: it has none. 204: it has no more. 404: the session is gone.
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "the stream of changes is down"),
        }
        sleep(wait).await;
        wait = (wait * 2).min(AGAIN_MOST);
    }
}

fn from(headers: &HeaderMap, last: Option<&str>) -> HeaderMap {
    let mut headers = headers.clone();
    if let Some(Ok(last)) = last.map(HeaderValue::from_str) {
        headers.insert(LAST_EVENT, last);
    }
    headers
}

impl Call {
    /// To its answer. Cancelled, the daemon is told.
    pub(crate) async fn run(self, slot: Slot) {
        let cancelled = slot.cancelled().clone();
        let way = &self.session.way;
        let headers = match self.request.method.as_str() {
            method::INITIALIZE => HeaderMap::new(),
            _ => self.session.headers(),
        };
        let post = way.link.post(self.line.clone(), headers.clone());
        let mut post = Box::pin(post);
        let head = cancelled.run_until_cancelled(&mut post).await;
        let end = match head {
            None => {
                // It must be there before it can be given up.
                drop(tokio::time::timeout(ARRIVED, post).await);
                None
            }
            Some(Err(fault)) => Some(Err(fault)),
            Some(Ok(reply)) => {
                let end = self.to_end(reply, &headers);
                cancelled.run_until_cancelled(end).await
            }
        };
        let Some(end) = end else {
            self.session.tell(self.cancellation()).await;
            return;
        };
        // The id is free before the host can know that it is.
        drop(slot);
        match end {
            Ok(answer) => way.outbox.send([answer.message].into()).await,
            Err(fault) => way.fail(&self.request.id, &fault).await,
        }
    }

    async fn to_end(&self, mut reply: Reply, headers: &HeaderMap) -> Result<Answer, Fault> {
        let way = &self.session.way;
        for _ in 0..ATTEMPTS {
            let broken = loop {
                match reply.next().await {
                    Ok(Some(message)) => {
                        if let Some(answer) = way.pass(&self.request.id, message).await? {
                            if self.request.method == method::INITIALIZE {
                                self.session.opened(&reply.headers, &answer);
                            }
                            return Ok(answer);
                        }
                    }
                    Ok(None) => break Fault::BrokenOff,
                    Err(fault) => break fault,
                }
            };
            // A stream of a session can be taken up again where it broke off.
            let Some(last) = reply.last.take() else {
                return Err(broken);
            };
            let wait = reply.retry.map_or(AGAIN_FIRST, Duration::from_millis);
            sleep(wait.min(AGAIN_MOST)).await;
            reply = way
                .link
                .bare(Method::GET, from(headers, Some(&last)))
                .await?;
            if reply.status != StatusCode::OK || !reply.is_stream() {
                return Err(broken);
            }
            reply.last.get_or_insert(last);
        }
        Err(Fault::BrokenOff)
    }

    fn cancellation(&self) -> Bytes {
        let params = Object::from_iter([
            ("requestId", self.request.id.raw().clone()),
            ("reason", Raw::string("the host gave it up")),
        ]);
        message::encode_notification(method::CANCELLED, &params)
    }
}
