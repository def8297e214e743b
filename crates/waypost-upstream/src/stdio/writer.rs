//! The standard input of a child: whole messages, one at a time.

use std::sync::{Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, mpsc};
use waypost_hub::own;
use waypost_wire::id::Id;
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::child::Child;

/// Messages waiting to be written. A call waits for room; it does not fail.
const QUEUE: usize = 64;

/// Answers to requests of the server that wait to be written.
const REFUSALS: usize = 256;

/// One message for the child.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// The request of the call with this id, unless it was given up meanwhile.
    Call(u64, Bytes),
    /// A notification, or the answer to a request of the server.
    Other(Bytes),
}

/// What the server has to stop.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The call with this id, whose request was written and that nobody waits for any more.
    Call(u64),
    /// A task that nobody holds.
    Task {
        /// Of the request that says so.
        id: u64,
        /// The server's name for it.
        task: Raw,
    },
    /// A request of its own: this is the answer.
    Request(Bytes),
}

/// What the server has to be told to stop.
///
/// Beside the queue, so that giving up never waits and never fails; there is never more of it
/// than there were calls, and refusals of a server's own requests are bounded.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    stops: Mutex<Vec<Stop>>,
    wake: Notify,
}

impl Cancels {
    /// Adds one. A server that asks faster than it reads is not answered any more.
    pub(crate) fn push(&self, stop: Stop) {
        let mut stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        let is_refusal = |stop: &Stop| matches!(stop, Stop::Request(_));
        if is_refusal(&stop) && stops.iter().filter(|stop| is_refusal(stop)).count() >= REFUSALS {
            return;
        }
        stops.push(stop);
        drop(stops);
        self.wake.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Stop> {
        std::mem::take(&mut self.stops.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The queue's two ends.
pub(crate) fn queue() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    mpsc::channel(QUEUE)
}

/// Writes until the child does not read any more. Dropped, it closes the pipe.
pub(crate) async fn run(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Outgoing>, child: &Child) {
    let cancels = &child.cancels;
    loop {
        let written = tokio::select! {
            () = cancels.wake.notified() => cancel(&mut stdin, cancels).await,
            next = queue.recv() => match next {
                Some(Outgoing::Call(id, message)) if child.ear().sending(id) => {
                    write(&mut stdin, message).await
                }
                Some(Outgoing::Call(..)) => Ok(()),
                Some(Outgoing::Other(message)) => write(&mut stdin, message).await,
                // The child owns one end of its own, so this end comes with the child's.
                None => return,
            },
        };
        if written.is_err() {
            return;
        }
    }
}

async fn cancel(stdin: &mut ChildStdin, cancels: &Cancels) -> std::io::Result<()> {
    for stop in cancels.take() {
        let message = match stop {
            Stop::Call(id) => cancelled(id),
            Stop::Task { id, task } => cancel_task(id, task),
            Stop::Request(answer) => answer,
        };
        write(stdin, message).await?;
    }
    Ok(())
}

fn cancelled(id: u64) -> Bytes {
    let params: Object = [
        ("requestId", Raw::from_serialize(&id)),
        ("reason", Raw::string("the caller has gone")),
    ]
    .into_iter()
    .collect();
    message::encode_notification(method::CANCELLED, &params)
}

/// The server needs to see the extension declared on this request as on any other of a task.
fn cancel_task(id: u64, task: Raw) -> Bytes {
    let mut params: Object = [("taskId", task)].into_iter().collect();
    let mut meta = own::meta();
    meta.capabilities = meta.capabilities.with_tasks();
    meta.put(&mut params);
    message::encode_request(&Id::number(id), method::TASKS_CANCEL, &params)
}

async fn write(stdin: &mut ChildStdin, message: Bytes) -> std::io::Result<()> {
    let mut line = message::one_line(message).chain(&b"\n"[..]);
    stdin.write_all_buf(&mut line).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_asks_and_does_not_read_fills_no_memory() {
        let cancels = Cancels::default();
        for _ in 0..2 * REFUSALS {
            cancels.push(Stop::Request(Bytes::new()));
        }
        cancels.push(Stop::Call(1));
        assert_eq!(cancels.take().len(), REFUSALS + 1);
        cancels.push(Stop::Request(Bytes::new()));
        assert_eq!(cancels.take().len(), 1);
    }
}
