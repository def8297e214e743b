//! What the tour asks, in order.

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Declares the tasks extension and elicitation.
    KnowsTasks,
    /// Declares nothing.
    Plain,
}

/// How much of an exchange is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// The request with headers and `_meta`, and the answer.
    Everything,
    /// The parameters that matter, and the answer.
    Gist,
    /// As the gist, with only the names of what is listed.
    Names,
}

/// One request. In `params`, `$TASK` is the id of the task that was created last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) who: Who,
    pub(super) method: &'static str,
    pub(super) params: &'static str,
    pub(super) show: Show,
    /// Asked again until the task has this status; only the last answer is shown.
    pub(super) until: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) says: &'static str,
    pub(super) asks: &'static [Ask],
}

impl Ask {
    const fn new(method: &'static str, params: &'static str) -> Self {
        Self {
            who: Who::KnowsTasks,
            method,
            params,
            show: Show::Gist,
            until: None,
        }
    }

    const fn show(self, show: Show) -> Self {
        Self { show, ..self }
    }

    const fn plain(self) -> Self {
        Self {
            who: Who::Plain,
            ..self
        }
    }

    /// Polls the last task.
    const fn until(status: &'static str) -> Self {
        Self {
            until: Some(status),
            ..Self::new("tasks/get", r#"{"taskId":"$TASK"}"#)
        }
    }
}

pub(super) const STEPS: &[Step] = &[
    Step {
        title: "Connect",
        says: "There is no handshake: every request says which protocol it speaks and what its client \
               can do. This client knows tasks and can be asked things. Behind the one endpoint are two \
               servers; because one of them has tasks, so has Waypost.",
        asks: &[Ask::new("server/discover", "{}").show(Show::Everything)],
    },
    Step {
        title: "Look around",
        says: "The tools of all servers are one list. Each name begins with the server's.",
        asks: &[Ask::new("tools/list", "{}").show(Show::Names)],
    },
    Step {
        title: "A plain call",
        says: "The answer comes at once, and says which server gave it.",
        asks: &[Ask::new(
            "tools/call",
            r#"{"name":"tasks_greet","arguments":{"name":"Ada"}}"#,
        )],
    },
    Step {
        title: "A call that becomes a task",
        says: "Nothing in the request asks for a task. The server decides, because this client said it \
               knows them. The task's id is sealed: it works for this caller only, and needs no table.",
        asks: &[
            Ask::new(
                "tools/call",
                r#"{"name":"tasks_slow_compute","arguments":{"seconds":1,"label":"demo"}}"#,
            ),
            Ask::until("completed"),
        ],
    },
    Step {
        title: "A tool that fails",
        says: "A tool's own error is a result: the task is completed, and the result says `isError`.",
        asks: &[
            Ask::new(
                "tools/call",
                r#"{"name":"tasks_failing_job","arguments":{}}"#,
            ),
            Ask::until("completed"),
        ],
    },
    Step {
        title: "A call that breaks",
        says: "An error of the protocol is something else: the task has failed, and carries the error.",
        asks: &[
            Ask::new(
                "tools/call",
                r#"{"name":"tasks_protocol_error_job","arguments":{}}"#,
            ),
            Ask::until("failed"),
        ],
    },
    Step {
        title: "A task that asks back",
        says: "The task waits for an answer to its question, gets it by `tasks/update`, and goes on.",
        asks: &[
            Ask::new(
                "tools/call",
                r#"{"name":"tasks_confirm_delete","arguments":{"filename":"old.log"}}"#,
            ),
            Ask::until("input_required"),
            Ask::new(
                "tasks/update",
                r#"{"taskId":"$TASK","inputResponses":{"confirm-1":{"action":"accept","content":{"confirm":true}}}}"#,
            ),
            Ask::until("completed"),
        ],
    },
    Step {
        title: "Cancel",
        says: "The acknowledgement is empty; that it worked shows in the task.",
        asks: &[
            Ask::new(
                "tools/call",
                r#"{"name":"tasks_slow_compute","arguments":{"seconds":600,"label":"too long"}}"#,
            ),
            Ask::new("tasks/cancel", r#"{"taskId":"$TASK"}"#),
            Ask::until("cancelled"),
        ],
    },
    Step {
        title: "A client that knows no tasks",
        says: "The same slow_compute at the same server, configured with `tasks: collapse`: there it is a \
               task again, but Waypost follows it and answers when it is over. The client waits a second \
               and gets a plain result.",
        asks: &[Ask::new(
            "tools/call",
            r#"{"name":"waiting_slow_compute","arguments":{"seconds":1,"label":"demo"}}"#,
        )
        .plain()],
    },
];
