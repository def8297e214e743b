//! The one helper program: `cargo xtask test` and `cargo xtask bench`.
//!
//! Everything that is not Rust lives here or in what this installs: the tests themselves only ever
//! find a finished directory of peers through `WAYPOST_INTEROP`.

mod bench;
mod interop;
mod paths;
mod run;
mod suite;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Waypost's helper: the tests CI runs, and the benchmark"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Installs the peers into `target/interop` where they are missing, then runs every test.
    Test {
        /// Handed to `cargo nextest run --workspace` as they are; documentation tests are left out.
        #[arg(last = true)]
        nextest: Vec<String>,
    },
    /// Measures calls per second beside nginx and the bare server, in one interleaved run. Linux only.
    Bench {
        /// Measures lists, memory and reloads with 200 upstreams and 20,000 tools instead.
        #[arg(long)]
        scale: bool,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Test { nextest } => suite::run_tests(&nextest),
        Command::Bench { scale } => bench::run_bench(scale),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not as `main` would: with a backtrace the error would be far up.
            run::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
