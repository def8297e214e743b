//! New bearer keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use rand::rngs::SysRng;
use waypost_config::{KeyHash, Secret};

/// Begins every key, so that scanners for leaked secrets know one when they see it.
const PREFIX: &str = "wp_";

/// A key for a caller and the hash for the file.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// To be shown once and kept nowhere.
    pub key: Secret,
    /// For `auth.keys`.
    pub hash: KeyHash,
}

/// The operating system gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes to be had")]
pub struct NoRandomness(#[source] rand::rngs::SysError);

/// Makes a key of 32 random bytes: `wp_` and their base64url.
///
/// # Errors
/// [`NoRandomness`] when the operating system has none.
pub fn generate() -> Result<NewKey, NoRandomness> {
    let mut bytes = [0; 32];
    SysRng.try_fill_bytes(&mut bytes).map_err(NoRandomness)?;
    let key = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    Ok(NewKey {
        hash: KeyHash::of(&key),
        key: Secret::new(key),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_new_fits_a_header_and_matches_its_hash() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one.key.expose(), two.key.expose());
        assert_eq!(one.hash, KeyHash::of(one.key.expose()));
        let body = one.key.expose().strip_prefix("wp_").unwrap();
        assert_eq!(body.len(), 43);
        assert!(
            body.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        assert!(!format!("{one:?}").contains(body));
    }
}
