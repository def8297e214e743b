//! `waypost auth add-key`: a new bearer key.

use waypost_config::{KeyHash, parse_str};
use waypost_policy::keys::generate;

use crate::exit::Fatal;
use crate::output::print;

/// Prints a new key, once, and the lines of YAML that let its bearer in.
pub(crate) fn add(name: &str) -> Result<(), Fatal> {
    let new = generate().map_err(anyhow::Error::from)?;
    let yaml = yaml(name, new.hash);
    // The file's own rules decide what a name may be; a key that would not load helps nobody.
    parse_str(&yaml).map_err(Fatal::Config)?;
    print(&format!(
        "key of `{name}`, shown this once:\n\n  {}\n\nin the configuration:\n\n{yaml}",
        new.key.expose()
    ));
    Ok(())
}

fn yaml(name: &str, hash: KeyHash) -> String {
    let name = serde_json::Value::from(name);
    format!("auth:\n  keys:\n    - {{ name: {name}, hash: \"{hash}\" }}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_lines_let_the_key_in() {
        let hash = KeyHash::of("wp_abc");
        let config = parse_str(&yaml("ci", hash)).unwrap().config;
        let [entry] = config.auth.keys.as_slice() else {
            panic!("one key")
        };
        assert_eq!(entry.name, "ci");
        assert_eq!(entry.hash, hash);
    }

    #[test]
    fn a_name_that_the_file_would_refuse_gets_no_key() {
        for name in ["", "anonymous", "a b", "a\"b"] {
            assert!(matches!(add(name), Err(Fatal::Config(_))), "{name}");
        }
    }
}
