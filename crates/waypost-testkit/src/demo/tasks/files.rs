//! Tasks on disk: one JSON file each, replaced as a whole.

use std::io::{ErrorKind, Result, Write as _};
use std::path::{Path, PathBuf};

use super::task::Task;
use crate::temporary::Temporary;

/// The directory of a task server.
#[derive(Debug)]
pub(crate) struct Files {
    root: PathBuf,
    /// Goes with it.
    _temporary: Option<Temporary>,
}

impl Files {
    pub(crate) fn open(state: Option<&Path>) -> Result<Self> {
        let (root, _temporary) = match state {
            // The worker process changes into it: a relative path would then lead elsewhere.
            Some(path) => (std::path::absolute(path)?, None),
            None => {
                let folder = Temporary::new()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        std::fs::create_dir_all(root.join("tasks"))?;
        std::fs::create_dir_all(root.join("jobs"))?;
        Ok(Self { root, _temporary })
    }

    /// Where the worker process of `id` writes; see `external.rs`.
    pub(crate) fn job(&self, id: &str) -> PathBuf {
        self.root.join("jobs").join(id)
    }

    fn path(&self, id: &str) -> PathBuf {
        self.root.join("tasks").join(format!("{id}.json"))
    }

    /// Every task that can be read; a damaged file is left alone and reported.
    pub(crate) fn load(&self) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for entry in std::fs::read_dir(self.root.join("tasks"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            match serde_json::from_slice::<Task>(&std::fs::read(&path)?) {
                Ok(task) => tasks.push(task),
                Err(error) => tracing::warn!(path = %path.display(), %error, "damaged task file"),
            }
        }
        Ok(tasks)
    }

    /// Writes a task so that it is there after a crash: synced, then renamed into place.
    pub(crate) fn save(&self, task: &Task) -> Result<()> {
        let path = self.path(&task.id);
        let draft = path.with_extension("draft");
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(&serde_json::to_vec(task)?)?;
        file.sync_data()?;
        std::fs::rename(&draft, &path)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        let gone = |result: Result<()>| match result {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        };
        gone(std::fs::remove_file(self.path(id)))?;
        gone(std::fs::remove_dir_all(self.job(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_directory_is_absolute_whatever_was_configured() {
        let state = tempfile::tempdir().expect("a directory");
        let here = std::env::current_dir().expect("a directory");
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let relative = up.join(state.path().strip_prefix("/").expect("an absolute path"));
        let files = Files::open(Some(&relative)).expect("state");
        assert!(files.job("id").is_absolute());
        assert!(state.path().join("tasks").is_dir());
    }
}
