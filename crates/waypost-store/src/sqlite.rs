//! What only SQLite needs: the file, its mode, WAL, one writer.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, Row as _};

use crate::error::OpenError;

/// How a transaction begins: a writer takes its lock at once, because a reader that becomes a
/// writer later can only fail.
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";

/// Readable by nobody else: it will hold what callers said and tokens.
const MODE: u32 = 0o600;

/// Waits this long for another process that writes, such as the one being replaced.
const ACQUIRE: Duration = Duration::from_secs(30);

/// Opens or creates the file.
pub(crate) async fn open(path: &Path) -> Result<AnyPool, OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    create(path).map_err(failed)?;
    let real = fs::canonicalize(path).map_err(failed)?;
    let url = url(&real, "rw").ok_or_else(|| OpenError::Path {
        path: path.to_owned(),
    })?;
    sqlx::any::install_default_drivers();
    let sql = |source| OpenError::sql(path, source);
    // SQLite has one writer at a time anyway; two connections would only wait for each other.
    let options = AnyPoolOptions::new()
        .max_connections(1)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .acquire_timeout(ACQUIRE);
    let pool = options.connect(&url).await.map_err(sql)?;
    let row = sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&pool);
    let mode: String = row.await.and_then(|row| row.try_get(0)).map_err(sql)?;
    if !mode.eq_ignore_ascii_case("wal") {
        tracing::warn!(path = %path.display(), mode, "the state file cannot use a write-ahead log");
    }
    check(&pool, path).await?;
    Ok(pool)
}

/// Opens a file that is there, perhaps in use, only to read it.
pub(crate) async fn open_to_read(path: &Path) -> sqlx::Result<AnyPool> {
    let real = fs::canonicalize(path)?;
    let odd = || sqlx::Error::Configuration("the path is not UTF-8".into());
    let url = url(&real, "ro").ok_or_else(odd)?;
    sqlx::any::install_default_drivers();
    AnyPoolOptions::new().max_connections(1).connect(&url).await
}

/// Looks through the pages, so that damage is found now and not in the middle of a call.
async fn check(pool: &AnyPool, path: &Path) -> Result<(), OpenError> {
    let row = sqlx::query("PRAGMA quick_check(1)").fetch_one(pool).await;
    let verdict: String = row
        .and_then(|row| row.try_get(0))
        .map_err(|source| OpenError::sql(path, source))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(OpenError::Damaged {
        path: path.to_owned(),
        source: verdict.into(),
    })
}

/// Whether the error says that the file is no sound database (`SQLITE_CORRUPT`, `SQLITE_NOTADB`).
pub(crate) fn is_damage(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    // Extended codes keep the kind in their lowest byte.
    let kind = code.and_then(|code| code.parse::<u32>().ok());
    matches!(kind.map(|code| code & 0xff), Some(11 | 26))
}

/// Creates the file and its folder where they are missing, and sees that it can be written.
/// The log files beside it get its mode from SQLite.
fn create(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(MODE);
    let file = options.open(path)?;
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(())
}

/// The path as the address that the driver wants; `None` unless it is UTF-8.
fn url(path: &Path, mode: &str) -> Option<String> {
    let mut url = "sqlite://".to_owned();
    for byte in path.to_str()?.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
            url.push(char::from(byte));
        } else {
            write!(url, "%{byte:02X}").ok()?;
        }
    }
    url.push_str("?mode=");
    url.push_str(mode);
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_characters_of_a_path_are_escaped() {
        let url = url(Path::new("/srv/my state/ä?#%.db"), "rw").unwrap();
        assert_eq!(url, "sqlite:///srv/my%20state/%C3%A4%3F%23%25.db?mode=rw");
    }
}
