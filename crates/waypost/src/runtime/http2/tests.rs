#![expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]

use std::net::SocketAddr;

use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::client::conn::http2 as client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tower::service_fn;

use super::super::connection::Door;
use super::*;

const SOON: Duration = Duration::from_secs(20);

type Client = client::SendRequest<Empty<Bytes>>;

/// Accepts connections until the door closes.
async fn listens<S: Answers<Incoming>>(door: &Door, service: S) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = door.to(service);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            connections.serve(stream);
        }
    });
    address
}

/// What is at work, in a way that services which are cloned do not count for.
#[derive(Clone, Debug, Default)]
struct Works(Arc<AtomicUsize>);

struct Work(Arc<AtomicUsize>);

impl Works {
    fn begin(&self) -> Work {
        self.0.fetch_add(1, Ordering::SeqCst);
        Work(Arc::clone(&self.0))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn connect(address: SocketAddr) -> (Client, tokio::task::JoinHandle<hyper::Result<()>>) {
    over(TcpStream::connect(address).await.unwrap()).await
}

async fn over(stream: TcpStream) -> (Client, tokio::task::JoinHandle<hyper::Result<()>>) {
    let (client, connection) = client::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    (client, tokio::spawn(connection))
}

fn get(address: SocketAddr, path: &str) -> Request<Empty<Bytes>> {
    let uri = format!("http://{address}{path}");
    Request::get(uri).body(Empty::new()).unwrap()
}

async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, holds).await.expect("waited in vain");
}

/// Answers `/never` never, and everything else with its host and path.
fn echo(works: &Works) -> impl Answers<Incoming, Body = String> + use<> {
    let works = works.clone();
    service_fn(move |request: Request<Incoming>| {
        let work = works.begin();
        async move {
            let _work = work;
            if request.uri().path() == "/never" {
                return std::future::pending().await;
            }
            let host = request
                .headers()
                .get(HOST)
                .map(|host| host.to_str().unwrap());
            let said = format!("{} {}", host.unwrap_or_default(), request.uri().path());
            Ok::<_, Infallible>(Response::new(said))
        }
    })
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn r61_requests_of_one_connection_are_answered_beside_each_other() {
    let door = Door::new(8);
    let address = listens(&door, echo(&Works::default())).await;
    let (mut client, _connection) = connect(address).await;
    let _silent = client.send_request(get(address, "/never"));
    let (a, b) = (get(address, "/a"), get(address, "/b"));
    let (a, b) = tokio::join!(client.send_request(a), client.clone().send_request(b));
    assert_eq!(text(a.unwrap()).await, format!("{address} /a"));
    assert_eq!(text(b.unwrap()).await, format!("{address} /b"));
}

/// A connection of which the server has got `begin` and no more.
async fn begun(begin: &[u8]) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    client.set_nodelay(true).unwrap();
    client.write_all(begin).await.unwrap();
    let mut there = vec![0; begin.len()];
    let all = async { while server.peek(&mut there).await.unwrap() < begin.len() {} };
    timeout(SOON, all).await.unwrap();
    (client, server)
}

