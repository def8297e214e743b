use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let found = match parse("f", text) {
        (Some(node), problems) if problems.is_empty() => show(&node),
        (_, problems) => problems
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    };
    assert_eq!(found, expected);
}

fn show(node: &Node) -> String {
    let value = match &node.kind {
        Kind::Null => "null".to_owned(),
        Kind::Refused => "refused".to_owned(),
        Kind::Scalar(scalar) if scalar.style == Style::Plain => scalar.text.clone(),
        Kind::Scalar(scalar) => format!("{:?}", scalar.text),
        Kind::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(" ")),
        Kind::Map(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|entry| format!("{}:{}", entry.key, show(&entry.value)))
                .collect();
            format!("{{{}}}", entries.join(" "))
        }
    };
    format!(
        "{value}@{}.{}",
        node.place.line.unwrap(),
        node.place.column.unwrap()
    )
}

#[test]
fn values_keep_their_position_style_and_order() {
    check("b: 1\na: 'x'\n", "{b:1@1.4 a:\"x\"@2.4}@1.1");
    check("a:\n  - true\n  - ~\n", "{a:[true@2.5 null@3.5]@2.3}@1.1");
    check("", "{}@1.1");
    check("# nothing\n", "{}@1.1");
}

#[test]
fn json_is_yaml() {
    check(
        "{\"a\": [1, \"2\"],\n \"b\": null}",
        "{a:[1@1.8 \"2\"@1.11]@1.7 b:null@2.7}@1.1",
    );
}

#[test]
fn repeated_keys_are_problems_and_all_of_them_are_found() {
    check(
        "a: 1\nb: {c: 1, c: 2}\na: 2\n",
        "f:2:11: error: `b.c`: this key is given twice\n  hint: keep one of the two\n\
         f:3:1: error: `a`: this key is given twice\n  hint: keep one of the two",
    );
}

#[test]
fn aliases_are_followed_within_bounds() {
    check("a: &x [1]\nb: *x\n", "{a:[1@1.8]@1.4 b:[1@1.8]@2.4}@1.1");
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..9 {
        let inner = vec![format!("*a{}", n - 1); 10].join(", ");
        laughs.push_str(&format!("a{n}: &a{n} [{inner}]\n"));
    }
    let problems = parse("f", &laughs).1;
    assert_eq!(problems[0].what, "more than 20000 values, aliases followed");
    check(
        "a: &x [*x]\n",
        "f:1:8: error: `a[0]`: an alias may not stand inside what it names",
    );
}

#[test]
fn what_is_no_single_untagged_document_is_refused() {
    check(
        "a: 1\n---\nb: 1\n",
        "f:2:1: error: a second document starts here",
    );
    check(
        "a: !secret x\n",
        "f:1:4: error: `a`: the tag `!secret` has no meaning here",
    );
    check("a: !!str 1\n", "{a:\"1\"@1.4}@1.1");
    check("? [a]\n: 1\n", "f:1:3: error: a key must be a plain text");
    let deep = "[".repeat(100);
    assert_eq!(parse("f", &deep).1[0].what, "nested deeper than 32 levels");
}

#[test]
fn unreadable_text_is_named_with_what_usually_causes_it() {
    let hint = |text| parse("f", text).1[0].hint.clone().unwrap_or_default();
    assert_eq!(hint("a:\n\tb: 1\n"), "indent with spaces, not tabs");
    let quotes = "put quotes around the value that begins with";
    assert_eq!(hint("a: [-y, @b/c]\n"), format!("{quotes} `@`"));
    assert_eq!(hint("a:\n  - @b/c\n"), format!("{quotes} `@`"));
    assert_eq!(hint("a: `b`\n"), format!("{quotes} a backtick"));
    assert_eq!(hint("a: %b\n"), format!("{quotes} `%`"));
    assert_ne!(hint("a: ['@b', 'c\n"), format!("{quotes} `@`"));
    assert_eq!(
        hint("a: {b: ${X}, c: 1}\n"),
        "put quotes around a value that has `${...}` in it"
    );
}
