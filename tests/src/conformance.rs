//! The official conformance suite: running it and counting what it found.
//!
//! The suite's own verdict is lenient: a scenario without a single check passes, and so does one
//! with warnings. [`Report`] counts strictly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::interop::{Interop, from_xtask};

/// A revision whose requirements are run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Revision {
    /// The last of the session era.
    November2025,
    /// The first without sessions.
    July2026,
}

impl Revision {
    fn as_str(self) -> &'static str {
        match self {
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    /// How many scenarios its set has, and how many of them are scored; a suite that ran fewer
    /// proves nothing.
    fn scenarios(self) -> (usize, usize) {
        match self {
            Self::November2025 => (33, 30),
            Self::July2026 => (50, 37),
        }
    }
}

/// How long one run of the suite may take.
const RUN: Duration = Duration::from_secs(600);
/// Scenarios of which the suite skips every check, whoever is tested.
const ALWAYS_SKIPPED: [&str; 1] = ["tasks-status-notifications"];

/// One thing the suite looked at.
#[derive(Clone, Debug, Deserialize)]
pub struct Check {
    /// The requirement.
    pub id: String,
    /// What came of it.
    pub status: Status,
    /// Why, for the bad ones.
    #[serde(default, rename = "errorMessage")]
    pub error: Option<String>,
}

/// What came of a check.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Success,
    Failure,
    Warning,
    Skipped,
    Info,
}

/// All checks of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// In the suite's order.
    pub checks: Vec<Check>,
}

impl Scenario {
    /// How many checks ended in `status`.
    #[must_use]
    pub fn count(&self, status: Status) -> usize {
        self.checks
            .iter()
            .filter(|check| check.status == status)
            .count()
    }

    /// At least one success, no failure, no warning.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.count(Status::Success) > 0
            && self.count(Status::Failure) == 0
            && self.count(Status::Warning) == 0
    }
}

/// What one run of the suite found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// By name.
    pub scenarios: BTreeMap<String, Scenario>,
    /// Those that ran beside the revision's own and say nothing about conformance to it.
    pub unscored: BTreeSet<String>,
}

impl Report {
    /// Reads the folder the suite has written its results to.
    ///
    /// # Errors
    /// When there are none, or they cannot be read.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let mut report = Self::default();
        let entries = std::fs::read_dir(folder);
        for entry in entries.with_context(|| format!("no results in {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = scenario_of(&name.to_string_lossy())?.to_owned();
            // A scenario that broke off leaves its folder empty.
            let checks = match std::fs::read(entry.path().join("checks.json")) {
                Ok(text) => serde_json::from_slice(&text)?,
                Err(_) => vec![Check {
                    id: name.clone(),
                    status: Status::Failure,
                    error: Some("the scenario did not come to its end".to_owned()),
                }],
            };
            report
                .scenarios
                .entry(name)
                .or_default()
                .checks
                .extend(checks);
        }
        Ok(report)
    }

    /// The scenarios that do not pass strictly; those that nobody can pass are left out.
    #[must_use]
    pub fn failing(&self) -> BTreeSet<&str> {
        let failing = self.scenarios.iter().filter(|(name, scenario)| {
            !scenario.is_strict() && !ALWAYS_SKIPPED.contains(&name.as_str())
        });
        failing.map(|(name, _)| name.as_str()).collect()
    }

    /// How many of the scored scenarios pass strictly, and how many there are.
    #[must_use]
    pub fn score(&self) -> (usize, usize) {
        let scored = self.scenarios.iter();
        let scored = scored.filter(|(name, _)| !self.unscored.contains(*name));
        let strict: Vec<_> = scored.map(|(_, scenario)| scenario.is_strict()).collect();
        (
            strict.iter().filter(|strict| **strict).count(),
            strict.len(),
        )
    }

    /// Prints all counts under a heading.
    #[expect(
        clippy::print_stdout,
        reason = "the counts belong into the output of a test run"
    )]
    pub fn print(&self, heading: &str) {
        println!("{heading}: {self}");
    }

    /// Compares with what is expected to fail in `run`, in both directions.
    ///
    /// # Errors
    /// When anything else fails, or an expected failure has gone; with the whole report.
    pub fn verify(&self, run: &str, expected: &ExpectedFailures) -> anyhow::Result<()> {
        let failing = self.failing();
        let expected = expected.of(run);
        anyhow::ensure!(
            failing == expected,
            "{run}: expected to fail: {expected:?}\n{self}"
        );
        Ok(())
    }
}

