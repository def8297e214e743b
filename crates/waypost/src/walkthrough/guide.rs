//! Runs the command lines of `docs/walkthrough.md` without a shell and without `curl`, so that the
//! test does the same on every machine.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use waypost_testkit::client::{Client, Reply};

/// The address that the guide is written for.
const WRITTEN_FOR: &str = "http://127.0.0.1:7400/mcp";

/// A task that the guide lets its reader wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs each command of a `sh` block and compares its answer with the `json` block after it.
/// Gives the number of commands.
pub(super) async fn run(text: &str, url: &str) -> usize {
    let mut ran = 0;
    let mut task = String::new();
    let mut last: Option<Vec<String>> = None;
    for (kind, block) in blocks(text) {
        match kind {
            "sh" => {
                for line in commands(&block) {
                    if let Some(value) = line.strip_prefix("TASK=") {
                        assert_eq!(
                            value, "'the taskId of the answer'",
                            "how a task is taken up"
                        );
                        let answer = ask(last.as_deref().unwrap(), url).await;
                        task = answer.result()["taskId"].as_str().unwrap().to_owned();
                        last = None;
                    } else {
                        assert!(last.is_none(), "{last:?} is not looked at");
                        last = Some(words(&line, &task));
                        ran += 1;
                    }
                }
            }
            "json" => {
                let expected: Value = serde_json::from_str(&block).unwrap();
                let command = last.take().expect("a command before what it answers");
                expect(&command, url, &expected).await;
            }
            _ => {}
        }
    }
    assert!(last.is_none(), "{last:?} is not looked at");
    ran
}

/// Asks until the answer fits: the guide's reader looks at a task until it is where he wants it.
async fn expect(command: &[String], url: &str, expected: &Value) {
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = ask(command, url).await;
        if fits(&reply.answer, expected) {
            return;
        }
        let working = reply.result().get("status") == Some(&"working".into());
        assert!(
            working && Instant::now() < until,
            "{command:?}\nanswered {:#}\nand not {expected:#}",
            reply.answer
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// Whether `answer` has everything that `expected` shows; `"..."` stands for anything.
fn fits(answer: &Value, expected: &Value) -> bool {
    match expected {
        Value::String(text) if text == "..." => !answer.is_null(),
        Value::Object(members) => members
            .iter()
            .all(|(key, value)| answer.get(key).is_some_and(|given| fits(given, value))),
        // A list may have more, in any order.
        Value::Array(items) => answer.as_array().is_some_and(|given| {
            let has = |item| given.iter().any(|one| fits(one, item));
            items.iter().all(has)
        }),
        other => other == answer,
    }
}

/// What `curl` would do with these words.
async fn ask(command: &[String], url: &str) -> Reply {
    let mut words = command.iter();
    assert_eq!(words.next().map(String::as_str), Some("curl"));
    let client = Client::new(url);
    let mut post = client.post("", Value::Null);
    post.headers.clear();
    while let Some(word) = words.next() {
        post = match word.as_str() {
            "-sS" | "-N" => post,
            "-H" => {
                let (name, value) = words.next().unwrap().split_once(": ").unwrap();
                post.header(name, value)
            }
            "-d" => post.raw(words.next().unwrap().clone()),
            address if address == WRITTEN_FOR || address == url => post,
            other => panic!("`{other}` is not understood here"),
        };
    }
    client.ask(post).await.unwrap()
}

/// Fenced blocks, each with the word after its fence.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push((kind, block.join("\n")));
    }
    blocks
}

/// Lines of a block, continued ones joined.
fn commands(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// Splits a line as a shell does: single quotes take everything, double quotes and bare words
/// know `$TASK`, and what stands side by side is one word.
fn words(line: &str, task: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if c.is_whitespace() => words.push(String::new()),
            (Some('\''), '$') => last(&mut words).push('\u{0}'),
            (_, c) => last(&mut words).push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    for word in &mut words {
        *word = word.replace("$TASK", task).replace('\u{0}', "$");
    }
    words
}

fn last(words: &mut [String]) -> &mut String {
    words.last_mut().expect("there is always one")
}

#[test]
fn words_are_split_as_a_shell_does() {
    let line = r#"curl -H 'A: "b"'  -d '{"x":"'"$TASK"'","y":"$TASK"}' "Mcp-Name: $TASK""#;
    assert_eq!(
        words(line, "t1"),
        [
            "curl",
            "-H",
            r#"A: "b""#,
            "-d",
            r#"{"x":"t1","y":"$TASK"}"#,
            "Mcp-Name: t1"
        ]
    );
}
