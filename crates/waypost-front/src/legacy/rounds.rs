//! The stateless calls that answer one request of a client: as many as there are rounds of
//! questions, and beside questions that are out one that hears what the call says meanwhile.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep, sleep_until};
use waypost_hub::call::{Call, Comeback};
use waypost_hub::error::CallError;
use waypost_hub::reply::{End, Event};
use waypost_wire::code;
use waypost_wire::error::ErrorObject;
use waypost_wire::message::{self, Notification};
use waypost_wire::object::Object;
use waypost_wire::result::{INPUT_REQUESTS, INPUT_RESPONSES, OWN_STATE, REQUEST_STATE};

use crate::events::Events;
use crate::legacy::ask::Questions;
use crate::legacy::exchange::Exchange;
use crate::legacy::progress::Progress;
use crate::legacy::translate;
use crate::outlet::Class;

/// A server that asks more often than this will not come to an end.
const MOST_ROUNDS: u32 = 1000;

/// A server that only wants to be asked again is, after this long.
const AGAIN: Duration = Duration::from_millis(250);

type Heard = Option<Result<Event, CallError>>;

/// One request of a client on its way through the rounds.
pub(crate) struct Rounds<'a> {
    exchange: &'a Exchange,
    /// As it is sent in the round at hand.
    call: &'a mut Call,
    progress: Progress,
    /// Whether the server waits for answers, so that it has to be told when none will come.
    asking: &'a mut bool,
}

/// What came of a round of questions.
enum Asked {
    /// The call goes on in this one.
    On(Round),
    /// It ended meanwhile.
    Over(End),
}

/// The messages of one round.
struct Round {
    /// Read before anybody asked.
    ahead: Heard,
    events: Events,
}

/// What of a call is to be heard beside its questions.
enum Beside {
    Listening(Events),
    /// The server has no call open while it asks.
    Nothing,
}

/// What came beside the questions.
enum News {
    Heard(Notification),
    /// Other questions are open; `None` when no more is to be heard.
    Asks(Option<Object>),
    Over(Result<End, CallError>),
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(exchange: &'a Exchange, call: &'a mut Call, asking: &'a mut bool) -> Self {
        Self {
            exchange,
            call,
            progress: Progress::default(),
            asking,
        }
    }

    /// The end of the request, all that comes before it passed on.
    ///
    /// # Errors
    /// The failure that took its place.
    pub(crate) async fn run(mut self) -> Result<End, CallError> {
        let exchange = self.exchange;
        let slot = exchange.slot.as_ref();
        let mut questions = slot.map(|slot| Questions::new(slot.hold.session(), &exchange.outlet));
        let mut round = Round {
            ahead: None,
            events: Events::of(exchange.calls.clone(), self.call.clone()).await?,
        };
        for _ in 0..MOST_ROUNDS {
            self.progress.round();
            let result = match self.finish(&mut round).await? {
                End::InputRequired(result) => result,
                end => return Ok(end),
            };
            let Some(questions) = &mut questions else {
                return Ok(End::Error(no_way_back()));
            };
            match self.ask(result, questions).await? {
                Asked::On(next) => round = next,
                Asked::Over(end) => return Ok(end),
            }
        }
        let text = "the server asks again and again";
        Ok(End::Error(ErrorObject::new(code::INTERNAL_ERROR, text)))
    }

    async fn finish(&mut self, round: &mut Round) -> Result<End, CallError> {
        while let Some(event) = round.next().await {
            let event = event?;
            // The answers have arrived.
            *self.asking = false;
            match event {
                Event::Notification(notification) => self.pass(notification).await,
                Event::End(end) => return Ok(end),
            }
        }
        Err(CallError::no_end())
    }

    async fn pass(&mut self, mut notification: Notification) {
        translate::notification(&mut notification);
        self.progress.pass(&mut notification);
        let message = message::encode_notification(&notification.method, &notification.params);
        self.exchange
            .outlet
            .send(Class::Note, [message].into())
            .await;
    }

    /// Puts the questions to the client, and goes on with its answers: with each at once where
    /// the call is open at the server, else with all.
    async fn ask(&mut self, result: Object, questions: &mut Questions) -> Result<Asked, CallError> {
        self.take_state(&result);
        *self.asking = true;
        let Some(requests) = result.get(INPUT_REQUESTS) else {
            sleep(AGAIN).await;
            return self.retry(None, Beside::Nothing).await;
        };
        let mut beside = self.listen().await?;
        if let Err(error) = questions.become_these(requests).await {
            return Ok(Asked::Over(End::Error(error)));
        }
        let mut answers = Object::new();
        let deadline = Instant::now() + self.exchange.answer_within;
        while !questions.is_empty() {
            // In no order: a server that never pauses must not keep an answer from being read, or
            // the time from running out.
            tokio::select! {
                news = beside.news() => match news {
                    News::Heard(notification) => self.pass(notification).await,
                    News::Asks(None) => beside = Beside::Nothing,
                    News::Asks(Some(result)) => {
                        self.take_state(&result);
                        let requests = result.get(INPUT_REQUESTS).cloned();
                        let requests = requests.unwrap_or_else(|| Object::new().into());
                        if let Err(error) = questions.become_these(&requests).await {
                            return Ok(Asked::Over(End::Error(error)));
                        }
                        beside = self.listen().await?;
                    }
                    News::Over(end) => {
                        // A failure may be one of listening alone.
                        *self.asking = end.is_err();
                        return end.map(Asked::Over);
                    }
                },
                answered = questions.next() => {
                    // With those that came meanwhile: nobody reads them once the call is over.
                    let mut answered = Some(answered);
                    while let Some(one) = answered {
                        let key = one.key.clone();
                        match one.response(beside.is_open()) {
                            Ok(answer) => answers.set(&key, answer),
                            Err(error) => return Ok(Asked::Over(End::Error(error))),
                        }
                        answered = questions.ready();
                    }
                    if beside.is_open() {
                        break;
                    }
                },
                () = sleep_until(deadline) => return Ok(Asked::Over(End::Error(no_answer()))),
            }
        }
        self.retry(Some(answers), beside).await
    }

