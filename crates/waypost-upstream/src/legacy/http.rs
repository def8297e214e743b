//! Sessions over HTTP: Streamable HTTP of 2025-03-26 to 2025-11-25, and HTTP+SSE of 2024-11-05.
//!
//! [`dial`] chooses the transport; [`streamable`] and [`sse`] are the two. Everything that is
//! opened here lives on the control runtime, whoever asks for it: see [`wire`].

mod dial;
mod doubted;
mod either;
mod endpoint;
mod hearing;
mod lost;
mod place;
mod sse;
mod standing;
mod streamable;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use self::dial::{HttpDial, Transport};
pub use self::endpoint::EndpointFault;
