//! Which upstream of a family a call is for.

use std::sync::Arc;

use tokio::time::Instant;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::catalog::family::{Choice, Unchosen};
use crate::error::{CallError, Kind as ErrorKind};
use crate::hub::{Hub, is_unknown};
use crate::member::Member;
use crate::meta::answer;
use crate::questions::{Chosen, Target};
use crate::reply::Reply;

impl Hub {
    /// The tool that a call is for, where `shown` stands for those of several upstreams; the argument
    /// that says so is taken out of the call. An upstream that is still starting is waited for as long
    /// as a call to it may take. Who says nothing, or something wrong, is told what can be said, in a
    /// form that a model sees.
    pub(crate) async fn choose(
        &self,
        name: &str,
        shown: Target,
        call: &mut Call,
    ) -> Result<Result<Target, Reply>, CallError> {
        let choice = match &shown.choice {
            Chosen::Alone => return Ok(Ok(shown)),
            // It was said before the caller was asked.
            Chosen::By(argument) => {
                leave_out(argument, call);
                return Ok(Ok(shown));
            }
            Chosen::Open(choice) => choice,
        };
        let wrong = match take(choice, call) {
            Ok(target) => return Ok(Ok(target)),
            Err(wrong) => wrong,
        };
        let refusal = || Ok(Err(answer::refusal(&wrong.to_string())));
        let Some(member) = self.meant(choice, call, &wrong) else {
            return refusal();
        };
        let until = Instant::now() + member.timeout(None);
        Box::pin(self.wait_until(until, || !is_unknown(&member))).await;
        let again = self.catalog().find(Kind::Tool, &call.view, name).cloned();
        let again = again.and_then(|entry| entry.choice.clone());
        match again.map(|choice| take(&choice, call)) {
            Some(Ok(target)) => Ok(Ok(target)),
            _ if member.learned().is_none() => {
                Err(CallError::upstream(ErrorKind::Unavailable, &member.name)
                    .detail("nothing is known of it yet")
                    .retryable())
            }
            _ => refusal(),
        }
    }

    /// The upstream that a call means which is not known to have the tool, while that is because
    /// nothing is known of it at all.
    fn meant(&self, choice: &Choice, call: &Call, wrong: &Unchosen) -> Option<Arc<Member>> {
        let Unchosen::Unknown { given, .. } = wrong else {
            return None;
        };
        let catalog = self.catalog();
        let is_it = |member: &&Arc<Member>| {
            let family = member.settings.family.as_ref();
            family.is_some_and(|own| *own.name == *choice.family && own.value == *given)
        };
        let member = catalog.shown(&call.view).find(is_it)?;
        member.learned().is_none().then(|| Arc::clone(member))
    }
}

fn take(choice: &Choice, call: &mut Call) -> Result<Target, Unchosen> {
    let (entry, arguments) = choice.select(call.params.get("arguments"))?;
    call.params.set("arguments", arguments);
    Ok(Target::chosen(entry, &choice.argument))
}

fn leave_out(argument: &str, call: &mut Call) {
    let arguments = call.params.get("arguments");
    if let Some(Ok(mut arguments)) = arguments.map(Raw::as_object) {
        arguments.remove(argument);
        call.params.set("arguments", arguments.into());
    }
}
