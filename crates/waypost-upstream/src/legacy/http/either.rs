//! A session over whichever of the two transports the server has (2025-03-26: transports,
//! backwards compatibility).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use waypost_hub::upstream::BoxFuture;

use super::endpoint::EndpointFault;
use super::sse::Sse;
use super::streamable::Streamable;
use super::wire::{SIDE_BY_SIDE, Wire};
use crate::ear::SharedEar;
use crate::event::TransportChosen;
use crate::fault::Fault;
use crate::legacy::link::Link;

/// Streamable HTTP until the server refuses the first POST and offers the stream of HTTP+SSE.
#[derive(Debug)]
pub(super) struct Either {
    streamable: Streamable,
    /// Taken instead, once the server has turned out to be of 2024-11-05.
    sse: OnceLock<Sse>,
    wire: Arc<Wire>,
    ear: SharedEar,
    within: Duration,
    /// For the sessions after this one.
    remember: Arc<AtomicBool>,
    agreed: AtomicBool,
}

impl Either {
    pub(super) fn new(
        wire: &Arc<Wire>,
        ear: SharedEar,
        within: Duration,
        remember: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            streamable: Streamable::new(wire, Arc::clone(&ear)),
            sse: OnceLock::new(),
            wire: Arc::clone(wire),
            ear,
            within,
            remember: Arc::clone(remember),
            agreed: AtomicBool::new(false),
        }
    }

    fn link(&self) -> &dyn Link {
        match self.sse.get() {
            Some(sse) => sse,
            None => &self.streamable,
        }
    }

    /// The other transport; `None` where the server does not seem to have it.
    async fn turn(&self) -> Option<Result<&Sse, Fault>> {
        let opened = Sse::open(&self.wire, Arc::clone(&self.ear), self.within).await;
        let sse = match opened {
            Ok(sse) => sse,
            // It has named one, so that is the transport, and what is wrong with it the reason.
            Err(fault @ Fault::Endpoint(EndpointFault::OtherOrigin | EndpointFault::NotUrl)) => {
                return Some(Err(fault));
            }
            Err(_) => return None,
        };
        self.remember.store(true, Ordering::Relaxed);
        TransportChosen {
            upstream: &self.wire.name,
            transport: "sse",
        }
        .emit();
        Some(Ok(self.sse.get_or_init(|| sse)))
    }
}

impl Link for Either {
    fn request(&self, id: u64, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        if self.agreed.load(Ordering::Relaxed) {
            return self.link().request(id, message);
        }
        Box::pin(async move {
            let answered = self.streamable.request(id, message.clone()).await;
            // Only these say that nothing takes a POST here.
            let Err(Fault::Status {
                status: 400 | 404 | 405,
                ..
            }) = answered
            else {
                return answered;
            };
            match self.turn().await {
                Some(sse) => sse?.request(id, message).await,
                None => answered,
            }
        })
    }

    fn tell(&self, message: Bytes) -> BoxFuture<'_, Result<(), Fault>> {
        self.link().tell(message)
    }

    fn side_by_side(&self) -> usize {
        SIDE_BY_SIDE
    }

    fn agreed(&self, protocol: &str) {
        self.agreed.store(true, Ordering::Relaxed);
        self.link().agreed(protocol);
    }

    fn opened(&self) {
        self.link().opened();
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.link().close()
    }
}
