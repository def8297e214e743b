//! Decides, for one call, which upstream gets it and what becomes of tasks.
