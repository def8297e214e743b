//! `cargo xtask test`: the peers, then every test of the workspace.

use std::path::PathBuf;
use std::process::Command;

use crate::interop;
use crate::paths::{Paths, cargo};
use crate::run::{ask, run, say};

/// The runner where the machine has none. CI and a developer's machine run the same one.
const NEXTEST: &str = "0.9.143";

/// Installs, then runs documentation tests and nextest; `args` narrow the latter and leave out the former.
pub(crate) fn run_tests(args: &[String]) -> anyhow::Result<()> {
    let paths = Paths::find()?;
    interop::install(&paths)?;
    let nextest = nextest(&paths)?;
    let everything = args.is_empty();
    build(&paths, everything)?;
    if everything {
        let mut docs = cargo();
        docs.args(["test", "--workspace", "--doc", "--quiet"])
            .current_dir(&paths.root);
        run("documentation tests", &mut docs)?;
    }
    // Last, so that its closing line ends the output.
    run(
        "tests",
        Command::new(nextest)
            .args(["nextest", "run"])
            .args((!narrows(args)).then_some("--workspace"))
            .args(args)
            .env("WAYPOST_INTEROP", paths.interop())
            .env("WAYPOST_BIN", paths.target.join("debug/waypost"))
            .current_dir(&paths.root),
    )
}

/// Builds the daemon, which some peers start by themselves.
fn build(paths: &Paths, everything: bool) -> anyhow::Result<()> {
    let mut build = cargo();
    build.arg("build").current_dir(&paths.root);
    if everything {
        // All that the tests need too, with the same features: nothing is built twice.
        build.args(["--workspace", "--all-targets"]);
    } else {
        build.args(["--package", "waypost", "--bins"]);
    }
    run("build", &mut build)
}

/// Whether `args` choose packages themselves, which `--workspace` would override.
fn narrows(args: &[String]) -> bool {
    args.iter()
        .any(|arg| arg == "-p" || arg == "--package" || arg.starts_with("--package="))
}

/// The machine's cargo-nextest, or one of our own under `target`.
fn nextest(paths: &Paths) -> anyhow::Result<PathBuf> {
    let works =
        |program: &PathBuf| ask(Command::new(program).args(["nextest", "--version"])).is_some();
    let system = PathBuf::from("cargo-nextest");
    if works(&system) {
        return Ok(system);
    }
    let home = paths.target.join("tools");
    let own = home.join("bin/cargo-nextest");
    if !works(&own) {
        say(&format!(
            "no `cargo-nextest` here: version {NEXTEST} is compiled into {} once, which takes \
             several minutes",
            home.display()
        ));
        run(
            "cargo: nextest",
            cargo()
                .args([
                    "install",
                    "--locked",
                    "cargo-nextest",
                    "--version",
                    NEXTEST,
                    "--root",
                ])
                .arg(&home)
                // Its build must not see or disturb the workspace's.
                .env_remove("RUSTFLAGS")
                .current_dir(&paths.target),
        )?;
    }
    Ok(own)
}
