//! Assembly of the daemon.
