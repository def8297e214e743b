//! What tools were when they were last approved.

use std::path::Path;

use sqlx::{AnyPool, Row as _};
use waypost_hub::store::{PinnedTool, StoreError};
use waypost_wire::raw::Raw;

use crate::database::within;
use crate::record::{self, BadRow};
use crate::sqlite;

/// All of them. One that cannot be read is none that may be taken for new: then nothing is known.
pub(crate) async fn load(pool: &AnyPool) -> Result<Vec<PinnedTool>, BadRow> {
    let query = sqlx::query("SELECT upstream, tool, definition FROM pins ORDER BY upstream, tool");
    let rows = query.fetch_all(pool).await?;
    let read = |row: &sqlx::any::AnyRow| {
        Ok(PinnedTool {
            upstream: row.try_get("upstream")?,
            tool: row.try_get("tool")?,
            definition: record::raw(row.try_get("definition")?, "definition")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Keeps this of one upstream, in place of what was kept.
pub(crate) async fn save(pool: &AnyPool, upstream: &str, tools: &[PinnedTool]) -> sqlx::Result<()> {
    let mut tx = pool.begin_with(sqlite::BEGIN).await?;
    let query = sqlx::query("DELETE FROM pins WHERE upstream = $1").bind(upstream);
    query.execute(&mut *tx).await?;
    for pin in tools {
        sqlx::query("INSERT INTO pins (upstream, tool, definition) VALUES ($1, $2, $3)")
            .bind(upstream)
            .bind(&pin.tool)
            .bind(Raw::text(&pin.definition))
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await
}

/// What is kept in the SQLite file `path`, which is only read and may be in use; nothing where
/// there is no file.
///
/// # Errors
/// [`StoreError`] when the file cannot be read, or is of a version without pins.
pub async fn read(path: &Path) -> Result<Vec<PinnedTool>, StoreError> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    within("load", async {
        let pool = sqlite::open_to_read(path).await?;
        let pins = load(&pool).await;
        pool.close().await;
        pins
    })
    .await
}
