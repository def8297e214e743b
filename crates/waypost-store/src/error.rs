//! Why the state cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// The database cannot be opened; [`OpenError::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder or file cannot be created, read or written.
    #[error("cannot use the state file `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The path holds bytes that are not UTF-8.
    #[error("the path of the state file is not UTF-8: `{}`", path.display())]
    Path { path: PathBuf },
    /// It is no database, or a broken one.
    #[error("the state file `{}` is damaged", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A later Waypost wrote it.
    #[error("the state file `{}` has version {found}, this program knows up to {known}", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    /// Anything else that went wrong inside it.
    #[error("cannot open the state file `{}`", path.display())]
    Sql {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
}

impl OpenError {
    /// What the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Path { .. } => {
                "set `state.path` to a file in a folder that Waypost may write to"
            }
            Self::Damaged { .. } => {
                "move it away (with its `-wal` and `-shm`): Waypost starts a new one and learns anew"
            }
            Self::Newer { .. } => "run the version that wrote it, or set another `state.path`",
            Self::Sql { .. } => "check the disk, and that no other program holds the file locked",
        }
    }

    /// Sorts out what SQLite says.
    pub(crate) fn sql(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_owned();
        if crate::sqlite::is_damage(&source) {
            let source = source.into();
            Self::Damaged { path, source }
        } else {
            Self::Sql { path, source }
        }
    }
}
