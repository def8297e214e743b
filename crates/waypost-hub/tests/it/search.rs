//! The ranker on definitions of public servers, and needs written before it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use waypost_hub::catalog::entry::Kind;
use waypost_hub::search::document::Document;
use waypost_hub::search::meta::MetaTool;
use waypost_hub::search::{Index, stems};
use waypost_wire::raw::Raw;

/// A recorded server.
#[derive(Deserialize)]
struct Server {
    tools: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// A need, and the tools that meet it as `server/tool`.
#[derive(Deserialize)]
struct Need {
    query: String,
    accepted: Vec<String>,
}

/// A recorded tool.
struct Tool {
    server: String,
    name: String,
    definition: Raw,
}

impl Tool {
    fn document(&self) -> Document {
        Document::of(&self.server, &self.name, &self.definition)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/catalogue")
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every recorded tool, in the order of the list of servers.
fn tools() -> Vec<Tool> {
    #[derive(Deserialize)]
    struct Listed {
        server: String,
    }
    let listed: Vec<Listed> = read("servers.json");
    let mut tools = Vec::new();
    for Listed { server } in listed {
        let recorded: Server = read(&format!("{server}.json"));
        for tool in recorded.tools {
            let bytes = Bytes::from(tool.get().to_owned());
            let definition = Raw::parse(&bytes).unwrap();
            let Name { name } = serde_json::from_str(tool.get()).unwrap();
            let server = server.clone();
            tools.push(Tool {
                server,
                name,
                definition,
            });
        }
    }
    tools
}

/// Where the first accepted tool stands in the answer to a need, from 1.
fn rank(need: &Need, tools: &[Tool], index: &Index) -> Option<usize> {
    let hits = index.search(&need.query, tools.len());
    let at = hits.iter().position(|hit| {
        tools
            .get(hit.document)
            .is_some_and(|tool| need.accepted.contains(&tool.path()))
    });
    at.map(|at| at + 1)
}

/// How many needs have an accepted tool among the first `limit`.
fn within(ranks: &[Option<usize>], limit: usize) -> usize {
    let good = |rank: &&Option<usize>| rank.is_some_and(|rank| rank <= limit);
    ranks.iter().filter(good).count()
}

fn share(part: usize, all: usize) -> String {
    format!("{}.{:02}", part / all, part * 100 / all % 100)
}

const ALL: [Kind; 3] = [Kind::Tool, Kind::Prompt, Kind::Resource];

fn meta_tools(kinds: &[Kind]) -> Vec<Raw> {
    let shown = MetaTool::ALL.into_iter();
    let shown = shown.filter(|tool| kinds.contains(&tool.kind));
    shown.map(MetaTool::definition).collect()
}

/// The figures of `docs/search.md`.
fn figures() -> String {
    let tools = tools();
    let documents: Vec<_> = tools.iter().map(Tool::document).collect();
    let index = Index::new(&documents);
    let servers: BTreeSet<_> = tools.iter().map(|tool| &tool.server).collect();
    let list = |definitions: Vec<Raw>| Raw::array(&definitions).as_bytes().len();
    let direct = list(tools.iter().map(|tool| tool.definition.clone()).collect());
    let (search, whole) = (list(meta_tools(&[Kind::Tool])), list(meta_tools(&ALL)));
    let mut text = format!(
        "| what | figure |\n|---|---|\n\
         | tools, of {} servers | {} |\n\
         | bytes of `tools/list`, direct | {direct} |\n\
         | bytes of `tools/list`, search mode | {search} |\n\
         | the same with the tools for prompts and resources | {whole} |\n\n\
         | needs | first | among 3 | among 5 | among 10 | rate at 5 |\n|---|---|---|---|---|---|\n",
        servers.len(),
        tools.len(),
    );
    for set in ["queries", "held-out"] {
        let needs: Vec<Need> = read(&format!("{set}.json"));
        let ranks: Vec<_> = needs
            .iter()
            .map(|need| rank(need, &tools, &index))
            .collect();
        let at = [1, 3, 5, 10].map(|limit| within(&ranks, limit).to_string());
        let (all, rate) = (needs.len(), share(within(&ranks, 5), needs.len()));
        text.push_str(&format!(
            "| {all} of `{set}.json` | {} | {rate} |\n",
            at.join(" | ")
        ));
    }
    text
}

#[test]
#[expect(clippy::print_stdout, reason = "the figure is what one runs it for")]
fn needs_find_their_tool_among_the_first_five() {
    let tools = tools();
    let documents: Vec<_> = tools.iter().map(Tool::document).collect();
    let index = Index::new(&documents);
    let needs: Vec<Need> = read("queries.json");
    assert_eq!((needs.len(), tools.len() >= 500), (50, true));
    let ranks: Vec<_> = needs
        .iter()
        .map(|need| rank(need, &tools, &index))
        .collect();
    for (need, rank) in needs.iter().zip(&ranks) {
        if rank.is_none_or(|rank| rank > 5) {
            let hits = index.search(&need.query, 5);
            let first: Vec<_> = hits.iter().map(|hit| tools[hit.document].path()).collect();
            println!("`{}` is at {rank:?}, after {first:?}", need.query);
        }
    }
    let rate = share(within(&ranks, 5), needs.len());
    println!("hit rate at 5: {rate} over {} tools", tools.len());
    assert!(within(&ranks, 5) * 5 >= needs.len() * 4, "{rate}");
}

/// Nobody may be able to say that a need was found by the name it names.
#[test]
fn needs_avoid_the_words_of_the_names() {
    let tools = tools();
    for set in ["queries.json", "held-out.json"] {
        let needs: Vec<Need> = read(set);
        for Need { query, accepted } in &needs {
            for path in accepted {
                let tool = tools.iter().find(|tool| tool.path() == *path);
                let tool = tool.unwrap_or_else(|| panic!("no `{path}`"));
                let name = stems(&tool.name);
                let said: Vec<_> = stems(query)
                    .into_iter()
                    .filter(|w| name.contains(w))
                    .collect();
                assert!(said.is_empty(), "`{query}` says {said:?} of `{path}`");
            }
        }
    }
}

#[test]
fn a_search_view_lists_a_thousandth_of_the_bytes() {
    let direct = Raw::array(tools().iter().map(|tool| &tool.definition))
        .as_bytes()
        .len();
    let search = Raw::array(&meta_tools(&[Kind::Tool])).as_bytes().len();
    assert!(search * 500 < direct, "{search} of {direct}");
}

#[test]
fn the_figures_in_the_documentation_are_these() {
    const BEGIN: &str = "<!-- figures -->\n";
    const END: &str = "<!-- end -->";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/search.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let expected = format!("{before}{BEGIN}{}{END}{after}", figures());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == expected,
        "docs/search.md is out of date: run the test with UPDATE_GOLDEN=1"
    );
}
