//! Remembers: learned facts of upstreams.
