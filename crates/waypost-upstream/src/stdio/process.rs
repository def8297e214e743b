//! The life of one process, from its start until it is reaped.

use std::panic::AssertUnwindSafe;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::maybe_done;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child as Process, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::errors::{self, Tail};
use super::writer::{self, Outgoing};
use crate::event::ChildEnded;
use crate::fault::{Exit, Fault, How};
use crate::guard::Guard;

/// Between the steps of stopping: closed input, TERM, KILL.
const STEP: Duration = Duration::from_secs(5);

/// How long calls may go on after Waypost was told to stop.
const GRACE: Duration = Duration::from_secs(15);

/// After the process or its output has ended: how long the other may take to follow. A grandchild
/// may hold the pipes open for ever.
const FOLLOW: Duration = Duration::from_millis(400);

/// Between looks whether a process group is gone; nothing tells that it is.
const LOOK: Duration = Duration::from_millis(50);

/// The ends of a process's pipes that are ours, and what it takes to end it.
pub(crate) struct Running {
    pub(super) process: Process,
    pub(super) pid: Option<Pid>,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) queue: mpsc::Receiver<Outgoing>,
}

impl Child {
    /// Serves the process until it and its group are gone.
    pub(crate) async fn run(
        self: Arc<Self>,
        running: Running,
        stop: CancellationToken,
        guard: Option<Guard>,
    ) {
        let pid = running.pid;
        let guarded = guard.as_ref().zip(pid);
        if let Some((guard, group)) = guarded {
            guard.watch(group).await;
        }
        let served = AssertUnwindSafe(self.serve(running, &stop)).catch_unwind();
        // One bad message must leave nobody waiting for others.
        if served.await.is_err() && self.exit().is_none() {
            self.ended(How::Stopped, String::new());
        }
        sweep(pid).await;
        if let Some((guard, group)) = guarded {
            guard.forget(group).await;
        }
        self.reaped.cancel();
    }

    /// Serves the process until it is reaped.
    async fn serve(&self, running: Running, stop: &CancellationToken) {
        let Running {
            mut process,
            pid,
            stdin,
            stdout,
            stderr,
            queue,
        } = running;
        let tail = Tail::default();
        let mut input = Box::pin(writer::run(stdin, queue, self));
        let mut output = Box::pin(self.read(stdout));
        let errors = errors::drain(stderr, self.upstream(), &self.redactor, &tail);
        let mut errors = std::pin::pin!(maybe_done(errors));
        let first = tokio::select! {
            status = process.wait() => End::Exited(status.ok()),
            () = &mut output => End::Output,
            () = &mut input => End::Input,
            () = self.asked(stop) => End::Asked,
            () = async { (&mut errors).await; std::future::pending::<()>().await } => return,
        };
        let mut rest = Box::pin(async {
            if first.output_is_open() {
                tokio::join!(&mut output, &mut errors);
            } else {
                (&mut errors).await;
            }
        });
        // A process that dies closes its pipes a moment before or after it can be waited for.
        let status = match first {
            End::Exited(status) => Some(status),
            End::Output | End::Input => {
                let status = timeout(FOLLOW, process.wait()).await;
                status.ok().map(Result::ok)
            }
            End::Asked => None,
        };
        if status.is_some() {
            drop(timeout(FOLLOW, &mut rest).await);
        }
        let how = first.how(status);
        self.ended(how, tail.text());
        drop(input);
        if status.is_none() {
            let stopped = stop_process(&mut process, pid);
            tokio::select! {
                () = stopped => {}
                // Goes on reading, so that a child with much to say can finish.
                () = async { rest.await; std::future::pending().await } => {}
            }
        }
    }

    /// Somebody wants this process to end: at once, or when its calls are done.
    async fn asked(&self, stop: &CancellationToken) {
        let gently = async {
            stop.cancelled().await;
            drop(timeout(GRACE, self.ear().idle()).await);
        };
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = gently => {}
        }
    }

    fn ended(&self, how: How, tail: String) {
        let told = self.tell_callers.load(Ordering::Relaxed);
        let exit = Arc::new(Exit { how, tail, told });
        ChildEnded {
            upstream: self.upstream(),
            exit: &exit,
        }
        .emit();
        drop(self.exit.set(Arc::clone(&exit)));
        self.ear().gone(&Fault::exited(&exit));
        self.lost.cancel();
    }
}

