//! How long it takes to index 20,000 tools and to search them: `cargo bench -p waypost-hub`.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to run by hand"
)]

use std::fs;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use waypost_hub::search::Index;
use waypost_hub::search::document::Document;
use waypost_wire::raw::Raw;

const TOOLS: usize = 20_000;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/catalogue");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let mut tools: Vec<(String, String, Raw)> = Vec::new();
    for listed in read("servers.json").as_array().unwrap() {
        let server = listed["server"].as_str().unwrap();
        for tool in read(&format!("{server}.json"))["tools"].as_array().unwrap() {
            let definition = Raw::parse(&Bytes::from(tool.to_string())).unwrap();
            tools.push((
                server.into(),
                tool["name"].as_str().unwrap().into(),
                definition,
            ));
        }
    }
    let many = tools.iter().cycle().take(TOOLS);
    let began = Instant::now();
    let documents = many.map(|(server, name, definition)| Document::of(server, name, definition));
    let documents: Vec<_> = documents.collect();
    println!("read {TOOLS} definitions: {:?}", began.elapsed());
    let began = Instant::now();
    let index = Index::new(&documents);
    println!("index them: {:?}", began.elapsed());
    let needs = read("queries.json");
    let took = needs.as_array().unwrap().iter().map(|need| {
        let began = Instant::now();
        let hits = index.search(need["query"].as_str().unwrap(), 5);
        assert!(hits.len() <= 5);
        began.elapsed()
    });
    let mut took: Vec<_> = took.collect();
    took.sort_unstable();
    println!(
        "a query: median {:?}, slowest {:?}",
        took[took.len() / 2],
        took.last().unwrap()
    );
}
