//! Streamable HTTP, modern era.

mod answer;
mod connector;
mod events;
mod request;
mod upstream;

pub(crate) use self::upstream::{HttpUpstream, Settings};
