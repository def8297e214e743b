//! Tower layers: who may call, from where, and how much at once.
//!
//! One layer, one file. [`in_flight`], [`origin`] and [`authenticate`] wrap HTTP requests,
//! [`audit`] wraps calls; [`headers`] reads what several look at. What a layer refuses it answers itself, in JSON. A deadline per call is
//! no layer: the hub knows the upstream's timeout and what extends it.

pub mod audit;
pub mod authenticate;
mod cors;
mod event;
pub mod headers;
pub mod in_flight;
pub mod keys;
pub mod origin;
mod refuse;