/// What made the service of a process end.
#[derive(Clone, Copy, Debug)]
enum End {
    Exited(Option<ExitStatus>),
    Output,
    Input,
    Asked,
}

impl End {
    fn output_is_open(self) -> bool {
        !matches!(self, Self::Output)
    }

    fn how(self, status: Option<Option<ExitStatus>>) -> How {
        use std::os::unix::process::ExitStatusExt as _;
        if matches!(self, Self::Asked) {
            return How::Stopped;
        }
        if let Some(Some(status)) = status {
            if let Some(code) = status.code() {
                return How::Code(code);
            }
            if let Some(signal) = status.signal() {
                return How::Signal(signal);
            }
        }
        match self {
            Self::Input => How::ClosedInput,
            Self::Output | Self::Exited(_) | Self::Asked => How::ClosedOutput,
        }
    }
}

/// Waits for a process whose input is closed; then asks it, then does not ask.
async fn stop_process(process: &mut Process, pid: Option<Pid>) {
    for next in [Signal::TERM, Signal::KILL] {
        if timeout(STEP, process.wait()).await.is_ok() {
            return;
        }
        signal(pid, next);
    }
    // Not even KILL ends a process that hangs in the kernel; then somebody else must reap it.
    tokio::select! {
        _ = process.wait() => {}
        () = sleep(STEP) => {}
    }
}

/// Ends what a process has left behind in its group: wrappers such as `npx` leave the server.
async fn sweep(group: Option<Pid>) {
    let left = || group.is_some_and(|group| test_kill_process_group(group).is_ok());
    if !left() {
        return;
    }
    signal(group, Signal::TERM);
    for _ in 0..20 {
        sleep(LOOK).await;
        if !left() {
            return;
        }
    }
    signal(group, Signal::KILL);
}

/// Signals the whole group. That it may be gone already is no error.
fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(?signal, %error, "a child's process group could not be signalled");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use tokio::runtime::Handle;
    use waypost_hub::lifecycle::Tasks;

    use crate::ear::{Ear, Heard, SharedEar};
    use crate::fault::Fault;
    use crate::stdio::{Launcher, Program};

    #[derive(Debug, Default)]
    struct Fragile(tokio::sync::Notify);

    impl Ear for Fragile {
        fn hear(&self, _: Heard) {
            panic!("told so");
        }
        fn spoiled(&self, _: u64, _: Fault) {}
        fn gone(&self, _: &Fault) {
            self.0.notify_one();
        }
    }

    #[tokio::test]
    async fn a_failure_inside_ends_the_process_and_leaves_nobody_waiting() {
        let script = r#"echo '{"jsonrpc":"2.0","method":"x"}'; exec sleep 600"#;
        let program = Program {
            command: "sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: Vec::new(),
            inherit_env: Vec::new(),
            cwd: None::<PathBuf>,
            secrets: Vec::new(),
        };
        let parts = crate::Parts {
            tasks: Tasks::on(Handle::current()),
            cores: 0,
            response_limit: 1 << 20,
            env: Arc::new([("PATH".into(), "/usr/bin:/bin".into())].into()),
            tls: Default::default(),
            tell_callers: Arc::new(true.into()),
            answer_within: std::time::Duration::from_secs(1),
            parked: Arc::new(tokio::sync::Semaphore::new(1)),
            places: crate::Places::new(1),
            guard: None,
        };
        let launcher = Launcher::new(&"u".into(), program, &parts);
        let ear = Arc::new(Fragile::default());
        let shared: SharedEar = Arc::<Fragile>::clone(&ear);
        let child = launcher.launch(shared, Default::default());
        let child = child.await.unwrap();
        let over = async {
            ear.0.notified().await;
            child.reaped().await;
        };
        let over = tokio::time::timeout(std::time::Duration::from_secs(20), over).await;
        assert!(over.is_ok() && child.exit().is_some());
    }
}
