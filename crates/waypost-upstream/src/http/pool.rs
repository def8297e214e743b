//! Connections to one server that are kept for the next request.
//!
//! The pooled client of hyper-util serves all hosts and both versions of HTTP, and spawns a task
//! per request to learn when a connection is free again. Here there is one host and HTTP/1.1, and
//! a body that was read to its end brings its connection back itself.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::Executor as _;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, sleep_until};
use tower::Service as _;

use super::connector::Connector;
use crate::fault::{ConnectFault, Fault};

/// How long an unused connection is kept. Common servers close theirs after 5 s; a request
/// written into that moment is lost and, unless nothing of it was sent, must not be repeated.
const IDLE: Duration = Duration::from_secs(4);

type Sender = SendRequest<Full<Bytes>>;

/// The connections of one core to one server.
pub(crate) struct Pool {
    connector: Connector,
    /// Where they lead.
    uri: Uri,
    host: Option<HeaderValue>,
    /// Most that are kept unused.
    most: usize,
    idle: Mutex<Unused>,
}

#[derive(Default)]
struct Unused {
    /// The one that was used last is at the end: it is the least likely to be closed.
    all: VecDeque<Idle>,
    /// Somebody closes them in time.
    cleaned: bool,
}

struct Idle {
    sender: Sender,
    since: Instant,
}

/// A body that gives its connection back with its end. Dropped before, it takes it along.
pub(crate) struct Lent {
    body: Incoming,
    of: Option<(Sender, Arc<Pool>)>,
}

/// Whether a server may have a request by now.
#[derive(Debug, Default)]
pub(crate) struct Sent(AtomicBool);

impl Sent {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, sent: bool) {
        self.0.store(sent, Ordering::Release);
    }
}

// === impl Pool ===

impl Pool {
    /// Connections that `connector` opens to the server at `uri`, of which it keeps at most so
    /// many unused.
    pub(crate) fn new(connector: Connector, uri: &Uri, most: usize) -> Arc<Self> {
        Arc::new(Self {
            connector,
            uri: uri.clone(),
            host: host(uri),
            most,
            idle: Mutex::default(),
        })
    }

