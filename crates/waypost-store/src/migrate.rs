//! The tables and how they came to be.

use std::path::Path;

use sqlx::{AnyPool, Row as _};

use crate::error::OpenError;
use crate::sqlite;

/// One step of the schema. Steps are only ever added: a file of any age is brought up to date.
type Step = &'static [&'static str];

const STEPS: &[Step] = &[
    &[
        // What a server said of itself. Texts of JSON are kept as they were received.
        "CREATE TABLE upstreams (
        name TEXT PRIMARY KEY,
        fingerprint TEXT NOT NULL,
        era TEXT NOT NULL,
        versions TEXT NOT NULL,
        capabilities TEXT NOT NULL,
        server_info TEXT,
        instructions TEXT,
        task_only TEXT NOT NULL,
        learned_at BIGINT NOT NULL,
        last_error TEXT
    )",
        // One list of one server; no row is a list that was never read.
        "CREATE TABLE listings (
        upstream TEXT NOT NULL,
        kind TEXT NOT NULL,
        items TEXT NOT NULL,
        ttl_ms BIGINT NOT NULL,
        scope TEXT NOT NULL,
        fetched_at BIGINT NOT NULL,
        PRIMARY KEY (upstream, kind)
    )",
    ],
    // Names that an upstream keeps against one before it in the file.
    &["ALTER TABLE upstreams ADD COLUMN claims TEXT NOT NULL DEFAULT '[]'"],
    // The version spoken says more than its era. Of the session era nothing had been learned.
    &[
        "DELETE FROM upstreams WHERE era <> 'modern'",
        "ALTER TABLE upstreams ADD COLUMN protocol TEXT NOT NULL DEFAULT '2026-07-28'",
        "ALTER TABLE upstreams DROP COLUMN era",
    ],
    // Of client sessions only what their ids do not say themselves. `ended` rows are the
    // tombstones of ids that must not open again.
    &["CREATE TABLE client_sessions (
        key TEXT PRIMARY KEY,
        log_level TEXT,
        resources TEXT NOT NULL,
        ended BIGINT NOT NULL,
        saved_at BIGINT NOT NULL
    )"],
    // Request states that were used, for as long as they would open.
    &["CREATE TABLE used_states (
        name TEXT PRIMARY KEY,
        until_ms BIGINT NOT NULL
    )"],
    // Definitions as they were approved, kept whatever becomes of the upstream.
    &["CREATE TABLE pins (
        upstream TEXT NOT NULL,
        tool TEXT NOT NULL,
        definition TEXT NOT NULL,
        PRIMARY KEY (upstream, tool)
    )"],
];

/// Brings the tables up to date.
pub(crate) async fn run(pool: &AnyPool, path: &Path) -> Result<(), OpenError> {
    let newest = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let found = steps(pool)
        .await
        .map_err(|source| OpenError::sql(path, source))?;
    if found > newest {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found,
            known: newest,
        });
    }
    Ok(())
}

/// Takes the steps that are missing, all or none. Gives the version the tables had before.
async fn steps(pool: &AnyPool) -> sqlx::Result<i64> {
    // A second process that starts now waits here and then finds nothing left to do.
    let mut tx = pool.begin_with(sqlite::BEGIN).await?;
    let table = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)";
    sqlx::query(table).execute(&mut *tx).await?;
    let query = sqlx::query("SELECT version FROM schema_version");
    let row = query.fetch_optional(&mut *tx).await?;
    let found = match row {
        Some(row) => row.try_get(0)?,
        None => {
            let first = sqlx::query("INSERT INTO schema_version (version) VALUES (0)");
            first.execute(&mut *tx).await?;
            0_i64
        }
    };
    for (step, number) in STEPS.iter().zip(1_i64..) {
        if number <= found {
            continue;
        }
        for statement in *step {
            sqlx::query(*statement).execute(&mut *tx).await?;
        }
        let update = sqlx::query("UPDATE schema_version SET version = $1").bind(number);
        update.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(found)
}
