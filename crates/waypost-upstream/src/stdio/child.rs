//! One process, from its start until it is reaped.

use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::maybe_done;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child as Process, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::Call;
use waypost_hub::reply::Reply;
use waypost_wire::code;
use waypost_wire::error::{ErrorObject, Malformed};
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message};

use super::calls::Calls;
use super::command::SpawnFault;
use super::errors::{self, Tail};
use super::lines::{Line, Lines};
use super::redact::Redactor;
use super::sniff;
use super::waiter::Waiter;
use super::writer::{self, Cancels, Outgoing};
use crate::event::{Ignored, StrayLine};
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

/// What all who deal with one process share.
#[derive(Debug)]
pub(crate) struct Child {
    upstream: Arc<str>,
    instance: Arc<str>,
    calls: Calls,
    cancels: Cancels,
    queue: mpsc::Sender<Outgoing>,
    redactor: Redactor,
    limit: usize,
    /// It has described itself as modern.
    pub(crate) modern: AtomicBool,
    warned: AtomicBool,
    closing: CancellationToken,
    exit: OnceLock<Arc<Exit>>,
    lost: CancellationToken,
    reaped: CancellationToken,
}

/// What is needed to run a process, beside the command.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) upstream: Arc<str>,
    pub(crate) redactor: Redactor,
    /// Bytes of one message.
    pub(crate) limit: usize,
}

/// The ends of a process's pipes that are ours, and what it takes to end it.
pub(crate) struct Running {
    process: Process,
    pid: Option<Pid>,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: tokio::process::ChildStderr,
    queue: mpsc::Receiver<Outgoing>,
}

impl Child {
    /// Starts the process; [`Child::run`] has to be spawned then.
    pub(crate) fn start(
        mut command: Command,
        program: &Path,
        start: Start,
    ) -> Result<(Arc<Self>, Running), Fault> {
        let process = command.spawn();
        let mut process = process.map_err(|e| Fault::Spawn(SpawnFault::of(&e, program)))?;
        let pipes = (
            process.stdin.take(),
            process.stdout.take(),
            process.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Fault::NotRunning(None));
        };
        let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
        let (sender, queue) = writer::queue();
        let child = Arc::new(Self {
            calls: Calls::new(&start.upstream),
            upstream: start.upstream,
            instance: format!("{:016x}", rand::random::<u64>()).into(),
            cancels: Cancels::default(),
            queue: sender,
            redactor: start.redactor,
            limit: start.limit,
            modern: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            closing: CancellationToken::new(),
            exit: OnceLock::new(),
            lost: CancellationToken::new(),
            reaped: CancellationToken::new(),
        });
        let running = Running {
            process,
            pid: pid.and_then(Pid::from_raw),
            stdin,
            stdout,
            stderr,
            queue,
        };
        Ok((child, running))
    }

    /// The upstream's name.
    pub(crate) fn upstream(&self) -> &Arc<str> {
        &self.upstream
    }

    /// The tag of this process.
    pub(crate) fn instance(&self) -> &Arc<str> {
        &self.instance
    }

    /// How it ended, once calls to it are pointless.
    pub(crate) fn exit(&self) -> Option<&Arc<Exit>> {
        self.exit.get()
    }

    /// Asks it to end; see [`Child::reaped`].
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Resolves when calls to it are pointless.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Resolves when the process is gone and reaped.
    pub(crate) async fn reaped(&self) {
        self.reaped.cancelled().await;
    }

    /// Sends `call` and waits for the first answer.
    pub(crate) async fn call(self: &Arc<Self>, mut call: Call) -> Result<Reply, Fault> {
        let outlet = self.calls.open(&call)?;
        let id = outlet.id;
        call.meta.put(&mut call.params);
        let request = message::encode_request(&Id::number(id), &call.method, &call.params);
        let waiter = Waiter::new(Arc::clone(self), outlet);
        // A closed queue means that the process is gone, and then the waiter knows already.
        drop(self.queue.send(Outgoing::Call(id, request)).await);
        waiter.reply().await
    }

    /// Nobody waits for the answer to `id` any more.
    pub(crate) fn give_up(&self, id: u64) {
        if self.calls.give_up(id) {
            self.cancels.push(id);
        }
    }

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
        self.serve(running, &stop).await;
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
        let mut input = Box::pin(writer::run(stdin, queue, &self.calls, &self.cancels));
        let mut output = Box::pin(self.read(stdout));
        let errors = errors::drain(stderr, &self.upstream, &self.redactor, &tail);
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
            drop(timeout(GRACE, self.calls.idle()).await);
        };
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = gently => {}
        }
    }

    fn ended(&self, how: How, tail: String) {
        let exit = Arc::new(Exit { how, tail });
        self.calls.fail_all(&exit);
        let upstream = &*self.upstream;
        if how == How::Stopped {
            tracing::info!(upstream, "child stopped");
        } else {
            tracing::warn!(upstream, %exit, "child ended");
        }
        drop(self.exit.set(exit));
        self.lost.cancel();
    }

    /// Reads the process's messages until there are no more.
    async fn read(&self, mut stdout: ChildStdout) {
        let mut lines = Lines::new(self.limit);
        while let Ok(1..) = stdout.read_buf(lines.space()).await {
            while let Some(line) = lines.next_line() {
                self.line(line);
            }
        }
        if let Some(line) = lines.rest() {
            self.line(line);
        }
    }

    fn line(&self, line: Line) {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { head, tail } => {
                let fault = Fault::TooLarge { limit: self.limit };
                return self.spoiled(sniff::id(&head, &tail), &head, fault);
            }
        };
        if line.trim_ascii().is_empty() {
            return;
        }
        match Message::parse(&line) {
            Ok(Message::Response(id, outcome)) => self.calls.answer(id.as_ref(), outcome),
            Ok(Message::Notification(notification)) => self.calls.notify(notification),
            Ok(Message::Request(request)) => self.refuse(&request.id),
            Err(unreadable) => {
                let id = match (&unreadable.id, &unreadable.reason) {
                    // JSON, but none of the protocol's: a log line with an `id` is no answer.
                    (
                        _,
                        Malformed::Wrong {
                            member: "jsonrpc", ..
                        }
                        | Malformed::NotObject,
                    ) => None,
                    (Some(id), _) => id.raw().as_i64().and_then(|id| u64::try_from(id).ok()),
                    (None, _) => sniff::id(&line, &line),
                };
                self.spoiled(id, &line, Fault::Malformed(unreadable.reason));
            }
        }
    }

    /// A line that cannot be read fails the call that it answers, if that can be told.
    fn spoiled(&self, id: Option<u64>, line: &Bytes, fault: Fault) {
        let first = !self.warned.swap(true, Ordering::Relaxed);
        let sample = if first {
            self.redactor.clean(line.get(..2048).unwrap_or(line), 120)
        } else {
            String::new()
        };
        StrayLine {
            upstream: &self.upstream,
            sample: first.then_some(&sample),
        }
        .emit();
        if let Some(id) = id {
            self.calls.spoil(id, fault);
        }
    }

    /// Servers of this era ask in their results; one that asks here must not wait for ever.
    fn refuse(&self, id: &Id) {
        let upstream = &self.upstream;
        Ignored {
            upstream,
            reason: "request",
        }
        .emit();
        let error = ErrorObject::new(code::METHOD_NOT_FOUND, "method not found");
        let answer = message::encode_error(Some(id), &error);
        // With a full queue the server does not read; it will not miss the answer.
        drop(self.queue.try_send(Outgoing::Answer(answer)));
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
