//! The store in a database.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{AnyPool, Row as _};
use waypost_hub::registry::Learned;
use waypost_hub::store::{Late, PinnedTool, SessionRecord, Store, StoreError};
use waypost_hub::upstream::BoxFuture;
use waypost_wire::raw::Raw;

use crate::error::OpenError;
use crate::record::{self, BadRow};
use crate::{migrate, pins, sessions, sqlite, states};

/// How long one operation may take, on a disk that hangs or behind another program's lock.
const WITHIN: Duration = Duration::from_secs(10);

/// The database that holds what must survive a restart.
///
/// Cheap to clone; all clones share one connection.
#[derive(Clone, Debug)]
pub struct Database {
    pool: AnyPool,
    path: PathBuf,
}

impl Database {
    /// Opens the SQLite file `path`, or creates it with mode 0600, and brings it up to date.
    ///
    /// # Errors
    /// [`OpenError`] when the file cannot be written, is damaged or of a later version.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        let pool = sqlite::open(path).await?;
        migrate::run(&pool, path).await?;
        let old = forget_old(&pool).await;
        old.map_err(|source| OpenError::sql(path, source))?;
        let path = path.to_owned();
        Ok(Self { pool, path })
    }

    /// Drops what is of client sessions whose ids, and of request states which, do not open any
    /// more. Done when it is opened, too.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub async fn tidy(&self) -> Result<(), StoreError> {
        within("tidy", forget_old(&self.pool)).await
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is pending and closes the file. Not needed for what was saved to last.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn load_all(&self) -> sqlx::Result<Vec<Learned>> {
        let query = sqlx::query("SELECT name FROM upstreams ORDER BY name");
        let mut all = Vec::new();
        for row in query.fetch_all(&self.pool).await? {
            let name: String = row.try_get(0)?;
            // One that cannot be read is asked again anyway; it must not hide the others.
            match self.load_one(&name).await {
                Ok(learned) => all.push(learned),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        upstream = name,
                        error,
                        "what was stored of it is unreadable"
                    );
                }
            }
        }
        Ok(all)
    }

    async fn load_one(&self, name: &str) -> Result<Learned, BadRow> {
        let query = sqlx::query("SELECT * FROM upstreams WHERE name = $1").bind(name);
        let mut learned = record::read(&query.fetch_one(&self.pool).await?)?;
        let query = sqlx::query("SELECT * FROM listings WHERE upstream = $1").bind(name);
        for row in query.fetch_all(&self.pool).await? {
            record::read_listing(&row, &mut learned.catalogue)?;
        }
        Ok(learned)
    }

    async fn save_one(&self, learned: &Learned) -> sqlx::Result<()> {
        let capabilities = Raw::from(&learned.facts.capabilities);
        let facts = &learned.facts;
        let mut tx = self.pool.begin_with(sqlite::BEGIN).await?;
        delete(&mut tx, &learned.upstream).await?;
        sqlx::query(
            "INSERT INTO upstreams (name, fingerprint, protocol, versions, capabilities, server_info,
                instructions, task_only, learned_at, last_error, claims)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        )
        .bind(&learned.upstream)
        .bind(&learned.fingerprint)
        .bind(&learned.facts.protocol)
        .bind(Raw::from_serialize(&facts.versions).text())
        .bind(capabilities.text())
        .bind(facts.server_info.as_ref().map(Raw::text))
        .bind(facts.instructions.as_deref())
        .bind(Raw::from_serialize(&learned.task_only).text())
        .bind(record::signed(learned.learned_at))
        .bind(learned.last_error.as_deref())
        .bind(Raw::from_serialize(&learned.claims).text())
        .execute(&mut *tx)
        .await?;
        for (kind, listing) in record::listings(&learned.catalogue) {
            sqlx::query(
                "INSERT INTO listings (upstream, kind, items, ttl_ms, scope, fetched_at)
                 VALUES ($1, $2, $3, $4, $5, $6)",
            )
            .bind(&learned.upstream)
            .bind(kind)
            .bind(record::items(listing))
            .bind(record::signed(listing.ttl_ms))
            .bind(record::scope(listing))
            .bind(record::signed(listing.fetched_at))
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await
    }

    async fn forget_one(&self, upstream: &str) -> sqlx::Result<()> {
        let mut tx = self.pool.begin_with(sqlite::BEGIN).await?;
        delete(&mut tx, upstream).await?;
        tx.commit().await
    }
}

async fn forget_old(pool: &AnyPool) -> sqlx::Result<()> {
    sessions::forget_old(pool).await?;
    states::forget_old(pool).await
}

async fn delete(connection: &mut sqlx::AnyConnection, upstream: &str) -> sqlx::Result<()> {
    for statement in [
        "DELETE FROM listings WHERE upstream = $1",
        "DELETE FROM upstreams WHERE name = $1",
    ] {
        let query = sqlx::query(statement).bind(upstream);
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

impl Store for Database {
    fn load(&self) -> BoxFuture<'_, Result<Vec<Learned>, StoreError>> {
        Box::pin(within("load", self.load_all()))
    }

    fn save(&self, learned: Learned) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { within("save", self.save_one(&learned)).await })
    }

    fn forget(&self, upstream: &str) -> BoxFuture<'_, Result<(), StoreError>> {
        let upstream = upstream.to_owned();
        Box::pin(async move { within("forget", self.forget_one(&upstream)).await })
    }

    fn pins(&self) -> BoxFuture<'_, Result<Vec<PinnedTool>, StoreError>> {
        Box::pin(within("load", pins::load(&self.pool)))
    }

    fn save_pins(
        &self,
        upstream: &str,
        tools: Vec<PinnedTool>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let upstream = upstream.to_owned();
        Box::pin(async move { within("save", pins::save(&self.pool, &upstream, &tools)).await })
    }

    fn session(&self, key: &str) -> BoxFuture<'_, Result<Option<SessionRecord>, StoreError>> {
        let key = key.to_owned();
        Box::pin(async move { within("load", sessions::load(&self.pool, &key)).await })
    }

    fn save_session(
        &self,
        key: &str,
        record: SessionRecord,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let key = key.to_owned();
        Box::pin(async move { within("save", sessions::save(&self.pool, &key, &record)).await })
    }

    fn use_state(&self, name: &str, until_ms: u64) -> BoxFuture<'_, Result<bool, StoreError>> {
        let name = name.to_owned();
        Box::pin(async move { within("save", states::mark(&self.pool, &name, until_ms)).await })
    }
}

/// The outcome of `work`, which is given up when it takes too long; a transaction of it is undone.
pub(crate) async fn within<T, E>(
    action: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, StoreError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let done = tokio::time::timeout(WITHIN, work).await;
    let failed = |source| StoreError { action, source };
    match done {
        Ok(done) => done.map_err(|source| failed(source.into())),
        Err(_) => Err(failed(Late { within: WITHIN }.into())),
    }
}

#[cfg(test)]
mod tests;
