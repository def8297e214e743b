//! Opens sessions with one server over the transport that fits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use waypost_hub::upstream::BoxFuture;

use super::either::Either;
use super::sse::Sse;
use super::standing::transient;
use super::streamable::Streamable;
use super::wire::Wire;
use crate::ear::SharedEar;
use crate::fault::Fault;
use crate::http::Settings;
use crate::legacy::link::{Dial, Link};
use crate::parts::Parts;

/// Which transport a session runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Streamable HTTP, or HTTP+SSE where the server refuses the first POST.
    Either,
    /// Streamable HTTP alone.
    #[cfg_attr(not(test), expect(dead_code, reason = "no configuration says so"))]
    Streamable,
    /// HTTP+SSE alone.
    Sse,
}

/// Opens sessions with one server.
#[derive(Debug)]
pub(crate) struct HttpDial {
    wire: Arc<Wire>,
    transport: Transport,
    /// How long the stream of HTTP+SSE may be silent at first.
    within: Duration,
    /// That the server has only HTTP+SSE, learned from it.
    sse: Arc<AtomicBool>,
}

impl HttpDial {
    /// Prepares sessions with the server; nothing is opened. `within` bounds the wait for the
    /// first event of HTTP+SSE.
    ///
    /// # Errors
    /// No trusted certificates for `https`, or a header that cannot be sent.
    pub(crate) fn new(
        settings: &Settings,
        transport: Transport,
        within: Duration,
        parts: &Parts,
    ) -> Result<Self, Fault> {
        Ok(Self {
            wire: Arc::new(Wire::new(settings, parts)?),
            transport,
            within,
            sse: Arc::default(),
        })
    }

    async fn open(&self, ear: SharedEar) -> Result<Arc<dyn Link>, Fault> {
        let learned = self.sse.load(Ordering::Relaxed);
        match self.transport {
            Transport::Streamable => Ok(Arc::new(Streamable::new(&self.wire, ear))),
            Transport::Either if !learned => {
                let either = Either::new(&self.wire, ear, self.within, &self.sse);
                Ok(Arc::new(either))
            }
            Transport::Either | Transport::Sse => {
                let opened = Sse::open(&self.wire, ear, self.within).await;
                if opened.as_ref().is_err_and(|fault| !transient(fault)) {
                    // The server may have been replaced by a later one.
                    self.sse.store(false, Ordering::Relaxed);
                }
                Ok(Arc::new(opened?))
            }
        }
    }
}

impl Dial for HttpDial {
    fn dial(&self, ear: SharedEar) -> BoxFuture<'_, Result<Arc<dyn Link>, Fault>> {
        Box::pin(self.open(ear))
    }
}
