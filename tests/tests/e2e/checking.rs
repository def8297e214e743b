//! `waypost check` on the example of twenty servers. What they have is what was recorded of them.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::process::run;

const PAGE: &str = "docs/check.md";
const CONFIG: &str = "config/workbench.yaml";
/// What the page has of the output stands between these.
const FENCES: (&str, &str) = ("```text\n", "\n```\n");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// What the check prints where `npx` and `uvx` start what was recorded.
async fn checked() -> String {
    let starters = tempfile::tempdir().unwrap();
    for name in ["npx", "uvx"] {
        let stand_in = root().join("tests/tests/e2e/recorded.py");
        symlink(stand_in, starters.path().join(name)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap();
    let path = format!("{}:{}", starters.path().display(), path.display());
    let config = root().join(CONFIG);
    let arguments = ["check", "--config", config.to_str().unwrap()];
    let output = run(&arguments, &[("PATH", &path)]).await;
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    // What the machine and its environment are is none of the page's business.
    let printed = printed.replace(&format!("{}/", root().display()), "");
    let blocks = printed.split("\n\n");
    let blocks = blocks.filter(|block| !block.starts_with("environment variable"));
    blocks.collect::<Vec<_>>().join("\n\n")
}

#[tokio::test]
async fn the_check_of_twenty_servers_prints_what_its_page_shows() {
    let printed = checked().await;
    let row = |cells: &[&str]| {
        let is = |line: &str| line.split_whitespace().eq(cells.iter().copied());
        assert!(printed.lines().any(is), "no row {cells:?} in\n{printed}");
    };
    // A name, its length, and where it comes from; of two that want one the first in the file has it.
    row(&["tool", "fs_write_file", "13", "files", "write_file"]);
    row(&["tool", "desktop_write_file", "18", "desktop", "write_file"]);
    // Two of a kind are one; one of them hides some.
    row(&["k8s", "cluster", "staging", "staging", "23"]);
    row(&["k8s", "cluster", "production", "production", "19"]);
    // What filters hide, and what is called otherwise.
    row(&["git", "tool", "git_commit", "hidden"]);
    row(&[
        "github",
        "tool",
        "add_issue_comment",
        "renamed",
        "to",
        "`comment`",
    ]);
    assert!(
        printed
            .lines()
            .all(|line| !line.starts_with("tool ") || length(line) <= 45)
    );
    let page = root().join(PAGE);
    let text = std::fs::read_to_string(&page).unwrap();
    let begin = text.find(FENCES.0).unwrap() + FENCES.0.len();
    let end = begin + text[begin..].find(FENCES.1).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let new = format!("{}{}{}", &text[..begin], printed.trim_end(), &text[end..]);
        std::fs::write(&page, new).unwrap();
    } else {
        let hint = "run the test with UPDATE_GOLDEN=1";
        assert_eq!(&text[begin..end], printed.trim_end(), "{PAGE}: {hint}");
    }
}

/// Of a row of names.
fn length(row: &str) -> usize {
    row.split_whitespace().nth(2).unwrap().parse().unwrap()
}
