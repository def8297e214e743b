//! From sources to a checked configuration.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::compile;
use crate::config::Config;
use crate::include;
use crate::inputs::Inputs;
use crate::interpolate::{self, Values};
use crate::layers;
use crate::node::{Entry, Kind, Node, Place, Scalar, Style};
use crate::path::KeyPath;
use crate::problem::{Problem, Severity};
use crate::sources::{self, Sources};
use crate::yaml;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// A configuration, and what is odd about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked configuration.
    pub config: Config,
    /// Problems that do not keep Waypost from running.
    pub warnings: Vec<Problem>,
}

/// Reads, merges and checks a configuration.
///
/// # Errors
///
/// Every problem that was found, warnings included, in the order of the file. At least one of
/// them is an error.
pub fn load(sources: &Sources) -> Result<Loaded, Vec<Problem>> {
    read(sources).0
}

/// As [`load`], and tells which files were read or asked for in vain, whatever came of it: those
/// are to be looked at again when something changes.
pub fn read(sources: &Sources) -> (Result<Loaded, Vec<Problem>>, Inputs) {
    let mut inputs = Inputs::default();
    let loaded = load_noting(sources, &mut inputs);
    (loaded, inputs)
}

fn load_noting(sources: &Sources, inputs: &mut Inputs) -> Result<Loaded, Vec<Problem>> {
    let mut problems = Vec::new();
    let folder = sources.folder();
    let mut values = Values {
        env: &sources.env,
        folder: &folder,
        used: BTreeSet::new(),
        inputs: Inputs::default(),
    };

    if let (None, Some(path)) = (&sources.text, &sources.file) {
        inputs.file(path);
    }
    let mut main = main_file(sources, &mut problems);
    values.expand(&mut main, &KeyPath::default(), &mut problems);
    let mut layers = include::files(&main, &folder, inputs, &mut problems);
    for layer in &mut layers {
        values.expand(layer, &KeyPath::default(), &mut problems);
    }
    inputs.add(std::mem::take(&mut values.inputs));
    layers.insert(0, main);
    let files: Vec<_> = layers
        .iter()
        .map(|layer| Arc::clone(&layer.place.source))
        .collect();

    let mut settings = sources.env_settings();
    settings.retain(|(name, path)| known_setting(name, path, &values.used, &mut problems));
    layers.extend(sources.env_layers(&settings));
    layers.extend(sources.flag_layers());
    layers.iter_mut().for_each(long_forms);

    let root = layers::merge(&layers).unwrap_or_else(|| Node::empty(Place::of(&sources.name())));
    let (config, more) = compile::compile(&root, &folder);
    problems.extend(more);
    problems.sort_by_key(|problem| order(problem, &files));
    let failed = problems
        .iter()
        .any(|problem| problem.severity == Severity::Error);
    match config {
        Some(config) if !failed => Ok(Loaded {
            config,
            warnings: problems,
        }),
        _ => Err(problems),
    }
}

/// Checks a configuration given as text, with no environment: for tests.
///
/// # Errors
///
/// As [`load`].
pub fn parse_str(yaml: &str) -> Result<Loaded, Vec<Problem>> {
    load(&Sources::from_text(yaml))
}

/// Parses a file, for [`include`] too. A file that cannot be read is an empty map and a problem.
pub(crate) fn file(
    path: &Path,
    at: &KeyPath,
    from: Option<&Place>,
    problems: &mut Vec<Problem>,
) -> Node {
    let name = path.display().to_string();
    let place = Place::of(&name);
    match text_of(path) {
        // Whoever saves a file may cut it first: that takes away no server and no key.
        Ok(text) if text.trim().is_empty() => {
            let problem = Problem::error(from.unwrap_or(&place), at, format!("`{name}` is empty"));
            problems.push(problem.with_hint("a configuration that sets nothing is `{}`"));
            Node::empty(place)
        }
        Ok(text) => text_layer(&name, &text, problems),
        Err(reason) => {
            let what = format!("cannot read `{name}`: {reason}");
            problems.push(Problem::error(from.unwrap_or(&place), at, what));
            Node::empty(place)
        }
    }
}

