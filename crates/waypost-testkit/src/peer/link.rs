//! How messages get to a server and back.

use std::io;

use http::StatusCode;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::pipe::Pipe;
use super::router::{Head, Queue, Router, Tell};
use super::session::Session;
use crate::client::{Client, Post};
use crate::kit::spawn::spawn;

/// One of three ways.
#[derive(Debug)]
pub(super) enum Link {
    /// Streamable HTTP of 2026-07-28.
    Modern(Router),
    /// Streamable HTTP of the session era.
    Session(Session),
    /// Lines.
    Pipe(Pipe),
}

impl Link {
    pub(super) fn router(&self) -> &Router {
        match self {
            Self::Modern(router) => router,
            Self::Session(session) => &session.router,
            Self::Pipe(pipe) => &pipe.router,
        }
    }

    /// Sends a request; what belongs to it arrives in the queue.
    pub(super) async fn open(&self, client: &Client, id: u64, post: Post) -> io::Result<Opened> {
        match self {
            Self::Modern(router) => Ok(modern(router, client, id, post)),
            Self::Session(session) => {
                let (head, queue) = session.open(id, post.message);
                Ok(Opened {
                    head: Some(head),
                    queue,
                })
            }
            Self::Pipe(pipe) => {
                let (_, queue) = pipe.router.open(id);
                let sent = pipe.outgoing.send(post.message).await;
                sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
                Ok(Opened { head: None, queue })
            }
        }
    }

    /// Sends a notification or an answer; its HTTP status, where there is one.
    pub(super) async fn send(&self, message: Value) -> io::Result<Option<StatusCode>> {
        match self {
            Self::Modern(_) => Err(io::Error::other("there is nothing to send to but requests")),
            Self::Session(session) => session.send(message).await.map(Some),
            Self::Pipe(pipe) => {
                let sent = pipe.outgoing.send(message).await;
                sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
                Ok(None)
            }
        }
    }
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) head: Option<Head>,
    pub(super) queue: Queue,
}

fn modern(router: &Router, client: &Client, id: u64, post: Post) -> Opened {
    let (send, queue) = router.open(id);
    let (tell, head) = oneshot::channel();
    let (client, router) = (Client::new(client.url()), router.clone());
    spawn(async move {
        // Dropped with its queue, the connection closes: that is the cancellation.
        tokio::select! {
            () = exchange(&client, post, &send, tell) => {}
            () = send.closed() => {}
        }
        router.forget(id);
    });
    Opened {
        head: Some(head),
        queue,
    }
}

async fn exchange(client: &Client, post: Post, send: &mpsc::Sender<Value>, tell: Tell) {
    let mut arriving = match client.send(post).await {
        Ok(arriving) => arriving,
        Err(error) => return drop(tell.send(Err(error))),
    };
    drop(tell.send(Ok(arriving.status)));
    if !arriving.is_stream() {
        if let Ok(reply) = arriving.finish().await
            && !reply.answer.is_null()
        {
            drop(send.send(reply.answer).await);
        }
        return;
    }
    while let Ok(Some(message)) = arriving.next().await {
        if send.send(message).await.is_err() {
            return;
        }
    }
}
