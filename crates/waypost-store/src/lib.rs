//! Remembers what was learned of upstreams, what clients set in their sessions, which request states
//! were used, and the keys behind everything sealed.
//!
//! One SQLite file by default. Statements are those that PostgreSQL understands too (`$n`,
//! `BIGINT` milliseconds); what differs lives in one small file per database.

mod database;
mod ephemeral;
mod error;
pub mod keys;
mod migrate;
pub mod pins;
mod record;
mod sessions;
mod sqlite;
mod states;

pub use database::Database;
pub use error::OpenError;
