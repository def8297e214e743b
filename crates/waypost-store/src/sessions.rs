//! What is kept of client sessions.

use std::time::Duration;

use sqlx::{AnyPool, Row as _};
use waypost_hub::registry::now_ms;
use waypost_hub::store::SessionRecord;
use waypost_wire::raw::Raw;

use crate::record::{self, BadRow};

/// Longer than an id can be good, so that no tombstone goes before the id it is for.
const KEPT: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// What is kept of one session.
pub(crate) async fn load(pool: &AnyPool, key: &str) -> Result<Option<SessionRecord>, BadRow> {
    let query = sqlx::query("SELECT * FROM client_sessions WHERE key = $1").bind(key);
    let Some(row) = query.fetch_optional(pool).await? else {
        return Ok(None);
    };
    Ok(Some(SessionRecord {
        log_level: row.try_get("log_level")?,
        resources: record::decode(&row, "resources")?,
        ended: row.try_get::<i64, _>("ended")? != 0,
    }))
}

/// Keeps this of one session. One statement, so that two of the same session cannot both find
/// it absent; an end stays an end.
pub(crate) async fn save(pool: &AnyPool, key: &str, record: &SessionRecord) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO client_sessions (key, log_level, resources, ended, saved_at)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (key) DO UPDATE SET
            log_level = excluded.log_level,
            resources = excluded.resources,
            ended = CASE WHEN client_sessions.ended > excluded.ended
                THEN client_sessions.ended ELSE excluded.ended END,
            saved_at = excluded.saved_at",
    )
    .bind(key)
    .bind(record.log_level.as_deref())
    .bind(Raw::from_serialize(&record.resources).text())
    .bind(i64::from(record.ended))
    .bind(record::signed(now_ms()))
    .execute(pool)
    .await?;
    Ok(())
}

/// Drops what is of ids that do not open any more.
pub(crate) async fn forget_old(pool: &AnyPool) -> sqlx::Result<()> {
    let kept = u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX);
    let before = record::signed(now_ms().saturating_sub(kept));
    let query = sqlx::query("DELETE FROM client_sessions WHERE saved_at < $1").bind(before);
    query.execute(pool).await?;
    Ok(())
}
