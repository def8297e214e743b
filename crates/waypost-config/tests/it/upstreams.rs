//! The upstreams, in both shapes.

use std::path::Path;
use std::time::Duration;

use waypost_config::{Declared, Isolation, Reach, TaskPolicy, Upstream, UpstreamEra};

use crate::{check, good, joined};

/// The only upstream of a file in which it is all there is.
#[track_caller]
fn only(body: &str) -> Upstream {
    good(&format!("upstreams: {{a: {body}}}"))
        .upstreams
        .remove(0)
}

#[test]
fn a_remote_server_with_everything() {
    let a = only(
        "{url: 'https://ci.example:8443/mcp?k=v', headers: {Authorization: Bearer x, X-Team: 7}, tasks: collapse, \
          timeout: 10m, timeout_ceiling: 2h, startup_timeout: 1s, connect_timeout: 2s, list_timeout: 3s, required: true, \
          disabled: true, assume_extensions: [io.modelcontextprotocol/tasks], max_in_flight: 4, aliases: [old], prefix: '', \
          tools: {allow: ['read_*'], deny: ['*delete*'], timeouts: {z: 1s, '*': 2s}}}",
    );
    let Reach::Http { url, headers, .. } = &a.reach else {
        panic!("remote")
    };
    assert_eq!(url.uri(), "https://ci.example:8443/mcp?k=v");
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    assert_eq!(headers, [("authorization", "Bearer x"), ("x-team", "7")]);
    assert_eq!(
        (a.tasks, a.required, a.disabled, a.max_in_flight),
        (TaskPolicy::Collapse, true, true, 4)
    );
    let seconds = Duration::from_secs;
    assert_eq!(
        (a.timeout, a.timeout_ceiling),
        (seconds(600), seconds(7200))
    );
    assert_eq!(
        (a.startup_timeout, a.connect_timeout, a.list_timeout),
        (seconds(1), seconds(2), seconds(3))
    );
    assert_eq!(
        (a.prefix.as_str(), &a.aliases[..]),
        ("", &["old".to_owned()][..])
    );
    assert_eq!(
        a.tools.timeouts,
        [("z".to_owned(), seconds(1)), ("*".to_owned(), seconds(2))]
    );
}

#[test]
fn r14_messages_can_be_posted_elsewhere_than_the_server_says() {
    let posted = |keys: &str| {
        let a = only(&format!("{{url: 'http://h/p/sse?k=v', {keys}}}"));
        let Reach::Http { message_url, .. } = a.reach else {
            panic!("remote")
        };
        message_url.map(|url| url.uri().to_string())
    };
    assert_eq!(posted("era: sse"), None);
    let own = posted("message_url: /p/messages").unwrap();
    assert_eq!(own, "http://h/p/messages");
    let other = posted("message_url: 'https://o/m', era: auto").unwrap();
    assert_eq!(other, "https://o/m");
    check(
        "upstreams:\n  a: {url: 'http://h', message_url: messages}\n  b: {command: x, message_url: /m}\n  \
         c: {url: 'http://h', message_url: /m, era: modern}\n",
        &[
            "2:37 error upstreams.a.message_url: neither a path nor an address (write it like \
             `/prefix/messages` or `https://host.example/messages`)",
            "3:32 error upstreams.b.message_url: is for a remote server, and this one has `command`",
            "4:37 error upstreams.c.message_url: is for servers of HTTP+SSE (leave out `message_url`, \
             or `era`)",
        ],
    );
}

#[test]
fn r40_a_local_server_gets_what_the_file_says() {
    let a = only(
        "{command: npx, args: [-y, 8080, true], env: {PORT: 8080, DEBUG: true}, inherit_env: ['*'], cwd: ./srv}",
    );
    let Reach::Stdio {
        command,
        args,
        env,
        inherit_env,
        cwd,
    } = &a.reach
    else {
        panic!("local")
    };
    assert_eq!(
        (command.as_str(), joined(args).as_str()),
        ("npx", "-y 8080 true")
    );
    let env: Vec<_> = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose()))
        .collect();
    assert_eq!(
        (env, inherit_env.join(" ").as_str()),
        (vec![("PORT", "8080"), ("DEBUG", "true")], "*")
    );
    assert_eq!(cwd.as_deref(), Some(Path::new("./srv")));
}

