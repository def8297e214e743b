//! The demo servers and the fakes, over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod children;
mod everything;
mod external;
mod listen;
mod misbehave;
mod peers;
mod sessions;
mod stdio;
mod tasks;
mod transport;
