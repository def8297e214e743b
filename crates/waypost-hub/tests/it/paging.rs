//! Lists in pages.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_hub::call::View;
use waypost_hub::hub::Hub;

use crate::fake::{Fake, call, echo, error, hub, result};

fn tools(names: &[&str]) -> Value {
    let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
    json!({ "tools": tools })
}

/// A page's names and the cursor to the next.
async fn page(hub: &Arc<Hub>, view: &View, cursor: Option<&Value>) -> (Vec<String>, Option<Value>) {
    let mut list = call(
        "tools/list",
        &cursor.map_or(json!({}), |c| json!({ "cursor": c })),
    );
    list.view = view.clone();
    let page = result(hub.call(list).await).await;
    let tools = page["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
    (names.collect(), page.get("nextCursor").cloned())
}

async fn code(hub: &Arc<Hub>, method: &str, view: View, cursor: &Value) -> Value {
    let mut list = call(method, &json!({ "cursor": cursor }));
    list.view = view;
    error(hub.call(list).await).await["code"].clone()
}

const YAML: &str = "page_size: 2\nupstreams:\n  a: { url: \"http://127.0.0.1:9\" }\n  \
    b: { url: \"http://127.0.0.1:9\" }\nendpoints:\n  e: {}\n  whole: { page_size: 0 }\n  \
    three: { page_size: 3 }\n";

#[tokio::test(start_paused = true)]
async fn every_page_has_as_many_items_as_the_file_says() {
    let (a, b) = (
        Fake::with_tools("a", &["1", "2", "3"]),
        Fake::with_tools("b", &["1", "2"]),
    );
    let hub = hub(YAML, &[&a, &b]).await;
    for (view, sizes) in [
        (View::All, &[2, 2, 1][..]),
        (View::Upstream("a".into()), &[2, 1]),
        (View::Upstream("b".into()), &[2]),
        (View::Endpoint("e".into()), &[2, 2, 1]),
        (View::Endpoint("whole".into()), &[5]),
        (View::Endpoint("three".into()), &[3, 2]),
    ] {
        let (mut all, mut found, mut cursor) = (Vec::new(), Vec::new(), None);
        loop {
            let (names, next) = page(&hub, &view, cursor.as_ref()).await;
            found.push(names.len());
            all.extend(names);
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, sizes, "{view:?}");
        let expected = ["a_1", "a_2", "a_3", "b_1", "b_2"];
        let shown = expected.iter().filter(|name| match &view {
            View::Upstream(own) => name.starts_with(&**own),
            View::All | View::Endpoint(_) => true,
        });
        assert_eq!(
            all,
            shown.map(|name| (*name).to_owned()).collect::<Vec<_>>()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn r13_what_is_there_all_the_time_is_on_one_page_exactly_whatever_comes_and_goes() {
    let (a, b) = (
        Fake::with_tools("a", &["k", "m", "o"]),
        Fake::with_tools("b", &["k", "m"]),
    );
    let hub = hub(YAML, &[&a, &b]).await;
    for view in [View::All, View::Endpoint("e".into())] {
        // Before, at and after where the first page ends, and in the other upstream.
        for (changed, expected) in [
            (&["a", "b", "k", "m", "o"][..], &["a_o", "b_k", "b_m"][..]),
            (&["m", "n", "o"], &["a_n", "a_o", "b_k", "b_m"]),
            (&["k", "o"], &["a_o", "b_k", "b_m"]),
            (&["o"], &["a_o", "b_k", "b_m"]),
            (&[], &["b_k", "b_m"]),
        ] {
            turn_into(&hub, &a, &["k", "m", "o"]).await;
            let (first, mut cursor) = page(&hub, &view, None).await;
            assert_eq!(first, ["a_k", "a_m"]);
            turn_into(&hub, &a, changed).await;
            let mut rest = Vec::new();
            while let Some(next) = &cursor {
                let (names, next) = page(&hub, &view, Some(next)).await;
                rest.extend(names);
                cursor = next;
            }
            assert_eq!(rest, expected, "{changed:?}");
        }
    }
}

/// Makes the fake's tools these and waits until that is seen.
async fn turn_into(hub: &Arc<Hub>, fake: &Arc<Fake>, names: &[&str]) {
    fake.lists
        .lock()
        .unwrap()
        .insert("tools/list".to_owned(), tools(names));
    fake.lost.notify_one();
    let shown = || {
        let catalog = hub.catalog();
        let own = catalog.tools.listed_of("a");
        own.entries()
            .map(|entry| entry.original.to_string())
            .collect::<Vec<_>>()
    };
    while shown() != names {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_cursors_of_this_very_list_are_taken() {
    let lists = [
        ("tools/list", tools(&["1", "2", "3"])),
        (
            "prompts/list",
            json!({ "prompts": [{ "name": "1" }, { "name": "2" }, { "name": "3" }] }),
        ),
    ];
    let a = Fake::new("a", json!({ "tools": {}, "prompts": {} }), &lists, |c| {
        Ok(echo(c))
    });
    let b = Fake::with_tools("b", &["1"]);
    let hub = hub(YAML, &[&a, &b]).await;
    let (_, cursor) = page(&hub, &View::All, None).await;
    let cursor = cursor.unwrap();
    let endpoint = |name: &str| View::Endpoint(name.into());
    for view in [
        View::Upstream("a".into()),
        endpoint("e"),
        endpoint("whole"),
        endpoint("gone"),
    ] {
        assert_eq!(code(&hub, "tools/list", view, &cursor).await, -32602);
    }
    assert_eq!(code(&hub, "prompts/list", View::All, &cursor).await, -32602);
    let text = cursor.as_str().unwrap();
    let mut damaged = text.as_bytes().to_vec();
    damaged[3] ^= 1;
    let damaged = String::from_utf8(damaged).unwrap();
    for wrong in [
        json!(damaged),
        json!(format!("{text}A")),
        json!(""),
        json!("2"),
        json!(2),
        json!({}),
    ] {
        assert_eq!(
            code(&hub, "tools/list", View::All, &wrong).await,
            -32602,
            "{wrong}"
        );
    }
    let (names, _) = page(&hub, &View::All, Some(&cursor)).await;
    assert_eq!(names, ["a_3", "b_1"]);
    let (names, _) = page(&hub, &View::All, Some(&Value::Null)).await;
    assert_eq!(names, ["a_1", "a_2"]);
}

#[tokio::test(start_paused = true)]
async fn r13_pages_that_were_begun_go_on_where_lists_are_whole_again() {
    let (a, b) = (
        Fake::with_tools("a", &["1", "2", "3"]),
        Fake::with_tools("b", &["1"]),
    );
    let paged = hub(YAML, &[&a, &b]).await;
    let (_, cursor) = page(&paged, &View::All, None).await;
    let whole = hub(&YAML.replace("page_size: 2\n", ""), &[&a, &b]).await;
    let (names, next) = page(&whole, &View::All, cursor.as_ref()).await;
    assert_eq!(
        (names.as_slice(), next),
        (&["a_3".to_owned(), "b_1".to_owned()][..], None)
    );
    let foreign = json!("page2");
    assert_eq!(
        code(&whole, "tools/list", View::All, &foreign).await,
        -32602
    );
}