#[test]
fn names_are_checked_and_a_good_one_is_suggested() {
    let not = "not a name: a lower-case letter, then at most 31 lower-case letters, digits and `-`";
    check(
        "upstreams:\n  waypost: {command: a}\n  workflow: {command: a}\n  GitHub MCP: {command: a}\n  1x: {command: a}\n  \
         good-1: {command: a}\n  ''  : {command: a}\n",
        &[
            "2:3 error upstreams.waypost: this name is Waypost's own (call it `my-waypost`)",
            "3:3 error upstreams.workflow: this name is Waypost's own (call it `my-workflow`)",
            &format!("4:3 error upstreams[\"GitHub MCP\"]: {not} (call it `github-mcp`)"),
            &format!("5:3 error upstreams.1x: {not} (call it `my-1x`)"),
            &format!("7:3 error upstreams[\"\"]: {not} (call it `my`)"),
        ],
    );
    let long = "a".repeat(33);
    check(
        &format!("upstreams: {{{long}: {{command: a}}}}"),
        &[&format!(
            "1:13 error upstreams.{long}: {not} (call it `{}`)",
            "a".repeat(32)
        )],
    );
}

#[test]
fn exactly_one_way_to_reach_it() {
    let needs = "needs exactly one of `url` and `command` \
        (give `url` for a remote server, `command` for a local one)";
    check(
        "upstreams:\n  a: {}\n",
        &[&format!("2:3 error upstreams.a: {needs}")],
    );
    check(
        "upstreams: {a: {url: 'http://h', command: x}}",
        &[&format!("1:13 error upstreams.a: {needs}")],
    );
    // A mistake in the key itself is enough to say.
    check(
        "upstreams: {a: {uri: 'http://h'}}",
        &["1:17 error upstreams.a.uri: unknown key (did you mean `url`?)"],
    );
    check(
        "upstreams:\n  a:\n    url: http://h\n    args: [x]\n    cwd: /\n  b: {command: x, headers: {A: b}}\n",
        &[
            "4:5 error upstreams.a.args: is for a local server, and this one has `url`",
            "5:10 error upstreams.a.cwd: is for a local server, and this one has `url`",
            "6:19 error upstreams.b.headers: is for a remote server, and this one has `command`",
        ],
    );
}

#[test]
fn a_command_is_a_program_and_not_a_line_for_a_shell() {
    check(
        "upstreams: {a: {command: npx -y foo}}",
        &[
            "1:26 error upstreams.a.command: holds arguments, and no shell takes them apart \
           (write `command: npx` and `args: [-y, foo]`)",
        ],
    );
    check(
        "upstreams: {a: {command: ''}}",
        &["1:26 error upstreams.a.command: names no program (write a program's name or path)"],
    );
    only("{command: '/Applications/My App/bin/srv'}");
    check(
        "upstreams: {a: {command: x, env: {'A=B': c}, inherit_env: ['']}}",
        &[
            "1:42 error upstreams.a.env[\"A=B\"]: not a variable's name",
            "1:60 error upstreams.a.inherit_env[0]: not a variable's name",
        ],
    );
}

