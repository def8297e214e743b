//! Text that leaves with a client and is believed when it comes back: encrypted, authenticated,
//! and good only for what it is bound to.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::keys::{Keys, Purpose};

/// Bytes of the random nonce: so many that chance never repeats one.
const NONCE_LEN: usize = 24;

/// Seals and opens texts for one purpose.
pub struct Sealer(Vec<XChaCha20Poly1305>);

/// What a sealed text is tied to without it being in there.
#[derive(Clone, Debug)]
pub struct Binding(Vec<u8>);

impl Sealer {
    /// Seals with the first of the keys, opens with all.
    pub fn new(keys: &Keys, purpose: Purpose) -> Self {
        let keys = keys.derive(purpose).into_iter();
        Self(
            keys.map(|key| XChaCha20Poly1305::new(&key.into()))
                .collect(),
        )
    }

    /// The text: base64url, so visible ASCII. `None` only when sealing fails, which no input does.
    pub fn seal(&self, plain: &[u8], binding: &Binding) -> Option<String> {
        let nonce: [u8; NONCE_LEN] = rand::random();
        let payload = Payload {
            msg: plain,
            aad: &binding.0,
        };
        let sealed = self
            .0
            .first()?
            .encrypt(&XNonce::from(nonce), payload)
            .ok()?;
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&sealed);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// What is in a text; `None` for everything that was not made with one of the keys for this
    /// very binding.
    pub fn open(&self, text: &str, binding: &Binding) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let nonce = XNonce::from(*nonce);
        self.0.iter().find_map(|key| {
            let payload = Payload {
                msg: sealed,
                aad: &binding.0,
            };
            key.decrypt(&nonce, payload).ok()
        })
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({} keys)", self.0.len())
    }
}

impl Binding {
    /// `kind` says what the text is, so that one of a kind does not open as another; all `parts`
    /// have to be the same when it comes back.
    pub fn new(kind: &str, parts: &[&str]) -> Self {
        let mut bytes = kind.as_bytes().to_vec();
        for part in parts {
            // The length in front makes the borders unambiguous.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Self(bytes)
    }
}
