//! What a task has to say while its caller has its questions.
//!
//! A client that is asked by requests hears it: that its questions are others, or that the task is
//! over, for which nobody's answer is needed any more. Whoever only listens has no part in the
//! round: it stays as it is when the listener goes.

use std::sync::Arc;

use crate::error::CallError;
use crate::generate::{Notifier, generate};
use crate::reply::{End, Reply};
use crate::shared;
use crate::tasks::collapse::{Close, Wait};
use crate::tasks::parked::Waiting;
use crate::tasks::remote::Remote;
use crate::tasks::rounds;
use crate::tasks::state::Round;
use crate::tasks::{Desk, Job};

/// Somebody listens at a round that waits.
struct Listener {
    desk: Arc<Desk>,
    job: Arc<Job>,
    round: Round,
    waiting: Waiting,
    wait: Wait,
}

/// What is to be heard of the task behind a round, as long as that waits here.
pub(crate) fn listen(desk: &Arc<Desk>, job: Job, round: Round) -> Reply {
    let Some((waiting, asked)) = desk.parked.look(round.id) else {
        return Reply::nothing_to_hear();
    };
    let job = Arc::new(job.at_asker(round.instance.as_deref()));
    let instance = round.instance.as_deref().map(Arc::from);
    let remote = Remote::new(&job.member, instance, round.task.clone(), &job.call);
    let progress = asked.progress.under(job.call.meta.progress_token.clone());
    let told = (rounds::born(&round), progress);
    let wait = Wait::beside(desk, Arc::clone(&job), remote, told, asked.keys);
    let listener = Listener {
        desk: Arc::clone(desk),
        job,
        round,
        waiting,
        wait,
    };
    Reply::Stream(generate(|notifier| listener.run(notifier)))
}

impl Listener {
    async fn run(mut self, notifier: Notifier) -> Result<End, CallError> {
        let close = tokio::select! {
            biased;
            () = self.waiting.over() => return Reply::nothing_to_hear().into_end().await,
            close = self.wait.close(&notifier) => close,
        };
        let (answer, reason) = match close {
            Close::Ask(task) => {
                let Self {
                    desk,
                    job,
                    round,
                    waiting,
                    wait,
                } = self;
                return match rounds::ask_anew(&desk, &waiting, (wait, &job), round, &task) {
                    Some(asks) => Ok(asks),
                    None => Reply::nothing_to_hear().into_end().await,
                };
            }
            Close::Over(end, _) => (Ok(end), None),
            Close::Lost(error) => (Err(error), None),
            Close::GiveUp(answer, reason, _) => (answer, Some(reason)),
        };
        let answer = shared::answer(answer);
        // Whoever came back this moment finds out alone.
        if !self.waiting.give(&answer) {
            return Reply::nothing_to_hear().into_end().await;
        }
        rounds::sweep_later(&self.desk);
        if let Some(reason) = reason {
            self.wait.cancel(reason);
        }
        shared::again(&answer)
    }
}
