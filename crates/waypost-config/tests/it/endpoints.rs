//! Named endpoints, pages, and callers that are bound to one of them.

use waypost_config::{Discovery, Endpoint, Filter};

use crate::{check, good};

const TWO: &str =
    "upstreams: {files: {url: 'http://f', aliases: [disk]}, code: {url: 'http://c'}}\n";

#[test]
fn an_endpoint_shows_everything_until_it_says_otherwise() {
    let config = good(&format!(
        "{TWO}page_size: 20\ndiscovery: search\nendpoints:\n  whole: {{}}\n  review:\n    upstreams: [code]\n    \
         tools: {{allow: ['read_*'], deny: ['*_all']}}\n    resources: {{deny: ['file:///etc/*']}}\n    \
         prefix: ''\n    page_size: 0\n    discovery: direct\n    stateless: true\n"
    ));
    let [whole, review] = &config.endpoints[..] else {
        panic!("two endpoints")
    };
    let expected = Endpoint {
        name: "whole".to_owned(),
        page_size: 20,
        discovery: Discovery::Search,
        ..Endpoint::default()
    };
    assert_eq!(*whole, expected);
    let filter = |allow: &[&str], deny: &[&str]| Filter {
        allow: allow.iter().map(|text| (*text).to_owned()).collect(),
        deny: deny.iter().map(|text| (*text).to_owned()).collect(),
    };
    let expected = Endpoint {
        name: "review".to_owned(),
        upstreams: vec!["code".to_owned()],
        tools: filter(&["read_*"], &["*_all"]),
        prompts: Filter::default(),
        resources: filter(&[], &["file:///etc/*"]),
        prefix: Some(String::new()),
        page_size: 0,
        discovery: Discovery::Direct,
        stateless: Some(true),
    };
    assert_eq!(*review, expected);
    assert_eq!(config.discovery, Discovery::Search);
}

#[test]
fn a_name_leads_to_one_endpoint_or_upstream_only() {
    check(
        &format!("{TWO}endpoints:\n  files: {{}}\n  disk: {{}}\n  waypost: {{}}\n  A b: {{}}\n"),
        &[
            "3:3 error endpoints.files: an upstream has this name (`/mcp/<name>` can lead to one of the two only; choose another name)",
            "4:3 error endpoints.disk: the upstream `files` had this name (`/mcp/<name>` can lead to one of the two only; choose another name)",
            "5:3 error endpoints.waypost: this name is Waypost's own (call it `my-waypost`)",
            "6:3 error endpoints[\"A b\"]: not a name: a lower-case letter, then at most 31 lower-case letters, digits and `-` (call it `a-b`)",
        ],
    );
}

#[test]
fn what_an_endpoint_shows_must_be_there() {
    check(
        &format!("{TWO}endpoints:\n  e:\n    upstreams: [file, disk, other]\n"),
        &[
            "4:17 error endpoints.e.upstreams[0]: no upstream has this name: `file` (did you mean `files`?)",
            "4:23 error endpoints.e.upstreams[1]: no upstream has this name: `disk` (it is `files` now)",
            "4:29 error endpoints.e.upstreams[2]: no upstream has this name: `other` (name one of `upstreams`)",
        ],
    );
    // One that has problems of its own is there all the same.
    check(
        "upstreams: {a: {}}\nendpoints: {e: {upstreams: [a]}}\n",
        &[
            "1:13 error upstreams.a: needs exactly one of `url` and `command` (give `url` for a remote server, `command` for a local one)",
        ],
    );
}

#[test]
fn patterns_prefixes_and_pages_of_an_endpoint_are_checked() {
    check(
        &format!(
            "{TWO}page_size: 1000001\nendpoints:\n  e:\n    tools: {{allow: ['[']}}\n    \
             prompts: {{deny: ['']}}\n    prefix: 'a.'\n    page_size: 1000001\n    discover: x\n"
        ),
        &[
            "2:12 error page_size: must be between 0 and 1000000: `1000001`",
            "5:21 error endpoints.e.tools.allow[0]: not a pattern: `[` (use `*`, `?`, `[ab]` and `{a,b}`)",
            "6:22 error endpoints.e.prompts.deny[0]: an empty pattern matches nothing (`*` matches everything)",
            "7:13 error endpoints.e.prefix: has characters that clients refuse in names (use letters, digits, `_` and `-`, or `\"\"` for none)",
            "8:16 error endpoints.e.page_size: must be between 0 and 1000000: `1000001`",
            "9:5 error endpoints.e.discover: unknown key (did you mean `discovery`?)",
        ],
    );
}

#[test]
fn a_key_is_bound_to_an_endpoint_that_is_there() {
    let hash = format!("sha256:{}", "0".repeat(64));
    let yaml = |endpoint: &str| {
        format!(
            "{TWO}endpoints: {{review: {{}}}}\nauth:\n  keys:\n  - {{name: ci, hash: '{hash}', endpoint: {endpoint}}}\n"
        )
    };
    let config = good(&yaml("review"));
    assert_eq!(config.auth.keys[0].endpoint.as_deref(), Some("review"));
    check(
        &yaml("reviews"),
        &[
            "5:107 error auth.keys[0].endpoint: no endpoint has this name: `reviews` (did you mean `review`?)",
        ],
    );
    check(
        &yaml("files"),
        &[
            "5:107 error auth.keys[0].endpoint: no endpoint has this name: `files` (name one of `endpoints`)",
        ],
    );
}
