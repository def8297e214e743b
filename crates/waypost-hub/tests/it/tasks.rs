//! What becomes of tasks, seen from a caller and from an upstream.

#![expect(
    clippy::needless_pass_by_value,
    reason = "values are written where they are used"
)]

mod kit;

mod aftermath;
mod beside;
mod collapse;
mod ends;
mod hub;
mod passthrough;
mod policy;
mod rounds;
mod states;
