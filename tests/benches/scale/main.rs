//! 200 upstreams with 100 tools each: how long Waypost takes to start with them, to list all they
//! have and to take one more, and the memory that it needs.
//!
//! One process is all the servers and the client; Waypost runs beside it, on the same cores.
//! `cargo xtask bench --scale` builds what is needed and starts this with `WAYPOST_BIN` set.

#[expect(dead_code, reason = "the other bench asks for more")]
#[path = "../throughput/process.rs"]
mod process;
mod servers;
mod waypost;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, sleep};

use crate::servers::{Servers, TOOLS};
use crate::waypost::{Answer, Client, Waypost};

/// Upstreams to begin with.
const UPSTREAMS: usize = 200;
/// Lists that are asked for, one after the other.
const LISTS: u32 = 200;
/// Upstreams that are added, one after the other.
const ADDED: usize = 10;

const SOON: Duration = Duration::from_secs(60);

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("waypost.yaml");
    let servers = Servers::start(UPSTREAMS + ADDED).await?;
    configure(&file, &servers, 0)?;
    let empty = Waypost::start(&file).await?;
    empty.ready(SOON).await?;
    let before = process::resident_mib(&empty.pids())?;
    drop(empty);

    configure(&file, &servers, UPSTREAMS)?;
    let begun = Instant::now();
    let first = Waypost::start(&file).await?;
    first.ready(SOON).await?;
    say(&format!(
        "start with nothing remembered, until ready: {:.2} s",
        seconds(begun)
    ));
    let size = listed(&first, SOON).await?;
    say(&format!(
        "processor time until then: {:.2} s",
        process::cpu(&first.pids())?.as_secs_f64()
    ));
    say(&format!(
        "{} tools, {:.1} MiB of JSON",
        UPSTREAMS * TOOLS,
        mib(size)
    ));
    // What was saved must be there for the next one.
    sleep(Duration::from_secs(2)).await;
    first.stop().await?;

    let begun = Instant::now();
    let waypost = Waypost::start(&file).await?;
    listed(&waypost, SOON).await?;
    say(&format!(
        "start with all remembered, until all is listed: {:.2} s",
        seconds(begun)
    ));
    waypost.ready(SOON).await?;
    sleep(Duration::from_secs(2)).await;
    let pids = waypost.pids();
    say(&format!("resident without upstreams: {before:.1} MiB"));
    say(&format!(
        "resident with them: {:.1} MiB",
        process::resident_mib(&pids)?
    ));
    lists(&waypost).await?;
    say(&format!(
        "resident after {LISTS} lists: {:.1} MiB",
        process::resident_mib(&pids)?
    ));
    additions(&waypost, &file, &servers).await?;
    say(&format!(
        "resident after that: {:.1} MiB",
        process::resident_mib(&pids)?
    ));
    Ok(())
}

/// Waits until everything is listed; the size of the list.
async fn listed(waypost: &Waypost, within: Duration) -> anyhow::Result<usize> {
    let mut client = Client::connect(waypost.address).await?;
    let begun = Instant::now();
    loop {
        let answer = client.list("/mcp").await?;
        if answer.tools() == UPSTREAMS * TOOLS {
            return Ok(answer.body.len());
        }
        anyhow::ensure!(begun.elapsed() < within, "{} tools", answer.tools());
        sleep(Duration::from_millis(5)).await;
    }
}

/// All tools again and again.
async fn lists(waypost: &Waypost) -> anyhow::Result<()> {
    let mut client = Client::connect(waypost.address).await?;
    client.list("/mcp").await?;
    let cpu = process::cpu(&waypost.pids())?;
    let mut answers = Vec::new();
    for _ in 0..LISTS {
        let Answer { head, whole, .. } = client.list("/mcp").await?;
        answers.push((head, whole));
    }
    let cpu = process::cpu(&waypost.pids())?.saturating_sub(cpu);
    let times = |of: fn(&(Duration, Duration)) -> Duration| {
        let mut times: Vec<Duration> = answers.iter().map(of).collect();
        times.sort_unstable();
        let at = |share: usize| times.get((times.len() - 1) * share / 100).copied();
        let [half, most] = [at(50), at(99)].map(|time| millis(time.unwrap_or_default()));
        format!("{half:.2} ms at the median, {most:.2} ms at the 99th percentile")
    };
    say(&format!(
        "a list, until its answer begins: {}",
        times(|(head, _)| *head)
    ));
    say(&format!(
        "a list, until all of it was read: {}",
        times(|(_, whole)| *whole)
    ));
    say(&format!(
        "processor time for one: {:.2} ms",
        millis(cpu / LISTS)
    ));
    Ok(())
}

/// One more upstream, several times.
async fn additions(waypost: &Waypost, file: &Path, servers: &Servers) -> anyhow::Result<()> {
    let mut times = Vec::new();
    let cpu = process::cpu(&waypost.pids())?;
    for added in 1..=ADDED {
        configure(file, servers, UPSTREAMS + added)?;
        let begun = Instant::now();
        waypost.reload()?;
        let mut client = Client::connect(waypost.address).await?;
        let path = format!("/mcp/u{}", UPSTREAMS + added - 1);
        while client.list(&path).await?.tools() != TOOLS {
            anyhow::ensure!(begun.elapsed() < SOON, "it is not added");
            sleep(Duration::from_millis(1)).await;
        }
        times.push(begun.elapsed());
    }
    let cpu = process::cpu(&waypost.pids())?.saturating_sub(cpu);
    times.sort_unstable();
    let median = times.get(ADDED / 2).copied().context("none was added")?;
    let each = millis(cpu) / f64::from(u32::try_from(ADDED)?);
    say(&format!(
        "one upstream more, until its tools are listed: {:.0} ms",
        millis(median)
    ));
    say(&format!("processor time for one: {each:.0} ms"));
    Ok(())
}

fn configure(file: &Path, servers: &Servers, upstreams: usize) -> anyhow::Result<()> {
    let state = file.with_extension("db");
    let mut yaml = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nreload: signal\nstate: {{ path: {} }}\n\
         log: {{ level: \"warn,waypost::daemon=info\" }}\nupstreams:\n",
        state.display()
    );
    for number in 0..upstreams {
        yaml.push_str(&format!(
            "  u{number}: {{ url: \"{}\" }}\n",
            servers.url(number)
        ));
    }
    if upstreams == 0 {
        yaml.push_str("  {}\n");
    }
    std::fs::write(file, yaml).context("cannot write the configuration")
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mib(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / f64::from(1 << 20)
}

#[expect(clippy::print_stdout, reason = "the result of the run")]
fn say(line: &str) {
    println!("{line}");
}