#[tokio::test]
async fn r61_what_begins_alike_is_told_apart_when_it_is_there() {
    let door = Door::new(8);
    let connections = door.to(echo(&Works::default()));
    for (begin, end) in [
        (
            "P",
            "OST /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        ),
        (
            "PR",
            "OPFIND /x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        ),
    ] {
        let (mut client, server) = begun(begin.as_bytes()).await;
        {
            let mut spoken = pin!(is_spoken(&server));
            assert!(futures_util::poll!(spoken.as_mut()).is_pending());
            client.write_all(end.as_bytes()).await.unwrap();
            assert!(!timeout(SOON, spoken).await.unwrap().unwrap());
        }
        connections.serve(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("h /x"), "{answer}");
    }
    let (begin, end) = PREFACE.split_at(7);
    let (mut client, server) = begun(begin).await;
    {
        let mut spoken = pin!(is_spoken(&server));
        assert!(futures_util::poll!(spoken.as_mut()).is_pending());
        client.write_all(end).await.unwrap();
        assert!(timeout(SOON, spoken).await.unwrap().unwrap());
    }
    connections.serve(server);
    // An empty SETTINGS frame; the server's own is the first that comes back.
    client
        .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut head = [0; 9];
    timeout(SOON, client.read_exact(&mut head))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(head[3], 4);
    // One that leaves in the middle is not waited for.
    let (mut client, server) = begun(begin).await;
    connections.serve(server);
    client.shutdown().await.unwrap();
    let mut nothing = Vec::new();
    let read = timeout(SOON, client.read_to_end(&mut nothing)).await;
    assert!(read.is_ok());
}

#[tokio::test]
async fn r25_a_stream_that_its_client_resets_or_leaves_is_dropped_with_its_call() {
    let works = Works::default();
    let door = Door::new(8);
    let address = listens(&door, echo(&works)).await;
    let stream = std::net::TcpStream::connect(address).unwrap();
    let socket = stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut client, _connection) = over(TcpStream::from_std(stream).unwrap()).await;
    let reset = tokio::spawn(client.send_request(get(address, "/never")));
    until(|| works.count() == 1).await;
    reset.abort();
    until(|| works.count() == 0).await;
    // The connection goes on.
    let answer = client.send_request(get(address, "/a")).await.unwrap();
    assert_eq!(text(answer).await, format!("{address} /a"));
    let left = tokio::spawn(client.send_request(get(address, "/never")));
    until(|| works.count() == 1).await;
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    until(|| works.count() == 0).await;
    assert!(left.await.unwrap().is_err());
}

#[tokio::test]
async fn r42_at_the_end_no_stream_begins_and_those_that_are_there_finish() {
    let go = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&go);
    let begun = Arc::new(AtomicBool::new(false));
    let has_begun = Arc::clone(&begun);
    let slow = service_fn(move |_: Request<Incoming>| {
        let (waits, begun) = (Arc::clone(&waits), Arc::clone(&begun));
        async move {
            begun.store(true, Ordering::SeqCst);
            waits.notified().await;
            Ok::<_, Infallible>(Response::new("done".to_owned()))
        }
    });
    let door = Door::new(8);
    let address = listens(&door, slow).await;
    let (mut client, connection) = connect(address).await;
    let (_idle, idle_connection) = connect(address).await;
    let answer = tokio::spawn(client.send_request(get(address, "/")));
    until(|| has_begun.load(Ordering::SeqCst)).await;
    let drained = tokio::spawn(door.drain(SOON));
    // Told to go, which a client of hyper does at once where it has nothing open.
    assert!(timeout(SOON, idle_connection).await.is_ok());
    let refused = client.send_request(get(address, "/")).await;
    assert!(refused.is_err());
    go.notify_one();
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "done");
    assert!(drained.await.unwrap());
    drop(timeout(SOON, connection).await.unwrap());
}

