//! Turns YAML, environment and flags into a checked configuration, or the full list of problems.

pub mod config;
pub mod secret;
