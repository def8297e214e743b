//! Questions that no call is there to carry, put to the client that has the session for itself
//! (2025-11-25: a server may ask whenever it likes).

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use waypost_hub::call::Session as ClientSession;
use waypost_hub::upstream::BoxFuture;
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::id::Id;
use waypost_wire::message::{self, Outcome, Request};

/// Questions that wait at once; more are kept for the next call.
const MOST: usize = 16;

/// The questions that are out.
#[derive(Debug)]
pub(crate) struct Outside {
    client: Option<ClientSession>,
    asked: Mutex<Asked>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Asked {
    answers: FuturesUnordered<BoxFuture<'static, (Id, Option<Outcome>)>>,
    taken_back: HashMap<Id, CancellationToken>,
}

impl Outside {
    /// `client` is the one that has the session for itself.
    pub(crate) fn new(client: Option<ClientSession>) -> Self {
        Self {
            client,
            asked: Mutex::default(),
            more: Notify::new(),
        }
    }

    /// Asks; `false` where nothing reaches the client now.
    pub(crate) fn ask(&self, request: &Request) -> bool {
        let Some(client) = &self.client else {
            return false;
        };
        let mut asked = self.asked();
        // A second question under the id of one that waits would have its answer.
        if asked.answers.len() >= MOST || asked.taken_back.contains_key(&request.id) {
            return false;
        }
        let Some(answer) = client.ask(&request.method, &request.params) else {
            return false;
        };
        let (id, taken_back) = (request.id.clone(), CancellationToken::new());
        asked.taken_back.insert(id.clone(), taken_back.clone());
        asked.answers.push(Box::pin(async move {
            let outcome = taken_back.run_until_cancelled_owned(answer).await;
            (id, outcome.flatten())
        }));
        drop(asked);
        self.more.notify_one();
        true
    }

    /// The server does not want to know any more; `false` when it did not ask that here.
    pub(crate) fn withdraw(&self, id: &Id) -> bool {
        let token = self.asked().taken_back.remove(id);
        token.inspect(CancellationToken::cancel).is_some()
    }

    /// Takes all questions back.
    pub(crate) fn clear(&self) {
        let asked = std::mem::take(&mut *self.asked());
        drop(asked);
    }

    /// The next response to the server.
    pub(crate) async fn next(&self) -> Bytes {
        loop {
            let more = self.more.notified();
            let answered = poll_fn(|cx| match self.asked().answers.poll_next_unpin(cx) {
                Poll::Ready(Some(answered)) => Poll::Ready(answered),
                // None yet, or none is asked.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            let (id, outcome) = tokio::select! {
                answered = answered => answered,
                () = more => continue,
            };
            // Of a question that was taken back nobody wants to hear.
            if self.asked().taken_back.remove(&id).is_some() {
                return response(&id, outcome);
            }
        }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn response(id: &Id, outcome: Option<Outcome>) -> Bytes {
    match outcome {
        Some(Outcome::Result(result)) if result.is_object() => {
            message::encode_result(id, &result.as_object().unwrap_or_default())
        }
        Some(Outcome::Error(error)) => message::encode_error(Some(id), &error),
        Some(Outcome::Result(_)) | None => {
            let error = ErrorObject::new(code::INTERNAL_ERROR, "the client did not answer");
            message::encode_error(Some(id), &error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use waypost_hub::call::Asks;
    use waypost_wire::object::Object;

    use super::*;

    #[derive(Debug)]
    struct Silent;

    impl Asks for Silent {
        fn ask(&self, _: &str, _: &Object) -> Option<BoxFuture<'static, Option<Outcome>>> {
            Some(Box::pin(std::future::pending()))
        }
    }

    fn question(id: u64) -> Request {
        Request {
            id: Id::number(id),
            method: "elicitation/create".to_owned(),
            params: Object::new(),
        }
    }

    #[test]
    fn a_question_under_a_known_id_is_not_asked_and_many_are_bounded() {
        let client = ClientSession::new("s", CancellationToken::new());
        let client = client.asked_by(Arc::new(Silent));
        let outside = Outside::new(Some(client));
        assert!(outside.ask(&question(1)));
        assert!(!outside.ask(&question(1)));
        let asked = (2..40).filter(|id| outside.ask(&question(*id))).count();
        assert_eq!(asked, MOST - 1);
    }
}
