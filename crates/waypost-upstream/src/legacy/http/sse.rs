//! One session over HTTP+SSE (2024-11-05: transports, HTTP with SSE): the session is one stream,
//! and whatever is sent goes by POST to where its first event says.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Uri};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::sse::Item;

use super::endpoint::EndpointFault;
use super::hearing;
use super::lost;
use super::place::Place;
use super::wire::{PROTOCOL_VERSION, SIDE_BY_SIDE, Wire, dismissed, version_header};
use crate::ear::SharedEar;
use crate::fault::Fault;
use crate::http::answer;
use crate::http::frames::{Frames, drain};
use crate::legacy::link::Link;

/// One session.
#[derive(Debug)]
pub(super) struct Sse {
    session: Arc<Session>,
}

struct Session {
    wire: Arc<Wire>,
    ear: SharedEar,
    /// Where messages are posted to.
    endpoint: Uri,
    version: Mutex<Option<HeaderValue>>,
    /// Only then can a session be lost.
    open: AtomicBool,
    over: CancellationToken,
}

// === impl Sse ===

impl Sse {
    /// Opens the stream and waits, at most `within`, to be told where to post.
    pub(super) async fn open(
        wire: &Arc<Wire>,
        ear: SharedEar,
        within: Duration,
    ) -> Result<Self, Fault> {
        let shared = Arc::clone(wire);
        let open = async move {
            let mut frames = shared.events(shared.get()).await?;
            let endpoint = timeout(within, endpoint(&shared, &mut frames)).await;
            let silent = || Err(EndpointFault::Silent(within).into());
            let endpoint = endpoint.unwrap_or_else(|_| silent())?;
            let session = Arc::new(Session {
                wire: shared,
                ear,
                endpoint,
                version: Mutex::default(),
                open: AtomicBool::new(false),
                over: CancellationToken::new(),
            });
            session.listen(frames);
            Ok(Self { session })
        };
        wire.on_control(open).await
    }
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.session.over.cancel();
    }
}

impl Link for Sse {
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        let session = Arc::clone(&self.session);
        let work = async move {
            if !session.ear.sending(id) {
                return Ok(());
            }
            session.post(Some(id), message).await
        };
        Box::pin(self.session.wire.on_control(work))
    }

    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        let session = Arc::clone(&self.session);
        let work = async move { session.post(None, message).await };
        Box::pin(self.session.wire.on_control(work))
    }

    fn side_by_side(&self) -> usize {
        SIDE_BY_SIDE
    }

    fn agreed(&self, protocol: &str) {
        *self.session.version() = version_header(protocol);
    }

    fn opened(&self) {
        self.session.open.store(true, Ordering::Relaxed);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.session.over.cancel();
        Box::pin(std::future::ready(()))
    }
}

/// The address that the stream's first event names.
async fn endpoint(wire: &Wire, frames: &mut Frames) -> Result<Uri, Fault> {
    while let Some(item) = frames.next_item(|_| false).await? {
        let Item::Event(event) = item else { continue };
        if event.kind.as_deref() == Some("endpoint") {
            return Ok(wire.endpoint(&event.data)?);
        }
    }
    Err(EndpointFault::Ended.into())
}

// === impl Session ===

impl Session {
    fn version(&self) -> MutexGuard<'_, Option<HeaderValue>> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears the stream until it ends, and the session with it.
    fn listen(self: &Arc<Self>, mut frames: Frames) {
        let session = Arc::clone(self);
        self.wire.tasks.spawn(|stop| async move {
            // A stream of this version is never resumed.
            let mut place = Place::default();
            let hearing = hearing::hear_out(&*session.ear, &session.wire, &mut frames, &mut place);
            // One bad message must leave nobody waiting for others.
            let hearing = AssertUnwindSafe(hearing).catch_unwind();
            let fault = tokio::select! {
                fault = hearing => fault.unwrap_or(Fault::Unheard),
                () = dismissed(&session.over, &stop, &*session.ear) => Fault::Stopping,
            };
            if session.over.is_cancelled() {
                return;
            }
            session.over.cancel();
            session.ear.gone(&fault);
        });
    }

    /// Sends a message; its answer, if it has one, comes on the stream.
    async fn post(&self, id: Option<u64>, message: Bytes) -> Result<(), Fault> {
        if self.over.is_cancelled() {
            return Err(Fault::SessionLost);
        }
        let mut request = self.wire.post(message);
        *request.uri_mut() = self.endpoint.clone();
        if let Some(version) = self.version().clone() {
            request.headers_mut().insert(PROTOCOL_VERSION, version);
        }
        let (head, body) = self.wire.send_message(request).await?.into_parts();
        let status = head.status;
        if status.is_success() {
            drain(body, &self.wire.tasks);
            return Ok(());
        }
        let body = answer::whole(body, self.wire.limit, status, &head.headers).await;
        // The address names the session.
        let lost = lost::refused(status, Some(""), id, &body.unwrap_or_default());
        if lost && self.open.load(Ordering::Relaxed) {
            return Err(Fault::SessionLost);
        }
        Err(answer::status_fault(status, &head.headers))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Whoever knows the address can speak in the session.
        f.debug_struct("Session")
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}