    /// The state that the next call has to bring.
    fn take_state(&mut self, result: &Object) {
        let params = &mut self.call.params;
        params.remove(INPUT_RESPONSES);
        match result.get(REQUEST_STATE).cloned() {
            Some(state) => params.set(REQUEST_STATE, state),
            None => drop(params.remove(REQUEST_STATE)),
        }
    }

    /// Begins to hear what the call says beside its questions.
    async fn listen(&self) -> Result<Beside, CallError> {
        let state = self.call.params.string(REQUEST_STATE).unwrap_or_default();
        if !state.starts_with(OWN_STATE) {
            return Ok(Beside::Nothing);
        }
        let mut call = self.call.clone();
        call.comeback = Comeback::Listens;
        let events = Events::of(self.exchange.calls.clone(), call).await?;
        Ok(Beside::Listening(events))
    }

    /// Sends the call once more, and passes on what the questions left to be heard before
    /// anything of it: it is earlier.
    async fn retry(
        &mut self,
        answers: Option<Object>,
        mut beside: Beside,
    ) -> Result<Asked, CallError> {
        if let Some(answers) = answers {
            self.call.params.set(INPUT_RESPONSES, answers.into());
        }
        let mut round = Round {
            ahead: None,
            events: Events::of(self.exchange.calls.clone(), self.call.clone()).await?,
        };
        let mut failed = None;
        while beside.is_open() {
            let waits = round.ahead.is_none();
            let news = tokio::select! {
                biased;
                () = round.look_ahead(), if waits => continue,
                // Once the retry says something, this was let go of before.
                news = beside.next(waits) => news,
            };
            match news {
                Some(News::Heard(notification)) => self.pass(notification).await,
                Some(News::Over(Ok(end))) => {
                    *self.asking = false;
                    return Ok(Asked::Over(end));
                }
                Some(News::Over(Err(error))) => {
                    failed = Some(error);
                    beside = Beside::Nothing;
                }
                Some(News::Asks(_)) | None => beside = Beside::Nothing,
            }
        }
        if let Some(error) = failed {
            round.look_ahead().await;
            if !matches!(round.ahead, Some(Ok(_))) {
                return Err(error);
            }
        }
        Ok(Asked::On(round))
    }
}

impl Round {
    async fn next(&mut self) -> Heard {
        match self.ahead.take() {
            Some(event) => Some(event),
            None => self.events.next().await,
        }
    }

    async fn look_ahead(&mut self) {
        if self.ahead.is_none() {
            self.ahead = self.events.next().await;
        }
    }
}

impl Beside {
    fn is_open(&self) -> bool {
        matches!(self, Self::Listening(_))
    }

    /// The next that is heard; nothing comes where there is nothing to hear.
    async fn news(&mut self) -> News {
        match self {
            Self::Listening(events) => News::of(events.next().await),
            Self::Nothing => std::future::pending().await,
        }
    }

    /// The same, or `None` at once for what has not come yet unless it `waits`.
    async fn next(&mut self, waits: bool) -> Option<News> {
        let news = self.news();
        if waits {
            return Some(news.await);
        }
        // Unconstrained: what is there is to be found, however much was read before.
        unconstrained(async { news.now_or_never() }).await
    }
}

impl News {
    fn of(heard: Heard) -> Self {
        match heard {
            Some(Ok(Event::Notification(notification))) => Self::Heard(notification),
            Some(Ok(Event::End(End::InputRequired(result)))) => {
                let open = result.contains(REQUEST_STATE);
                Self::Asks(open.then_some(result))
            }
            Some(Ok(Event::End(end))) => Self::Over(Ok(end)),
            Some(Err(error)) => Self::Over(Err(error)),
            None => Self::Over(Err(CallError::no_end())),
        }
    }
}

fn no_way_back() -> ErrorObject {
    let text = "the server asks something, and without a session there is no way to answer";
    ErrorObject::new(code::INVALID_REQUEST, text)
}

fn no_answer() -> ErrorObject {
    let text = "the client did not answer the server's question in time";
    ErrorObject::new(code::INTERNAL_ERROR, text)
}
