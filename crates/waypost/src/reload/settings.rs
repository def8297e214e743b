//! Which settings count at once and which only after a restart: the one place that says it.

use waypost_config::Config;

/// When another value of a setting counts.
#[derive(Clone, Copy)]
enum Counts {
    AtOnce,
    /// After a restart: puts the old value in place of the new one, and says whether it was
    /// another.
    Later(fn(&mut Config, &Config) -> bool),
}

use Counts::AtOnce;

macro_rules! later {
    ($($field:ident).+) => {
        Counts::Later(|new, old| {
            let differs = new.$($field).+ != old.$($field).+;
            new.$($field).+.clone_from(&old.$($field).+);
            differs
        })
    };
}

/// Every key, or every key within it.
const TABLE: &[(&str, Counts)] = &[
    // Sockets are bound once.
    ("listen", later!(listen)),
    ("admin.listen", later!(admin)),
    ("admin.token", AtOnce),
    ("insecure", AtOnce),
    ("auth", AtOnce),
    ("front.allowed_hosts", AtOnce),
    ("front.allowed_origins", AtOnce),
    ("front.strict_headers", AtOnce),
    ("front.keep_alive", AtOnce),
    // Who keeps the sessions of clients is made once, with its times.
    ("front.eras", later!(front.eras)),
    ("front.session_idle", later!(front.session_idle)),
    ("front.session_handshake", later!(front.session_handshake)),
    ("front.stateless", AtOnce),
    ("front.sse", AtOnce),
    ("limits.request_body", AtOnce),
    ("limits.json_depth", AtOnce),
    ("limits.in_flight", AtOnce),
    ("limits.listeners", AtOnce),
    // Given to each connection to an upstream when it is made; it would count for some of them.
    ("limits.response_body", later!(limits.response_body)),
    // Sizes of what is made once.
    ("limits.parked", later!(limits.parked)),
    ("limits.listener_queue", later!(limits.listener_queue)),
    ("limits.connections", later!(limits.connections)),
    ("limits.sessions", later!(limits.sessions)),
    ("naming", AtOnce),
    ("tasks.poll_first", AtOnce),
    ("tasks.poll_least", AtOnce),
    ("tasks.poll_most", AtOnce),
    ("tasks.max_wait", AtOnce),
    // Known to every connection to an upstream and to the sessions of clients.
    ("tasks.input_wait", later!(tasks.input_wait)),
    ("cache.list_ttl", AtOnce),
    ("cache.resources", later!(cache.resources)),
    // Handles and sessions that are out are sealed with it.
    ("state", later!(state)),
    ("log.level", AtOnce),
    ("log.format", later!(log.format)),
    ("reload", AtOnce),
    ("drain_grace", AtOnce),
    ("page_size", AtOnce),
    ("discovery", AtOnce),
    ("instructions", AtOnce),
    ("extensions", AtOnce),
    ("include", AtOnce),
    ("upstreams", AtOnce),
    ("endpoints", AtOnce),
    ("mcpServers", AtOnce),
];

/// Leaves in `config` what counts only after a restart as it is in `running`; gives the keys of
/// what was to become another.
pub(super) fn keep(config: &mut Config, running: &Config) -> Vec<&'static str> {
    let mut waiting = Vec::new();
    // Whether nobody needs a key was judged by the address in the file. As long as another one is
    // listened on, the keys stay.
    let moved = config.listen != running.listen && !running.listen.ip().is_loopback();
    if moved && config.auth.keys.is_empty() && !running.auth.keys.is_empty() {
        config.auth.clone_from(&running.auth);
        waiting.push("auth");
    }
    for (key, counts) in TABLE {
        if let Counts::Later(keep) = counts
            && keep(config, running)
        {
            waiting.push(key);
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use waypost_config::{json_schema, parse_str};

    use super::*;

    fn keys() -> Vec<String> {
        let schema = json_schema();
        let resolve = |value: &Value| -> Value {
            let reference = value["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
            reference.map_or(value.clone(), |at| schema.pointer(at).unwrap().clone())
        };
        let mut keys = Vec::new();
        for (key, value) in schema["properties"].as_object().unwrap() {
            let mut parts: Vec<Value> = ["anyOf", "oneOf", "allOf"]
                .iter()
                .flat_map(|of| value[of].as_array().cloned().unwrap_or_default())
                .collect();
            parts.push(value.clone());
            let inner: Vec<String> = parts
                .iter()
                .map(resolve)
                .filter_map(|part| part["properties"].as_object().cloned())
                .flat_map(|inner| inner.into_iter().map(|(own, _)| format!("{key}.{own}")))
                .collect();
            if inner.is_empty() {
                keys.push(key.clone());
            }
            keys.extend(inner);
        }
        keys
    }

    #[test]
    fn every_key_of_the_file_counts_at_once_or_after_a_restart() {
        let keys = keys();
        assert!(keys.contains(&"limits.parked".to_owned()), "{keys:?}");
        let covers = |row: &str, key: &str| {
            key == row
                || key
                    .strip_prefix(row)
                    .is_some_and(|rest| rest.starts_with('.'))
        };
        for key in &keys {
            let rows = TABLE.iter().filter(|(row, _)| covers(row, key)).count();
            assert_eq!(rows, 1, "`{key}` belongs into the table once");
        }
        for (row, _) in TABLE {
            assert!(keys.iter().any(|key| covers(row, key)), "`{row}` is no key");
        }
    }

    #[track_caller]
    fn check(before: &str, after: &str, expected: &[&str]) {
        let config = |yaml| parse_str(yaml).unwrap().config;
        let (running, mut new) = (config(before), config(after));
        assert_eq!(keep(&mut new, &running), expected);
        let mut again = new.clone();
        assert_eq!(keep(&mut again, &running), [""; 0], "nothing is left of it");
        assert_eq!(again, new);
    }

    #[test]
    fn what_needs_a_restart_stays_as_it_is_and_is_named() {
        check("listen: 127.0.0.1:1", "listen: 127.0.0.1:2", &["listen"]);
        let all = "{limits: {parked: 7, in_flight: 9}, log: {format: json, level: debug}}";
        check("", all, &["limits.parked", "log.format"]);
        check("page_size: 3", "", &[]);
    }

    #[test]
    fn keys_are_not_given_up_for_an_address_that_is_not_listened_on_yet() {
        let hash = "0".repeat(64);
        let keys = format!("auth: {{keys: [{{name: ci, hash: 'sha256:{hash}'}}]}}");
        let public = format!("{{listen: '0.0.0.0:7400', {keys}}}");
        check(&public, "", &["auth", "listen"]);
        check(&format!("{{{keys}}}"), "listen: 127.0.0.1:2", &["listen"]);
        check(&public, "{listen: '0.0.0.0:7400', insecure: true}", &[]);
    }
}
