use bytes::Bytes;
use waypost_wire::raw::Raw;

use super::words::{Text, split, stem};
use super::*;
use document::Field;

fn index(texts: &[&str]) -> Index {
    let documents: Vec<_> = texts
        .iter()
        .map(|text| field(Field::Summary, text))
        .collect();
    Index::new(&documents)
}

fn field(field: Field, text: &str) -> Document {
    let mut document = Document::default();
    document.add(field, text);
    document
}

fn found(index: &Index, query: &str) -> Vec<usize> {
    let hits = index.search(query, 10);
    hits.iter().map(|hit| hit.document).collect()
}

fn words(text: &str, sort: Text) -> Vec<String> {
    let mut words = Vec::new();
    split(text, sort, |word| words.push(word.to_owned()));
    words
}

#[test]
fn names_are_taken_apart_at_case_digits_and_signs() {
    let check = |text, expected: &[&str]| assert_eq!(words(text, Text::Names), expected, "{text}");
    check("list_open-issues", &["list", "open", "issues"]);
    check(
        "createPullRequest",
        &["createpullrequest", "create", "pull", "request"],
    );
    check("HTTPServer", &["httpserver", "http", "server"]);
    check("ec2Instance", &["ec2instance", "ec", "instance"]);
    check("a b  -- c", &[]);
    check("", &[]);
}

#[test]
fn prose_keeps_names_whole_and_joins_hyphens() {
    let check = |text, expected: &[&str]| assert_eq!(words(text, Text::Prose), expected, "{text}");
    check("HubSpot's S3 bucket", &["hubspot", "s3", "bucket"]);
    check(
        "my to-do, by pageSize",
        &["my", "to", "todo", "do", "by", "pagesize", "page", "size"],
    );
    check("Überweisung 送金 -", &["überweisung", "送金"]);
    check("version 12", &["version", "12"]);
}

#[test]
fn forms_and_spellings_of_a_word_are_one_and_stop_words_none() {
    assert_eq!(stem("deleting"), stem("deletes"));
    assert_eq!(stem("repositories"), stem("repository"));
    assert_eq!(stem("colours"), stem("color"));
    assert_eq!(stem("summarised"), stem("summarize"));
    assert_ne!(stem("hour"), stem("hor"));
    for word in ["a", "the", "which", "your"] {
        assert_eq!(stem(word), None, "{word}");
    }
}

#[test]
fn rare_words_tell_more_than_common_ones() {
    let index = index(&["table row", "table cell", "table chart", "table edge chart"]);
    assert_eq!(found(&index, "the edges of a table")[0], 3);
}

#[test]
fn the_field_of_a_word_decides_what_it_tells() {
    let fields = [
        Field::Details,
        Field::Description,
        Field::Summary,
        Field::Name,
    ];
    let documents = fields.map(|at| field(at, "invoice"));
    assert_eq!(found(&Index::new(&documents), "invoices"), [3, 2, 1, 0]);
}

#[test]
fn words_that_mean_the_same_are_found_but_count_less() {
    let index = index(&["remove a directory", "delete a folder", "rename a tag"]);
    assert_eq!(found(&index, "delete folder"), [1, 0]);
}

#[test]
fn a_word_stands_for_longer_ones() {
    let index = index(&["repo of code", "repository of code", "report"]);
    assert_eq!(found(&index, "repo"), [0, 1, 2]);
    assert!(found(&index, "rep").len() < 2, "too short for that");
}

#[test]
fn more_words_of_a_query_beat_one_word_often() {
    let index = index(&[
        "invoice invoice invoice",
        "invoice customer",
        "page",
        "page",
        "page",
    ]);
    assert_eq!(found(&index, "invoice customer"), [1, 0]);
}

#[test]
fn equals_keep_the_order_of_the_catalogue_and_the_limit_cuts() {
    let index = index(&["send mail", "other", "send mail", "send mail"]);
    assert_eq!(found(&index, "send mail"), [0, 2, 3]);
    let two = index.search("send mail", 2);
    assert_eq!(two, index.search("send mail", 9)[..2]);
    let odd = index.search_among("send mail", 9, |document| document > 0);
    assert_eq!(
        odd.iter().map(|hit| hit.document).collect::<Vec<_>>(),
        [2, 3]
    );
}

