//! The root keys: from the configuration, or made once and kept beside the database.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use waypost_config::State;
use waypost_hub::keys::{BadKeys, Keys, LEAST_KEY_LEN};

use crate::ephemeral;

/// The keys cannot be used; [`KeyError::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Those of the configuration.
    #[error("`state.keys` cannot be used")]
    Configured(#[source] BadKeys),
    /// The file beside the database cannot be read or made.
    #[error("cannot use the key file `{}`", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file beside the database holds no key.
    #[error("the key file `{}` holds no key", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: BadKeys,
    },
}

impl KeyError {
    /// What the operator can do.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Configured(_) => "make one with `openssl rand -base64 32`",
            Self::File { .. } => "make the folder writable, or set `state.keys`",
            Self::Damaged { .. } => {
                "put the old key back, or remove the file: a new key is made, and handles given out \
                 so far become unknown"
            }
        }
    }
}

/// Loads the keys of `state.keys`, or the one in the file beside the database, which is made
/// when it is missing.
///
/// A key is the text as it stands: what is in the file can be moved into `state.keys`.
///
/// # Errors
/// [`KeyError`] for keys that are too short, or a file that cannot be read or made.
pub fn load(state: &State) -> Result<Keys, KeyError> {
    if !state.keys.is_empty() {
        let keys = state.keys.iter().map(|key| key.expose().trim().into());
        return Keys::new(keys.collect()).map_err(KeyError::Configured);
    }
    let path = key_path(&state.path);
    let text = read_or_make(&path).map_err(|source| KeyError::File {
        path: path.clone(),
        source,
    })?;
    Keys::new(vec![text.trim().into()]).map_err(|source| KeyError::Damaged { path, source })
}

/// Where the generated key of a database is kept: `<database>.key`.
pub fn key_path(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(".key");
    name.into()
}

/// A new key as text: 32 random bytes in base64.
pub fn generate() -> String {
    STANDARD.encode(rand::random::<[u8; LEAST_KEY_LEN]>())
}

fn read_or_make(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    make(path)?;
    tracing::info!(path = %path.display(), "made the key behind task handles");
    let absolute = std::path::absolute(path)?;
    if let Some(why) = ephemeral::why(&absolute) {
        tracing::warn!(
            path = %path.display(),
            why,
            "the key may not survive a restart, and task handles with it; set `state.keys`"
        );
    }
    fs::read_to_string(path)
}

/// Writes the file aside and gives it its name when it is whole, unless another process was
/// first: two that start at once must agree on one key.
fn make(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let mut aside = OsString::from(path);
    aside.push(format!(".{:016x}", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&aside)?;
    let written = writeln!(file, "{}", generate()).and_then(|()| file.sync_all());
    let named = written.and_then(|()| match fs::hard_link(&aside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system has links.
        Err(_) => fs::rename(&aside, path),
        Ok(()) => Ok(()),
    });
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => named.and(Err(error)),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use waypost_config::Secret;
    use waypost_hub::keys::Purpose;

    use super::*;

    fn state(folder: &Path, keys: &[&str]) -> State {
        State {
            path: folder.join("sub/waypost.db"),
            keys: keys.iter().map(|key| Secret::new(*key)).collect(),
        }
    }

    fn derived(state: &State) -> Vec<[u8; 32]> {
        load(state).unwrap().derive(Purpose::Handle)
    }

    #[test]
    fn a_key_is_made_once_and_only_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path(), &[]);
        let first = derived(&state);
        assert_eq!(derived(&state), first);
        let path = key_path(&state.path);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn the_text_of_the_file_can_be_moved_into_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let generated = state(folder.path(), &[]);
        let first = derived(&generated);
        let text = fs::read_to_string(key_path(&generated.path)).unwrap();
        assert_eq!(derived(&state(folder.path(), &[&text])), first);
    }

    #[test]
    fn processes_that_start_at_once_agree_on_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path(), &[]);
        let all: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| derived(&state))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| *one == all[0]));
    }

    #[test]
    fn a_short_key_is_refused_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let error = load(&state(folder.path(), &[&"k".repeat(32), "short"])).unwrap_err();
        assert!(matches!(
            error,
            KeyError::Configured(BadKeys::Short { number: 2 })
        ));
    }

    #[test]
    fn a_damaged_key_file_is_an_error_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let state = state(folder.path(), &[]);
        let path = key_path(&state.path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "\n").unwrap();
        assert!(matches!(load(&state), Err(KeyError::Damaged { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "\n");
    }
}
