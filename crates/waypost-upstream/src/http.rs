//! Streamable HTTP, modern era.

pub(crate) mod answer;
pub(crate) mod connector;
mod events;
pub(crate) mod frames;
mod lingering;
pub(crate) mod pool;
pub(crate) mod request;
mod upstream;

pub(crate) use self::upstream::{HttpUpstream, Settings};
