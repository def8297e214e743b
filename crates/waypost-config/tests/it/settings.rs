//! The settings of Waypost itself.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use waypost_config::{KeyHash, OnCollision, Reach, TaskPolicy, parse_str};

use crate::{check, good};

#[test]
fn an_empty_file_is_the_table_of_defaults() {
    let config = good("");
    assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 7400)));
    assert_eq!(config.admin, SocketAddr::from(([127, 0, 0, 1], 7401)));
    assert_eq!(
        (config.limits.request_body, config.limits.response_body),
        (4 << 20, 64 << 20)
    );
    assert_eq!(
        (
            config.limits.json_depth,
            config.limits.in_flight,
            config.limits.parked
        ),
        (64, 1024, 1000)
    );
    assert_eq!(
        (config.limits.listener_queue, config.naming.max_length),
        (256, 45)
    );
    assert_eq!(config.naming.on_collision, OnCollision::Prefix);
    assert_eq!(config.front.keep_alive, Duration::from_secs(15));
    assert_eq!(config.tasks.poll_first, Duration::from_millis(250));
    assert_eq!(config.tasks.poll_least, Duration::from_millis(250));
    assert_eq!(config.tasks.poll_most, Duration::from_secs(60));
    assert_eq!(config.tasks.max_wait, Duration::from_secs(30 * 60));
    assert_eq!(config.tasks.input_wait, Duration::from_secs(10 * 60));
    assert_eq!(config.cache.list_ttl, Duration::from_secs(3_600));
    assert_eq!(config.cache.resources, 32 << 20);
    assert_eq!(config.drain_grace, Duration::from_secs(20));
    assert_eq!(config.state.path, Path::new("./waypost.db"));
    assert!(config.instructions && config.auth.keys.is_empty() && !config.front.strict_headers);
}

#[test]
fn upstreams_get_their_defaults_and_keep_the_order_of_the_file() {
    let config =
        good("upstreams:\n  zeta: {url: 'https://z.example/mcp'}\n  alpha: {command: srv}\n");
    let [zeta, alpha] = &config.upstreams[..] else {
        panic!("two upstreams")
    };
    assert_eq!(
        (zeta.name.as_str(), zeta.prefix.as_str()),
        ("zeta", "zeta_")
    );
    assert_eq!(
        (alpha.name.as_str(), alpha.tasks),
        ("alpha", TaskPolicy::Auto)
    );
    let seconds = |time: Duration| time.as_secs();
    assert_eq!(
        (seconds(zeta.timeout), seconds(zeta.timeout_ceiling)),
        (300, 3600)
    );
    assert_eq!(
        (seconds(zeta.connect_timeout), seconds(zeta.list_timeout)),
        (5, 5)
    );
    assert_eq!(
        (
            seconds(zeta.startup_timeout),
            seconds(alpha.startup_timeout)
        ),
        (10, 60)
    );
    assert_eq!(zeta.max_in_flight, 256);
    assert!(matches!(&alpha.reach, Reach::Stdio { command, .. } if command == "srv"));
}

#[test]
fn all_problems_of_a_file_are_listed_in_its_order() {
    check(
        "listen: 0.0.0.0:7400\nlimts: {}\nfront:\n  strict_headers: yes\n  keep_alive: 15\nupstreams:\n  My_Server: {url: 'ftp://x'}\n",
        &[
            "1:9 error listen: `0.0.0.0:7400` can be reached from other machines, and there are no `auth.keys` \
             (add a key with `waypost auth add-key`, listen on `127.0.0.1`, or set `insecure: true`)",
            "2:1 error limts: unknown key (did you mean `limits`?)",
            "4:19 error front.strict_headers: must be `true` or `false`",
            "5:15 error front.keep_alive: a duration needs a unit: `15` (write `15s` or `15ms`)",
            "7:3 error upstreams.My_Server: not a name: a lower-case letter, then at most 31 lower-case letters, \
             digits and `-` (call it `my-server`)",
            "7:20 error upstreams.My_Server.url: only `http` and `https` are spoken (write it like `https://host.example/mcp`)",
        ],
    );
}

