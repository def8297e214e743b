//! Servers of the session era, as servers that answer stateless calls.
//!
//! [`link`] is the seam to the transports.

#![expect(dead_code, reason = "sessions are built on it next")]

pub(crate) mod http;
pub(crate) mod link;

pub use self::http::EndpointFault;
