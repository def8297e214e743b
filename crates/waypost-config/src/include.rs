//! `include:`, more files that are part of the configuration.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use crate::inputs::Inputs;
use crate::interpolate::reason;
use crate::load;
use crate::node::{Kind, Node};
use crate::path::KeyPath;
use crate::problem::{Problem, Severity};

/// The trees of the files that the main file includes, in its order.
pub(crate) fn files(
    main: &Node,
    folder: &Path,
    inputs: &mut Inputs,
    problems: &mut Vec<Problem>,
) -> Vec<Node> {
    let mut layers = Vec::new();
    let at = KeyPath::default().key("include");
    let Some(Kind::List(items)) = main.get("include").map(|entry| &entry.value.kind) else {
        return layers;
    };
    for (index, item) in items.iter().enumerate() {
        let Kind::Scalar(scalar) = &item.kind else {
            continue;
        };
        let at = at.index(index);
        for path in paths((&scalar.text, folder), item, &at, inputs, problems) {
            inputs.file(&path);
            let layer = load::file(&path, &at, Some(&item.place), problems);
            check(&layer, std::iter::once(main).chain(&layers), problems);
            layers.push(layer);
        }
    }
    layers
}

/// The files a pattern stands for, sorted by name.
fn paths(
    (pattern, folder): (&str, &Path),
    item: &Node,
    at: &KeyPath,
    inputs: &mut Inputs,
    problems: &mut Vec<Problem>,
) -> Vec<PathBuf> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[', '{']);
    let path = folder.join(pattern);
    if !is_pattern(pattern) {
        return vec![path];
    }
    let mut fail = |what: &str, hint: &str| {
        problems.push(Problem::error(&item.place, at, what).with_hint(hint));
        Vec::new()
    };
    let (Some(parent), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return fail("not a path", "write it like `upstreams/*.yaml`");
    };
    if pattern
        .rsplit_once('/')
        .is_some_and(|(folders, _)| is_pattern(folders))
    {
        return fail(
            "only the last part of the path may be a pattern",
            "include each folder by itself",
        );
    }
    let Ok(glob) = GlobBuilder::new(name).build() else {
        return fail("not a pattern", "write it like `upstreams/*.yaml`");
    };
    let matcher = glob.compile_matcher();
    inputs.folder(parent);
    let entries = match std::fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) => {
            let what = format!("cannot list `{}`: {}", parent.display(), reason(&error));
            return fail(&what, "the path is relative to the configuration file");
        }
    };
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        // Kubernetes keeps the real files of a mounted ConfigMap in hidden folders beside them.
        .filter(|entry| {
            !entry.file_name().as_encoded_bytes().starts_with(b".")
                && matcher.is_match(entry.file_name())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    if found.is_empty() {
        let problem = Problem::new(Severity::Warning, Some(&item.place), at, "no file matches");
        problems.push(problem.with_hint("the path is relative to the configuration file"));
    }
    found
}

/// What only the main file may have, and what only one file may have.
fn check<'a>(layer: &Node, earlier: impl Iterator<Item = &'a Node>, problems: &mut Vec<Problem>) {
    let top = KeyPath::default();
    if let Some(include) = layer.get("include") {
        let what = "an included file may not include others";
        problems.push(Problem::error(&include.place, &top.key("include"), what));
    }
    let earlier: Vec<_> = earlier.collect();
    for section in ["upstreams", "mcpServers"] {
        for entry in layer
            .get(section)
            .iter()
            .flat_map(|section| section.value.entries())
        {
            let same = |node: &&Node| {
                node.get(section)
                    .and_then(|section| section.value.get(&entry.key))
                    .is_some()
            };
            if let Some(node) = earlier.iter().find(|node| same(node)) {
                let what = format!("`{}` has an upstream of this name too", node.place.source);
                let problem = Problem::error(&entry.place, &top.key(section).key(&entry.key), what);
                problems.push(problem.with_hint("rename one of the two"));
            }
        }
    }
}
