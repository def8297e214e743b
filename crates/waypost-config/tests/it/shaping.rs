//! What becomes of an upstream's definitions.

use waypost_config::config::Pin;
use waypost_config::{Filter, PromptRules, Secret, Sources, ToolRules, load};

use crate::{check, good};

fn list(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[test]
fn filters_names_descriptions_parameters_annotations_and_pins() {
    let yaml = "
upstreams:
  a:
    command: x
    pin: block
    tools:
      allow: ['read_*']
      deny: ['*_all']
      rename: { read_it: get, list: ls }
      describe: { read_it: 'Reads it.' }
      hide_params: { read_it: [verbose, depth] }
      set_params: { read_it: { root: /srv } }
      annotations: { read_it: { readOnlyHint: true } }
    prompts: { deny: [beg], rename: { ask: question }, describe: { ask: Asks. } }
    resources: { deny: ['file:///etc/*', 'db://{table}/rows'] }
  b: { command: x, pin: warn }
";
    let config = good(yaml);
    let a = &config.upstreams[0];
    let tools = ToolRules {
        filter: Filter {
            allow: list(&["read_*"]),
            deny: list(&["*_all"]),
        },
        timeouts: Vec::new(),
        rename: vec![pair("read_it", "get"), pair("list", "ls")],
        describe: vec![pair("read_it", "Reads it.")],
        hide_params: vec![("read_it".to_owned(), list(&["verbose", "depth"]))],
        set_params: vec![(
            "read_it".to_owned(),
            vec![("root".to_owned(), Secret::new("\"/srv\""))],
        )],
        annotations: vec![("read_it".to_owned(), vec![pair("readOnlyHint", "true")])],
    };
    assert_eq!(a.tools, tools);
    let prompts = PromptRules {
        filter: Filter {
            allow: Vec::new(),
            deny: list(&["beg"]),
        },
        rename: vec![pair("ask", "question")],
        describe: vec![pair("ask", "Asks.")],
    };
    assert_eq!(a.prompts, prompts);
    let denied = list(&["file:///etc/*", "db://{table}/rows"]);
    assert_eq!((&a.resources.deny, a.pin), (&denied, Some(Pin::Block)));
    let b = &config.upstreams[1];
    assert_eq!((&b.tools, b.pin), (&ToolRules::default(), Some(Pin::Warn)));
    let plain = good("upstreams: {a: {command: x}}");
    assert_eq!(
        a.fingerprint, plain.upstreams[0].fingerprint,
        "the same server"
    );
    let foreign = good("mcpServers: {a: {command: x, tools: {set_params: {t: {n: 1.0}}}}}");
    let value = &foreign.upstreams[0].tools.set_params[0].1[0].1;
    assert_eq!(value.expose(), "1.0");
}

/// The JSON of a value that is set.
#[track_caller]
fn set(value: &str, expected: &str) {
    let mut sources = Sources::from_text(format!(
        "upstreams: {{a: {{command: x, tools: {{set_params: {{t: {{p: {value}}}}}}}}}}}"
    ));
    sources.env.insert("KEY".into(), "0042".into());
    let config = load(&sources).unwrap().config;
    let set = &config.upstreams[0].tools.set_params[0].1[0].1;
    assert_eq!(set.expose(), expected, "{value}");
}

#[test]
fn a_value_that_is_set_is_any_of_json_and_numbers_keep_their_spelling() {
    for same in [
        "1",
        "1.0",
        "-0",
        "1e5",
        "12345678901234567890123",
        "true",
        "false",
        "[]",
        "{}",
    ] {
        set(same, same);
    }
    set("text", r#""text""#);
    set("'1'", r#""1""#);
    set(r#""a\n\"b\"""#, r#""a\n\"b\"""#);
    set("0x1f", r#""0x1f""#);
    set("007", r#""007""#);
    set(".5", r#"".5""#);
    set("1 2", r#""1 2""#);
    set(
        "[1.0, ~, {b: 1, a: [x]}]",
        r#"[1.0,null,{"b":1,"a":["x"]}]"#,
    );
}

#[test]
fn what_is_put_into_a_value_is_text_and_never_shown() {
    set("'${env:KEY}'", r#""0042""#);
    set("'Bearer ${KEY}'", r#""Bearer 0042""#);
    set("[ '${KEY}' ]", r#"["0042"]"#);
    let yaml = "upstreams: {a: {command: x, tools: {set_params: {t: {p: '${env:KEY}'}}}}}";
    let mut sources = Sources::from_text(yaml.to_owned());
    sources.env.insert("KEY".into(), "canary".into());
    let config = load(&sources).unwrap().config;
    assert!(!format!("{config:?}").contains("canary"));
    assert_eq!(config.upstreams[0].secrets, [Secret::new("canary")]);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    check(
        "upstreams:\n  a:\n    command: x\n    pin: deny\n    tools:\n      allow: ['[']\n      \
         rename: {a: 'x.y', b: z, c: z, d: ''}\n      describe: [a]\n      hide_params: {a: b}\n      \
         set_params: {a: b, c: {d: }}\n    prompts: {allow: [''], hide_params: {}}\n    \
         resources: {deny: ['[']}\n",
        &[
            "4:10 error upstreams.a.pin: must be one of `warn`, `block`",
            "6:15 error upstreams.a.tools.allow[0]: not a pattern: `[` (use `*`, `?`, `[ab]` and `{a,b}`)",
            "7:19 error upstreams.a.tools.rename.a: not a name: `x.y` (use letters, digits, `_` and `-`)",
            "7:35 error upstreams.a.tools.rename.c: `b` gets this name too (choose another name)",
            "7:41 error upstreams.a.tools.rename.d: not a name: `` (use letters, digits, `_` and `-`)",
            "8:17 error upstreams.a.tools.describe: must be a map (write `key: value` for each, without `- `)",
            "9:24 error upstreams.a.tools.hide_params.a: must be a list (write `[a, b]`, or one item a line after `- `)",
            "10:23 error upstreams.a.tools.set_params.a: must be a map",
            "10:31 error upstreams.a.tools.set_params.c.d: has a name and nothing else (give it what it needs, or take the name out)",
            "11:23 error upstreams.a.prompts.allow[0]: an empty pattern matches nothing (`*` matches everything)",
            "11:28 error upstreams.a.prompts.hide_params: unknown key",
            "12:24 error upstreams.a.resources.deny[0]: not a pattern: `[` (use `*`, `?`, `[ab]` and `{a,b}`)",
        ],
    );
}
