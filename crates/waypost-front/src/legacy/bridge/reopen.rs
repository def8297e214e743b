//! A session that the daemon does not know any more is opened again, and the host notices
//! nothing: the daemon got other keys, or somebody ended the session.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, Shared};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;
use waypost_wire::header::SESSION_ID;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Message, Outcome, Request};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::legacy::bridge::{Open, Session, close};
use crate::legacy::serve::{SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE};
use crate::stdio::bridge::Fault;
use crate::stdio::bridge::reply::Reply;

/// Longest wait for another session: a daemon that was just started reads its servers' lists.
const WITHIN: Duration = Duration::from_secs(30);

/// Resources that are remembered; a daemon takes no more either.
const MOST_RESOURCES: usize = 1_000;

/// Subscriptions made again at once.
const TOGETHER: usize = 8;

/// An attempt that all who need it wait for.
pub(super) type Opening = Shared<oneshot::Receiver<Result<HeaderMap, Fault>>>;

/// What the host said to have the session as it is.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) initialize: Bytes,
    /// What was agreed on.
    pub(super) version: String,
    /// `notifications/initialized`, once it was said.
    pub(super) initialized: Option<Bytes>,
    level: Option<Raw>,
    resources: Vec<Raw>,
}

impl Said {
    pub(super) fn new(initialize: Bytes, version: String) -> Self {
        Self {
            initialize,
            version,
            initialized: None,
            level: None,
            resources: Vec::new(),
        }
    }

    /// The daemon did what a request asked for.
    pub(super) fn note(&mut self, request: &Request) {
        let param = |member: &str| request.params.get(member).cloned();
        match &*request.method {
            SET_LEVEL => self.level = param("level"),
            SUBSCRIBE => {
                let new = param("uri").filter(|uri| !self.resources.contains(uri));
                if self.resources.len() < MOST_RESOURCES {
                    self.resources.extend(new);
                }
            }
            UNSUBSCRIBE => {
                let gone = param("uri");
                self.resources.retain(|uri| Some(uri) != gone.as_ref());
            }
            _ => {}
        }
    }
}

/// Whether the daemon refused because it does not know the session; nothing was executed then.
pub(super) fn is_lost(reply: &Reply, headers: &HeaderMap) -> bool {
    reply.status == StatusCode::NOT_FOUND && headers.contains_key(SESSION_ID)
}

