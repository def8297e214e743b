//! Helpers of the end-to-end and interop tests.

pub mod conformance;
pub mod interop;
