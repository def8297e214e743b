//! The tour of `waypost demo --walkthrough`: steps as data, played against a running demo.

mod normal;
mod play;
mod steps;

pub use self::normal::normalise;
pub use self::play::play;

#[cfg(test)]
mod guide;
#[cfg(test)]
mod tests;
