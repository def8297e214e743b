//! One client connection after the other.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::util::Oneshot;
use tower::{BoxError, Service, ServiceExt as _};
use waypost_hub::lifecycle::Tasks;

use super::http2;
use super::patient::Patient;

/// Longest wait for the head of a request. It also runs between two requests, and clients keep
/// idle connections for up to 90 s: whoever closes first should be the client.
const HEAD: Duration = Duration::from_secs(120);

/// The same between two looks at whether a connection of HTTP/2 is still of use.
pub(super) const IDLE: Duration = HEAD;

/// Longest wait for a client to take a single byte of what is being sent to it.
pub(super) const TAKE: Duration = Duration::from_secs(60);

/// Pause after an accept that failed for want of descriptors or memory.
const BREATHER: Duration = Duration::from_millis(100);

/// Said to a connection that is one too many; a queue would only hide the overload.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\
    retry-after: 1\r\ncontent-length: 0\r\n\r\n";

/// What answers the requests of a connection: any service that hyper can serve.
pub(crate) trait Answers<B>:
    Service<Request<B>, Response = Response<Self::Body>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
}

impl<S, B, R> Answers<B> for S
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
}

/// How many connections there may be, and until when. Clones are one door.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    tasks: Tasks,
    /// Says that answers which are left are ready, so that connections look for them.
    last: CancellationToken,
    permits: Arc<Semaphore>,
}

/// Serves connections that come through a door, on whichever runtime accepts them.
#[derive(Clone, Debug)]
pub(crate) struct Connections<S> {
    door: Door,
    service: S,
}

