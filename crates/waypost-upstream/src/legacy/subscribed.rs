//! The resources that a session is subscribed to, each once however many listen to it.
//!
//! Each has a task of its own that asks the server, so that one which is not answered holds up no
//! other, and whoever asked may leave before the answer. How many are asked at once, and of whom, is
//! a matter of [`super::places`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::sleep;
use waypost_hub::backoff::Backoff;
use waypost_hub::call::Call;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::Outcome;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::places::{Ask, Asker, Place, Places, Who};
use super::session::Session;
use crate::fault::Fault;

/// Resources of one session; further ones are refused until others are forgotten.
const MOST: usize = 8_192;

/// A request that is not answered by then is asked again; the server may have lost it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// What was given up before its answer may be agreed to yet, and is taken back after this.
const TAKEN_BACK_AFTER: Duration = Duration::from_secs(30);

/// What failed is asked again after this, and after twice as long each further time.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// All of one session.
#[derive(Debug)]
pub(crate) struct Subscribed {
    all: Mutex<HashMap<String, Arc<Entry>>>,
    /// For [`MOST`].
    room: Semaphore,
    places: Places,
    /// Tells the session from others there.
    number: u64,
}

#[derive(Debug)]
struct Entry {
    /// Tells it from others where it waits for a place.
    number: u64,
    /// Who listens, and how often.
    wanted: watch::Sender<HashMap<Asker, usize>>,
    /// What came of the last request, once that is known.
    said: watch::Sender<Option<Said>>,
    /// Somebody waits for an answer, and would not for the backoff.
    hurry: Notify,
}

/// What came of asking the server.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Agreed,
    /// Asked again only where the server may agree later, see [`ErrorObject::is_final`].
    Refused(ErrorObject),
    /// It is asked again for as long as anybody listens.
    Failed(Fault),
}

/// What became of a request.
enum Asked {
    Said(Said),
    /// Others needed its place.
    Displaced,
    /// Nobody listens any more.
    Unwanted,
}

/// Whether the server tells of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    No,
    /// It was asked and has not said.
    Perhaps,
    Yes,
}

/// One listener's part. Dropped, it is one listener less.
#[derive(Debug)]
pub(crate) struct Subscription {
    session: Arc<Session>,
    entry: Arc<Entry>,
    asker: Asker,
}

impl Entry {
    fn new(number: u64, asker: &Asker) -> Self {
        Self {
            number,
            wanted: watch::Sender::new(HashMap::from([(asker.clone(), 1)])),
            said: watch::Sender::new(None),
            hurry: Notify::new(),
        }
    }

    /// One more who listens, and one who waits for the answer where it `awaits` it.
    fn join(&self, asker: &Asker, awaits: bool) {
        self.wanted
            .send_modify(|all| *all.entry(asker.clone()).or_default() += 1);
        let is_over =
            |said: &Option<Said>| matches!(said, Some(Said::Failed(_) | Said::Refused(_)));
        let was_over = awaits
            && self.said.send_if_modified(|said| {
                let is_over = is_over(said);
                if is_over {
                    *said = None;
                }
                is_over
            });
        if was_over {
            self.hurry.notify_one();
        }
    }

    /// One less who listens; whether this asker was there for no other.
    fn part(&self, asker: &Asker) -> bool {
        let mut is_last = false;
        self.wanted.send_modify(|all| {
            if let Some(count) = all.get_mut(asker) {
                *count -= 1;
                is_last = *count == 0;
            }
            if is_last {
                all.remove(asker);
            }
        });
        is_last
    }

    fn is_unwanted(&self) -> bool {
        self.wanted.borrow().is_empty()
    }

    async fn until_wanted(&self) {
        let mut wanted = self.wanted.subscribe();
        drop(wanted.wait_for(|all| !all.is_empty()).await);
    }
}

impl Subscribed {
    pub(crate) fn new(places: &Places) -> Self {
        Self {
            all: Mutex::default(),
            room: Semaphore::new(MOST),
            places: places.clone(),
            number: places.number(),
        }
    }

    /// Who asks by this call.
    pub(crate) fn asker(&self, call: &Call) -> Asker {
        let who = match &call.session {
            Some(session) => Who::Client {
                id: Arc::clone(session.id()),
                awaits: call.awaits_servers,
            },
            None => Who::Listener(self.places.number()),
        };
        self.known_as(who)
    }