/// The name in `server-NAME-2026-11-30T07-58-45-944Z`.
fn scenario_of(folder: &str) -> anyhow::Result<&str> {
    let name = folder.strip_prefix("server-").unwrap_or(folder);
    let length = "-2026-11-30T07-58-45-944Z".len();
    let at = name
        .len()
        .checked_sub(length)
        .with_context(|| format!("not a result: {folder}"))?;
    name.get(..at)
        .with_context(|| format!("not a result: {folder}"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strict = self
            .scenarios
            .values()
            .filter(|scenario| scenario.is_strict())
            .count();
        let ((passed, scored), all) = (self.score(), self.scenarios.len());
        writeln!(
            f,
            "{strict} of {all} scenarios strictly, {passed} of {scored} scored"
        )?;
        for (name, scenario) in &self.scenarios {
            let [success, failure, warning, skipped] = [
                Status::Success,
                Status::Failure,
                Status::Warning,
                Status::Skipped,
            ]
            .map(|status| scenario.count(status));
            let mark = if scenario.is_strict() { "ok " } else { "NOT" };
            writeln!(
                f,
                "{mark} {name}: {success} passed, {failure} failed, {warning} warned, {skipped} skipped"
            )?;
            let bad = [Status::Failure, Status::Warning];
            for check in scenario
                .checks
                .iter()
                .filter(|check| bad.contains(&check.status))
            {
                let why = check.error.as_deref().unwrap_or("no reason given");
                writeln!(f, "      {:?} {}: {why}", check.status, check.id)?;
            }
        }
        Ok(())
    }
}

/// The checked-in list of scenarios that are expected to fail, each with its run and reason.
#[derive(Clone, Debug)]
pub struct ExpectedFailures(Vec<(String, String)>);

impl ExpectedFailures {
    /// Reads lines of `scenario run reason`.
    ///
    /// # Errors
    /// When a line gives no reason.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let entries = lines.map(|line| {
            let mut words = line.split_whitespace();
            let entry = words.next().zip(words.next());
            let (scenario, run) = entry.with_context(|| format!("names no run: {line}"))?;
            anyhow::ensure!(words.next().is_some(), "gives no reason: {line}");
            Ok((scenario.to_owned(), run.to_owned()))
        });
        entries.collect::<anyhow::Result<_>>().map(Self)
    }

    /// Reads `tests/interop/expected-failures.txt`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn load(interop: &Interop) -> anyhow::Result<Self> {
        Self::parse(&std::fs::read_to_string(
            interop.file("expected-failures.txt"),
        )?)
    }

    fn of(&self, run: &str) -> BTreeSet<&str> {
        let here = self.0.iter().filter(|(_, of)| of == run);
        here.map(|(scenario, _)| scenario.as_str()).collect()
    }
}

/// Runs what a revision requires of a server, and what the suite runs beside it without scoring it:
/// for 2026-07-28 the tasks scenarios and those on headers.
///
/// # Errors
/// When the suite cannot be run or leaves no results.
pub async fn server(interop: &Interop, revision: Revision, url: &str) -> anyhow::Result<Report> {
    let results = tempfile::tempdir()?;
    let mut command = interop.suite();
    command.args(["server", "--url", url, "--requirements", revision.as_str()]);
    let printed = run(command.arg("--output-dir").arg(results.path())).await?;
    let mut report = Report::read(results.path())?;
    report.unscored = unscored(&printed);
    let ran = (report.scenarios.len(), report.score().1);
    let set = revision.scenarios();
    anyhow::ensure!(
        ran == set,
        "{ran:?} scenarios ran and were scored, not {set:?}:\n{printed}"
    );
    Ok(report)
}

/// The names the suite lists after `Not scored for …`, each as `  ✓ name (why)`.
fn unscored(printed: &str) -> BTreeSet<String> {
    let lines = printed.lines();
    let after = lines
        .skip_while(|line| !line.starts_with("Not scored for "))
        .skip(1);
    let listed = after.take_while(|line| line.starts_with("  ") && line.ends_with(')'));
    let names = listed.filter_map(|line| line.split_whitespace().nth(1));
    names.map(str::to_owned).collect()
}

/// Runs single scenarios of a server, at the wire of 2026-07-28.
///
/// # Errors
/// When the suite cannot be run or leaves no results.
pub async fn server_scenarios(
    interop: &Interop,
    url: &str,
    scenarios: &[&str],
) -> anyhow::Result<Report> {
    let results = tempfile::tempdir()?;
    for scenario in scenarios {
        let mut command = interop.suite();
        // Extensions are on no revision's timeline; `--force` runs them at this one's wire.
        command.args(["server", "--url", url, "--scenario", scenario, "--force"]);
        command.args([
            "--spec-version",
            Revision::July2026.as_str(),
            "--output-dir",
        ]);
        run(command.arg(results.path())).await?;
    }
    Report::read(results.path())
}

