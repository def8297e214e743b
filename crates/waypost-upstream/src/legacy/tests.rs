//! Sessions over a link that a test plays, under paused time.

mod kit;
mod life;
mod questions;
mod whose;
