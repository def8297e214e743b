//! Several messages in one POST (2025-03-26: transports, sending messages to the server).
//!
//! Each is what it would be alone; their answers share one stream, or one array.

use std::sync::Arc;

use axum::response::Response;
use http::StatusCode;
use http::request::Parts as Head;
use tokio_util::sync::CancellationToken;
use waypost_hub::limit::{NoRoom, Permit};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::batch::VERSION;
use waypost_wire::error::Malformed;
use waypost_wire::message::{Message, Request};

use super::{Post, refuse, stream};
use crate::Parts;
use crate::admit::{Admitted, Batch, LegacyMessage};
use crate::answer;
use crate::encode::{self, Pieces};
use crate::event::Finish;
use crate::legacy::PING;
use crate::legacy::body::RingBody;
use crate::legacy::place::Marks;
use crate::legacy::ring::{Reader, Ring};
use crate::legacy::serve::{self, Incoming};
use crate::legacy::session::Hold;
use crate::legacy::sessions::Sessions;
use crate::media::Wants;
use crate::modern::Asker;
use crate::outlet::{Class, Outlet};
use crate::refusal::{Refusal, Refused};
use crate::rescue;

/// Where all answers go. Once nobody holds it, none is to come.
#[derive(Debug)]
struct Answers(Arc<Ring>);

/// What the calls of a POST hold of the bound on what is in flight, where there is one: the first
/// counts as the POST does, each other by itself.
#[derive(Debug)]
struct Room {
    first: Option<Arc<Permit>>,
    post: Option<Arc<Permit>>,
    /// How many found none.
    refused: usize,
}

/// Answers a POST of several messages.
pub(crate) async fn answer(
    parts: &Parts,
    sessions: &Sessions,
    asker: &Asker,
    head: &Head,
    batch: Batch,
    mut finish: Finish,
) -> Response {
    let wants = batch.wants;
    let post = Post {
        parts,
        sessions,
        wants,
    };
    let hold = match post.session_with_batches(asker, head).await {
        Ok(hold) => hold,
        Err(refusal) => return refuse(None, refusal, finish),
    };
    finish.outcome("accepted");
    let ring = Ring::new();
    let reader = ring.read(None);
    let answers = Arc::new(Answers(ring));
    let mut room = Room::new(head.extensions.get::<Arc<Permit>>());
    let mut answered = false;
    for member in batch.members {
        answered |= post.member(&hold, asker, &mut room, member, &answers);
    }
    drop(answers);
    if !answered {
        return answer::accepted();
    }
    let mut response = if wants == Wants::Json {
        match array(reader).await {
            Some(array) => answer::json(StatusCode::OK, array),
            // All were cancelled.
            None => answer::accepted(),
        }
    } else {
        let body = RingBody::new(reader, parts.keep_alive);
        let session = hold.session();
        // Of several that are lost no id could tell the client.
        let marks = Marks::new(session.mark, session.expose(body.ring()), None);
        stream(body, &hold, marks)
    };
    answer::turned_away(&mut response, NoRoom::Full, room.refused);
    response
}

