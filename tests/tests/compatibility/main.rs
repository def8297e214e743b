//! The compatibility matrix: every kind of client, through one running Waypost, with every kind of
//! server, at `/mcp`, through filters and in search mode. What it saw is `docs/compatibility.md`.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod cells;
mod page;
mod scene;

use std::path::Path;

use futures_util::future::join_all;

use self::cells::Cell;
use self::scene::{Scene, Stage, Way};

/// Cells that are red, each with the other program that is to blame: nothing so far.
const BLAMED: &[&str] = &[];

#[tokio::test(flavor = "multi_thread")]
async fn every_client_does_everything_with_every_server() {
    is_the_page(Way::Whole).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_does_everything_through_filters_and_other_names() {
    is_the_page(Way::View).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_does_everything_in_search_mode() {
    is_the_page(Way::Search).await;
}

/// Nothing is red, and the page is the same for every way.
async fn is_the_page(way: Way) {
    let stage = Stage::start(way).await.unwrap();
    let rows = join_all(stage.pairs().map(|(client, server)| {
        let scene = Scene::new(&stage, client, server);
        async move {
            let cells = Box::pin(cells::all(&scene)).await;
            page::Row {
                client,
                server,
                cells,
            }
        }
    }));
    let rows = rows.await;
    let red = rows.iter().flat_map(|row| {
        row.cells.iter().filter_map(|(feature, cell)| match cell {
            Cell::No(why) => Some(format!("{} / {why}", row.place(*feature))),
            _ => None,
        })
    });
    let red: Vec<_> = red
        .filter(|line| !BLAMED.iter().any(|blamed| line.starts_with(blamed)))
        .collect();
    assert!(red.is_empty(), "{} red:\n{}", red.len(), red.join("\n"));
    golden("docs/compatibility.md", &page::markdown(&rows));
}

/// Compares with what is checked in, or writes it when asked to.
#[track_caller]
fn golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == text,
        "{} is out of date: run the test with UPDATE_GOLDEN=1",
        path.display()
    );
}