#[test]
fn headers_that_waypost_sets_and_headers_that_cannot_be_are_refused() {
    let own = "Waypost sets this header itself (leave it out)";
    check(
        "upstreams:\n  a:\n    url: http://h\n    headers:\n      Host: x\n      content-length: 1\n      Mcp-Name: x\n      \
         MCP-Protocol-Version: x\n      Accept: x\n      Connection: x\n      'Bad Name': x\n      X-A: 1\n      x-a: 2\n      \
         X-B: \"a\\nb\"\n",
        &[
            &format!("5:13 error upstreams.a.headers.Host: {own}"),
            &format!("6:23 error upstreams.a.headers.content-length: {own}"),
            &format!("7:17 error upstreams.a.headers.Mcp-Name: {own}"),
            &format!("8:29 error upstreams.a.headers.MCP-Protocol-Version: {own}"),
            &format!("9:15 error upstreams.a.headers.Accept: {own}"),
            &format!("10:19 error upstreams.a.headers.Connection: {own}"),
            "11:19 error upstreams.a.headers[\"Bad Name\"]: not a header's name (write it like `Authorization`)",
            "13:12 error upstreams.a.headers.x-a: this header is given twice (case does not matter in a header's name)",
            "14:12 error upstreams.a.headers.X-B: has characters that no header can carry \
             (headers carry visible ASCII; look for line breaks, as at the end of a secret's file)",
        ],
    );
}

#[test]
fn timeouts_fit_under_their_ceiling() {
    check(
        "upstreams: {a: {command: x, timeout: 2h, tools: {timeouts: {slow: 3h, '[': 1s}}}}",
        &[
            "1:38 error upstreams.a.timeout: longer than `timeout_ceiling` (raise `timeout_ceiling` as well)",
            "1:67 error upstreams.a.tools.timeouts.slow: longer than `timeout_ceiling` (raise `timeout_ceiling` as well)",
            "1:76 error upstreams.a.tools.timeouts[\"[\"]: not a pattern: `[` (use `*`, `?`, `[ab]` and `{a,b}`)",
        ],
    );
    check(
        "upstreams: {a: {command: x, timeout: 30, tools: {deny: ['']}}}",
        &[
            "1:38 error upstreams.a.timeout: a duration needs a unit: `30` (write `30s` or `30ms`)",
            "1:57 error upstreams.a.tools.deny[0]: an empty pattern matches nothing (`*` matches everything)",
        ],
    );
}

#[test]
fn r67_a_prefix_is_any_text_that_names_may_have() {
    assert_eq!(only("{command: x, prefix: gh-}").prefix, "gh-");
    let what = "has characters that clients refuse in names (use letters, digits, `_` and `-`, or `\"\"` for none)";
    check(
        "upstreams: {a: {command: x, prefix: 'a.'}}",
        &[&format!("1:37 error upstreams.a.prefix: {what}")],
    );
}

#[test]
fn overlapping_prefixes_are_a_warning() {
    check(
        "upstreams:\n  git: {command: a}\n  git-hub: {command: b, prefix: git_hub_}\n  c: {command: c, prefix: ''}\n  \
         d: {command: d, prefix: '', disabled: true}\n",
        &[
            "3:33 warning upstreams.git-hub.prefix: the prefix `git_hub_` overlaps with `git_` of `git` \
             (names may collide; give one of them another `prefix`)",
            "4:27 warning upstreams.c.prefix: the empty prefix overlaps with every other, as with `git_` of `git` \
             (names may collide; give one of them another `prefix`)",
        ],
    );
    // Equal ones are worse than those that only begin alike.
    check(
        "upstreams:\n  a: {command: a, prefix: x_}\n  b: {command: b, prefix: x_y}\n  \
         c: {command: c, prefix: x_y}\n",
        &[
            "3:27 warning upstreams.b.prefix: the prefix `x_y` overlaps with `x_` of `a` \
             (names may collide; give one of them another `prefix`)",
            "4:27 warning upstreams.c.prefix: the prefix `x_y` overlaps with `x_y` of `b` \
             (names may collide; give one of them another `prefix`)",
        ],
    );
    check(
        "upstreams:\n  time: {command: a}\n  b: {command: b, prefix: ''}\n  \
         c: {command: c, prefix: ''}\n  d: {command: d, prefix: ''}\n",
        &[
            "3:27 warning upstreams.b.prefix: the prefix is empty, and `c`, `d` have none too \
             (names may collide; give one of them another `prefix`)",
        ],
    );
}

