//! Demo servers and misbehaving fakes.
