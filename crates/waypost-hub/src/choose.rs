//! Which upstream of a family a call is for.

use std::sync::Arc;

use tokio::time::Instant;
use waypost_wire::raw::Raw;

use crate::call::Call;
use crate::catalog::entry::Kind;
use crate::catalog::family::{Choice, Unchosen};
use crate::error::CallError;
use crate::hub::{Hub, is_unknown};
use crate::member::Member;
use crate::meta::answer;
use crate::questions::{Chosen, Target};
use crate::reply::Reply;
use crate::router::{never_heard, still_starting, unread};

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
        let Unchosen::Unknown { given, .. } = &wrong else {
            return Ok(Err(answer::refusal(&wrong.to_string())));
        };
        let family = &*choice.family;
        let is_over = || {
            self.shown_choice(name, call)
                .is_some_and(|choice| choice.select(call.params.get("arguments")).is_ok())
                || !self.meant(family, given, call).iter().any(is_awaited)
        };
        let meant = self.meant(family, given, call);
        let patience = meant.iter().map(|member| member.timeout(None)).max();
        if let Some(patience) = patience {
            Box::pin(self.wait_until(Instant::now() + patience, is_over)).await;
        }
        let again = self.shown_choice(name, call);
        if let Some(Ok(target)) = again.map(|choice| take(&choice, call)) {
            return Ok(Ok(target));
        }
        let meant = self.meant(family, given, call);
        if let Some(member) = meant.iter().find(|member| is_awaited(member)) {
            return Err(still_starting(member));
        }
        if let Some(member) = meant.iter().find(|member| member.learned().is_none()) {
            return Err(never_heard(member));
        }
        match meant.iter().find(|member| member.is_unread(Kind::Tool)) {
            Some(member) => Err(unread(Kind::Tool, member)),
            None => Ok(Err(answer::refusal(&wrong.to_string()))),
        }
    }

    /// What a call of this name can choose from, by the catalogue of now.
    fn shown_choice(&self, name: &str, call: &Call) -> Option<Arc<Choice>> {
        let catalog = self.catalog();
        let entry = catalog.find(Kind::Tool, &call.view, name)?;
        entry.choice.clone()
    }

    /// The upstreams of a family that a value means now.
    fn meant(&self, family: &str, given: &str, call: &Call) -> Vec<Arc<Member>> {
        let catalog = self.catalog();
        let is_it = |member: &&Arc<Member>| {
            let own = member.settings.family.as_ref();
            own.is_some_and(|own| own.name == family && own.value == given)
        };
        let meant = catalog.shown(&call.view).filter(is_it);
        meant.map(Arc::clone).collect()
    }
}

/// Whether more of it is to be expected in the catalogue at any moment.
fn is_awaited(member: &Arc<Member>) -> bool {
    is_unknown(member) || (member.learned().is_some() && !member.is_listed())
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