/// Runs client scenarios with Waypost as the client, driven by `client_scenario.mjs`.
///
/// # Errors
/// When the suite cannot be run, leaves no results, or the driver did not get what it asked for.
pub async fn client_scenarios(
    interop: &Interop,
    revision: Revision,
    scenarios: &[&str],
) -> anyhow::Result<Report> {
    let results = tempfile::tempdir()?;
    let waypost = from_xtask("WAYPOST_BIN")?;
    for scenario in scenarios {
        let mut command = interop.suite();
        command.args([
            "client",
            "--scenario",
            scenario,
            "--spec-version",
            revision.as_str(),
            "--command",
        ]);
        command.arg(driver(interop)).env("WAYPOST_BIN", &waypost);
        let output = run(command.arg("--output-dir").arg(results.path())).await?;
        anyhow::ensure!(
            !output.contains("Client exited with code"),
            "{scenario}:\n{output}"
        );
    }
    Report::read(results.path())
}

/// The command line the suite puts a URL behind. It splits it at spaces and hands it to a shell.
fn driver(interop: &Interop) -> String {
    let words = interop.node_arguments("client_scenario.mjs");
    let words = std::iter::once(interop.node_program()).chain(words);
    words
        .map(|word| format!("'{}'", word.display()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Runs the suite to its end, whatever its verdict; returns what it printed.
async fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(RUN, output).await.context("the suite hangs")??;
    let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
    printed.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(statuses: &[Status]) -> Scenario {
        let check = |&status| Check {
            id: "id".to_owned(),
            status,
            error: None,
        };
        Scenario {
            checks: statuses.iter().map(check).collect(),
        }
    }

    #[test]
    fn a_scenario_passes_only_with_a_success_and_nothing_bad() {
        assert!(scenario(&[Status::Success, Status::Skipped, Status::Info]).is_strict());
        assert!(!scenario(&[]).is_strict());
        assert!(!scenario(&[Status::Skipped]).is_strict());
        assert!(!scenario(&[Status::Success, Status::Warning]).is_strict());
        assert!(!scenario(&[Status::Success, Status::Failure]).is_strict());
    }

    #[test]
    fn the_folder_names_the_scenario() {
        let folder = "server-tasks-lifecycle-2026-11-30T07-58-45-944Z";
        assert_eq!(scenario_of(folder).unwrap(), "tasks-lifecycle");
        assert_eq!(
            scenario_of("tools_call-2026-11-30T07-58-45-944Z").unwrap(),
            "tools_call"
        );
        assert!(scenario_of("short").is_err());
    }

    #[test]
    fn what_is_not_scored_is_told_after_the_summary() {
        let printed = "✓ one: 1 passed\n✗ two: 1 failed\n\nNot scored for 2025-11-25: 1 scenario(s) \
                       run, 1 failing.\n  ✗ two (pending)\n\nmore (words)\n";
        let mut report = Report {
            unscored: unscored(printed),
            ..Report::default()
        };
        assert_eq!(report.unscored, BTreeSet::from(["two".to_owned()]));
        for (name, status) in [("one", Status::Success), ("two", Status::Failure)] {
            let found = scenario(&[status]);
            report.scenarios.insert(name.to_owned(), found);
        }
        assert_eq!(report.score(), (1, 1));
    }

    #[test]
    fn a_run_that_broke_off_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("server-ping-2026-11-30T07-58-45-944Z")).unwrap();
        let report = Report::read(folder.path()).unwrap();
        assert_eq!(report.failing(), BTreeSet::from(["ping"]));
    }

    #[test]
    fn an_expected_failure_that_passes_is_reported() {
        let expected = ExpectedFailures::parse("# why\n\none auto it differs\n").unwrap();
        let report = |status| Report {
            scenarios: BTreeMap::from([("one".to_owned(), scenario(&[status]))]),
            unscored: BTreeSet::new(),
        };
        assert!(report(Status::Failure).verify("auto", &expected).is_ok());
        assert!(report(Status::Success).verify("auto", &expected).is_err());
        assert!(
            report(Status::Failure)
                .verify("passthrough", &expected)
                .is_err()
        );
        assert!(
            report(Status::Success)
                .verify("passthrough", &expected)
                .is_ok()
        );
        assert!(ExpectedFailures::parse("one auto").is_err());
    }
}
