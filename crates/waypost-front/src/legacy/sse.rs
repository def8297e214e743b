//! HTTP+SSE (2024-11-05: transports): a stream that a GET opens, and the address that its first
//! event names, where the client POSTs its messages. Together they are a pipe.
//!
//! A session lives as long as its stream and is on one replica: the address is of no use
//! elsewhere, nor to anybody but whom it was made for.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Method;
use http::request::Parts as Head;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use waypost_hub::call::{Principal, View};
use waypost_hub::limit::{NoRoom, Permit};
use waypost_hub::reply::Lasting;
use waypost_wire::message::Message;
use waypost_wire::sse::KEEP_ALIVE;

use crate::Parts;
use crate::admit;
use crate::answer;
use crate::encode::{self, Pieces};
use crate::event::{Finish, OpenStream};
use crate::in_flight::MOST_CALLS;
use crate::legacy::PING;
use crate::legacy::event;
use crate::legacy::sessions::Sessions;
use crate::media::{self, Wants};
use crate::modern::Asker;
use crate::refusal::{Refusal, Refused};
use crate::stdio::outbox::Outbox;
use crate::stdio::{Came, Host, Pipe};

/// Where streams are opened.
pub(crate) const SSE: &str = "/sse";
/// Where their clients send to.
pub(crate) const MESSAGES: &str = "/messages";

/// The parameter of the address that names the stream.
const NAME: &str = "session=";

/// Longest wait for a client that was shut out to take the last messages.
const FAREWELL: Duration = Duration::from_secs(5);

/// One open stream, and what its client sends.
pub(crate) struct Channel {
    key: u128,
    outbox: Arc<Outbox>,
    /// `None` once the stream is over.
    pipe: Mutex<Option<Pipe>>,
    /// Places for requests that wait until the client reads.
    waiting: Semaphore,
    unanswered: TaskTracker,
    over: CancellationToken,
    /// Whose it is.
    principal: Principal,
    view: View,
    /// They are not let in any more, or such streams are not.
    shut_out: CancellationToken,
    /// What their calls get then.
    grace: OnceLock<Duration>,
}

/// The stream as it goes out.
struct Out {
    ready: Pieces,
    outbox: Arc<Outbox>,
    keep_alive: Duration,
    _over: DropGuard,
    _open: OpenStream,
}

/// Answers a GET for a stream.
pub(crate) fn open(
    parts: &Parts,
    sessions: &Sessions,
    asker: &Asker,
    head: &Head,
    mut finish: Finish,
) -> Response {
    match stream_of(parts, sessions, asker, head) {
        Ok(response) => {
            finish.outcome("complete");
            response
        }
        Err(refusal) => {
            finish.refused(&refusal);
            answer::refused(&refusal.into())
        }
    }
}

fn stream_of(
    parts: &Parts,
    sessions: &Sessions,
    asker: &Asker,
    head: &Head,
) -> Result<Response, Refusal> {
    if head.method != Method::GET {
        return Err(Refusal::NotGet);
    }
    if Wants::of(&head.headers)? == Wants::Json {
        return Err(Refusal::NeedsStream);
    }
    let channel = Channel::open(parts, sessions, asker)?;
    let name = sessions
        .seals()
        .seal_stream(channel.key, &asker.principal, &asker.view);
    let name = name.ok_or(Refusal::NoStream)?;
    let view = head.uri.path().strip_prefix(SSE).unwrap_or_default();
    let first = format!("event: endpoint\ndata: {MESSAGES}{view}?{NAME}{name}\n\n");
    let mut response = answer::streaming(StreamBody::new(channel.out(first, parts.keep_alive)));
    // Nothing is worked on for it.
    response.extensions_mut().insert(Lasting);
    Ok(response)
}

/// Answers a POST to the address of a stream. What comes of the message goes out on the stream.
pub(crate) async fn message(
    parts: &Parts,
    sessions: &Sessions,
    asker: Asker,
    head: &Head,
    body: Body,
    finish: Finish,
) -> Response {
    let mut finish = Some(finish);
    match take(parts, sessions, asker, (head, body), &mut finish).await {
        Ok(()) => answer::accepted(),
        Err(refused) => {
            if let Some(mut finish) = finish {
                finish.refused(&refused.refusal);
            }
            answer::refused(&refused)
        }
    }
}

async fn take(
    parts: &Parts,
    sessions: &Sessions,
    asker: Asker,
    (head, body): (&Head, Body),
    finish: &mut Option<Finish>,
) -> Result<(), Refused> {
    if head.method != Method::POST {
        return Err(Refusal::NotPost.into());
    }
    // Before anything is read for somebody who has no stream.
    let channel = Channel::named(sessions, &asker, head.uri.query())?;
    media::check_content_type(&head.headers)?;
    let body = admit::read(body, parts, head).await?;
    let message = admit::parse(&body, parts.json_depth)?;
    if let Message::Request(request) = &message {
        let no_room = head.extensions.get::<NoRoom>();
        if let Some(no_room) = no_room.filter(|_| request.method != PING) {
            return Err(Refusal::NoRoom(*no_room).to(request.id.clone()));
        }
        let waits = channel.waiting.try_acquire();
        let _waits = waits.map_err(|_| Refusal::StreamFull)?;
        channel.outbox.room_for_more().await;
    }
    let mut pipe = channel.pipe.lock().await;
    let pipe = pipe.as_mut().ok_or(Refusal::NoStream)?;
    let came = Came {
        request_id: Some(asker.request_id),
        permit: head.extensions.get::<Arc<Permit>>().cloned(),
        finish: finish.take(),
    };
    pipe.take(message, came).await;
    Ok(())
}

// === impl Channel ===

