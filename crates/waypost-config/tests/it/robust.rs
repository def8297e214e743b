//! Whatever the file says: an answer, and no secret in it.

use proptest::prelude::*;
use waypost_config::{Sources, load, parse_str};

/// A value that must appear in no message and in no `Debug`.
const CANARY: &str = "canary-7f3a";

#[test]
fn r36_a_secret_is_in_no_message_whatever_is_wrong_with_it() {
    let keys = [
        "listen",
        "admin",
        "admin.token",
        "insecure",
        "front.keep_alive",
        "front.strict_headers",
        "front.allowed_hosts",
        "limits.request_body",
        "limits.parked",
        "naming.on_collision",
        "log.level",
        "log.format",
        "tasks.max_wait",
        "state.keys",
        "upstreams.a.url",
        "upstreams.a.command",
        "upstreams.a.prefix",
        "upstreams.a.timeout",
        "upstreams.a.tasks",
        "upstreams.a.headers.Host",
        "upstreams.a.env.A",
        "upstreams.a.tools.deny",
        "upstreams.a.aliases",
        "mcpServers.a.type",
        "mcpServers.a.timeout",
        "extensions.expose.x",
        "auth.keys",
        "unknown.key",
    ];
    let values = [
        "C",
        "x C [",
        "https://u:C@h/",
        "https://h/?k=C",
        "[C]",
        "[{name: x, hash: C}]",
        "{x: C}",
        "C\n",
    ];
    for key in keys {
        for value in values.map(|value| value.replace('C', CANARY)) {
            let name = format!("WAYPOST_{}", key.to_uppercase().replace('.', "__"));
            let mut by_env = Sources::default();
            by_env.env.insert(name, value.clone());
            let mut by_file = Sources::from_text(nested(key));
            by_file.env.insert("V".to_owned(), value.clone());
            for sources in [
                by_env,
                by_file,
                Sources::default().with_flag(key, value.as_str()),
            ] {
                let said = match load(&sources) {
                    Ok(loaded) => format!("{:?}", loaded.warnings),
                    Err(problems) => format!("{problems:?}"),
                };
                // A flag or variable of their own says nothing secret of these.
                let open = ["listen", "front.", "limits.", "log."];
                let is_open = key == "admin" || open.iter().any(|open| key.starts_with(open));
                let own = sources.text.is_none() && is_open;
                assert!(own || !said.contains(CANARY), "{key}: {value}: {said}");
            }
        }
    }
}

/// A file that sets one key to `${V}`.
fn nested(key: &str) -> String {
    let parts: Vec<_> = key.split('.').collect();
    let open: Vec<_> = parts.iter().map(|part| format!("{{{part}: ")).collect();
    format!("{}\"${{V}}\"{}", open.concat(), "}".repeat(parts.len()))
}

#[test]
fn r36_a_checked_configuration_prints_no_secret() {
    let yaml = format!(
        "admin: {{token: {CANARY}-{CANARY}}}\nstate: {{keys: ['{}']}}\nupstreams:\n  \
         a: {{url: 'https://h/?k={CANARY}', headers: {{A: {CANARY}}}}}\n  b: {{command: x, env: {{A: {CANARY}}}}}\n",
        CANARY.repeat(4)
    );
    let loaded = parse_str(&yaml).unwrap();
    assert!(!format!("{loaded:?}").contains(CANARY));
}

/// Texts that are nearly configurations: known words in wild arrangements.
fn nearly() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "listen",
        "upstreams",
        "mcpServers",
        "admin",
        "url",
        "command",
        "args",
        "tools",
        "deny",
        "timeouts",
        "tasks",
        "front",
        "auth",
        "keys",
        "name",
        "hash",
        "include",
        "env",
        "headers",
        "extensions",
        "expose",
        "limits",
        "a",
        "b-1",
        "127.0.0.1:1",
        "http://h/",
        "5s",
        "0",
        "-1",
        "1e9",
        "true",
        "~",
        "${A}",
        "${A:-x}",
        "$$",
        "${",
        "*x",
        "&x ",
        "!t ",
        "<<",
        "'",
        "\"",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "#",
        "|",
        ">",
        "?",
        "\t",
        "é",
        "\u{feff}",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
    ]);
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_a_configuration_or_a_list_of_errors(text in any::<String>()) {
        let result = parse_str(&text);
        prop_assert!(result.is_ok() || result.is_err_and(|problems| !problems.is_empty()));
    }

    #[test]
    fn nearly_a_configuration_is_one_or_a_list_of_errors(text in nearly()) {
        let result = parse_str(&text);
        prop_assert!(result.is_ok() || result.is_err_and(|problems| !problems.is_empty()));
    }

    #[test]
    fn the_environment_cannot_make_it_panic(name in "WAYPOST_[A-Z_]{0,20}", value in any::<String>()) {
        let mut sources = Sources::from_text("upstreams: {a: {command: x}}");
        sources.env.insert(name, value);
        let result = load(&sources);
        prop_assert!(result.is_ok() || result.is_err_and(|problems| !problems.is_empty()));
    }
}