impl Session {
    /// The headers of the session that is there in place of the `lost` one; whoever else misses
    /// it waits for the same.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn reopen(&self, lost: &HeaderMap) -> Result<HeaderMap, Fault> {
        let opening = {
            let mut state = self.lock();
            let Some(open) = &state.open else {
                return Err(over());
            };
            if open.headers.get(SESSION_ID) != lost.get(SESSION_ID) {
                return Ok(open.headers.clone());
            }
            let open = open.clone();
            let opening = state.opening.get_or_insert_with(|| self.begin(open));
            opening.clone()
        };
        opening.await.unwrap_or_else(|_| {
            self.lock().opening = None;
            Err(over())
        })
    }

    fn begin(&self, lost: Open) -> Opening {
        let (done, opening) = oneshot::channel();
        let session = self.clone();
        // Not the work of who asked first: the host may give that request up.
        self.way.tasks.spawn_here(|stop| async move {
            let mut half = None;
            let opened = tokio::time::timeout(WITHIN, session.open_again(&lost, &mut half));
            let Some(opened) = stop.run_until_cancelled(opened).await else {
                return;
            };
            let late = |_| Err(Fault::not_reopened("the daemon did not answer in time"));
            let opened = opened.unwrap_or_else(late);
            if let (Err(_), Some(headers)) = (&opened, half) {
                session.leave(Open::new(headers, lost.said.clone()));
            }
            let opened = session.adopt(&lost, opened);
            if let Err(fault) = &opened {
                tracing::warn!(error = %fault, "the session is lost");
            }
            // Nobody may wait any more.
            drop(done.send(opened));
        });
        opening.shared()
    }

    /// Says again what the host said. What is opened when that fails is in `half`.
    async fn open_again(
        &self,
        lost: &Open,
        half: &mut Option<HeaderMap>,
    ) -> Result<HeaderMap, Fault> {
        let said = &lost.said;
        let (headers, outcome) = self.say(said.initialize.clone(), HeaderMap::new()).await?;
        let result = match outcome {
            Outcome::Result(result) => result.as_object().unwrap_or_default(),
            Outcome::Error(error) => return Err(Fault::not_reopened(&error.message())),
        };
        let headers = super::named(&headers, &result);
        *half = Some(headers.clone());
        if result.str("protocolVersion").as_deref() != Some(&*said.version) {
            return Err(Fault::not_reopened("the daemon speaks another version now"));
        }
        if let Some(initialized) = &said.initialized {
            let told = self.way.link.post(initialized.clone(), headers.clone());
            told.await?.next().await?;
        }
        if let Some(level) = &said.level {
            self.set(SET_LEVEL, "level", level, &headers).await?;
        }
        Ok(headers)
    }

    /// Takes another session in place of the lost one, unless the host began anew meanwhile.
    fn adopt(&self, lost: &Open, opened: Result<HeaderMap, Fault>) -> Result<HeaderMap, Fault> {
        let mut state = self.lock();
        state.opening = None;
        let headers = opened?;
        let now = state.open.as_ref();
        let id = |open: &Open| open.headers.get(SESSION_ID).cloned();
        let same = now.filter(|now| id(now) == id(lost));
        // The host may have gone on meanwhile.
        let Some(said) = same.map(|now| now.said.clone()) else {
            let now = now.map(|now| now.headers.clone());
            drop(state);
            self.leave(Open::new(headers, lost.said.clone()));
            return now.ok_or_else(over);
        };
        lost.over.cancel();
        state.open = Some(Open::new(headers.clone(), said.clone()));
        drop(state);
        tracing::info!("the daemon lost the session, another one was opened");
        self.catch_up(&lost.said, said, headers.clone());
        Ok(headers)
    }

    /// Says what the host said since, and makes its subscriptions again; calls need not wait for
    /// that.
    fn catch_up(&self, before: &Said, said: Said, headers: HeaderMap) {
        let (session, tasks) = (self.clone(), self.way.tasks.clone());
        let since = said
            .initialized
            .clone()
            .filter(|_| before.initialized.is_none());
        let level = said
            .level
            .clone()
            .filter(|level| before.level.as_ref() != Some(level));
        tasks.spawn_here(|stop| async move {
            let work = async {
                if let Some(line) = since {
                    session.tell(line).await;
                }
                if said.initialized.is_some() {
                    session.listen();
                }
                if let Some(level) = level {
                    let set = session.set(SET_LEVEL, "level", &level, &headers).await;
                    set.unwrap_or_else(|fault| lost_setting(&fault));
                }
                session.subscribe(&said.resources, &headers).await;
            };
            stop.run_until_cancelled(work).await;
        });
    }

    /// Ends a session that nobody needs.
    pub(super) fn leave(&self, open: Open) {
        let way = self.way.clone();
        self.way.tasks.spawn_here(|stop| async move {
            stop.run_until_cancelled(close(&way, open)).await;
        });
    }

    async fn subscribe(&self, resources: &[Raw], headers: &HeaderMap) {
        let all = stream::iter(resources).for_each_concurrent(TOGETHER, |uri| async move {
            if let Err(fault) = self.set(SUBSCRIBE, "uri", uri, headers).await {
                lost_setting(&fault);
            }
        });
        all.await;
    }

    /// Sends a setting of the host again. What the daemon does not take now is lost: it took it
    /// before, and the host cannot be told.
    async fn set(
        &self,
        method: &str,
        member: &'static str,
        value: &Raw,
        headers: &HeaderMap,
    ) -> Result<(), Fault> {
        // Unlike any that the host has in flight, and a number that JSON readers keep.
        let id = Id::number(rand::random::<u64>() >> 11);
        let params = Object::from_iter([(member, value.clone())]);
        let line = message::encode_request(&id, method, &params);
        if let (_, Outcome::Error(error)) = self.say(line, headers.clone()).await? {
            let why = error.message();
            tracing::warn!(method, why, "a setting of the host is lost");
        }
        Ok(())
    }

    /// Sends a request of the bridge's own and reads its answer.
    async fn say(&self, line: Bytes, headers: HeaderMap) -> Result<(HeaderMap, Outcome), Fault> {
        let mut reply = self.way.link.post(line, headers).await?;
        while let Some(message) = reply.next().await? {
            if let Ok(Message::Response(_, outcome)) = Message::parse(&message) {
                return Ok((reply.headers, outcome));
            }
        }
        Err(Fault::BrokenOff)
    }
}

fn lost_setting(fault: &Fault) {
    tracing::warn!(error = %fault, "a setting of the host is lost");
}

fn over() -> Fault {
    Fault::not_reopened("the host ended it")
}
