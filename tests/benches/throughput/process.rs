//! What the system says of a process. Linux only: the numbers come from `/proc`.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How many ticks `/proc` counts in a second: fixed on Linux, whatever the kernel's own rate.
const TICKS: u64 = 100;

/// The processor time that all of them have used so far.
pub(crate) fn cpu(pids: &[u32]) -> anyhow::Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let [user, system] = fields(*pid, [11, 12])?;
        ticks += user + system;
    }
    Ok(Duration::from_millis(ticks * (1000 / TICKS)))
}

/// The memory that all of them hold.
pub(crate) fn resident_mib(pids: &[u32]) -> anyhow::Result<f64> {
    let mut kib = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.context("no `VmRSS` in the status")?;
        kib += line.trim().trim_end_matches(" kB").parse::<u32>()?;
    }
    Ok(f64::from(kib) / 1024.0)
}

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> anyhow::Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.split_whitespace()
        .map(|pid| pid.parse().context("not a process"))
        .collect()
}

/// Numbers of `/proc/PID/stat`, counted from after the program's name, which may hold anything.
fn fields<const N: usize>(pid: u32, at: [usize; N]) -> anyhow::Result<[u64; N]> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = text.rsplit_once(')').context("no name in the statistics")?;
    let words: Vec<_> = rest.split_whitespace().collect();
    let mut numbers = [0; N];
    for (number, at) in numbers.iter_mut().zip(at) {
        *number = words.get(at).context("too few statistics")?.parse()?;
    }
    Ok(numbers)
}

/// Whether a GET there is answered with 200.
pub(crate) async fn answers_ok(address: SocketAddr, path: &str) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}
