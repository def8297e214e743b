//! One value per core, so that connections stay on the runtime that opened them.
//!
//! Each data core has one current-thread runtime. A pooled HTTP connection is driven by a task of
//! the runtime that opened it; used from another core it would cost a wake-up across threads for
//! every frame, and it would die with a runtime that ends first. So each core has its own pool,
//! found by an index that the core's thread sets once.

use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    static CORE: Cell<usize> = const { Cell::new(0) };
}

/// Tells this thread which data core it is, from 1. Threads that never call this, such as the
/// control runtime's, share the index 0.
pub fn set_core(index: usize) {
    CORE.set(index);
}

/// The index of this thread.
pub fn core() -> usize {
    CORE.get()
}

/// One lazily made value for each core and one for all other threads.
#[derive(Debug)]
pub struct PerCore<T> {
    others: OnceLock<T>,
    cores: Box<[OnceLock<T>]>,
}

impl<T> PerCore<T> {
    /// Room for `cores` data cores, indexed from 1, beside the other threads.
    pub fn new(cores: usize) -> Self {
        Self {
            others: OnceLock::new(),
            cores: (0..cores).map(|_| OnceLock::new()).collect(),
        }
    }

    /// This core's value. An index that there is no room for counts as "other threads".
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let slot = core().checked_sub(1).and_then(|at| self.cores.get(at));
        slot.unwrap_or(&self.others).get_or_init(make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_has_its_own_value_and_keeps_it() {
        let values = PerCore::new(2);
        let mut seen = Vec::new();
        for index in [0, 1, 2, 3, 1, 0] {
            let made = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    set_core(index);
                    *values.get_or_init(|| index * 10)
                });
                thread.join().unwrap()
            });
            seen.push(made);
        }
        assert_eq!(seen, [0, 10, 20, 0, 10, 0]);
    }
}
