//! Running other programs, saying which and how long it took.

use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

/// Prints one line about what the helper itself is doing.
#[expect(
    clippy::print_stderr,
    reason = "the helper's only way to talk to whoever started it"
)]
pub(crate) fn say(text: &str) {
    eprintln!("xtask: {text}");
}

/// Runs `command` to its end with our own output streams; anything but success is an error.
pub(crate) fn run(what: &str, command: &mut Command) -> anyhow::Result<()> {
    say(what);
    let begun = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", command.get_program().to_string_lossy()))?;
    anyhow::ensure!(status.success(), "{what}: {status}");
    say(&format!(
        "{what}: done in {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// What `command` prints, trimmed; `None` when it cannot be started or fails.
pub(crate) fn ask(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout)
        .ok()
        .map(|text| text.trim().to_owned())
}