impl Post<'_> {
    /// The session, which must be of the version that has batches.
    async fn session_with_batches(&self, asker: &Asker, head: &Head) -> Result<Hold, Refusal> {
        let hold = match self.session(asker, &head.headers, None).await {
            Ok(hold) => hold,
            Err(Refusal::NoVersion | Refusal::NoSession) => None,
            Err(refusal) => return Err(refusal),
        };
        let has = |hold: &Hold| hold.session().ticket.version == VERSION;
        hold.filter(has).ok_or(Refusal::Malformed(Malformed::Batch))
    }

    /// Takes one message; whether something is answered to it.
    fn member(
        &self,
        hold: &Hold,
        asker: &Asker,
        room: &mut Room,
        member: Result<Admitted, Refused>,
        answers: &Arc<Answers>,
    ) -> bool {
        let refused = match member {
            Ok(Admitted::Legacy(message)) => match message.message {
                Message::Request(_) => self.request(hold, asker, room, *message, answers),
                other @ (Message::Notification(_) | Message::Response(..)) => {
                    serve::told(hold.session(), other);
                    return false;
                }
            },
            Ok(Admitted::Notification) => return false,
            // A stateless request is answered by a POST of its own.
            Ok(Admitted::Request(admission)) => {
                Err(Refusal::Malformed(Malformed::Batch).to(admission.id))
            }
            Ok(Admitted::Batch(_)) => Err(Refusal::Malformed(Malformed::Batch).into()),
            Err(refused) => Err(refused),
        };
        if let Err(Refused { id, refusal }) = refused {
            let (_, error) = rescue::refusal(&refusal);
            answers.post(Class::End, encode::error(id.as_ref(), &error));
        }
        true
    }

    fn request(
        &self,
        hold: &Hold,
        asker: &Asker,
        room: &mut Room,
        message: LegacyMessage,
        answers: &Arc<Answers>,
    ) -> Result<(), Refused> {
        let Message::Request(request) = message.message else {
            return Ok(());
        };
        let id = request.id.clone();
        let mut finish = Finish::new(Arc::clone(&asker.request_id), asker.principal.clone());
        let meta = message.meta.map_err(|malformed| {
            let refusal = Refusal::Meta(malformed);
            finish.method(&request.method);
            finish.refused(&refusal);
            refusal.to(id.clone())
        })?;
        let permit = room.next(&request).map_err(|refusal| {
            finish.method(&request.method);
            finish.refused(&refusal);
            refusal.to(id.clone())
        })?;
        let incoming = Incoming {
            request,
            meta,
            asker: asker.clone(),
            hold: Some(hold.clone()),
            outlet: Arc::clone(answers) as Arc<dyn Outlet>,
            asks: self.wants != Wants::Json,
            cancelled: CancellationToken::new(),
            permit,
            finish,
        };
        serve::request(self.sessions, &self.parts.calls, incoming).map_err(|refusal| refusal.to(id))
    }
}

/// All answers, what comes between them dropped.
async fn array(mut reader: Reader) -> Option<Pieces> {
    let mut array = Pieces::new();
    while let Some(item) = reader.next().await {
        if item.class == Class::Answer {
            let before: &'static [u8] = if array.is_empty() { b"[" } else { b"," };
            array.push_back(before.into());
            array.extend(item.message);
        }
    }
    (!array.is_empty()).then(|| {
        array.push_back(b"]".as_slice().into());
        array
    })
}

// === impl Room ===

impl Room {
    fn new(post: Option<&Arc<Permit>>) -> Self {
        Self {
            first: post.cloned(),
            post: post.cloned(),
            refused: 0,
        }
    }

    /// Room for one more request.
    ///
    /// # Errors
    /// [`NoRoom::Full`] when there is none.
    fn next(&mut self, request: &Request) -> Result<Option<Arc<Permit>>, Refusal> {
        if request.method == PING {
            return Ok(None);
        }
        match (self.first.take(), &self.post) {
            (None, Some(post)) => {
                let another = post.another().map(Arc::new);
                self.refused += usize::from(another.is_none());
                another.map(Some).ok_or(Refusal::NoRoom(NoRoom::Full))
            }
            (first, _) => Ok(first),
        }
    }
}

// === impl Answers ===

impl Outlet for Answers {
    fn send(&self, class: Class, message: Pieces) -> BoxFuture<'_, ()> {
        self.0.send(one_of_several(class), message)
    }

    fn post(&self, class: Class, message: Pieces) {
        self.0.post(one_of_several(class), message);
    }

    fn is_read(&self) -> bool {
        Outlet::is_read(&*self.0)
    }

    fn whole(&self) -> Option<Arc<dyn Outlet>> {
        Some(Arc::clone(&self.0) as Arc<dyn Outlet>)
    }

    fn close(&self) {
        // One is over; the others may go on.
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn one_of_several(class: Class) -> Class {
    match class {
        Class::End => Class::Answer,
        Class::Note | Class::Ask(_) | Class::TakeBack(_) | Class::Answer => class,
    }
}
