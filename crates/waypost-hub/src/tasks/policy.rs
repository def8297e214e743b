//! What an upstream's task policy makes of one call.

use waypost_config::config::TaskPolicy;

/// All that the decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanFacts {
    /// What the file sets for the upstream: `tasks`.
    pub(crate) policy: TaskPolicy,
    /// The caller declared the Tasks extension on this request.
    pub(crate) declared: bool,
    /// Whether the upstream has the extension.
    pub(crate) extension: Extension,
    /// The tool is known to answer only with tasks.
    pub(crate) task_only: bool,
}

/// Whether an upstream has the Tasks extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension {
    /// It says so, or the file does.
    Has,
    /// It described itself without it.
    HasNot,
    /// It has not described itself yet.
    Unknown,
}

/// What to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The call goes out with the extension declared; otherwise without, whatever the caller said.
    pub(crate) declare: bool,
    /// What becomes of a task.
    pub(crate) on_task: OnTask,
    /// What becomes of the upstream's `-32021` for tasks.
    pub(crate) on_demand: OnDemand,
}

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnTask {
    /// The caller gets a handle.
    PassThrough,
    /// The caller gets the final answer, waited for.
    Collapse,
    /// The task is cancelled, the caller gets an error.
    Refuse,
}

/// What becomes of the upstream's `-32021` for tasks. Nothing has run then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDemand {
    /// The caller gets it.
    PassOn,
    /// The call is sent again with tasks declared, and collapsed.
    SendAgain,
}

/// The table: one arm for each cell that differs.
pub(crate) fn plan(facts: PlanFacts) -> Plan {
    let PlanFacts {
        policy,
        declared,
        extension,
        task_only,
    } = facts;
    let can = extension != Extension::HasNot;
    let plan = |declare, on_task, on_demand| Plan {
        // An upstream known not to have the extension never gets the declaration.
        declare: declare && can,
        on_task,
        on_demand: if can { on_demand } else { OnDemand::PassOn },
    };
    match (policy, declared) {
        (TaskPolicy::Auto | TaskPolicy::Passthrough, true) => {
            plan(true, OnTask::PassThrough, OnDemand::PassOn)
        }
        // Known to be refused without: declaring at once saves the round trip.
        (TaskPolicy::Auto, false) if task_only => plan(true, OnTask::Collapse, OnDemand::PassOn),
        (TaskPolicy::Auto, false) => plan(false, OnTask::Collapse, OnDemand::SendAgain),
        (TaskPolicy::Passthrough, false) => plan(false, OnTask::Collapse, OnDemand::PassOn),
        (TaskPolicy::Collapse, _) => plan(true, OnTask::Collapse, OnDemand::PassOn),
        (TaskPolicy::Refuse, _) => plan(false, OnTask::Refuse, OnDemand::PassOn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Extension::{Has, HasNot, Unknown};
    use OnDemand::{PassOn, SendAgain};
    use OnTask::{Collapse, PassThrough};
    use TaskPolicy as P;

    #[track_caller]
    fn check(
        (policy, declared): (P, bool),
        (extension, task_only): (Extension, bool),
        (declare, on_task, on_demand): (bool, OnTask, OnDemand),
    ) {
        let facts = PlanFacts {
            policy,
            declared,
            extension,
            task_only,
        };
        let expected = Plan {
            declare,
            on_task,
            on_demand,
        };
        assert_eq!(plan(facts), expected, "{facts:?}");
    }

    #[test]
    fn every_cell_of_the_policy_table() {
        for only in [false, true] {
            for upstream in [(Has, only), (Unknown, only)] {
                check((P::Auto, true), upstream, (true, PassThrough, PassOn));
                check(
                    (P::Passthrough, true),
                    upstream,
                    (true, PassThrough, PassOn),
                );
                check((P::Passthrough, false), upstream, (false, Collapse, PassOn));
                check((P::Collapse, true), upstream, (true, Collapse, PassOn));
                check((P::Collapse, false), upstream, (true, Collapse, PassOn));
                check((P::Refuse, true), upstream, (false, OnTask::Refuse, PassOn));
                check(
                    (P::Refuse, false),
                    upstream,
                    (false, OnTask::Refuse, PassOn),
                );
            }
        }
        for extension in [Has, Unknown] {
            check(
                (P::Auto, false),
                (extension, false),
                (false, Collapse, SendAgain),
            );
            check(
                (P::Auto, false),
                (extension, true),
                (true, Collapse, PassOn),
            );
        }
    }

    #[test]
    fn an_upstream_without_the_extension_never_gets_the_declaration() {
        for policy in [P::Auto, P::Passthrough, P::Collapse, P::Refuse] {
            for (declared, task_only) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let plan = plan(PlanFacts {
                    policy,
                    declared,
                    extension: HasNot,
                    task_only,
                });
                assert!(!plan.declare && plan.on_demand == PassOn, "{policy:?}");
            }
        }
    }
}
