//! Ends that a method may not have: only `tools/call` may become a task today, and only three
//! methods may ask (specification: tasks, multi round-trip requests).

use std::sync::Arc;

use waypost_wire::method;
use waypost_wire::text::{NAME, clip};

use super::Desk;
use super::event::Reason;
use super::passthrough::TASK_ID;
use super::remote::{Guard, Remote};
use crate::call::{Call, Carrier};
use crate::error::{CallError, Kind};
use crate::member::Member;
use crate::reply::{End, Reply};

/// A call of another method than `tools/call`, for the end that it gets.
pub(super) struct Other {
    desk: Arc<Desk>,
    member: Arc<Member>,
    call: Call,
}

impl Other {
    /// `call` is as it goes out, but for its params; where it goes is seen by its carrier.
    pub(super) fn new(desk: &Arc<Desk>, member: &Arc<Member>, call: &mut Call) -> Self {
        call.carrier = Carrier::watched();
        Self {
            desk: Arc::clone(desk),
            member: Arc::clone(member),
            call: call.clone(),
        }
    }

    /// The reply, with an error in place of an end that may not be. A task is cancelled: nobody
    /// could ask for it.
    ///
    /// # Errors
    /// [`Kind::BadUpstream`] for such an end that is there already.
    pub(super) fn check(self, reply: Reply) -> Result<Reply, CallError> {
        reply.map_end(move |end| match end {
            End::Task(created) => {
                if let Some(id) = created.string(TASK_ID) {
                    let instance = self.call.carrier.instance();
                    let remote = Remote::new(&self.member, instance, id, &self.call);
                    Guard::new(remote, &self.desk.cancels).cancel(Reason::Broken);
                }
                Err(self.bad("with a task, which only `tools/call` may become"))
            }
            End::InputRequired(_) if self.call.method == method::COMPLETE => {
                Err(self.bad("with questions, which may not be asked there"))
            }
            end => Ok(end),
        })
    }

    fn bad(&self, how: &str) -> CallError {
        let method = clip(&self.call.method, NAME);
        let error = CallError::upstream(Kind::BadUpstream, &self.member.name);
        error.detail(format!("answered `{method}` {how}"))
    }
}
