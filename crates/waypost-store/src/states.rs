//! Which request states were used.

use sqlx::AnyPool;
use waypost_hub::registry::now_ms;

use crate::record;

/// Marks a state as used. One statement, so that of two who use it one is told that it was before.
pub(crate) async fn mark(pool: &AnyPool, name: &str, until_ms: u64) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "INSERT INTO used_states (name, until_ms) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
    )
    .bind(name)
    .bind(record::signed(until_ms))
    .execute(pool)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Drops those that do not open any more.
pub(crate) async fn forget_old(pool: &AnyPool) -> sqlx::Result<()> {
    let now = record::signed(now_ms());
    let query = sqlx::query("DELETE FROM used_states WHERE until_ms < $1").bind(now);
    query.execute(pool).await?;
    Ok(())
}