    fn known_as(&self, who: Who) -> Asker {
        let session = self.number;
        Asker { session, who }
    }

    /// Subscribes to a resource for one more listener. One that `awaits` what is said of it is
    /// not told of an earlier failure.
    pub(crate) fn add(
        session: &Arc<Session>,
        uri: &str,
        asker: &Asker,
        awaits: bool,
    ) -> Subscription {
        let this = &session.subscribed;
        let mut all = this.all();
        let entry = if let Some(entry) = all.get(uri) {
            entry.join(asker, awaits);
            this.places.join(entry.number, asker);
            Arc::clone(entry)
        } else {
            let entry = Arc::new(Entry::new(this.places.number(), asker));
            all.insert(uri.to_owned(), Arc::clone(&entry));
            let (kept, kept_entry) = (Arc::clone(session), Arc::clone(&entry));
            let uri = uri.to_owned();
            let keeps = async move { kept.subscribed.keep(&kept, &kept_entry, &uri).await };
            Arc::clone(session).spawn(keeps);
            entry
        };
        drop(all);
        Subscription {
            session: Arc::clone(session),
            entry,
            asker: asker.clone(),
        }
    }

    /// Asks for one resource for as long as anybody listens.
    async fn keep(&self, session: &Session, entry: &Entry, uri: &str) {
        let Some(_room) = self.room(entry, uri).await else {
            return;
        };
        let mut again = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        let (mut stands, mut vain) = (Stands::No, 0);
        loop {
            let is_wanted = match self.ask(session, entry, (uri, vain), &mut stands).await {
                Asked::Displaced => {
                    vain += 1;
                    true
                }
                Asked::Unwanted => false,
                Asked::Said(said) => {
                    let is_over = matches!(&said, Said::Refused(error) if error.is_final());
                    if is_over {
                        // The next who wants it asks anew.
                        self.all().remove(uri);
                    }
                    if matches!(said, Said::Failed(Fault::SessionLost)) {
                        // Whoever listens does so in the next one.
                        session.retire();
                    }
                    let failed = !matches!(said, Said::Agreed);
                    entry.said.send_replace(Some(said));
                    if is_over {
                        return;
                    }
                    self.lasts(entry, failed.then(|| again.failed())).await
                }
            };
            if is_wanted {
                continue;
            }
            if self.take_back(session, entry, uri, stands).await {
                stands = Stands::No;
                if self.forget(entry, uri) {
                    return;
                }
            }
            // Somebody came meanwhile.
            again.reset();
            vain = 0;
        }
    }