#[test]
fn what_is_longer_than_a_need_is_told_in_is_not_read() {
    let index = index(&["send mail", "other"]);
    let long: String = (0..200_000).map(|n| format!("w{n} ")).collect();
    assert!(index.search(&format!("{long} mail"), 9).is_empty());
    assert_eq!(
        index.search(&format!("mail {long}"), 9),
        index.search("mail", 9)
    );
}

#[test]
fn nothing_is_found_by_nothing() {
    assert!(Index::default().search("mail", 5).is_empty());
    let index = index(&["send mail"]);
    assert_eq!((index.len(), index.is_empty()), (1, false));
    for query in ["", "the of and", "zzzz", "--- !"] {
        assert!(index.search(query, 5).is_empty(), "{query}");
    }
}

#[test]
fn a_definition_is_read_with_all_its_parts() {
    let definition = br#"{"name": "mk_thing", "annotations": {"title": "Maker"},
        "description": "Makes a gadget. Needs a licence.\n\nMore.",
        "inputSchema": {"type": "object", "properties": {
            "outerOne": {"description": "wood", "enum": ["oak", 7],
                "items": {"properties": {"innerTwo": {"description": "stone"}}}},
            "other": {"anyOf": [{"properties": {"deep": {}}}, {"enum": ["iron"]}]}},
            "$defs": {"Part": {"properties": {"far": {"description": "glass"}}}}}}"#;
    let document = Document::of(
        "shop",
        "mk_thing",
        &Raw::parse(&Bytes::from_static(definition)).unwrap(),
    );
    let sorted = |text: &str| {
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        words.sort_unstable();
        words.join(" ")
    };
    let texts: Vec<_> = document.texts().map(|(_, text)| sorted(text)).collect();
    let expected = [
        "shop",
        "mk_thing",
        "Maker",
        "Makes a gadget",
        ". More. Needs a licence.",
        "deep far innerTwo other outerOne",
        "glass iron oak stone wood",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn prompts_and_resources_are_read_too() {
    let of = |name: &str, text: &'static str| {
        Document::of(
            "notes",
            name,
            &Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap(),
        )
    };
    let documents = [
        of(
            "review",
            r#"{"name": "review", "arguments": [{"name": "diff", "description": "a patch"}]}"#,
        ),
        of(
            "file:///x",
            r#"{"uri": "file:///x", "name": "Handbook", "description": "for newcomers"}"#,
        ),
        of("odd", "7"),
    ];
    let index = Index::new(&documents);
    assert_eq!(found(&index, "patches"), [0]);
    assert_eq!(found(&index, "handbook"), [1]);
    assert_eq!(found(&index, "odd"), [2]);
}

#[test]
fn endless_schemas_and_texts_are_cut() {
    let nested = r#"{"properties": {"again": "#.repeat(50) + "{}" + &"}}".repeat(50);
    let long = "x y ".repeat(100_000);
    let text = format!(r#"{{"name": "t", "description": "{long}", "inputSchema": {nested}}}"#);
    let document = Document::of("s", "t", &Raw::parse(&Bytes::from(text)).unwrap());
    let size: usize = document.texts().map(|(_, text)| text.len()).sum();
    assert!(size < 40_000, "{size}");
}

#[test]
fn the_gateways_own_tools_are_well_defined() {
    use meta::{Act, LIMIT, LIMIT_MOST, MetaTool};
    for tool in MetaTool::ALL {
        let definition: serde_json::Value = tool.definition().decode().unwrap();
        assert_eq!(definition["name"], tool.name());
        assert_eq!(MetaTool::named(tool.name()), Some(tool));
        let schema = &definition["inputSchema"];
        let required = schema["required"][0].as_str().unwrap();
        assert!(schema["properties"][required]["description"].is_string());
        let limit = &schema["properties"]["limit"];
        if tool.act == Act::Find {
            assert_eq!(
                (&limit["default"], &limit["maximum"]),
                (&LIMIT.into(), &LIMIT_MOST.into())
            );
        }
    }
    assert_eq!(MetaTool::named("other"), None);
}
