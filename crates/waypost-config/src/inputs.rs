//! What a configuration was read from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files and folders that make a configuration another one when they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Files that were read, or could not be: the main one, those it includes, and those that
    /// `${file:...}` names.
    pub files: BTreeSet<PathBuf>,
    /// Folders in which patterns of `include` look for files.
    pub folders: BTreeSet<PathBuf>,
}

impl Inputs {
    /// Notes a file, whether or not it can be read.
    pub(crate) fn file(&mut self, path: &Path) {
        self.files.insert(absolute(path));
    }

    /// Notes a folder, whether or not it can be listed.
    pub(crate) fn folder(&mut self, path: &Path) {
        self.folders.insert(absolute(path));
    }

    /// Notes what others have noted.
    pub(crate) fn add(&mut self, others: Self) {
        self.files.extend(others.files);
        self.folders.extend(others.folders);
    }
}

/// Fails only where there is no current folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