#[test]
fn r68_one_name_leads_to_one_upstream() {
    check(
        "upstreams:\n  a: {command: x}\n  a: {command: y}\n",
        &["3:3 error upstreams.a: this key is given twice (keep one of the two)"],
    );
    check(
        "upstreams: {a: {command: x}}\nmcpServers: {a: {command: y}}\n",
        &["2:14 error mcpServers.a: `upstreams.a` has this name too (rename one of the two)"],
    );
    check(
        "upstreams: {a: {command: x, aliases: [b, B, c]}, b: {command: y}, d: {command: z, aliases: [c]}}",
        &[
            "1:39 error upstreams.a.aliases[0]: `upstreams.b` has this name too (an old name can lead to one upstream only)",
            "1:42 error upstreams.a.aliases[1]: not a name: a lower-case letter, then at most 31 lower-case letters, digits and `-`",
            "1:93 error upstreams.d.aliases[0]: `upstreams.a.aliases[2]` has this name too (an old name can lead to one upstream only)",
        ],
    );
    // Two ways to one address are fine.
    assert_eq!(
        good("upstreams: {a: {url: 'http://h'}, b: {url: 'http://h'}}")
            .upstreams
            .len(),
        2
    );
}

#[test]
fn the_shape_of_claude_and_cursor_is_understood() {
    let json = r#"{
      "upstreams": { "last": { "command": "x" } },
      "mcpServers": {
        "files": { "type": "stdio", "command": "npx", "args": ["-y", "srv"], "env": { "A": "b" }, "timeout": 1500 },
        "ci": { "transport": "streamable_http", "url": "https://ci.example/mcp", "headers": { "X-K": "v" }, "disabled": true },
        "b": { "type": "streamableHttp", "url": "http://h", "timeout": "2s", "tasks": "refuse" },
        "c": { "type": "http", "url": "http://h" }
      }
    }"#;
    let config = good(json);
    let names: Vec<_> = config
        .upstreams
        .iter()
        .map(|upstream| upstream.name.as_str())
        .collect();
    assert_eq!(names, ["last", "files", "ci", "b", "c"]);
    let [_, files, ci, b, c] = &config.upstreams[..] else {
        panic!("five upstreams")
    };
    assert_eq!(
        (files.timeout, b.timeout),
        (Duration::from_millis(1500), Duration::from_secs(2))
    );
    assert_eq!(
        (ci.disabled, b.tasks, c.timeout),
        (true, TaskPolicy::Refuse, Duration::from_secs(300))
    );
}

#[test]
fn a_transport_that_does_not_fit_is_refused() {
    check(
        "mcpServers:\n  a: {type: sse, url: 'http://h'}\n  b: {type: http, command: x}\n  c: {type: stdio, url: 'http://h'}\n  \
         d: {transport: ws, url: 'http://h'}\n  e: {command: x, colour: []}\n  f: {command: x, timeout: 0}\n",
        &[
            "3:13 error mcpServers.b.type: needs `url`: `http` (give `url`, or leave out `type`)",
            "4:13 error mcpServers.c.type: needs `command`: `stdio` (give `command`, or leave out `type`)",
            "5:18 error mcpServers.d.transport: not a transport: `ws` (write `stdio`, `http` or `sse`)",
            "6:19 error mcpServers.e.colour: unknown key",
            "7:28 error mcpServers.f.timeout: may not be 0 (leave it out for the default)",
        ],
    );
}

