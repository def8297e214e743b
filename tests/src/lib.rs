//! Helpers of the end-to-end and interop tests.

pub mod conformance;
pub mod drive;
pub mod gateway;
pub mod interop;
pub mod rmcp_driver;
pub mod rmcp_peer;
