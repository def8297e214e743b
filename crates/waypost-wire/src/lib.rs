//! The words of MCP over untouched bytes.
//!
//! A gateway must not decode what it does not route on. So a message is read one level deep:
//! keys are text, values stay the bytes that were received ([`raw::Raw`], [`object::Object`]).
//! Nothing here does I/O, knows a clock or is async.

#![warn(missing_docs)]

pub mod batch;
pub mod capability;
pub mod code;
pub mod depth;
pub mod error;
pub mod header;
pub mod id;
pub mod level;
pub mod line;
pub mod links;
pub mod message;
pub mod meta;
pub mod method;
pub mod object;
pub mod param;
pub mod raw;
pub mod result;
pub mod sse;
pub mod task;
pub mod text;
pub mod uri;
pub mod version;
