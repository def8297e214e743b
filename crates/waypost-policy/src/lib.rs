//! Tower layers: who may do what, how often.
