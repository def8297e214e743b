//! The secret keys behind everything that crosses a client and comes back.

use std::fmt;

use hkdf::Hkdf;
use sha2::Sha256;

/// What a key is used for. Each use derives its own, so that a seal of one can never pass as
/// one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Task handles.
    Handle,
    /// The tag of a tool's name inside a handle.
    ToolTag,
    /// Request states (`wp1.`).
    State,
    /// Session ids of clients.
    Session,
    /// Cursors of lists.
    Cursor,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Handle => b"waypost handle v1",
            Self::ToolTag => b"waypost tool tag v1",
            Self::State => b"waypost request state v1",
            Self::Session => b"waypost session v1",
            Self::Cursor => b"waypost cursor v1",
        }
    }
}

/// The root keys: the first seals, all open.
#[derive(Clone)]
pub struct Keys(Vec<Vec<u8>>);

/// Fewer bytes than this are no key.
pub const LEAST_KEY_LEN: usize = 32;

/// Keys that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadKeys {
    /// At least one is needed to seal.
    #[error("no key is given")]
    None,
    /// Too easy to guess.
    #[error("key number {number} has fewer than {LEAST_KEY_LEN} bytes")]
    Short {
        /// Which one, counted from 1.
        number: usize,
    },
}

impl Keys {
    /// Takes root keys, the sealing one first.
    ///
    /// # Errors
    /// [`BadKeys`] when there is none, or one is shorter than [`LEAST_KEY_LEN`].
    pub fn new(keys: Vec<Vec<u8>>) -> Result<Self, BadKeys> {
        if let Some(at) = keys.iter().position(|key| key.len() < LEAST_KEY_LEN) {
            return Err(BadKeys::Short { number: at + 1 });
        }
        if keys.is_empty() {
            Err(BadKeys::None)
        } else {
            Ok(Self(keys))
        }
    }

    /// The keys for one use, the sealing one first.
    pub fn derive(&self, purpose: Purpose) -> Vec<[u8; 32]> {
        self.0.iter().map(|key| derive(key, purpose)).collect()
    }
}

fn derive(key: &[u8], purpose: Purpose) -> [u8; 32] {
    let mut out = [0; 32];
    // Fails only for outputs of more than 255 blocks; this is one.
    if Hkdf::<Sha256>::new(None, key)
        .expand(purpose.label(), &mut out)
        .is_err()
    {
        out.fill(0);
    }
    out
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} keys)", self.0.len())
    }
}
