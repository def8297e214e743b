//! Where a page of a list ended.
//!
//! A cursor names the last thing that was shown, so that nothing is doubled or lost when other
//! things come and go before the next page is asked for. Its seal tells those that were given out,
//! for this list of this view, from all other text; any replica with the keys knows them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};

use super::entry::{Entry, Kind};
use crate::call::View;
use crate::keys::{Keys, Purpose};

/// Bytes of the HMAC that make the seal.
const SEAL_LEN: usize = 16;

/// Makes cursors and opens them.
#[derive(Clone)]
pub struct Cursors(Vec<[u8; 32]>);

/// What was shown last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    /// The upstream's name.
    pub upstream: String,
    /// Its own name for it.
    pub original: String,
}

// === impl Cursors ===

impl Cursors {
    /// Seals with the first of the keys, opens with all.
    pub fn new(keys: &Keys) -> Self {
        Self(keys.derive(Purpose::Cursor))
    }

    /// The cursor after `last` in the list of `kind` that `view` shows.
    pub fn seal(&self, kind: Kind, view: &View, last: &Entry) -> String {
        let text = format!("{}\0{}", last.member.name, last.original);
        let key = self.0.first().copied().unwrap_or_default();
        let mut bytes = seal(&key, kind, view, text.as_bytes()).to_vec();
        bytes.extend_from_slice(text.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What a cursor says; `None` for one that was not made for this list of this view.
    pub fn open(&self, cursor: &str, kind: Kind, view: &View) -> Option<Last> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (given, text) = bytes.split_first_chunk::<SEAL_LEN>()?;
        let good = self.0.iter().fold(Choice::from(0), |good, key| {
            good | seal(key, kind, view, text).ct_eq(given)
        });
        if !bool::from(good) {
            return None;
        }
        // The name of an upstream cannot hold a NUL.
        let (upstream, original) = std::str::from_utf8(text).ok()?.split_once('\0')?;
        Some(Last {
            upstream: upstream.to_owned(),
            original: original.to_owned(),
        })
    }
}

impl fmt::Debug for Cursors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursors({} keys)", self.0.len())
    }
}

/// Neither the word for a kind nor the name of a view can hold a NUL.
fn seal(key: &[u8; 32], kind: Kind, view: &View, text: &[u8]) -> [u8; SEAL_LEN] {
    let mut block = [0; 64];
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    let mut mac: Hmac<Sha256> = Hmac::new(&block.into());
    let view = view.name().map(|name| format!("/{name}"));
    for part in [kind.list_member(), view.as_deref().unwrap_or_default()] {
        mac.update(part.as_bytes());
        mac.update(&[0]);
    }
    mac.update(text);
    let digest = mac.finalize().into_bytes();
    let mut seal = [0; SEAL_LEN];
    for (to, from) in seal.iter_mut().zip(digest) {
        *to = from;
    }
    seal
}
