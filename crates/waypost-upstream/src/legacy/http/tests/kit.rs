//! What every test here needs.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use waypost_config::Secret;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::message::{Message, Outcome};

use super::fake::{Fake, STREAM, Seen, Step, chunk, http};
use crate::ear::{Ear, Heard, SharedEar};
use crate::fault::Fault;
use crate::http::Settings;
use crate::legacy::http::{HttpDial, Transport};
use crate::legacy::link::{Dial, Link};
use crate::parts::Parts;

/// Everything must happen within this; nothing waits that long unless it is broken.
const DEADLINE: Duration = Duration::from_secs(20);

pub(super) const LIMIT: usize = 64 * 1024 * 1024;

/// What is too much for whoever hears it.
const PANIC: &str = "notifications/panic";

pub(super) const TOO_MUCH: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/panic\"}\n\n";

/// Writes down what it hears.
#[derive(Debug)]
pub(super) struct Notes {
    notes: watch::Sender<Vec<String>>,
    /// Whether something is in flight.
    pub(super) busy: watch::Sender<bool>,
}

impl Notes {
    fn add(&self, note: String) {
        self.notes.send_modify(|notes| notes.push(note));
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Waits until so many are there.
    pub(super) async fn first(&self, count: usize) -> Vec<String> {
        let mut notes = self.notes.subscribe();
        let notes = in_time(notes.wait_for(|notes| notes.len() >= count)).await;
        notes.unwrap().clone()
    }
}

impl Ear for Notes {
    fn hear(&self, heard: Heard) {
        let what = match heard.message {
            Message::Request(request) => format!("{} asks {}", request.id.raw(), request.method),
            Message::Notification(notification) if notification.method == PANIC => {
                panic!("told so")
            }
            Message::Notification(notification) => notification.method,
            Message::Response(id, Outcome::Result(result)) => {
                format!("{} has {result}", id.unwrap().raw())
            }
            Message::Response(id, Outcome::Error(error)) => {
                format!("{} fails {}", id.unwrap().raw(), error.code())
            }
        };
        self.add(match heard.of {
            Some(id) => format!("on {id}: {what}"),
            None => what,
        });
    }

    fn spoiled(&self, id: u64, fault: Fault) {
        self.add(format!("spoiled {id}: {fault}"));
    }

    fn idle(&self) -> BoxFuture<'_, ()> {
        let mut busy = self.busy.subscribe();
        Box::pin(async move { drop(busy.wait_for(|busy| !busy).await) })
    }

    fn gone(&self, fault: &Fault) {
        self.add(format!("gone: {fault}"));
    }
}

pub(super) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("nothing happened in time"))
}

