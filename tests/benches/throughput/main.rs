//! Calls per second and CPU time per call: straight to a server, through nginx, through Waypost.
//!
//! One process is the server and the load; nginx and Waypost run beside it, in turns within one run,
//! on the same cores, so that the numbers can be compared with each other and with nothing else.
//! `cargo xtask bench` builds what is needed and starts this with `WAYPOST_BIN` set.

mod load;
mod process;
mod proxies;
mod server;

use std::time::Duration;

use anyhow::Context as _;

use crate::load::{Load, Measured};
use crate::proxies::{Nginx, Waypost};

/// Connections that always have one call under way.
const CONNECTIONS: usize = 64;
/// Rounds; the median of each target counts.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const WARM_UP: Duration = Duration::from_secs(1);

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let server = server::start().await?;
    let nginx = Nginx::start(folder.path(), server.address).await?;
    let waypost = Waypost::start(folder.path(), server.address).await?;
    let targets = [
        Target {
            name: "direct",
            load: Load::new(server.address, "/mcp", "echo"),
            pids: Vec::new(),
        },
        Target {
            name: "nginx",
            load: Load::new(nginx.address, "/mcp", "echo"),
            pids: nginx.pids()?,
        },
        Target {
            name: "waypost",
            load: Load::new(waypost.address, "/mcp", "bench_echo"),
            pids: waypost.pids(),
        },
    ];
    say(&format!(
        "resident when idle: {:.1} MiB",
        process::resident_mib(&waypost.pids())?
    ));
    measure(&targets).await?;
    say(&format!(
        "resident after load: {:.1} MiB",
        process::resident_mib(&waypost.pids())?
    ));
    Ok(())
}

/// What is measured, and the processes whose time is counted.
struct Target {
    name: &'static str,
    load: Load,
    pids: Vec<u32>,
}

async fn measure(targets: &[Target; 3]) -> anyhow::Result<()> {
    for target in targets {
        target
            .load
            .run(CONNECTIONS, WARM_UP)
            .await
            .with_context(|| target.name)?;
    }
    let mut rounds: [Vec<Round>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let before = process::cpu(&target.pids)?;
            let measured = target.load.run(CONNECTIONS, ROUND).await?;
            let cpu = process::cpu(&target.pids)?.saturating_sub(before);
            rounds.push(Round { measured, cpu });
        }
    }
    let nginx = median(&rounds[1], Round::per_second);
    say("target      calls/s   x nginx   p50 µs   p99 µs   CPU µs/call");
    for (target, rounds) in targets.iter().zip(&rounds) {
        let rate = median(rounds, Round::per_second);
        say(&format!(
            "{:<9} {:>9.0} {:>9.2} {:>8.0} {:>8.0} {:>13.1}",
            target.name,
            rate,
            rate / nginx,
            median(rounds, |round| round.measured.quantile(0.5)),
            median(rounds, |round| round.measured.quantile(0.99)),
            median(rounds, Round::cpu_per_call),
        ));
    }
    Ok(())
}

struct Round {
    measured: Measured,
    cpu: Duration,
}

impl Round {
    fn per_second(&self) -> f64 {
        self.measured.calls() / self.measured.took.as_secs_f64()
    }

    fn cpu_per_call(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.measured.calls()
    }
}

fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[expect(clippy::print_stdout, reason = "the result of the run")]
fn say(line: &str) {
    println!("{line}");
}
