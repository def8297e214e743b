//! The standard input of a child: whole messages, one at a time.

use std::sync::{Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, mpsc};
use waypost_wire::message;
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::calls::Calls;

/// Messages waiting to be written. A call waits for room; it does not fail.
const QUEUE: usize = 64;

/// One message for the child.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// The request of the call with this id, unless it was given up meanwhile.
    Call(u64, Bytes),
    /// The answer to a request of the server.
    Answer(Bytes),
}

/// Ids of calls whose requests were written and that nobody waits for any more.
///
/// Beside the queue, so that giving up never waits and never fails; there are never more of them
/// than there were calls.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    ids: Mutex<Vec<u64>>,
    wake: Notify,
}

impl Cancels {
    /// Adds one.
    pub(crate) fn push(&self, id: u64) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.push(id);
        drop(ids);
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The queue's two ends.
pub(crate) fn queue() -> (mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
    mpsc::channel(QUEUE)
}

/// Writes until the child does not read any more. Dropped, it closes the pipe.
pub(crate) async fn run(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Outgoing>, calls: &Calls) {
    loop {
        let written = tokio::select! {
            () = calls.cancels.wake.notified() => cancel(&mut stdin, &calls.cancels).await,
            next = queue.recv() => match next {
                Some(Outgoing::Call(id, message)) if calls.sending(id) => {
                    write(&mut stdin, message).await
                }
                Some(Outgoing::Call(..)) => Ok(()),
                Some(Outgoing::Answer(message)) => write(&mut stdin, message).await,
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
    for id in cancels.take() {
        let params: Object = [
            ("requestId", Raw::from_serialize(&id)),
            ("reason", Raw::string("the caller has gone")),
        ]
        .into_iter()
        .collect();
        write(
            stdin,
            message::encode_notification(method::CANCELLED, &params),
        )
        .await?;
    }
    Ok(())
}

async fn write(stdin: &mut ChildStdin, message: Bytes) -> std::io::Result<()> {
    let mut line = message::one_line(message).chain(&b"\n"[..]);
    stdin.write_all_buf(&mut line).await
}
