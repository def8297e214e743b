//! The rules of the architecture, as tests: who may use whom, and how large things may be.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may use. Arrows point down; siblings never see each other.
const MAY_USE: &[(&str, &[&str])] = &[
    ("waypost-wire", &[]),
    ("waypost-config", &["waypost-wire"]),
    ("waypost-hub", &["waypost-config", "waypost-wire"]),
    (
        "waypost-front",
        &["waypost-config", "waypost-hub", "waypost-wire"],
    ),
    (
        "waypost-policy",
        &["waypost-config", "waypost-hub", "waypost-wire"],
    ),
    (
        "waypost-upstream",
        &["waypost-config", "waypost-hub", "waypost-wire"],
    ),
    (
        "waypost-store",
        &["waypost-config", "waypost-hub", "waypost-wire"],
    ),
    ("waypost-testkit", &["waypost-wire"]),
    (
        "waypost",
        &[
            "waypost-config",
            "waypost-front",
            "waypost-hub",
            "waypost-policy",
            "waypost-store",
            "waypost-testkit",
            "waypost-upstream",
            "waypost-wire",
        ],
    ),
    ("xtask", &[]),
];

/// Lines of a file, tests apart: the middle one, nine in ten, and the longest.
const FILE_MEDIAN: usize = 150;
const FILE_P90: usize = 400;
const FILE_MOST: usize = 600;

/// Only one version of each of these may be linked: two would not understand each other's types.
const ONE_VERSION: &[&str] = &["tokio", "hyper", "http", "rustls", "axum", "tower", "bytes"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        // Without dependencies: those of other systems are not on this machine.
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Our packages: those whose manifest lies below the root.
fn ours(metadata: &Value) -> Vec<&Value> {
    let members: Vec<&str> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .filter(|p| members.contains(&p["id"].as_str().unwrap()))
        .collect()
}

/// Files that git tracks or would track.
fn sources(pattern: &str) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
            pattern,
        ])
        .current_dir(root())
        .output()
        .expect("`git` lists the files");
    let text = String::from_utf8(output.stdout).unwrap();
    let files: Vec<_> = text
        .lines()
        .map(|line| root().join(line))
        .filter(|p| p.exists())
        .collect();
    assert!(!files.is_empty(), "no file matches `{pattern}`");
    files
}

fn is_test(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("/tests/") || text.ends_with("tests.rs") || text.contains("/benches/")
}

/// The lines of a source file before its tests.
fn lines_without_tests(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .take_while(|line| *line != "mod tests {" && *line != "mod tests;")
        .count()
}

#[test]
fn arrows_point_down_and_siblings_do_not_see_each_other() {
    let metadata = metadata();
    for package in ours(&metadata) {
        let name = package["name"].as_str().unwrap();
        if name == "waypost-tests" {
            continue;
        }
        let allowed = MAY_USE.iter().find(|(n, _)| *n == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("`{name}` is not in `MAY_USE`"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            // Dependencies of tests are free.
            let ours = dependency["path"].is_string() && dependency["kind"].is_null();
            assert!(
                !ours || allowed.contains(&used),
                "`{name}` must not use `{used}`"
            );
        }
    }
}

#[test]
fn a_crate_is_named_like_its_folder_and_told_of_in_the_architecture() {
    let metadata = metadata();
    let architecture = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for package in ours(&metadata) {
        let name = package["name"].as_str().unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        assert!(
            folder == name || name == "waypost-tests",
            "`{name}` lives in `{folder}`"
        );
        assert!(
            architecture.contains(&format!("`{name}`")),
            "ARCHITECTURE.md lacks `{name}`"
        );
    }
}

#[test]
fn what_must_fit_together_has_one_version() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key));
            line.unwrap().trim_matches([' ', '=', '"'])
        };
        let name = value("name");
        if ONE_VERSION.contains(&name) {
            versions.entry(name).or_default().push(value("version"));
        }
    }
    assert_eq!(versions.len(), ONE_VERSION.len(), "{versions:?}");
    for (name, versions) in versions {
        assert_eq!(versions.len(), 1, "`{name}` has versions {versions:?}");
    }
}

#[test]
fn files_keep_their_proportions() {
    let files = sources("crates/**/*.rs")
        .into_iter()
        .filter(|path| !is_test(path));
    let mut sizes: Vec<(usize, PathBuf)> = files
        .map(|path| (lines_without_tests(&path), path))
        .collect();
    sizes.sort();
    let at = |share: usize| sizes[(sizes.len() - 1) * share / 100].0;
    let (longest, path) = sizes.last().unwrap();
    assert!(
        *longest <= FILE_MOST,
        "{} has {longest} lines",
        path.display()
    );
    assert!(
        at(90) <= FILE_P90,
        "one file in ten has more than {} lines",
        at(90)
    );
    assert!(
        at(50) <= FILE_MEDIAN,
        "the median file has {} lines",
        at(50)
    );
}