    /// Room for one more, where need be when another is forgotten; `None` when nobody listens.
    async fn room(&self, entry: &Entry, uri: &str) -> Option<SemaphorePermit<'_>> {
        if let Ok(room) = self.room.try_acquire() {
            return Some(room);
        }
        let room = self.room.acquire();
        tokio::pin!(room);
        let text = format!("more than {MOST} subscriptions in one session");
        loop {
            // Not for good.
            let error = ErrorObject::new(code::INTERNAL_ERROR, &text);
            entry.said.send_replace(Some(Said::Refused(error)));
            tokio::select! {
                biased;
                () = self.until_unwanted(entry) => {
                    if self.forget(entry, uri) {
                        return None;
                    }
                }
                room = &mut room => {
                    entry.said.send_replace(None);
                    return room.ok();
                }
                () = entry.hurry.notified() => {}
            }
        }
    }

    /// Asks once, when there is a place for it: who leaves before that causes nothing.
    async fn ask(
        &self,
        session: &Session,
        entry: &Entry,
        (uri, vain): (&str, u32),
        stands: &mut Stands,
    ) -> Asked {
        let place = tokio::select! {
            biased;
            () = self.until_unwanted(entry) => return Asked::Unwanted,
            place = self.place(entry, vain) => place,
        };
        let before = *stands;
        *stands = before.max(Stands::Perhaps);
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        let answer = tokio::select! {
            biased;
            answer = session.ask_within("resources/subscribe", &params, ANSWERED_WITHIN) => answer,
            // The request goes, and its connection with it.
            () = self.until_unwanted(entry) => return Asked::Unwanted,
            () = place.lost() => return Asked::Displaced,
        };
        place.answered();
        Asked::Said(match answer {
            Ok(Outcome::Result(_)) => {
                *stands = Stands::Yes;
                Said::Agreed
            }
            Ok(Outcome::Error(error)) => {
                *stands = Stands::No;
                Said::Refused(error)
            }
            Err(fault) => {
                if fault.not_executed() {
                    *stands = before;
                }
                Said::Failed(fault)
            }
        })
    }

    /// A place for a request that has lost it so often, of whoever listens.
    async fn place(&self, entry: &Entry, vain: u32) -> Place {
        let number = entry.number;
        let ticket = {
            // Who comes or leaves meanwhile does so once the request waits.
            let wanted = entry.wanted.borrow();
            let askers = wanted.keys().cloned();
            self.places.queue(askers, Ask { number, vain })
        };
        ticket.place().await
    }

    /// Waits until nobody listens, or until it is time to ask again, which is `true`.
    async fn lasts(&self, entry: &Entry, pause: Option<Duration>) -> bool {
        let wait = async {
            let Some(pause) = pause else {
                return std::future::pending().await;
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = entry.hurry.notified() => {}
            }
        };
        tokio::select! {
            biased;
            () = self.until_unwanted(entry) => false,
            () = wait => {
                entry.said.send_replace(None);
                true
            }
        }
    }

    /// The server is to tell of it no more; `false` when somebody wants it again before that.
    async fn take_back(&self, session: &Session, entry: &Entry, uri: &str, stands: Stands) -> bool {
        match stands {
            Stands::No => return true,
            // To be told in vain is better than that others find no room.
            Stands::Perhaps if self.all().len() > MOST / 2 => return true,
            Stands::Perhaps => tokio::select! {
                () = sleep(TAKEN_BACK_AFTER) => {}
                () = entry.until_wanted() => return false,
            },
            Stands::Yes => {}
        }
        let nobody = [self.known_as(Who::Nobody)];
        let params = Object::from_iter([("uri", Raw::string(uri))]);
        let number = entry.number;
        let ticket = self.places.queue(nobody, Ask { number, vain: 0 });
        let _place = tokio::select! {
            place = ticket.place() => place,
            () = entry.until_wanted() => return false,
        };
        drop(session.ask("resources/unsubscribe", &params).await);
        true
    }

    /// Forgets one that nobody listens to; `false` when somebody does.
    fn forget(&self, entry: &Entry, uri: &str) -> bool {
        let mut all = self.all();
        let is_unwanted = entry.is_unwanted();
        if is_unwanted {
            all.remove(uri);
        }
        is_unwanted
    }

    /// Resolves when nobody listens; who comes from then on waits for what is asked next.
    async fn until_unwanted(&self, entry: &Entry) {
        let mut wanted = entry.wanted.subscribe();
        loop {
            drop(wanted.wait_for(HashMap::is_empty).await);
            let _all = self.all();
            if entry.is_unwanted() {
                entry.said.send_replace(None);
                return;
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// What comes of the request that is open or was the last; [`Fault::Forgotten`] when nothing
    /// will.
    pub(crate) async fn said(&self) -> Said {
        let mut said = self.entry.said.subscribe();
        let known = said.wait_for(Option::is_some);
        let gone = Said::Failed(Fault::Forgotten);
        tokio::select! {
            biased;
            known = known => known.map_or(None, |known| known.clone()).unwrap_or(gone),
            () = self.session.table.went() => gone,
        }
    }

    /// How the server refuses, or that it agrees; pending while it cannot be asked. With `in_the_end`
    /// a refusal counts only where it is final.
    pub(crate) fn settled(
        &self,
        in_the_end: bool,
    ) -> impl Future<Output = Option<ErrorObject>> + Send + use<> {
        let mut said = self.entry.said.subscribe();
        async move {
            let known = said.wait_for(|said| match said {
                Some(Said::Refused(error)) => !in_the_end || error.is_final(),
                Some(Said::Agreed) => true,
                Some(Said::Failed(_)) | None => false,
            });
            let known = known.await.map(|known| known.clone());
            match known {
                Ok(Some(Said::Refused(error))) => Some(error),
                Ok(_) => None,
                // Its session is over, and so is the listener.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Under the lock, so that who comes this moment finds the entry as it will be.
        let this = &self.session.subscribed;
        let _all = this.all();
        if self.entry.part(&self.asker) {
            this.places.part(self.entry.number, &self.asker);
        }
    }
}
