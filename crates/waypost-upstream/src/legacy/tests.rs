//! Sessions over a link that a test plays, under paused time.

mod beside;
mod ended_tasks;
mod kit;
mod life;
mod loss;
mod questions;
mod subscriptions;
mod telling;
mod whose;
