//! `cargo xtask bench`: Waypost as released, beside nginx and the bare server or with many upstreams.

use std::process::Command;

use crate::paths::{Paths, cargo};
use crate::run::{ask, run};

/// Builds what is measured and runs `tests/benches/scale` or `tests/benches/throughput`.
pub(crate) fn run_bench(scale: bool) -> anyhow::Result<()> {
    // nginx prints its version where others print errors; that it starts is enough.
    anyhow::ensure!(
        scale || ask(Command::new("nginx").arg("-v")).is_some(),
        "`nginx` is the yardstick and is not here\n\nhint: install it, as in `apt-get install nginx-light`"
    );
    let paths = Paths::find()?;
    let mut build = cargo();
    build.args(["build", "--release", "--package", "waypost"]);
    run("build", build.current_dir(&paths.root))?;
    let mut bench = cargo();
    let name = if scale { "scale" } else { "throughput" };
    bench.args(["bench", "--package", "waypost-tests", "--bench", name]);
    bench.env("WAYPOST_BIN", paths.target.join("release/waypost"));
    run("bench", bench.current_dir(&paths.root))
}
