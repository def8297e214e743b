//! One `subscriptions/listen` at an upstream, opened again when it ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep_until, timeout};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Notification;
use waypost_wire::method;
use waypost_wire::object::Object;

use crate::backoff::Backoff;
use crate::call::Call;
use crate::error::{CallError, Kind};
use crate::member::Member;
use crate::reply::{End, Event, EventStream};
use crate::upstream::BoxFuture;

/// A subscription that is not acknowledged by then is given up, and asked for again later.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Only one that stood for so long has worked. A server that acknowledges and hangs up at once
/// would otherwise be asked every second, and with each time its lists are read.
const STOOD_AFTER: Duration = Duration::from_secs(30);

/// What a subscription brought.
#[derive(Debug)]
pub(crate) enum Said {
    /// It stands, for the first time or again: these are the params of its acknowledgement.
    Live(Object),
    Notification(Notification),
    /// It ended or did not open.
    Lost,
}

/// A subscription that lasts as long as somebody asks for what is next.
pub(crate) struct Subscription {
    member: Arc<Member>,
    call: Call,
    state: State,
    backoff: Backoff,
    /// Why it was lost last, where that is known.
    why: Option<Why>,
}

/// Why a subscription did not open.
#[derive(Debug)]
pub(crate) enum Why {
    /// The server's own answer.
    Refused(ErrorObject),
    Failed(CallError),
}

enum State {
    /// Opens at this time.
    Closed(Instant),
    Opening(BoxFuture<'static, Opened>),
    /// Since then.
    Open(EventStream, Instant),
    /// The server has no subscriptions.
    Never,
}

enum Opened {
    Live(EventStream, Object),
    Failed(Option<Why>),
    Never(ErrorObject),
}

impl Subscription {
    /// The subscription that `call` asks for.
    pub(crate) fn new(member: &Arc<Member>, call: Call) -> Self {
        Self {
            member: Arc::clone(member),
            call,
            state: State::Closed(Instant::now()),
            backoff: Backoff::new(AGAIN_FIRST, AGAIN_MOST),
            why: None,
        }
    }

    /// Why it did not open, once [`Said::Lost`] has said that it did not.
    pub(crate) fn why(&mut self) -> Option<Why> {
        self.why.take()
    }

    /// What is asked for when it has to be opened again.
    pub(crate) fn ask_next_time(&mut self, call: Call) {
        self.call = call;
    }

    /// The next thing; never, for a server without subscriptions. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Said {
        loop {
            match &mut self.state {
                State::Never => std::future::pending().await,
                State::Closed(at) => {
                    sleep_until(*at).await;
                    let opening = open(Arc::clone(&self.member), self.call.clone());
                    self.state = State::Opening(Box::pin(opening));
                }
                State::Opening(opening) => match opening.await {
                    Opened::Live(events, acknowledged) => {
                        self.state = State::Open(events, Instant::now());
                        return Said::Live(acknowledged);
                    }
                    Opened::Failed(why) => {
                        self.why = why;
                        return self.again();
                    }
                    Opened::Never(error) => {
                        self.why = Some(Why::Refused(error));
                        return self.never();
                    }
                },
                State::Open(events, _) => match events.next().await {
                    Some(Ok(Event::Notification(notification))) => {
                        return Said::Notification(notification);
                    }
                    Some(Ok(Event::End(end))) if is_unknown(&end) => return self.never(),
                    Some(Ok(Event::End(_)) | Err(_)) | None => return self.again(),
                },
            }
        }
    }

    fn never(&mut self) -> Said {
        tracing::debug!(upstream = &*self.member.name, "has no subscriptions");
        self.state = State::Never;
        Said::Lost
    }

    fn again(&mut self) -> Said {
        let stood = |since: &Instant| since.elapsed() >= STOOD_AFTER;
        if matches!(&self.state, State::Open(_, since) if stood(since)) {
            self.backoff.reset();
        }
        self.state = State::Closed(Instant::now() + self.backoff.failed());
        Said::Lost
    }
}

async fn open(member: Arc<Member>, call: Call) -> Opened {
    let within = if call.awaits_servers {
        member.timeout(None)
    } else {
        OPEN_WITHIN
    };
    let opened = timeout(within, acknowledged(&member, call)).await;
    let late = |_| {
        let seconds = within.as_secs_f64();
        let detail = format!("no answer within {seconds:.1} s; what still comes of it is undone");
        Err(CallError::upstream(Kind::Timeout, &member.name).detail(detail))
    };
    opened.unwrap_or_else(late).unwrap_or_else(|error| {
        tracing::debug!(upstream = &*member.name, %error, "cannot subscribe");
        Opened::Failed(Some(Why::Failed(error)))
    })
}

async fn acknowledged(member: &Member, call: Call) -> Result<Opened, CallError> {
    let mut events = member.upstream.call(call).await?.into_stream();
    while let Some(event) = events.next().await {
        match event? {
            Event::Notification(n) if n.method == method::ACKNOWLEDGED => {
                return Ok(Opened::Live(events, n.params));
            }
            // Nothing may come before it; whoever subscribes asks for how things are then.
            Event::Notification(_) => {}
            Event::End(End::Error(error)) if error.code() == code::METHOD_NOT_FOUND => {
                return Ok(Opened::Never(error));
            }
            Event::End(End::Error(error)) => {
                return Ok(Opened::Failed(Some(Why::Refused(error))));
            }
            Event::End(_) => return Ok(Opened::Failed(None)),
        }
    }
    Err(CallError::no_end_of(&member.name))
}

fn is_unknown(end: &End) -> bool {
    matches!(end, End::Error(error) if error.code() == code::METHOD_NOT_FOUND)
}