#[test]
fn keys_are_known_and_have_types() {
    check(
        "tasks: {max_wait: 1h, poll: 1s}",
        &["1:23 error tasks.poll: unknown key"],
    );
    check("isolation: session", &["1:1 error isolation: unknown key"]);
    check(
        "endpoint: {}",
        &["1:1 error endpoint: unknown key (did you mean `endpoints`?)"],
    );
    check("foo:\n", &["1:1 error foo: unknown key"]);
    check(
        "a: &x {}\n<<: *x",
        &[
            "1:1 error a: unknown key",
            "2:1 error [\"<<\"]: unknown key (merge keys are not supported; an alias can stand for a whole value)",
        ],
    );
    check("listen: [1]", &["1:9 error listen: must be a text"]);
    check("front: 1", &["1:8 error front: must be a map"]);
    check(
        "upstreams: [a]",
        &["1:12 error upstreams: must be a map (write `name: {...}` for each, without `- `)"],
    );
    check(
        "insecure: \"true\"",
        &["1:11 error insecure: must be `true` or `false` (leave out the quotes)"],
    );
    check(
        "limits: {first_byte: 60s}",
        &["1:10 error limits.first_byte: unknown key"],
    );
    check(
        "limits: {parked: -1}",
        &["1:18 error limits.parked: must be a whole number"],
    );
    check(
        "limits: {parked: 1.5}",
        &["1:18 error limits.parked: must be a whole number"],
    );
    check(
        "auth: {keys: ci}",
        &["1:14 error auth.keys: must be a list (write `[a, b]`, or one item a line after `- `)"],
    );
    check(
        "log: {format: jsn}",
        &["1:15 error log.format: must be one of `text`, `json` (did you mean `json`?)"],
    );
    check("- a", &["1:1 error : must be a map of settings"]);
    check(
        "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2",
        &["2:1 error listen: this key is given twice (keep one of the two)"],
    );
}

#[test]
fn nothing_is_the_same_as_no_key() {
    assert_eq!(
        good("upstreams:\nfront:\nlisten: ~\nlimits: {parked: null}\n"),
        good("")
    );
}

#[test]
fn addresses_to_listen_on() {
    assert_eq!(
        good("listen: localhost:7500").listen,
        SocketAddr::from(([127, 0, 0, 1], 7500))
    );
    assert_eq!(good("listen: '[::1]:0'").listen.to_string(), "[::1]:0");
    let hint = "(write `127.0.0.1:7400` for this machine only, `0.0.0.0:7400` for all)";
    check(
        "listen: 7400",
        &[&format!(
            "1:9 error listen: not an address to listen on: `7400` {hint}"
        )],
    );
    check(
        "listen: ':7400'",
        &[&format!(
            "1:9 error listen: not an address to listen on: `:7400` {hint}"
        )],
    );
    check(
        "admin: host:7401",
        &[
            "1:8 error admin.listen: not an address to listen on: `host:7401` \
           (write an IP address and a port, as in `127.0.0.1:7400` or `[::1]:7400`)",
        ],
    );
    check(
        "admin: {listen: 127.0.0.1:7400}",
        &[
            "1:17 error admin.listen: the same address as `listen` (give the admin listener its own port)",
        ],
    );
    assert_eq!(
        good("{listen: 127.0.0.1:0, admin: 127.0.0.1:0}")
            .admin
            .port(),
        0
    );
}

#[test]
fn the_network_gets_in_only_with_keys_or_when_the_operator_insists() {
    let key = format!("{{name: ci, hash: '{}'}}", KeyHash::of("x"));
    let insisted = good("{listen: '0.0.0.0:1', insecure: true}");
    assert!(insisted.auth.keys.is_empty());
    assert_eq!(
        good(&format!("{{listen: '0.0.0.0:1', auth: {{keys: [{key}]}}}}"))
            .auth
            .keys
            .len(),
        1
    );
    let refused = parse_str("listen: '[::]:7400'").unwrap_err();
    assert!(refused[0].what.contains("reached from other machines"));
    // The admin listener shows strangers health and metrics only.
    good("admin: 0.0.0.0:7401");
    check(
        "admin: {token: short}",
        &[
            "1:16 error admin.token: shorter than 16 characters (make one with `openssl rand -hex 32`)",
        ],
    );
}

#[test]
fn keys_are_hashes_with_a_name_each() {
    let hash = KeyHash::of("x");
    let other = KeyHash::of("y");
    let config = good(&format!("auth: {{keys: [{{name: ci, hash: '{hash}'}}]}}"));
    assert_eq!(
        (config.auth.keys[0].name.as_str(), config.auth.keys[0].hash),
        ("ci", hash)
    );
    check(
        &format!(
            "auth:\n  keys:\n  - {{name: a, hash: '{hash}'}}\n  - {{name: a, hash: '{other}'}}\n  \
             - {{name: b, hash: '{hash}'}}\n  - {{name: c, hash: wp_plain}}\n  - {{hash: '{other}'}}\n  \
             - {{name: anonymous}}\n  - {{name: 'two words', hash: 'sha256:12'}}\n  - {{name: waypost}}\n"
        ),
        &[
            "4:12 error auth.keys[1].name: `auth.keys[0]` has this name too (give each key a name of its own)",
            "5:21 error auth.keys[2].hash: `auth.keys[0]` has the same key (one key can stand for one caller only)",
            "6:21 error auth.keys[3].hash: must be `sha256:` and 64 hex digits, never the key itself \
             (`waypost auth add-key` makes a key and its entry)",
            "7:5 error auth.keys[4]: needs `name` (the name of whoever uses the key, as in `ci`)",
            "7:12 error auth.keys[4].hash: `auth.keys[1]` has the same key (one key can stand for one caller only)",
            "8:5 error auth.keys[5]: needs `hash` (`waypost auth add-key` makes a key and its entry)",
            "8:12 error auth.keys[5].name: `anonymous` stands for callers without a key (choose another name)",
            "9:12 error auth.keys[6].name: not a name: at most 64 letters, digits, `-`, `_`, `.` and `@`",
            "9:31 error auth.keys[6].hash: must be `sha256:` and 64 hex digits, never the key itself \
             (`waypost auth add-key` makes a key and its entry)",
            "10:5 error auth.keys[7]: needs `hash` (`waypost auth add-key` makes a key and its entry)",
            "10:12 error auth.keys[7].name: `waypost` stands for the gateway itself (choose another name)",
        ],
    );
}

