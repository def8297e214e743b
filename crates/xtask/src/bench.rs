//! `cargo xtask bench`: Waypost beside nginx and the bare server, as released.

use std::process::Command;

use crate::paths::{Paths, cargo};
use crate::run::{ask, run};

/// Builds what is measured and runs `tests/benches/throughput`.
pub(crate) fn run_bench() -> anyhow::Result<()> {
    // nginx prints its version where others print errors; that it starts is enough.
    anyhow::ensure!(
        ask(Command::new("nginx").arg("-v")).is_some(),
        "`nginx` is the yardstick and is not here\n\nhint: install it, as in `apt-get install nginx-light`"
    );
    let paths = Paths::find()?;
    let mut build = cargo();
    build.args(["build", "--release", "--package", "waypost"]);
    run("build", build.current_dir(&paths.root))?;
    let mut bench = cargo();
    bench.args([
        "bench",
        "--package",
        "waypost-tests",
        "--bench",
        "throughput",
    ]);
    bench.env("WAYPOST_BIN", paths.target.join("release/waypost"));
    run("bench", bench.current_dir(&paths.root))
}
