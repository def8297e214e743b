//! Ends children when Waypost dies without a chance to end them itself.
//!
//! A process that is killed cannot clean up, and its children, each in a process group of its own,
//! would live on. So Waypost starts a second, tiny process, `waypost guard`, and holds the only
//! writing end of its standard input. The guard is told of each group that begins and ends; when
//! its input ends, Waypost is gone, and the guard ends the groups that are left.
//!
//! The input is one line for each order: `+` or `-` and the number of the group.

use std::collections::BTreeSet;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use waypost_hub::lifecycle::Tasks;

/// Between TERM and KILL, in looks of [`LOOK`].
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(50);

/// Orders waiting to be written; children do not come and go that fast.
const QUEUE: usize = 64;

/// What the guard process does; returns when there is nothing left to guard.
///
/// # Errors
/// When `orders` cannot be read, which ends the groups too.
pub fn run(orders: impl BufRead) -> io::Result<()> {
    let mut groups = BTreeSet::new();
    let read = orders.lines().try_for_each(|line| {
        line.map(|line| match line.split_at_checked(1) {
            Some(("+", group)) => groups.extend(group.parse::<i32>().ok()),
            Some(("-", group)) => drop(group.parse().map(|group: i32| groups.remove(&group))),
            // Nobody else writes here.
            _ => {}
        })
    });
    end(groups.into_iter().filter_map(Pid::from_raw).collect());
    read
}

/// Asks the groups to end, then ends them.
fn end(mut groups: Vec<Pid>) {
    // A group that is gone cannot be signalled, and then it needs none.
    groups.retain(|group| kill_process_group(*group, Signal::TERM).is_ok());
    for _ in 0..LOOKS {
        groups.retain(|group| test_kill_process_group(*group).is_ok());
        if groups.is_empty() {
            return;
        }
        thread::sleep(LOOK);
    }
    groups.retain(|group| kill_process_group(*group, Signal::KILL).is_ok());
}

/// Tells the guard process which groups there are.
#[derive(Clone, Debug)]
pub struct Guard {
    orders: mpsc::Sender<Order>,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Watch(Pid),
    Forget(Pid),
}

impl Guard {
    /// Starts the guard process, on the control runtime: `program` with `args` must call [`run`].
    ///
    /// A guard that cannot be started is a warning: everything works without it but this.
    pub fn start(program: PathBuf, args: Vec<String>, tasks: &Tasks) -> Self {
        let (orders, queue) = mpsc::channel(QUEUE);
        tasks.spawn(move |stop| async move {
            if let Err(error) = serve(program, args, queue, stop).await {
                tracing::warn!(
                    kind = %error.kind(),
                    "no guard process: children would outlive a crash"
                );
            }
        });
        Self { orders }
    }

    /// Puts a group under guard.
    pub(crate) async fn watch(&self, group: Pid) {
        self.order(Order::Watch(group)).await;
    }

    /// The group has ended; its number may soon be another's.
    pub(crate) async fn forget(&self, group: Pid) {
        self.order(Order::Forget(group)).await;
    }

    async fn order(&self, order: Order) {
        if self.orders.send(order).await.is_err() {
            tracing::debug!(?order, "nobody guards");
        }
    }
}

async fn serve(
    program: PathBuf,
    args: Vec<String>,
    mut queue: mpsc::Receiver<Order>,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut process = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // An interrupt typed at the terminal is not for the guard.
        .process_group(0)
        .spawn()?;
    if let Some(stdin) = process.stdin.take() {
        pass_on(stdin, &mut queue, &stop).await?;
    }
    process.wait().await.map(drop)
}

/// Writes orders until Waypost has stopped and every group has ended.
async fn pass_on(
    mut stdin: ChildStdin,
    queue: &mut mpsc::Receiver<Order>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let mut groups = BTreeSet::new();
    loop {
        let order = tokio::select! {
            biased;
            order = queue.recv() => order,
            () = stop.cancelled(), if groups.is_empty() => None,
        };
        let line = match order {
            Some(Order::Watch(group)) => {
                groups.insert(group.as_raw_nonzero());
                format!("+{}\n", group.as_raw_nonzero())
            }
            Some(Order::Forget(group)) => {
                groups.remove(&group.as_raw_nonzero());
                format!("-{}\n", group.as_raw_nonzero())
            }
            None => return Ok(()),
        };
        stdin.write_all(line.as_bytes()).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write as _};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command};

    use super::*;

    fn sleeper(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0);
        command.spawn().unwrap()
    }

    #[test]
    fn r01_when_waypost_is_gone_the_groups_left_are_ended() {
        let (reader, mut writer) = io::pipe().unwrap();
        let guard = thread::spawn(move || run(BufReader::new(reader)));
        let mut left = sleeper("sleep 1000 & exec sleep 1000");
        let mut forgotten = sleeper("exec sleep 1000");
        let (a, b) = (left.id(), forgotten.id());
        write!(writer, "+{a}\n+{b}\nnonsense\n-{b}\n").unwrap();
        drop(writer);
        assert_eq!(left.wait().unwrap().signal(), Some(15));
        guard.join().unwrap().unwrap();
        assert!(forgotten.try_wait().unwrap().is_none());
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }

    #[test]
    fn r01_a_group_that_ignores_being_asked_is_ended_all_the_same() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut stubborn = sleeper("trap '' TERM; echo; exec sleep 1000 ");
        let guard = thread::spawn(move || run(BufReader::new(reader)));
        writeln!(writer, "+{}", stubborn.id()).unwrap();
        drop(writer);
        // By TERM should it come before the trap, otherwise by KILL.
        let signal = stubborn.wait().unwrap().signal();
        assert!(matches!(signal, Some(9 | 15)), "{signal:?}");
        guard.join().unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_guard_is_told_of_each_group_and_leaves_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let script = format!("cat > '{}'", told.display());
        let tasks = Tasks::default();
        let guard = Guard::start("sh".into(), vec!["-c".to_owned(), script], &tasks);
        let group = |raw| Pid::from_raw(raw).unwrap();
        guard.watch(group(7)).await;
        guard.watch(group(8)).await;
        guard.forget(group(7)).await;
        let last = async {
            tokio::task::yield_now().await;
            guard.forget(group(8)).await;
        };
        let (stopped, ()) = tokio::join!(tasks.drain(Duration::from_secs(20)), last);
        assert!(stopped);
        assert_eq!(std::fs::read_to_string(told).unwrap(), "+7\n+8\n-7\n-8\n");
    }
}
