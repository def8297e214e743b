//! All that is wrong is said at once, and nothing that is only a consequence.

use waypost_config::parse_str;

use super::check;

const NEEDS: &str = "needs exactly one of `url` and `command` \
    (give `url` for a remote server, `command` for a local one)";

#[test]
fn a_repeated_key_hides_nothing_else() {
    check(
        "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\nlog: {level: 7}\nupstreams:\n  a: {}\n  a: {}\nfoo: 1\n",
        &[
            "2:1 error listen: this key is given twice (keep one of the two)",
            "3:14 error log.level: not a log level: `7` (write `info`, or `info,waypost_upstream=debug`)",
            &format!("5:3 error upstreams.a: {NEEDS}"),
            "6:3 error upstreams.a: this key is given twice (keep one of the two)",
            "7:1 error foo: unknown key",
        ],
    );
}

#[test]
fn an_unknown_key_hides_neither_a_bad_name_nor_a_missing_address() {
    let bad = "not a name: a lower-case letter, then at most 31 lower-case letters, digits and `-` \
        (call it `my-server`)";
    check(
        "upstreams:\n  My_Server: {colour: red}\n",
        &[
            &format!("2:3 error upstreams.My_Server: {bad}"),
            &format!("2:3 error upstreams.My_Server: {NEEDS}"),
            "2:15 error upstreams.My_Server.colour: unknown key",
        ],
    );
    // One that is the address misspelt is enough to say.
    check(
        "upstreams: {a: {comand: x}}",
        &["1:17 error upstreams.a.comand: unknown key (did you mean `command`?)"],
    );
    check(
        "auth: {keys: [{colour: red}, {hsh: x, name: a}]}",
        &[
            "1:15 error auth.keys[0]: needs `name` (the name of whoever uses the key, as in `ci`)",
            "1:15 error auth.keys[0]: needs `hash` (`waypost auth add-key` makes a key and its entry)",
            "1:16 error auth.keys[0].colour: unknown key",
            "1:31 error auth.keys[1].hsh: unknown key (did you mean `hash`?)",
        ],
    );
}

#[test]
fn an_upstream_is_told_all_its_mistakes() {
    let scheme = parse_str("upstreams: {a: {url: 'ftp://x'}}").unwrap_err();
    let scheme = format!(
        "{} ({})",
        scheme[0].what,
        scheme[0].hint.as_deref().unwrap()
    );
    check(
        "upstreams:\n  a: {url: 'ftp://x', command: y, tasks: nope, timeout: 0, headers: {'a b': c}, env: {'': d}}\n",
        &[
            &format!("2:3 error upstreams.a: {NEEDS}"),
            &format!("2:12 error upstreams.a.url: {scheme}"),
            "2:42 error upstreams.a.tasks: must be one of `auto`, `passthrough`, `collapse`, `refuse`",
            "2:57 error upstreams.a.timeout: may not be 0 (leave it out for the default)",
            "2:77 error upstreams.a.headers[\"a b\"]: not a header's name (write it like `Authorization`)",
            "2:91 error upstreams.a.env[\"\"]: not a variable's name",
        ],
    );
}

#[test]
fn keys_of_other_programs_are_told_what_to_write_instead() {
    check(
        "servers: {}\nmcpServers:\n  a: {httpUrl: 'http://h'}\n  b: {command: x, envFile: .env}\n  \
         c: {command: x, trust: true}\nupstreams:\n  d: {serverUrl: 'http://h'}\n",
        &[
            "1:1 error servers: unknown key (write `mcpServers` for entries of another program, `upstreams` for Waypost's own)",
            "3:7 error mcpServers.a.httpUrl: unknown key (write `url`)",
            "4:19 error mcpServers.b.envFile: unknown key \
             (not supported; name the variables in `env`, as `KEY: \"${env:KEY}\"`)",
            "5:26 warning mcpServers.c.trust: this key is for an editor and does nothing here \
             (leave it out; each client decides itself which calls it asks about)",
            "7:7 error upstreams.d.serverUrl: unknown key (write `url`)",
        ],
    );
}

#[test]
fn a_list_in_place_of_a_map_is_told_how_to_be_one() {
    check(
        "upstreams:\n  - {command: x}\nmcpServers:\n  a: {command: x, env: [A=b]}\nlog: {level: {}}\n",
        &[
            "2:3 error upstreams: must be a map (write `name: {...}` for each, without `- `)",
            "4:24 error mcpServers.a.env: must be a map (write `key: value` for each, without `- `)",
            "5:14 error log.level: must be a text",
        ],
    );
}

#[test]
fn what_editors_write_into_their_entries_is_no_mistake() {
    let does = "this key is for an editor and does nothing here";
    check(
        "mcpServers:\n  a: {command: x, autoApprove: [y], gallery: true, description: z}\n  \
         b: {command: x, disabledTools: [y]}\n",
        &[
            &format!(
                "2:19 warning mcpServers.a.autoApprove: {does} \
                 (leave it out; each client decides itself which calls it asks about)"
            ),
            &format!("2:46 warning mcpServers.a.gallery: {does} (leave it out)"),
            &format!("2:65 warning mcpServers.a.description: {does} (leave it out)"),
            &format!(
                "3:19 warning mcpServers.b.disabledTools: {does} \
                 (leave it out; `tools: {{deny: [...]}}` hides tools)"
            ),
        ],
    );
    check(
        "upstreams: {a: {command: x, gallery: true}}",
        &["1:29 error upstreams.a.gallery: unknown key"],
    );
}