/// What must not be committed must not reach an image, or whoever builds one, either.
#[test]
fn what_git_ignores_docker_ignores_too() {
    let patterns = |file: &str| {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        let lines = text.lines().map(str::trim);
        let patterns = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        patterns.map(str::to_owned).collect::<Vec<_>>()
    };
    let (git, docker) = (patterns(".gitignore"), patterns(".dockerignore"));
    assert!(git.iter().any(|pattern| pattern.ends_with(".key")));
    for pattern in git {
        // There a pattern without a slash is about the top folder alone.
        let wanted = match pattern.contains('/') {
            true => pattern,
            false => format!("**/{pattern}"),
        };
        assert!(docker.contains(&wanted), "`{wanted}` is not ignored");
    }
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("FIX", "ME"),
    ];
    for path in sources("*.rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} has `{word}`", path.display());
        }
    }
}

#[test]
fn an_ignored_test_says_why() {
    for path in sources("*.rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains(concat!("#[", "ignore]")),
            "{}",
            path.display()
        );
    }
}

#[test]
fn only_the_configuration_reads_the_environment() {
    for path in sources("crates/**/*.rs")
        .into_iter()
        .filter(|path| !is_test(path))
    {
        let allowed = ["waypost-config/", "waypost-testkit/", "xtask/"];
        if allowed
            .iter()
            .any(|part| path.to_string_lossy().contains(part))
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for call in ["env::var(", "env::vars(", "env::var_os(", "env::vars_os("] {
            assert!(
                !text.contains(call),
                "{} reads the environment",
                path.display()
            );
        }
    }
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut numbers: Vec<u32> = std::fs::read_dir(root().join("docs/decisions"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| {
            name.split('-')
                .next()
                .unwrap()
                .parse()
                .expect("`NNNN-title.md`")
        })
        .collect();
    numbers.sort_unstable();
    let expected: Vec<u32> = (1..=u32::try_from(numbers.len()).unwrap()).collect();
    assert_eq!(numbers, expected);
}

/// Words that only a program that knows of two eras needs; not whole words, and in lower case.
const ERA_WORDS: &[&str] = &[
    "legacy",
    " eras",
    " era ",
    "\"initialize",
    "mcp-session-id",
    "session_id",
    "2025-",
    "2024-",
];

/// Where they may stand in the hub, and what for.
const HUB_ERA_WORDS: &[(&str, &str)] = &[
    // Says that there are none here.
    ("lib.rs", " eras"),
    ("tasks.rs", " eras"),
    ("tasks.rs", "2025-"),
];

/// Where they may stand beside the two folders `legacy`: where an era is told from the other, where
/// a transport serves both, and where the other side is chosen.
const BESIDE_LEGACY: &[&str] = &[
    "waypost-front/src/admit.rs",
    "waypost-front/src/era.rs",
    "waypost-front/src/legacy.rs",
    "waypost-front/src/lib.rs",
    "waypost-front/src/refusal.rs",
    "waypost-front/src/rescue.rs",
    "waypost-front/src/routes.rs",
    "waypost-front/src/stdio.rs",
    "waypost-front/src/stdio/bridge.rs",
    "waypost-upstream/src/fault.rs",
    "waypost-upstream/src/http/connector.rs",
    "waypost-upstream/src/legacy.rs",
    "waypost-upstream/src/lib.rs",
    "waypost-upstream/src/probe.rs",
    "waypost-upstream/src/server.rs",
    "waypost-upstream/src/server/doubt.rs",
    "waypost-upstream/src/server/process.rs",
    "waypost-upstream/src/stdio/kept_apart.rs",
];

/// The era words in a file, before its tests.
fn era_words(path: &Path) -> Vec<&'static str> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().take(lines_without_tests(path));
    let text = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    let found = ERA_WORDS.iter().copied();
    found.filter(|word| text.contains(word)).collect()
}

#[test]
fn the_hub_knows_no_era() {
    let mut excused: Vec<_> = HUB_ERA_WORDS.iter().collect();
    for path in sources("crates/waypost-hub/src/*.rs") {
        if is_test(&path) {
            continue;
        }
        let name = path.to_string_lossy().into_owned();
        let (_, name) = name.split_once("waypost-hub/src/").unwrap();
        for word in era_words(&path) {
            let known = excused.iter().position(|excuse| **excuse == (name, word));
            let known = known.unwrap_or_else(|| panic!("`{word}` in the hub's {name}"));
            excused.remove(known);
        }
    }
    assert!(excused.is_empty(), "no longer there: {excused:?}");
}

#[test]
fn what_is_special_to_an_era_sits_in_the_two_folders() {
    let mut unused: Vec<_> = BESIDE_LEGACY.iter().collect();
    for side in ["waypost-front", "waypost-upstream"] {
        for path in sources(&format!("crates/{side}/src/*.rs")) {
            let name = path.to_string_lossy().into_owned();
            if name.contains("/legacy/") || is_test(&path) || era_words(&path).is_empty() {
                continue;
            }
            let known = BESIDE_LEGACY.iter().find(|known| name.contains(**known));
            let known = known.unwrap_or_else(|| panic!("{name} has {:?}", era_words(&path)));
            unused.retain(|entry| *entry != known);
        }
    }
    assert!(unused.is_empty(), "no longer there: {unused:?}");
}