fn main_file(sources: &Sources, problems: &mut Vec<Problem>) -> Node {
    match (&sources.text, &sources.file) {
        (Some(text), _) => text_layer(&sources.name(), text, problems),
        (None, Some(path)) => file(path, &KeyPath::default(), None, problems),
        (None, None) => Node::empty(Place::of(&sources.name())),
    }
}

/// What a file has in it; else why that cannot be read. Nothing is waited for: a pipe might never
/// end, and with it no reading of the configuration.
pub(crate) fn text_of(path: &Path) -> Result<String, String> {
    let told = |error: &std::io::Error| interpolate::reason(error);
    let about = std::fs::metadata(path).map_err(|error| told(&error))?;
    if about.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if !about.is_file() {
        return Err("it is no regular file, but a pipe, a socket or a device".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| told(&error))?;
    let mut text = String::new();
    // What it says of its length need not be true.
    let read = file.take(MAX_FILE + 1).read_to_string(&mut text);
    if text.len() as u64 > MAX_FILE || about.len() > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes"));
    }
    read.map_err(|error| told(&error))?;
    Ok(text)
}

fn text_layer(name: &str, text: &str, problems: &mut Vec<Problem>) -> Node {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let empty = || Node::empty(Place::of(name));
    let (root, found) = yaml::parse(name, text);
    problems.extend(found);
    match root {
        Some(root) if matches!(root.kind, Kind::Map(_)) => root,
        Some(root) => {
            problems.push(Problem::error(
                &root.place,
                &KeyPath::default(),
                "must be a map of settings",
            ));
            empty()
        }
        None => empty(),
    }
}

/// Puts short forms into their long one, so that layers merge.
fn long_forms(layer: &mut Node) {
    let Kind::Map(entries) = &mut layer.kind else {
        return;
    };
    for entry in entries.iter_mut().filter(|entry| entry.key == "admin") {
        // A variable may have the whole map in it.
        let is_map = |scalar: &Scalar| {
            scalar.style == Style::Outside && scalar.text.trim_start().starts_with('{')
        };
        let is_short = match &entry.value.kind {
            Kind::Scalar(scalar) => !is_map(scalar),
            kind => matches!(kind, Kind::Refused),
        };
        if is_short {
            let place = entry.value.place.clone();
            let long = Node::empty(place.clone());
            let short = std::mem::replace(&mut entry.value, long);
            let listen = Entry {
                key: "listen".to_owned(),
                place,
                value: short,
            };
            entry.value.kind = Kind::Map(vec![listen]);
        }
    }
}

/// A variable that is no setting only gets a warning, and none if the file asks for it by name:
/// the environment is not always the operator's alone.
fn known_setting(
    name: &str,
    path: &[String],
    used: &BTreeSet<String>,
    problems: &mut Vec<Problem>,
) -> bool {
    // Files are read before the environment, so `include` cannot come from there.
    let known = path
        .first()
        .is_some_and(|key| key != "include" && compile::is_top_level(key));
    if !known && !used.contains(name) {
        let place = Place::of(&sources::env_source(name));
        let what = "this variable names no setting and is ignored";
        let hint = match sources::meant(name) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "parts of a key are joined with two underscores: `WAYPOST_FRONT__KEEP_ALIVE`"
                .to_owned(),
        };
        let problem = Problem::new(Severity::Warning, Some(&place), &KeyPath::default(), what);
        problems.push(problem.with_hint(hint));
    }
    known
}

/// By file and line; what is in no file comes last.
fn order(problem: &Problem, files: &[Arc<str>]) -> (usize, usize, usize) {
    let file = problem.file.as_deref();
    let file = files
        .iter()
        .position(|known| Some(&**known) == file)
        .unwrap_or(files.len());
    (
        file,
        problem.line.unwrap_or_default(),
        problem.column.unwrap_or_default(),
    )
}
