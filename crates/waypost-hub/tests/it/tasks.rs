//! What becomes of tasks, seen from a caller and from an upstream.

mod kit;

mod collapse;
mod ends;
mod passthrough;
mod policy;
mod rounds;
mod states;
