//! What was learned, as rows.

use std::collections::BTreeSet;

use bytes::Bytes;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use waypost_hub::registry::{Catalogue, Learned, Listing, Scope};
use waypost_hub::upstream::Facts;
use waypost_wire::error::Malformed;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// A row that this version cannot read: damaged, or written by another one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadRow {
    #[error("a column is missing or of the wrong type")]
    Column(#[from] sqlx::Error),
    #[error("column `{column}` is not what it should be")]
    Value { column: &'static str },
    #[error("column `{column}` is not JSON")]
    Json {
        column: &'static str,
        #[source]
        source: Malformed,
    },
}

/// Everything learned, without the lists.
pub(crate) fn read(row: &AnyRow) -> Result<Learned, BadRow> {
    let facts = Facts {
        protocol: row.try_get("protocol")?,
        versions: decode(row, "versions")?,
        capabilities: object(row, "capabilities")?,
        server_info: match row.try_get("server_info")? {
            Some(text) => Some(raw(text, "server_info")?),
            None => None,
        },
        instructions: row.try_get("instructions")?,
    };
    Ok(Learned {
        upstream: row.try_get("name")?,
        fingerprint: row.try_get("fingerprint")?,
        facts,
        catalogue: Catalogue::default(),
        task_only: decode::<BTreeSet<String>>(row, "task_only")?,
        claims: decode::<BTreeSet<String>>(row, "claims")?,
        learned_at: unsigned(row, "learned_at")?,
        last_error: row.try_get("last_error")?,
    })
}

/// Puts one list where it belongs.
pub(crate) fn read_listing(row: &AnyRow, into: &mut Catalogue) -> Result<(), BadRow> {
    let kind: String = row.try_get("kind")?;
    let items = raw(row.try_get("items")?, "items")?;
    let listing = Listing {
        items: items.as_array().ok_or(BadRow::Value { column: "items" })?,
        ttl_ms: unsigned(row, "ttl_ms")?,
        scope: match row.try_get::<String, _>("scope")?.as_str() {
            "public" => Scope::Public,
            "private" => Scope::Private,
            _ => return Err(BadRow::Value { column: "scope" }),
        },
        fetched_at: unsigned(row, "fetched_at")?,
    };
    let place = match kind.as_str() {
        "tools" => &mut into.tools,
        "prompts" => &mut into.prompts,
        "resources" => &mut into.resources,
        "templates" => &mut into.templates,
        _ => return Err(BadRow::Value { column: "kind" }),
    };
    *place = Some(listing);
    Ok(())
}

/// The lists there are, each with the word for its kind.
pub(crate) fn listings(catalogue: &Catalogue) -> impl Iterator<Item = (&'static str, &Listing)> {
    let Catalogue {
        tools,
        prompts,
        resources,
        templates,
    } = catalogue;
    [
        ("tools", tools),
        ("prompts", prompts),
        ("resources", resources),
        ("templates", templates),
    ]
    .into_iter()
    .filter_map(|(kind, listing)| Some((kind, listing.as_ref()?)))
}

/// The items as one JSON array, each as it was received.
pub(crate) fn items(listing: &Listing) -> String {
    Raw::array(&listing.items).text().to_owned()
}

pub(crate) fn scope(listing: &Listing) -> &'static str {
    match listing.scope {
        Scope::Public => "public",
        Scope::Private => "private",
    }
}

/// Databases count with a sign. What does not fit is further away than anybody waits.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &AnyRow, column: &'static str) -> Result<u64, BadRow> {
    let value: i64 = row.try_get(column)?;
    u64::try_from(value).map_err(|_| BadRow::Value { column })
}

pub(crate) fn raw(text: String, column: &'static str) -> Result<Raw, BadRow> {
    Raw::parse(&Bytes::from(text)).map_err(|source| BadRow::Json { column, source })
}

fn object(row: &AnyRow, column: &'static str) -> Result<Object, BadRow> {
    let text: String = row.try_get(column)?;
    Object::parse(&Bytes::from(text)).map_err(|source| BadRow::Json { column, source })
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(
    row: &AnyRow,
    column: &'static str,
) -> Result<T, BadRow> {
    raw(row.try_get(column)?, column)?
        .decode()
        .ok_or(BadRow::Value { column })
}