#[test]
fn times_sizes_and_numbers_have_bounds() {
    assert_eq!(
        good("front: {keep_alive: 0}").front.keep_alive,
        Duration::ZERO
    );
    assert_eq!(
        good("limits: {request_body: 65536}").limits.request_body,
        65_536
    );
    assert_eq!(
        good("naming: {max_length: 60, on_collision: first}")
            .naming
            .on_collision,
        OnCollision::First
    );
    check(
        "tasks: {max_wait: 0}",
        &["1:19 error tasks.max_wait: may not be 0 (leave it out for the default)"],
    );
    check(
        "tasks: {poll_least: 2m}",
        &["1:21 error tasks.poll_least: longer than `tasks.poll_most` (make one fit the other)"],
    );
    check(
        "limits: {request_body: 4MB, response_body: 10, json_depth: 500}",
        &[
            "1:24 error limits.request_body: not a size: `4MB` (write `4MiB`)",
            "1:44 error limits.response_body: less than 1KiB: `10` (no MCP message would fit)",
            "1:60 error limits.json_depth: must be between 8 and 128: `500`",
        ],
    );
    check(
        "naming: {max_length: 65}",
        &["1:22 error naming.max_length: must be between 16 and 64: `65`"],
    );
}

#[test]
fn hosts_and_origins_are_only_that() {
    let config = good(
        "front: {allowed_hosts: [MCP.example, '[::1]'], allowed_origins: ['https://App.example', 'http://localhost:*']}",
    );
    assert_eq!(config.front.allowed_hosts, ["mcp.example", "[::1]"]);
    assert_eq!(
        config.front.allowed_origins,
        ["https://app.example", "http://localhost:*"]
    );
    let host = "(write a name or address without scheme and port, as in `mcp.example`)";
    let origin =
        "(write scheme, host and port only, as in `https://app.example` or `http://localhost:*`)";
    check(
        "front:\n  allowed_hosts: ['a:1', 'https://a', '*']\n  allowed_origins: ['https://a/', 'null', '*', a.example]\n",
        &[
            &format!("2:19 error front.allowed_hosts[0]: not a host: `a:1` {host}"),
            &format!("2:26 error front.allowed_hosts[1]: not a host: `https://a` {host}"),
            &format!("2:39 error front.allowed_hosts[2]: not a host: `*` {host}"),
            &format!("3:21 error front.allowed_origins[0]: not an origin: `https://a/` {origin}"),
            &format!("3:35 error front.allowed_origins[1]: not an origin: `null` {origin}"),
            &format!("3:43 error front.allowed_origins[2]: not an origin: `*` {origin}"),
            &format!("3:48 error front.allowed_origins[3]: not an origin: `a.example` {origin}"),
        ],
    );
}

#[test]
fn state_log_and_extensions() {
    let key = "k".repeat(32);
    let config = good(&format!(
        "state: {{path: /var/lib/waypost/state.db, keys: [{key}]}}"
    ));
    assert_eq!(config.state.path, Path::new("/var/lib/waypost/state.db"));
    assert_eq!(config.state.keys[0].expose(), key);
    check(
        &format!("state: {{keys: [short, {key}, {key}]}}"),
        &[
            "1:16 error state.keys[0]: shorter than 32 characters (make one with `openssl rand -base64 32`)",
            "1:57 error state.keys[2]: the same key as an earlier one",
        ],
    );
    assert_eq!(
        good("log: {level: 'info,waypost_upstream=debug'}")
            .log
            .level,
        "info,waypost_upstream=debug"
    );
    check(
        "log: {level: loud}",
        &[
            "1:14 error log.level: not a log level: `loud` (write `info`, or `info,waypost_upstream=debug`)",
        ],
    );
    let config = good("extensions: {expose: {com.example/search: [search/query]}}");
    assert_eq!(config.extensions_expose[0].methods, ["search/query"]);
    check(
        "extensions: {expose: {search: [tools/call, 'a b']}}",
        &[
            "1:23 error extensions.expose.search: not an extension's identifier (write it like `com.example/search`)",
            "1:32 error extensions.expose.search[0]: Waypost handles this method itself: `tools/call` \
             (name methods that only the extension has)",
            "1:44 error extensions.expose.search[1]: not a method's name (write it like `search/query`)",
        ],
    );
}
