//! `waypost auth add-key`: a new bearer key.

use waypost_config::{KeyHash, parse_str};

use crate::exit::Fatal;
use crate::output::print;

/// Prints a new key, once, and the lines of YAML that let its bearer in.
pub(crate) fn add(name: &str) -> Result<(), Fatal> {
    let key = new_key();
    let yaml = yaml(name, &key);
    // The file's own rules decide what a name may be; a key that would not load helps nobody.
    parse_str(&yaml).map_err(Fatal::Config)?;
    print(&format!(
        "key of `{name}`, shown this once:\n\n  {key}\n\nin the configuration:\n\n{yaml}"
    ));
    Ok(())
}

/// 32 random bytes. The prefix lets scanners for leaked secrets recognise it.
fn new_key() -> String {
    let text = waypost_store::keys::generate();
    let url_safe = text
        .trim_end_matches('=')
        .replace('+', "-")
        .replace('/', "_");
    format!("wp_{url_safe}")
}

fn yaml(name: &str, key: &str) -> String {
    let name = serde_json::Value::from(name);
    format!(
        "auth:\n  keys:\n    - {{ name: {name}, hash: \"{}\" }}",
        KeyHash::of(key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_lines_let_the_key_in() {
        let key = new_key();
        let config = parse_str(&yaml("ci", &key)).unwrap().config;
        let [entry] = config.auth.keys.as_slice() else {
            panic!("one key")
        };
        assert_eq!(entry.name, "ci");
        assert_eq!(entry.hash, KeyHash::of(&key));
    }

    #[test]
    fn keys_differ_and_need_no_quoting() {
        let (one, other) = (new_key(), new_key());
        assert_ne!(one, other);
        assert_eq!(one.len(), "wp_".len() + 43);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(one.chars().all(plain), "{one}");
    }

    #[test]
    fn a_name_that_the_file_would_refuse_gets_no_key() {
        for name in ["", "anonymous", "a b", "a\"b"] {
            assert!(matches!(add(name), Err(Fatal::Config(_))), "{name}");
        }
    }
}
