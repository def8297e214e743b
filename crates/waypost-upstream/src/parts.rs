//! What every upstream is given by the program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hyper_rustls::ConfigBuilderExt as _;
use rustls::ClientConfig;
use rustls::crypto::ring;
use tokio::sync::Semaphore;
use waypost_hub::lifecycle::Tasks;

use crate::Places;
use crate::fault::Fault;
use crate::guard::Guard;

/// What every upstream is given by the program; nothing here is global.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Background work on the control runtime: children live there.
    pub tasks: Tasks,
    /// How many data cores there are; see [`crate::core_local`].
    pub cores: usize,
    /// Bytes of one message of an upstream.
    pub response_limit: usize,
    /// Waypost's own environment, from which children get what they may have.
    pub env: Arc<BTreeMap<OsString, OsString>>,
    /// Trusted certificates, loaded when the first `https` upstream needs them.
    pub tls: Tls,
    /// Whether callers may read a child's last words on standard error. The operator always may;
    /// to others they can give away what the server keeps for itself.
    pub tell_callers: Arc<AtomicBool>,
    /// Room for calls whose servers wait for an answer of the caller; all upstreams share it.
    pub parked: Arc<Semaphore>,
    /// How long such a call waits.
    pub answer_within: Duration,
    /// Room for subscriptions that session servers have not answered; all upstreams share it.
    pub places: Places,
    /// Ends children should Waypost die; without one they may outlive it.
    pub guard: Option<Guard>,
}

/// The TLS settings that all upstreams share.
#[derive(Clone, Debug, Default)]
pub struct Tls(Arc<OnceLock<Arc<ClientConfig>>>);

impl Tls {
    /// Settings made elsewhere, with other trusted certificates than the system's.
    pub fn with_config(mut config: ClientConfig) -> Self {
        // HTTP/1.1 alone is spoken, and the connector offers that itself.
        config.alpn_protocols.clear();
        Self(Arc::new(OnceLock::from(Arc::new(config))))
    }

    /// The settings; loads the system's trusted certificates the first time.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, Fault> {
        if let Some(config) = self.0.get() {
            return Ok(Arc::clone(config));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| Fault::NoCertificates)?
            .with_native_roots()
            .map_err(|_| Fault::NoCertificates)?
            .with_no_client_auth();
        Ok(Arc::clone(self.0.get_or_init(|| Arc::new(config))))
    }
}
