//! `requestState`: opaque to the client, unforgeable for everybody.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::fail::Fail;

/// Seals and opens the state of multi-round requests, with a key of this process.
#[derive(Clone, Debug)]
pub struct Sealer {
    key: [u8; 64],
}

impl Default for Sealer {
    fn default() -> Self {
        let mut key = [0; 64];
        for part in key.chunks_exact_mut(16) {
            part.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        }
        Self { key }
    }
}

impl Sealer {
    /// State that only a retry of the same `purpose` (method and target) can bring back.
    pub fn seal(&self, purpose: &str, state: &Value) -> String {
        let body = URL_SAFE_NO_PAD.encode(json!([purpose, state]).to_string());
        let tag = URL_SAFE_NO_PAD.encode(self.mac(&body).finalize().into_bytes());
        format!("{body}.{tag}")
    }

    /// What was sealed.
    ///
    /// # Errors
    ///
    /// `-32602` when the text was changed or belongs to another purpose.
    pub fn open(&self, purpose: &str, sealed: &str) -> Result<Value, Fail> {
        self.try_open(purpose, sealed)
            .ok_or_else(|| Fail::invalid_params("`requestState` is not one of this server"))
    }

    fn try_open(&self, purpose: &str, sealed: &str) -> Option<Value> {
        let (body, tag) = sealed.split_once('.')?;
        self.mac(body)
            .verify_slice(&URL_SAFE_NO_PAD.decode(tag).ok()?)
            .ok()?;
        let (sealed_for, state): (String, Value) =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).ok()?).ok()?;
        (sealed_for == purpose).then_some(state)
    }

    fn mac(&self, body: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        mac.update(body.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_comes_back_only_unchanged_and_for_its_purpose() {
        let sealer = Sealer::default();
        let sealed = sealer.seal("tools/call a", &json!({ "round": 2 }));
        assert_eq!(
            sealer.open("tools/call a", &sealed),
            Ok(json!({ "round": 2 }))
        );
        assert!(sealer.open("tools/call b", &sealed).is_err());
        assert!(
            sealer
                .open("tools/call a", &format!("{sealed}-TAMPERED"))
                .is_err()
        );
        assert!(Sealer::default().open("tools/call a", &sealed).is_err());
    }
}
