//! Golden tables: a file, and the problems it has.

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::config::{OnCollision, Reach, TaskPolicy};

/// Checks the problems of a file, one a line: `line:column severity at: what (hint)`.
#[track_caller]
fn check(yaml: &str, expected: &[&str]) {
    let problems = match parse_str(yaml) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    let found: Vec<_> = problems.iter().map(line).collect();
    assert_eq!(found, expected, "\n{}", found.join("\n"));
}

fn line(problem: &Problem) -> String {
    let Problem {
        severity,
        at,
        line,
        column,
        what,
        hint,
        ..
    } = problem;
    let place = line
        .zip(*column)
        .map_or(String::new(), |(line, column)| format!("{line}:{column} "));
    let hint = hint
        .as_ref()
        .map_or(String::new(), |hint| format!(" ({hint})"));
    format!("{place}{severity} {at}: {what}{hint}")
}

#[track_caller]
fn good(yaml: &str) -> Config {
    match parse_str(yaml) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{problems:#?}"),
    }
}

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