/// Waits for what a server has seen.
pub(super) async fn until(fake: &Fake, done: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    in_time(async {
        loop {
            let seen = fake.requests();
            if done(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await
}

/// How many requests of this kind are among them.
pub(super) fn count(seen: &[Seen], what: &str) -> usize {
    seen.iter().filter(|seen| seen.what() == what).count()
}

/// Opens sessions at `url`, with a header that nobody else may see.
pub(super) fn dialer(url: &str, transport: Transport, limit: usize) -> HttpDial {
    let tasks = Tasks::on(tokio::runtime::Handle::current());
    dialer_on(&tasks, url, transport, limit)
}

/// The same, with tasks that can be told to stop.
pub(super) fn dialer_on(tasks: &Tasks, url: &str, transport: Transport, limit: usize) -> HttpDial {
    let settings = Settings {
        name: "u".into(),
        uri: url.parse().unwrap(),
        headers: vec![("authorization".to_owned(), Secret::new("Bearer canary"))],
        connect_timeout: Duration::from_secs(5),
        connections: 4,
        messages: None,
    };
    let parts = Parts {
        tasks: tasks.clone(),
        cores: 0,
        response_limit: limit,
        env: Arc::default(),
        tls: Default::default(),
        tell_callers: Arc::new(true.into()),
        parked: Arc::new(tokio::sync::Semaphore::new(1)),
        answer_within: Duration::from_secs(600),
        places: crate::legacy::Places::new(128),
        guard: None,
    };
    HttpDial::new(&settings, transport, Duration::from_secs(10), &parts).unwrap()
}

/// One session and what it hears.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) link: Arc<dyn Link>,
    pub(super) notes: Arc<Notes>,
}

pub(super) async fn dial(dialer: &HttpDial) -> Result<Line, Fault> {
    let notes = Arc::new(Notes {
        notes: watch::Sender::new(Vec::new()),
        busy: watch::Sender::new(false),
    });
    let ear: SharedEar = Arc::<Notes>::clone(&notes);
    let link = in_time(dialer.dial(ear)).await?;
    Ok(Line { link, notes })
}

impl Line {
    pub(super) async fn request(&self, id: u64, method: &str) -> Result<(), Fault> {
        in_time(self.link.request(id, request(id, method))).await
    }

    pub(super) async fn tell(&self, method: &str) -> Result<(), Fault> {
        let message = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
        in_time(self.link.tell(message.into())).await
    }

    /// The whole handshake.
    pub(super) async fn greet(&self, version: &str) -> Result<(), Fault> {
        self.request(0, "initialize").await?;
        self.link.agreed(version);
        self.tell("notifications/initialized").await?;
        self.link.opened();
        Ok(())
    }
}

pub(super) fn request(id: u64, method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#).into()
}

/// An open session over Streamable HTTP.
pub(super) async fn open(fake: &Fake) -> Line {
    open_within(fake, LIMIT).await
}

/// An open session with a server of which no message may be larger than `limit`.
pub(super) async fn open_within(fake: &Fake, limit: usize) -> Line {
    let line = dial(&dialer(&fake.url(), Transport::Streamable, limit)).await;
    let line = line.unwrap();
    line.greet("2025-11-25").await.unwrap();
    line
}

/// What a server of Streamable HTTP with sessions, and with nothing to say unasked, answers.
pub(super) fn usual(seen: &Seen) -> Vec<Step> {
    let answer = match seen.what() {
        "initialize" => with_session(&super::fake::result(seen, r#"{"init":true}"#), "s-1"),
        "GET" => http("405 Method Not Allowed", "text/plain", "no"),
        "DELETE" => http("204 No Content", "text/plain", ""),
        what if what == "answer" || what.starts_with("notifications/") => accepted(),
        _ => super::fake::result(seen, "{}"),
    };
    vec![Step::Send(answer.into_bytes())]
}

pub(super) fn accepted() -> String {
    "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
}

pub(super) fn with_session(answer: &str, id: &str) -> String {
    answer.replacen("\r\n", &format!("\r\nmcp-session-id: {id}\r\n"), 1)
}

/// The head of an event stream and its first bytes; more follows.
pub(super) fn stream(text: &str) -> Step {
    Step::Send(format!("{STREAM}{}", chunk(text)).into_bytes())
}

/// More of a stream.
pub(super) fn more(text: &str) -> Step {
    Step::Send(chunk(text).into_bytes())
}

/// The proper end of a stream.
pub(super) fn end() -> Step {
    Step::Send(b"0\r\n\r\n".to_vec())
}

/// The event with an answer.
pub(super) fn answer(id: &str) -> String {
    format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n")
}

pub(super) const PROGRESS: &str =
    "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n";

/// Moments, as a server's script sees them.
#[derive(Debug, Default)]
pub(super) struct Moments(Mutex<Vec<std::time::Instant>>);

impl Moments {
    pub(super) fn now(&self) {
        self.0.lock().unwrap().push(std::time::Instant::now());
    }

    /// The time between the two.
    pub(super) fn between(&self, first: usize, second: usize) -> Duration {
        let moments = self.0.lock().unwrap();
        moments[second] - moments[first]
    }
}
