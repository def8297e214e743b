//! HTTP/2 in clear text, for clients that begin with it (RFC 9113, section 3.3).

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use futures_util::future::MapOk;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower::util::Oneshot;
use waypost_hub::lifecycle::Tasks;

use super::connection::{Answers, Ending, IDLE, TAKE};
use super::patient::{Leaves as _, Patient};
use super::resets::Resets;

/// What such a connection begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Between looks at a connection that has sent only a part of that; doubles.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_MOST: Duration = Duration::from_secs(1);

/// Requests at once on one connection; what may be in flight altogether is limited elsewhere.
const STREAMS: u32 = 256;

/// All headers of a request together, in bytes.
const HEADERS: u32 = 64 << 10;

/// Of one answer, bytes that wait to be sent, and those that are handed over at once. A client is
/// too slow when it does not take so many within [`TAKE`].
const WAITING: usize = 64 << 10;
const PIECE: usize = 16 << 10;

/// Streams that their client has reset before they were looked at. It may give up all that it may
/// have at once; one that has more of them does nothing else, and loses its connection.
const RESET_BY_CLIENT: usize = STREAMS as usize;

/// Streams that were reset for mistakes of the client, over the life of a connection: calls beyond
/// [`STREAMS`] are among them. Half of them are enough to tell the client to go, so that what it
/// has open is finished before its connection would be lost.
const RESET_BY_US: usize = 4_096;

/// A client that says nothing is asked whether it is there, and has so long to say so.
const ASK: Duration = Duration::from_secs(30);
const ANSWERED: Duration = Duration::from_secs(20);

/// How long a client that is told to go may take nothing of what is left, its answers or that.
const FAREWELL: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Of one stream: since when its client could have taken more of the answer and has not.
    static GIVEN: Cell<Option<Instant>>;
}

/// Whether HTTP/2 is what the connection begins with. Reads nothing.
pub(super) async fn is_spoken(stream: &TcpStream) -> io::Result<bool> {
    let mut begun = [0; PREFACE.len()];
    let mut wait = LOOK_FIRST;
    loop {
        let count = stream.peek(&mut begun).await?;
        let begun = begun.get(..count).unwrap_or_default();
        if count == 0 || !PREFACE.starts_with(begun) {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        if stream.has_left() {
            return Ok(false);
        }
        // Waiting for what can be read would not wait: a part of it can.
        sleep(wait).await;
        wait = (wait * 2).min(LOOK_MOST);
    }
}

/// Answers the requests of one connection. Its streams are tasks of `tasks`; one that its client
/// resets or leaves is dropped with its call.
pub(super) async fn serve<S: Answers<Incoming>>(
    stream: TcpStream,
    service: S,
    tasks: Tasks,
    Ending { stop, last }: Ending,
) {
    let streams = Streams {
        tasks,
        last: last.clone(),
        used: Arc::default(),
    };
    let stream = Patient::new(stream, TAKE);
    let leaving = Leaving {
        used: Arc::clone(&streams.used),
        takes: stream.takes(),
        last,
    };
    let told = CancellationToken::new();
    let stream = Resets::new(stream, RESET_BY_US / 2, told.clone());
    let service = Named {
        service,
        told: told.clone(),
    };
    let connection = http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS)
        .max_send_buf_size(WAITING)
        .max_pending_accept_reset_streams(RESET_BY_CLIENT)
        .max_local_error_reset_streams(RESET_BY_US)
        .keep_alive_interval(ASK)
        .keep_alive_timeout(ANSWERED)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut look = interval_at(Instant::now() + IDLE, IDLE);
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = stop.cancelled() => break leave(connection, &leaving).await,
            () = told.cancelled() => break leave(connection, &leaving).await,
            _ = look.tick() => if leaving.used.is_over() {
                break leave(connection, &leaving).await;
            },
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection broke off");
    }
}

/// Takes no more requests, and waits for the answers to those that are there.
async fn leave<S: Answers<Incoming>>(
    mut connection: Pin<&mut Served<S>>,
    Leaving { used, takes, last }: &Leaving,
) -> hyper::Result<()> {
    connection.as_mut().graceful_shutdown();
    let mut until = Instant::now() + TAKE;
    let mut look = interval_at(Instant::now() + FAREWELL, FAREWELL);
    let mut is_last = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            // The streams are told, too; what they make of it is sent.
            () = last.cancelled(), if !is_last => is_last = true,
            // A client that does not say that it has heard of it has had its time, once it has
            // what streams that are over left behind. Hyper lets nobody say which was the last.
            _ = look.tick() => {
                let takes = takes.swap(false, Ordering::Relaxed);
                if !used.is_over() {
                    until = Instant::now() + TAKE;
                } else if !takes || Instant::now() >= until {
                    return Ok(());
                }
            }
        }
    }
}