    /// Sends a request to its path at this server. Repeats by itself only what it never began to
    /// write. Dropping the future closes the connection.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Lent>, Fault> {
        self.send_noting(request, &Sent::default()).await
    }

    /// [`Pool::send`], and says in `sent` how far it is.
    pub(crate) async fn send_noting(
        self: &Arc<Self>,
        mut request: Request<Full<Bytes>>,
        sent: &Sent,
    ) -> Result<Response<Lent>, Fault> {
        self.address(&mut request);
        loop {
            let (mut sender, fresh) = match self.take() {
                Some(sender) => (sender, false),
                // Boxed: it is seldom needed, and much larger than the rest.
                None => (Box::pin(self.open()).await?, true),
            };
            if sender.ready().await.is_err() && !fresh {
                continue;
            }
            sent.set(true);
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => {
                    let lend = |body| Lent::new(body, sender, self);
                    return Ok(response.map(lend));
                }
                Err(error) => error,
            };
            match error.take_message() {
                Some(unsent) if !fresh => {
                    sent.set(false);
                    request = unsent;
                }
                Some(_) => return Err(unsent_fault(&error.into_error())),
                None => return Err(fault(&error.into_error())),
            }
        }
    }

    /// The form that a server is sent: path and query in the first line, `Host` beside it.
    fn address(&self, request: &mut Request<Full<Bytes>>) {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
        if let Some(host) = &self.host {
            let headers = request.headers_mut();
            headers.entry(HOST).or_insert_with(|| host.clone());
        }
    }

    async fn open(&self) -> Result<Sender, Fault> {
        let stream = self.connector.clone().call(self.uri.clone()).await;
        let stream = stream.map_err(Fault::Connect)?;
        let opened = handshake(stream).await;
        let (sender, connection) = opened.map_err(|_| Fault::Connect(ConnectFault::Other))?;
        // It ends with its sender, or with the server; whoever waits on it hears of errors.
        TokioExecutor::new().execute(async move { drop(connection.await) });
        Ok(sender)
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle();
        while let Some(last) = idle.all.pop_back() {
            if !last.sender.is_closed() && last.since.elapsed() < IDLE {
                return Some(last.sender);
            }
        }
        None
    }

    fn give_back(self: &Arc<Self>, sender: Sender) {
        if sender.is_closed() {
            return;
        }
        let since = Instant::now();
        let mut idle = self.idle();
        if idle.all.len() >= self.most {
            return;
        }
        idle.all.push_back(Idle { sender, since });
        let cleaned = std::mem::replace(&mut idle.cleaned, true);
        drop(idle);
        if !cleaned {
            TokioExecutor::new().execute(Arc::clone(self).clean(since));
        }
    }

    /// Closes what is not used for too long, until nothing is left.
    async fn clean(self: Arc<Self>, mut oldest: Instant) {
        loop {
            sleep_until(oldest + IDLE).await;
            let mut idle = self.idle();
            let old = |idle: &Idle| idle.since.elapsed() >= IDLE;
            while idle.all.front().is_some_and(old) {
                idle.all.pop_front();
            }
            let Some(next) = idle.all.front() else {
                idle.cleaned = false;
                return;
            };
            oldest = next.since;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Unused> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may carry a key in its query.
        f.debug_struct("Pool")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// The `Host` of an address, without credentials.
pub(crate) fn host(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    let host = match authority.rsplit_once('@') {
        Some((_, host)) => host,
        None => authority,
    };
    HeaderValue::from_str(host).ok()
}

/// The same of a request that was not written at all.
fn unsent_fault(error: &hyper::Error) -> Fault {
    match fault(error) {
        Fault::Closed => Fault::Connect(ConnectFault::Other),
        other => other,
    }
}

fn fault(error: &hyper::Error) -> Fault {
    if error.is_parse() {
        Fault::NotHttp
    } else {
        Fault::Closed
    }
}

// === impl Lent ===

impl Lent {
    fn new(body: Incoming, sender: Sender, pool: &Arc<Pool>) -> Self {
        let mut lent = Self {
            body,
            of: Some((sender, Arc::clone(pool))),
        };
        if lent.body.is_end_stream() {
            lent.give_back();
        }
        lent
    }

    fn give_back(&mut self) {
        if let Some((sender, pool)) = self.of.take() {
            pool.give_back(sender);
        }
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.give_back(),
            Some(Err(_)) => self.of = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const HALF: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no";

    /// A server that answers every request so, closes after as many as are given, and counts
    /// connections and their ends.
    struct Server {
        uri: Uri,
        opened: Arc<AtomicUsize>,
        ended: mpsc::Receiver<()>,
    }

    impl Server {
        async fn start(answer: &'static [u8], requests: usize) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let uri = format!("http://{}/mcp?k=v", listener.local_addr().unwrap());
            let opened = Arc::new(AtomicUsize::new(0));
            let (sender, ended) = mpsc::channel(8);
            let count = Arc::clone(&opened);
            TokioExecutor::new().execute(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    count.fetch_add(1, Ordering::SeqCst);
                    let sender = sender.clone();
                    TokioExecutor::new().execute(async move {
                        serve(stream, answer, requests).await;
                        sender.send(()).await.ok();
                    });
                }
            });
            let uri = uri.parse().unwrap();
            Self { uri, opened, ended }
        }

        fn pool(&self) -> Arc<Pool> {
            let connector = Connector::new(None, Duration::from_secs(5));
            Pool::new(connector, &self.uri, 8)
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::SeqCst)
        }
    }

    async fn serve(mut stream: TcpStream, answer: &[u8], requests: usize) {
        let mut seen = vec![0; 4096];
        for _ in 0..requests {
            let Ok(1..) = stream.read(&mut seen).await else {
                return;
            };
            let text = String::from_utf8_lossy(&seen);
            assert!(text.starts_with("POST /mcp?k=v HTTP/1.1\r\n"), "{text}");
            assert!(text.contains("\r\nhost: 127.0.0.1:"), "{text}");
            stream.write_all(answer).await.unwrap();
        }
    }

    async fn send(pool: &Arc<Pool>) -> Response<Lent> {
        let mut request = Request::new(Full::new(Bytes::from_static(b"{}")));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = pool.uri.clone();
        pool.send(request).await.unwrap()
    }

    async fn call(pool: &Arc<Pool>) -> Bytes {
        let body = send(pool).await.into_body();
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn a_connection_is_used_again_once_its_body_was_read() {
        let server = Server::start(ANSWER, usize::MAX).await;
        let pool = server.pool();
        for _ in 0..3 {
            assert_eq!(call(&pool).await, "ok");
        }
        assert_eq!(server.opened(), 1);
    }

    #[tokio::test]
    async fn a_body_that_is_dropped_takes_its_connection_along() {
        let mut server = Server::start(HALF, usize::MAX).await;
        let pool = server.pool();
        drop(send(&pool).await);
        server.ended.recv().await.unwrap();
        drop(send(&pool).await);
        assert_eq!(server.opened(), 2);
    }

    #[tokio::test]
    async fn what_a_closed_connection_did_not_take_is_sent_on_another() {
        let mut server = Server::start(ANSWER, 1).await;
        let pool = server.pool();
        for number in 1..=3 {
            assert_eq!(call(&pool).await, "ok");
            server.ended.recv().await.unwrap();
            assert_eq!(server.opened(), number);
        }
    }

    #[tokio::test]
    async fn what_a_fresh_connection_did_not_take_was_not_sent() {
        let (ours, theirs) = tokio::io::duplex(64);
        let opened = handshake(hyper_util::rt::TokioIo::new(ours)).await;
        let (mut sender, connection) = opened.unwrap();
        drop(theirs);
        drop(connection.await);
        let request = Request::new(Full::new(Bytes::from_static(b"{}")));
        let mut error = sender.try_send_request(request).await.unwrap_err();
        assert!(error.take_message().is_some());
        let fault = unsent_fault(&error.into_error());
        assert!(fault.not_executed(), "{fault:?}");
    }

    #[tokio::test]
    async fn r74_an_unused_connection_is_closed_in_time() {
        let mut server = Server::start(ANSWER, usize::MAX).await;
        let pool = server.pool();
        assert_eq!(call(&pool).await, "ok");
        tokio::time::pause();
        let before = Instant::now();
        server.ended.recv().await.unwrap();
        assert!(before.elapsed() >= IDLE - Duration::from_millis(10));
        assert!(pool.idle().all.is_empty());
    }
}