#[test]
fn the_era_and_who_shares_a_server_are_settings() {
    let upstream = only("{url: 'http://h', era: legacy, isolation: principal, declare: [roots]}");
    assert_eq!(upstream.era, UpstreamEra::Legacy);
    assert_eq!(upstream.isolation, Some(Isolation::Principal));
    assert_eq!(upstream.declare, [Declared::Roots]);
    let upstream = only("{url: 'http://h'}");
    assert_eq!(
        (upstream.era, upstream.isolation),
        (UpstreamEra::Auto, None)
    );
    let file = "mcpServers: { a: { type: sse, url: 'http://h/sse' } }";
    assert_eq!(good(file).upstreams[0].era, UpstreamEra::Sse);
    check(
        "upstreams:\n  a: {command: x, era: sse}\nfront: {eras: []}\n",
        &[
            "2:24 error upstreams.a.era: `sse` is for servers with a `url` \
             (leave `era` out, or write `legacy`)",
            "3:9 error front.eras: no client could be served \
             (write `[modern]`, `[legacy]`, or leave it out for both)",
        ],
    );
}

#[test]
fn http_sse_is_off_and_only_for_clients_of_the_session_era() {
    assert!(!good("").front.sse);
    assert!(good("front: { sse: true }").front.sse);
    check(
        "front: {eras: [modern], sse: true}\n",
        &[
            "1:30 error front.sse: its clients are of an era that is not served \
           (add `legacy` to `front.eras`, or leave `sse` out)",
        ],
    );
}

#[test]
fn the_fingerprint_is_of_the_server_and_not_of_its_secrets() {
    let of = |body: &str| only(body).fingerprint;
    let a = of("{url: 'http://h/mcp?key=1', headers: {A: b}}");
    assert_eq!(a.len(), 64);
    assert_eq!(
        a,
        of("{url: 'http://h/mcp?key=2', headers: {A: c}, timeout: 1s, prefix: x}")
    );
    let command = of("{command: x, args: [a, b], env: {K: v}}");
    assert_eq!(command, of("{command: x, args: [a, b], env: {K: w}}"));
    let all = [
        a,
        of("{url: 'http://h/mcp?other=1', headers: {A: b}}"),
        of("{url: 'http://h/other?key=1', headers: {A: b}}"),
        of("{url: 'http://h/mcp?key=1', headers: {B: b}}"),
        command,
        of("{command: x, args: [ab], env: {K: v}}"),
        of("{command: x, args: [a, b], env: {L: v}}"),
        of("{command: x, args: [a, b], env: {K: v}, cwd: /}"),
        of("{command: x, args: [a, b], inherit_env: [K]}"),
    ];
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn a_value_that_could_not_be_read_causes_no_second_complaint() {
    let unset = "is not set (set it, or give a default: `${env:";
    check(
        "listen: 0.0.0.0:1\nauth: {keys: \"${K}\"}\ntasks: {poll_least: 2m, poll_most: 5}\nmcpServers:\n  \
         a: {type: http, url: \"${U}\", timeout_ceiling: soon}\n  b: {timeout: later}\n",
        &[
            &format!("2:14 error auth.keys: the environment variable `K` {unset}K:-...}}`)"),
            "3:36 error tasks.poll_most: a duration needs a unit: `5` (write `5s` or `5ms`)",
            &format!("5:24 error mcpServers.a.url: the environment variable `U` {unset}U:-...}}`)"),
            "5:49 error mcpServers.a.timeout_ceiling: not a duration: `soon` \
             (write a number and a unit, as in `500ms`, `5s`, `5m` or `1h`)",
            "6:3 error mcpServers.b: needs exactly one of `url` and `command` \
             (give `url` for a remote server, `command` for a local one)",
            "6:16 error mcpServers.b.timeout: not a duration: `later` \
             (write a number and a unit, as in `500ms`, `5s`, `5m` or `1h`)",
        ],
    );
}

#[test]
fn a_name_without_anything_is_not_passed_over() {
    let hint = "(give it what it needs, or take the name out)";
    check(
        "upstreams:\n  a:\n  b: { command: c, env: { TOKEN: } }\nmcpServers: { c: null }",
        &[
            &format!("2:4 error upstreams.a: has a name and nothing else {hint}"),
            &format!("3:32 error upstreams.b.env.TOKEN: has a name and nothing else {hint}"),
            &format!("4:18 error mcpServers.c: has a name and nothing else {hint}"),
        ],
    );
}