/// What is looked at while a connection ends.
struct Leaving {
    used: Arc<Used>,
    /// Its client has taken something.
    takes: Arc<AtomicBool>,
    last: CancellationToken,
}

type Served<S> = http2::Connection<TokioIo<Resets<Patient<TcpStream>>>, Named<S>, Streams>;

/// Spawns the streams of one connection.
#[derive(Clone)]
struct Streams {
    tasks: Tasks,
    last: CancellationToken,
    used: Arc<Used>,
}

/// What a connection is used for.
#[derive(Debug, Default)]
struct Used {
    open: AtomicUsize,
    /// Since it was looked at last.
    lately: AtomicBool,
}

impl Used {
    /// Whether there is no stream, and was none since this was asked before.
    fn is_over(&self) -> bool {
        !self.lately.swap(false, Ordering::Relaxed) && self.open.load(Ordering::Relaxed) == 0
    }
}

/// One stream.
struct Use(Arc<Used>);

impl Use {
    fn begin(used: &Arc<Used>) -> Self {
        used.open.fetch_add(1, Ordering::Relaxed);
        used.lately.store(true, Ordering::Relaxed);
        Self(Arc::clone(used))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.lately.store(true, Ordering::Relaxed);
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (this_use, last) = (Use::begin(&self.used), self.last.clone());
        self.tasks.spawn_here(|_| async move {
            let _use = this_use;
            let stream = GIVEN.scope(Cell::new(None), taken(stream));
            let mut stream = pin!(stream);
            tokio::select! {
                () = stream.as_mut() => {}
                // Looking at it once more is what brings the last words out of the call.
                () = last.cancelled() => stream.await,
            }
        });
    }
}

/// Ends with the stream, or when its client has taken nothing of it for too long: flow control is
/// the client's, so it would otherwise hold the answer and what makes it for ever.
async fn taken(stream: impl Future<Output = ()>) {
    let (mut stream, mut timer) = (pin!(stream), pin!(sleep(TAKE)));
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = GIVEN.with(Cell::get) else {
            return Poll::Pending;
        };
        if timer.deadline() != since + TAKE {
            timer.as_mut().reset(since + TAKE);
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

/// An answer of which it is known whether more of it could be taken, in pieces so small that a
/// slow client is told from one that takes nothing.
#[derive(Debug)]
struct Given<B> {
    body: Pin<Box<B>>,
    rest: Bytes,
}

impl<B: Body<Data = Bytes>> Given<B> {
    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        self.body.as_mut().poll_frame(cx)
    }
}

impl<B: Body<Data = Bytes>> Body for Given<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        // Who asks for more has sent what there was.
        let given = |since| GIVEN.try_with(|given| given.set(since)).unwrap_or_default();
        given(None);
        let Some(frame) = ready!(self.poll_whole(cx)) else {
            return Poll::Ready(None);
        };
        given(Some(Instant::now()));
        let piece = frame.map(|frame| match frame.into_data() {
            Ok(mut piece) => {
                self.rest = piece.split_off(piece.len().min(PIECE));
                Frame::data(piece)
            }
            Err(trailers) => trailers,
        });
        Poll::Ready(Some(piece))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() {
            self.body.size_hint()
        } else {
            SizeHint::new()
        }
    }
}

/// Gives each request the `Host` header that this version has in another place (RFC 9113,
/// section 8.3.1), where guards look for it, and takes from each answer the `Connection` header
/// that it has not (section 8.2.2): that of one which says `close` ends the connection behind the
/// streams that it has.
struct Named<S> {
    service: S,
    told: CancellationToken,
}

impl<S: Answers<Incoming>> Service<Request<Incoming>> for Named<S> {
    type Response = Response<Given<S::Body>>;
    type Error = Infallible;
    type Future = MapOk<Oneshot<S, Request<Incoming>>, Hand<S::Body>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let host = request.uri().authority().map(|host| host.as_str());
        if let Some(Ok(host)) = host.map(HeaderValue::from_str) {
            request.headers_mut().insert(HOST, host);
        }
        let told = self.told.clone();
        let hand: Hand<S::Body> = Box::new(move |mut response| {
            let said = response.headers_mut().remove(CONNECTION);
            if said.is_some_and(|said| said == "close") {
                told.cancel();
            }
            response.map(given)
        });
        self.service.clone().oneshot(request).map_ok(hand)
    }
}

/// Makes an answer one of this version.
type Hand<B> = Box<dyn FnOnce(Response<B>) -> Response<Given<B>> + Send>;

fn given<B>(body: B) -> Given<B> {
    Given {
        body: Box::pin(body),
        rest: Bytes::new(),
    }
}

#[cfg(test)]
mod tests;