impl Channel {
    /// Opens one; it takes a place among the sessions, though its client is yet to `initialize`.
    ///
    /// # Errors
    /// [`Refusal::TooManySessions`].
    fn open(parts: &Parts, sessions: &Sessions, asker: &Asker) -> Result<Arc<Self>, Refusal> {
        let permit = sessions.permit()?;
        let tasks = sessions.parts().tasks.clone();
        let host = Host {
            parts: Parts {
                // Its clients know sessions alone; one that asks for more is told so.
                modern: false,
                ..parts.clone()
            },
            tasks: tasks.clone(),
            principal: asker.principal.clone(),
            view: asker.view.clone(),
        };
        let outbox = Outbox::new();
        let mut pipe = Pipe::over(host, Arc::clone(&outbox));
        pipe.place().reserve(permit);
        let channel = Arc::new(Self {
            key: rand::random(),
            outbox,
            unanswered: pipe.unanswered().clone(),
            pipe: Mutex::new(Some(pipe)),
            waiting: Semaphore::new(MOST_CALLS),
            over: CancellationToken::new(),
            principal: asker.principal.clone(),
            view: asker.view.clone(),
            shut_out: CancellationToken::new(),
            grace: OnceLock::new(),
        });
        sessions
            .channels()
            .insert(channel.key, Arc::clone(&channel));
        event::stream_opened(&asker.principal);
        let (keeper, sessions) = (Arc::clone(&channel), sessions.clone());
        tasks.spawn(|stop| async move { keeper.keep(&sessions, stop).await });
        Ok(channel)
    }

    /// The one that an address names.
    ///
    /// # Errors
    /// [`Refusal::NoStream`], also for one of another principal or endpoint.
    fn named(
        sessions: &Sessions,
        asker: &Asker,
        query: Option<&str>,
    ) -> Result<Arc<Self>, Refusal> {
        let mut pairs = query.unwrap_or_default().split('&');
        let name = pairs.find_map(|pair| pair.strip_prefix(NAME));
        let name = name.ok_or(Refusal::NoStream)?;
        let key = sessions
            .seals()
            .open_stream(name, &asker.principal, &asker.view);
        let found = key.and_then(|key| sessions.channels().get(&key).map(|one| Arc::clone(&one)));
        found.ok_or(Refusal::NoStream)
    }

    /// What is sent: `first`, then messages as they come. Its end is the end of the channel.
    fn out(
        &self,
        first: String,
        keep_alive: Duration,
    ) -> impl stream::Stream<Item = Result<Frame<Bytes>, Infallible>> + use<> {
        let out = Out {
            ready: [first.into()].into(),
            outbox: Arc::clone(&self.outbox),
            keep_alive,
            _over: self.over.clone().drop_guard(),
            _open: OpenStream::new(),
        };
        let pieces = stream::unfold(out, |mut out| async move {
            let piece = out.next().await?;
            Some((piece, out))
        });
        pieces.map(|piece| Ok(Frame::data(piece)))
    }

    /// Whose stream it is, and where.
    pub(crate) fn whose(&self) -> (&Principal, &View) {
        (&self.principal, &self.view)
    }

    /// Ends it, once all is answered, which may take `grace`: no more is taken on it.
    pub(crate) fn shut_out(&self, grace: Duration) {
        self.grace.get_or_init(|| grace);
        self.shut_out.cancel();
    }

    /// Ends it with its stream; and the stream at shutdown and when it is shut out, once all is
    /// answered, and when its client never opens a session.
    async fn keep(&self, sessions: &Sessions, stop: CancellationToken) {
        let why = async {
            tokio::select! {
                () = self.drained(sessions.draining()) => {}
                () = self.left() => {}
                () = self.unused(sessions.parts().handshake) => {}
            }
            self.outbox.close();
            self.shut_out.cancelled().await;
            // Who does not read does not stay for that.
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            () = self.over.cancelled() => {}
            () = stop.cancelled() => {}
            () = why => {}
        }
        sessions.channels().remove(&self.key);
        // Whoever waits for room holds the pipe up.
        self.outbox.give_up();
        if let Some(pipe) = self.pipe.lock().await.take() {
            pipe.end();
        }
    }

    async fn drained(&self, draining: &CancellationToken) {
        draining.cancelled().await;
        self.unanswered.close();
        self.unanswered.wait().await;
    }

    /// Waits as [`Channel::drained`] once it is shut out; what takes too long ends with an error.
    async fn left(&self) {
        let drained = self.drained(&self.shut_out);
        let in_time = async {
            self.shut_out.cancelled().await;
            let grace = self.grace.get().copied().unwrap_or_default();
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            () = drained => return,
            () = in_time => {}
        }
        let give_up = async {
            if let Some(pipe) = &mut *self.pipe.lock().await {
                pipe.place().leave();
            }
            self.unanswered.wait().await;
        };
        drop(tokio::time::timeout(FAREWELL, give_up).await);
    }

    async fn unused(&self, within: Duration) {
        tokio::time::sleep(within).await;
        let pipe = self.pipe.lock().await;
        if pipe.as_ref().is_some_and(Pipe::is_confirmed) {
            drop(pipe);
            std::future::pending().await
        }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("unanswered", &self.unanswered.len())
            .finish_non_exhaustive()
    }
}

// === impl Out ===

impl Out {
    /// The next piece; a comment when none comes for long.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.ready.pop_front() {
            return Some(piece);
        }
        let message = if self.keep_alive.is_zero() {
            self.outbox.next().await?
        } else {
            match tokio::time::timeout(self.keep_alive, self.outbox.next()).await {
                Ok(message) => message?,
                Err(_) => return Some(KEEP_ALIVE),
            }
        };
        self.ready = encode::event(message);
        self.ready.pop_front()
    }
}