impl Door {
    /// At most `cap` connections at once.
    pub(crate) fn new(cap: usize) -> Self {
        Self {
            tasks: Tasks::default(),
            last: CancellationToken::new(),
            permits: Arc::new(Semaphore::new(cap.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Connections through this door.
    pub(crate) fn to<S: Answers<Incoming>>(&self, service: S) -> Connections<S> {
        Connections {
            door: self.clone(),
            service,
        }
    }

    /// The signal after which no connection is accepted.
    pub(crate) fn stop_signal(&self) -> CancellationToken {
        self.tasks.stop_signal()
    }

    /// Ends accepting and lets each connection finish the request it is at. `false` means that
    /// some outlived `grace`.
    pub(crate) async fn drain(self, grace: Duration) -> bool {
        self.tasks.drain(grace).await
    }

    /// Lets connections that outlived their grace send what they have at last, within `limit`.
    pub(crate) async fn last_words(self, limit: Duration) {
        self.last.cancel();
        self.tasks.drain(limit).await;
    }

    /// Spawns work that ends with accepting, on the runtime of the caller.
    pub(crate) fn spawn_here<F>(&self, work: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_here(work);
    }
}

impl<S: Answers<Incoming>> Connections<S> {
    pub(super) fn door(&self) -> &Door {
        &self.door
    }

    /// Accepts until the stop signal.
    pub(crate) async fn accept(self, listener: StdListener) {
        let each = |stream| self.serve(stream);
        if let Err(error) = accept(listener, &self.door.stop_signal(), each).await {
            tracing::error!(%error, "cannot accept connections");
        }
    }

    /// Serves one connection in the background of the runtime it is called on.
    pub(crate) fn serve(&self, stream: TcpStream) {
        let Ok(permit) = Arc::clone(&self.door.permits).try_acquire_owned() else {
            metrics::counter!("waypost_connections_refused_total").increment(1);
            // Best effort: a fresh socket takes so few bytes at once, without waiting.
            drop(stream.into_std().and_then(|mut stream| stream.write(BUSY)));
            return;
        };
        // Small frames must not wait for each other. Fails only for a connection already gone.
        drop(stream.set_nodelay(true));
        let service = self.service.clone();
        let last = self.door.last.clone();
        let tasks = self.door.tasks.clone();
        self.door.spawn_here(|stop| async move {
            let ending = Ending { stop, last };
            // Held until the last byte of the last answer.
            let _permit = permit;
            let until = Instant::now() + HEAD;
            let spoken = tokio::time::timeout_at(until, http2::is_spoken(&stream));
            let spoken = ending.stop.run_until_cancelled(spoken).await;
            match spoken {
                Some(Ok(Ok(true))) => http2::serve(stream, service, tasks, ending).await,
                Some(Ok(Ok(false))) => serve(stream, service, ending, until).await,
                // It broke off, or has said nothing for long or until the end.
                Some(Ok(Err(_)) | Err(_)) | None => {}
            }
        });
    }
}

/// Accepts until `stop` and hands each connection to `each`.
pub(super) async fn accept(
    listener: StdListener,
    stop: &CancellationToken,
    mut each: impl FnMut(TcpStream),
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((stream, _)) => each(stream),
            Err(error) if is_of_one(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

/// Whether the failure concerns the connection that was about to come, not the listener.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// When a connection is to end.
pub(super) struct Ending {
    /// After the request it is at.
    pub(super) stop: CancellationToken,
    /// With what there is to say now.
    pub(super) last: CancellationToken,
}

/// The head of the first request is there `until` then, or the connection ends.
async fn serve<S: Answers<Incoming>>(
    stream: TcpStream,
    service: S,
    Ending { stop, last }: Ending,
    until: Instant,
) {
    let asked = Arc::new(AtomicBool::new(false));
    let service = Asked {
        inner: service,
        asked: Arc::clone(&asked),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(Patient::new(stream, TAKE)), service);
    let mut connection = std::pin::pin!(connection);
    let silent = async {
        tokio::time::sleep_until(until).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = silent => return,
        () = stop.cancelled() => {
            // Hyper closes connections that are between two requests, but waits for the first.
            if !asked.load(Ordering::Relaxed) {
                return;
            }
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Looking at it once more is what brings the last words out of the calls.
                () = last.cancelled() => connection.await,
            }
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection broke off");
    }
}

/// The service of one connection; remembers that there was a request.
struct Asked<S> {
    inner: S,
    asked: Arc<AtomicBool>,
}

impl<S: Answers<Incoming>> hyper::service::Service<Request<Incoming>> for Asked<S> {
    type Response = S::Response;
    type Error = Infallible;
    type Future = Oneshot<S, Request<Incoming>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.asked.store(true, Ordering::Relaxed);
        self.inner.clone().oneshot(request)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn r25_a_client_that_leaves_is_missed_whatever_it_sent_behind_its_request() {
        let waits = Arc::new(());
        let held = Arc::downgrade(&waits);
        let never = service_fn(move |_: Request<Incoming>| {
            let waits = Arc::clone(&waits);
            async move {
                let _waits = waits;
                std::future::pending::<Result<Response<String>, Infallible>>().await
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Door::new(8);
        let connections = door.to(never);
        let idle = held.strong_count();
        for behind in ["", "\r\n", "GET /next HTTP/1.1\r\nhost: a\r\n\r\n"] {
            let mut client = TcpStream::connect(address).await.unwrap();
            connections.serve(listener.accept().await.unwrap().0);
            let request = format!("GET / HTTP/1.1\r\nhost: a\r\n\r\n{behind}");
            client.write_all(request.as_bytes()).await.unwrap();
            while held.strong_count() == idle {
                tokio::task::yield_now().await;
            }
            drop(client);
            let gone = async {
                while held.strong_count() > idle {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let gone = tokio::time::timeout(Duration::from_secs(20), gone).await;
            assert!(gone.is_ok(), "{behind:?}");
        }
    }

    #[tokio::test]
    async fn the_head_of_the_first_request_has_its_time_once_however_late_it_begins() {
        let served = service_fn(|_: Request<Incoming>| async {
            Ok::<_, Infallible>(Response::new("served".to_owned()))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = Door::new(8);
        let connections = door.to(served);
        let mut slow = TcpStream::connect(address).await.unwrap();
        connections.serve(listener.accept().await.unwrap().0);
        let mut quick = TcpStream::connect(address).await.unwrap();
        connections.serve(listener.accept().await.unwrap().0);
        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        quick.write_all(request).await.unwrap();
        quick.read_exact(&mut [0; 12]).await.unwrap();
        tokio::time::pause();
        let before = Instant::now();
        tokio::time::sleep(HEAD - Duration::from_secs(20)).await;
        slow.write_all(b"GET / HT").await.unwrap();
        quick.write_all(request).await.unwrap();
        let mut nothing = Vec::new();
        drop(slow.read_to_end(&mut nothing).await);
        let took = before.elapsed();
        assert!(took < HEAD + Duration::from_secs(20), "{took:?}");
        // One that has asked in time goes on.
        let mut rest = Vec::new();
        drop(quick.read_to_end(&mut rest).await);
        assert!(before.elapsed() > HEAD + HEAD / 2, "{:?}", before.elapsed());
    }

    #[tokio::test]
    async fn r74_a_client_that_stops_reading_loses_its_connection() {
        let endless = service_fn(|_: Request<Incoming>| async {
            let piece = || Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 65_536])));
            Ok(Response::new(StreamBody::new(stream::repeat_with(piece))))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let door = Door::new(1);
        door.to(endless).serve(stream);
        tokio::time::pause();
        let before = Instant::now();
        assert_eq!(door.permits.acquire().await.unwrap().num_permits(), 1);
        assert!(before.elapsed() >= TAKE);
        drop(client);
    }
}
