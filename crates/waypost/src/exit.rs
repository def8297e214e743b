//! How the process ends.

use std::fmt::Write as _;
use std::process::ExitCode;

use waypost_config::{Problem, Severity};

/// Restarting will not help (`EX_CONFIG` of sysexits).
const BAD_CONFIG: u8 = 78;
const FAILED: u8 = 1;

/// Why the process ends without success.
#[derive(Debug)]
pub enum Fatal {
    /// The configuration is wrong; all there is to say about it.
    Config(Vec<Problem>),
    /// Waypost cannot start, or cannot go on.
    Run {
        error: anyhow::Error,
        /// What the operator can do.
        hint: Option<String>,
    },
}

impl Fatal {
    /// A failure and what to do about it.
    pub fn hint(error: impl Into<anyhow::Error>, hint: impl Into<String>) -> Self {
        Self::Run {
            error: error.into(),
            hint: Some(hint.into()),
        }
    }

    /// The last words of the process.
    fn words(&self) -> String {
        let mut text = String::new();
        let written = match self {
            Self::Config(problems) => {
                let count = |of| problems.iter().filter(|p| p.severity == of).count();
                let errors = count(Severity::Error);
                let plural = if errors == 1 { "" } else { "s" };
                problems
                    .iter()
                    .try_for_each(|problem| writeln!(text, "{problem}\n"))
                    .and_then(|()| {
                        writeln!(text, "error: the configuration has {errors} error{plural}")
                    })
            }
            Self::Run { error, hint } => writeln!(text, "error: {error:#}").and_then(|()| {
                hint.as_ref()
                    .map_or(Ok(()), |hint| writeln!(text, "\nhint: {hint}"))
            }),
        };
        // Writing into memory does not fail.
        written.map_or_else(|_| String::new(), |()| text)
    }
}

impl From<anyhow::Error> for Fatal {
    fn from(error: anyhow::Error) -> Self {
        Self::Run { error, hint: None }
    }
}

/// Prints what went wrong, if anything did, and chooses the exit code.
#[expect(clippy::print_stderr, reason = "the last words of the process")]
pub fn exit(result: Result<(), Fatal>) -> ExitCode {
    let Err(fatal) = result else {
        return ExitCode::SUCCESS;
    };
    eprint!("{}", fatal.words());
    match fatal {
        Fatal::Config(_) => BAD_CONFIG.into(),
        Fatal::Run { .. } => FAILED.into(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_failure_prints_its_chain_and_the_hint() {
        let error = anyhow!("address in use").context("cannot listen on `127.0.0.1:7400`");
        let fatal = Fatal::hint(error, "choose another address");
        assert_eq!(
            fatal.words(),
            "error: cannot listen on `127.0.0.1:7400`: address in use\n\n\
             hint: choose another address\n"
        );
    }

    #[test]
    fn every_problem_of_a_configuration_is_printed_at_once() {
        let yaml = "listn: 127.0.0.1:0\nupstreams: { a: { url: 'ftp://x' } }\n";
        let problems = waypost_config::parse_str(yaml).unwrap_err();
        let words = Fatal::Config(problems).words();
        assert!(words.contains(":1:1: error: `listn`"), "{words}");
        assert!(words.contains("`upstreams.a.url`"), "{words}");
        assert!(
            words.ends_with("error: the configuration has 2 errors\n"),
            "{words}"
        );
    }
}
