//! Servers that misbehave, each named for how. All listen on a free port of loopback and record
//! what reaches them ([`Running::seen`](crate::run::Running::seen)).
//!
//! Apart from its one fault each, [`sessions`] excepted, is an honest modern server with the tools `work` and `other`,
//! which say `done`.

pub mod always_tasks;
pub mod asks_undeclared;
pub mod bad_definitions;
pub mod closes_mid_body;
pub mod demands_tasks;
pub mod echo;
pub mod endless_cursors;
mod fake;
pub mod flaky_polls;
pub mod forgets_tasks;
pub mod header_mismatch_once;
pub mod http_errors;
pub mod invalid_json;
pub mod late_tasks;
pub mod legacy_only;
pub mod nested;
pub mod never_answers;
pub mod never_ends;
pub mod odd_sse;
pub mod oversized;
pub mod sessions;
pub mod slow_drip;
pub mod wrong_id;
