//! A folder for as long as a program runs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "waypost-demo-";
/// Held while the folder is in use; the system lets go of it however the program ends.
const LOCK: &str = "lock";

/// A folder among the system's temporary ones that is gone when this is dropped. What a program
/// that was killed left behind is removed by the next one.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    _lock: File,
}

impl Temporary {
    /// A new folder.
    ///
    /// # Errors
    /// When none can be made.
    pub fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn below(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let path = parent.join(format!("{PREFIX}{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&path)?;
        // It has its name only once it is held: a lock of that name that nobody holds is a dead
        // program's.
        let draft = path.join("lock.new");
        let lock = File::create(&draft)?;
        lock.lock()?;
        fs::rename(&draft, path.join(LOCK))?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::debug!(%error, "a temporary folder stays behind");
        }
    }
}

/// Removes what nobody uses any more. What cannot be looked at is somebody else's.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && is_ours(&entry.file_name()) && is_left(&entry.path()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_left(folder: &Path) -> bool {
    let lock = File::open(folder.join(LOCK));
    lock.is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_program_left_behind_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().expect("a directory");
        let left = parent.path().join(format!("{PREFIX}{}", "0".repeat(32)));
        fs::create_dir(&left).expect("a folder");
        File::create(left.join(LOCK)).expect("a lock that nobody holds");
        // Neither is certainly ours.
        for name in ["waypost-demo-mine", "other"] {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).expect("a folder");
            File::create(folder.join(LOCK)).expect("a file");
        }
        let first = Temporary::below(parent.path()).expect("a folder");
        assert!(!left.exists());
        let second = Temporary::below(parent.path()).expect("a folder");
        assert!(first.path().is_dir(), "it is in use");
        drop((first, second));
        let names = fs::read_dir(parent.path()).expect("a directory");
        assert_eq!(names.count(), 2);
    }
}
