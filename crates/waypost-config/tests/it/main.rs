//! Golden tables (a file, and the problems it has), where values come from, and the examples.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod endpoints;
mod families;
mod robust;
mod settings;
mod shaping;
mod sources;
mod together;
mod upstreams;

use waypost_config::{Config, Loaded, Problem, Secret, parse_str};

/// Checks the problems of a file: `line:column severity key: what (hint)`.
#[track_caller]
fn check(yaml: &str, expected: &[&str]) {
    expect_problems(parse_str(yaml), expected);
}

fn joined(args: &[Secret]) -> String {
    let args: Vec<_> = args.iter().map(Secret::expose).collect();
    args.join(" ")
}

#[track_caller]
fn expect_problems(result: Result<Loaded, Vec<Problem>>, expected: &[&str]) {
    let problems = result.map_or_else(|problems| problems, |loaded| loaded.warnings);
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