#[tokio::test]
async fn r42_who_is_told_to_go_finishes_what_it_has_over_the_connection() {
    let go = Arc::new(tokio::sync::Notify::new());
    let waits = Arc::clone(&go);
    let works = Works::default();
    let begun = works.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (waits, work) = (Arc::clone(&waits), begun.begin());
        async move {
            let _work = work;
            let mut response = Response::new("done".to_owned());
            if request.uri().path() == "/slow" {
                waits.notified().await;
            } else {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let door = Door::new(8);
    let address = listens(&door, service).await;
    let (mut client, mut connection) = connect(address).await;
    let slow = tokio::spawn(client.send_request(get(address, "/slow")));
    until(|| works.count() == 1).await;
    let answer = client.send_request(get(address, "/")).await.unwrap();
    assert_eq!(answer.headers().get(CONNECTION), None);
    assert_eq!(text(answer).await, "done");
    // The other stream holds it, whatever time it takes.
    tokio::time::pause();
    assert!(timeout(FAREWELL * 3, &mut connection).await.is_err());
    tokio::time::resume();
    go.notify_one();
    assert_eq!(text(slow.await.unwrap().unwrap()).await, "done");
    // The client has not left.
    drop(timeout(SOON, connection).await.unwrap());
    drop(client);
}

#[tokio::test]
async fn r42_at_the_end_a_slow_client_gets_all_of_its_answer() {
    const WINDOW: u32 = 4 << 10;
    let whole = "x".repeat(PIECE);
    let service = service_fn(move |_: Request<Incoming>| {
        let body = whole.clone();
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let door = Door::new(8);
    let address = listens(&door, service).await;
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = client::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let _connection = tokio::spawn(connection);
    let answer = client.send_request(get(address, "/")).await.unwrap();
    tokio::time::pause();
    let drained = tokio::spawn(door.drain(TAKE));
    let (mut body, mut count) = (answer.into_body(), 0);
    // The stream's own work is over long before its client has it all.
    loop {
        sleep(FAREWELL.mul_f32(0.9)).await;
        let Some(frame) = body.frame().await else {
            break;
        };
        count += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(count, PIECE);
    assert!(drained.await.unwrap());
}

#[tokio::test]
async fn r74_an_answer_is_handed_over_in_pieces_that_a_slow_client_can_take_in_time() {
    let whole = "x".repeat(100_000);
    let mut body = given(whole.clone());
    let mut said = Vec::new();
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        assert!(piece.len() <= 16 << 10, "{}", piece.len());
        said.extend(piece);
    }
    assert_eq!(said, whole.as_bytes());
}

#[tokio::test]
async fn r74_an_answer_of_which_nothing_is_taken_is_given_up() {
    let works = Works::default();
    let made = works.clone();
    let pieces = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&pieces);
    let endless = service_fn(move |_: Request<Incoming>| {
        let (work, count) = (made.begin(), Arc::clone(&count));
        let piece = move || {
            let _work = &work;
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 100_000])))
        };
        let body = StreamBody::new(stream::repeat_with(piece));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let door = Door::new(8);
    let address = listens(&door, endless).await;
    let (mut client, _connection) = connect(address).await;
    // Its connection answers pings, and the stream opens no window.
    let answer = client.send_request(get(address, "/")).await.unwrap();
    assert_eq!(works.count(), 1);
    until(|| pieces.load(Ordering::SeqCst) > 0).await;
    tokio::time::pause();
    let before = Instant::now();
    while works.count() > 0 {
        sleep(Duration::from_secs(1)).await;
        assert!(before.elapsed() < TAKE * 2, "it is held");
    }
    assert!(before.elapsed() >= TAKE / 2);
    drop(answer);
}

/// What a client says that begins so many calls, and resets each at once.
fn begun_and_reset(calls: u32) -> Vec<u8> {
    const HEADERS_AND_RESET: [u8; 29] = [
        0, 0, 7, 1, 5, 0, 0, 0, 0, 0x82, 0x84, 0x86, 1, 2, b'h', b'h', 0, 0, 4, 3, 0, 0, 0, 0, 0,
        0, 0, 0, 8,
    ];
    let mut said = PREFACE.to_vec();
    said.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    for stream in (1..2 * calls).step_by(2) {
        let mut pair = HEADERS_AND_RESET;
        pair[5..9].copy_from_slice(&stream.to_be_bytes());
        pair[21..25].copy_from_slice(&stream.to_be_bytes());
        said.extend(pair);
    }
    said
}

/// All that is said to who says this, until it is `enough` or the end.
async fn said_to(address: SocketAddr, what: &[u8], enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut said = Vec::new();
    let talk = async {
        stream.write_all(what).await.unwrap();
        while !enough(&said)
            && stream
                .read_buf(&mut said)
                .await
                .is_ok_and(|count| count > 0)
        {}
    };
    timeout(SOON, talk).await.unwrap();
    said
}

fn has(said: &[u8], part: &[u8]) -> bool {
    said.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection() {
    let door = Door::new(8);
    let works = Works::default();
    let address = listens(&door, echo(&works)).await;
    let said = said_to(address, &begun_and_reset(2_000), |_| false).await;
    assert!(has(&said, b"too_many_resets"));
    assert_eq!(works.count(), 0);
}

#[tokio::test]
async fn who_gives_up_all_that_it_may_have_at_once_keeps_its_connection() {
    let door = Door::new(8);
    let address = listens(&door, echo(&Works::default())).await;
    let ping = [
        0, 0, 8, 6, 0, 0, 0, 0, 0, b'a', b'r', b'e', b' ', b'y', b'o', b'u', b'?',
    ];
    let what = [begun_and_reset(STREAMS), ping.to_vec()].concat();
    let said = said_to(address, &what, |said| has(said, b"are you?")).await;
    assert!(has(&said, b"are you?") && !has(&said, b"too_many_resets"));
}

#[tokio::test]
async fn who_has_made_many_mistakes_is_told_to_go_before_it_must() {
    // With a body longer than it says, each is a mistake.
    let mistake = |stream: u32| {
        let mut frames = vec![0, 0, 11, 1, 4];
        frames.extend(stream.to_be_bytes());
        frames.extend([0x83, 0x84, 0x86, 1, 2, b'h', b'h', 0x0f, 0x0d, 1, b'1']);
        frames.extend([0, 0, 2, 0, 1]);
        frames.extend(stream.to_be_bytes());
        frames.extend(b"xx");
        frames
    };
    let door = Door::new(8);
    let address = listens(&door, echo(&Works::default())).await;
    let mut what = PREFACE.to_vec();
    what.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let many = u32::try_from(RESET_BY_US / 2).unwrap();
    what.extend((0..many).flat_map(|n| mistake(2 * n + 1)));
    // The first GOAWAY of a graceful end names no stream, and no error.
    let gently = [
        0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let said = said_to(address, &what, |said| has(said, &gently)).await;
    assert!(has(&said, &gently));
}
