//! Where a configuration comes from: a file and those it includes, the environment, flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::node::{Entry, Kind, Node, Place, Scalar, Style};
use crate::{compile, suggest};

/// What every setting's environment variable begins with.
const PREFIX: &str = "WAYPOST_";
/// Variables with the prefix that are the program's own.
const RESERVED: &[&str] = &["WAYPOST_CONFIG", "WAYPOST_KEY"];
/// Where the file is looked for when none is named.
const PLACES: [&str; 2] = ["waypost.yaml", ".config/waypost/waypost.yaml"];

/// The process's environment as it is, values that are not UTF-8 included: children get what they
/// may have of it. Nothing else reads it.
#[must_use]
pub fn environment() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().collect()
}

/// Everything a configuration is made from. Later ones win: the file, the files it includes, the
/// environment, the flags.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file. Without one, the defaults, the environment and the flags are all there is.
    pub file: Option<PathBuf>,
    /// The file's text, where it is known already; then `file` is not read, but names it.
    pub text: Option<String>,
    /// Environment variables, for `${...}` and for settings: `WAYPOST_FRONT__STRICT_HEADERS=true`
    /// sets `front.strict_headers`. Lists and maps are written in YAML.
    pub env: BTreeMap<String, String>,
    /// Settings from the command line, as key path and value: `("listen", "127.0.0.1:0")`.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// The process's environment and a file: the one named, or else `./waypost.yaml` or
    /// `~/.config/waypost/waypost.yaml`, whichever is there.
    #[must_use]
    pub fn from_process(file: Option<PathBuf>) -> Self {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let env: BTreeMap<_, _> = environment()
            .into_iter()
            .map(|(k, v)| (text(k), text(v)))
            .collect();
        let file = file.or_else(|| {
            let [here, home] = PLACES;
            let home = env.get("HOME").map(|folder| Path::new(folder).join(home));
            std::iter::once(PathBuf::from(here))
                .chain(home)
                .find(|path| path.is_file())
        });
        Self {
            file,
            text: None,
            env,
            flags: Vec::new(),
        }
    }

    /// A text that stands for the file.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// The same with a setting of the command line.
    #[must_use]
    pub fn with_flag(mut self, key: &str, value: impl Into<String>) -> Self {
        self.flags.push((key.to_owned(), value.into()));
        self
    }

    /// The name of the file for messages.
    pub(crate) fn name(&self) -> String {
        self.file
            .as_deref()
            .map_or("the configuration".to_owned(), |file| {
                file.display().to_string()
            })
    }

    /// What relative paths start from.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = self
            .file
            .as_deref()
            .and_then(Path::parent)
            .map(Path::to_path_buf);
        folder
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or_else(|| PathBuf::from("."))
    }

    /// The settings of the environment, each with its variable.
    pub(crate) fn env_settings(&self) -> Vec<(String, Vec<String>)> {
        let names = self.env.keys().filter(|name| name.starts_with(PREFIX));
        let names = names.filter(|name| !RESERVED.contains(&name.as_str()) && !is_kubernetes(name));
        names.map(|name| (name.clone(), env_path(name))).collect()
    }

    /// One tree for each setting of the environment, so that short and long forms merge.
    pub(crate) fn env_layers(&self, settings: &[(String, Vec<String>)]) -> Vec<Node> {
        let layer = |(name, path): &(String, Vec<String>)| {
            let value = self.env.get(name).map_or("", String::as_str);
            outside(&env_source(name), path, value)
        };
        settings.iter().map(layer).collect()
    }

    pub(crate) fn flag_layers(&self) -> Vec<Node> {
        let layer = |(key, value): &(String, String)| {
            let path: Vec<_> = key.split('.').map(str::to_owned).collect();
            outside(
                &format!("flag `--{}`", key.replace(['.', '_'], "-")),
                &path,
                value,
            )
        };
        self.flags.iter().map(layer).collect()
    }
}

/// What problems call a variable.
pub(crate) fn env_source(name: &str) -> String {
    format!("environment variable `{name}`")
}

/// The variable of a setting that is named nearly so.
pub(crate) fn meant(name: &str) -> Option<String> {
    let keys = compile::plain_keys().into_iter();
    let known: Vec<_> = keys.map(|keys| keys.join("__").to_uppercase()).collect();
    let own = name.strip_prefix(PREFIX)?;
    let meant = suggest::nearest(own, known.iter().map(String::as_str))?;
    Some(format!("{PREFIX}{meant}"))
}

impl std::fmt::Debug for Sources {
    /// Leaves out every value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flags: Vec<_> = self.flags.iter().map(|(key, _)| key).collect();
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("flags", &flags)
            .finish_non_exhaustive()
    }
}

/// `WAYPOST_UPSTREAMS__MY_CI__TOOLS__DENY` is `upstreams`, `my-ci`, `tools`, `deny`.
fn env_path(name: &str) -> Vec<String> {
    let parts: Vec<_> = name
        .strip_prefix(PREFIX)
        .unwrap_or(name)
        .split("__")
        .collect();
    let mut path = Vec::new();
    for (depth, part) in parts.iter().enumerate() {
        let of_upstream = matches!(
            path.first().map(String::as_str),
            Some("upstreams" | "mcpServers")
        );
        let is_variable = of_upstream && path.get(2).is_some_and(|key| key == "env");
        path.push(match depth {
            0 if part.eq_ignore_ascii_case("mcpservers") => "mcpServers".to_owned(),
            // An upstream's name has no `_`, and a shell's variable no `-`.
            1 if of_upstream => part.to_ascii_lowercase().replace('_', "-"),
            3.. if is_variable => (*part).to_owned(),
            _ => part.to_ascii_lowercase(),
        });
    }
    path
}

/// Kubernetes gives every pod such variables for each service; one may well be named `waypost`.
fn is_kubernetes(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") {
        return true;
    }
    let Some((_, port)) = name
        .rsplit_once("_PORT_")
        .filter(|(_, port)| port.contains('_'))
    else {
        return name.ends_with("_PORT")
            || name
                .rsplit_once("_PORT_")
                .is_some_and(|(front, _)| is_kubernetes(front));
    };
    let mut parts = port.split('_');
    parts.next().is_some_and(digits)
        && parts
            .next()
            .is_some_and(|p| matches!(p, "TCP" | "UDP" | "SCTP"))
}

/// A value from outside the file, in the maps that lead to it.
fn outside(source: &str, path: &[String], value: &str) -> Node {
    let place = Place::of(source);
    let scalar = Scalar {
        text: value.to_owned(),
        style: Style::Outside,
        expanded: false,
        inserted: Vec::new(),
    };
    let leaf = Node::new(place.clone(), Kind::Scalar(scalar));
    path.iter().rev().fold(leaf, |value, key| {
        let entry = Entry {
            key: key.clone(),
            place: place.clone(),
            value,
        };
        Node::new(place.clone(), Kind::Map(vec![entry]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_settings() {
        for (name, path) in [
            ("WAYPOST_LISTEN", "listen"),
            ("WAYPOST_FRONT__STRICT_HEADERS", "front/strict_headers"),
            ("WAYPOST_UPSTREAMS__MY_CI__URL", "upstreams/my-ci/url"),
            (
                "WAYPOST_UPSTREAMS__FILES__ENV__API_KEY",
                "upstreams/files/env/API_KEY",
            ),
            (
                "WAYPOST_MCPSERVERS__FILES__COMMAND",
                "mcpServers/files/command",
            ),
        ] {
            assert_eq!(env_path(name).join("/"), path);
        }
    }

    #[test]
    fn variables_of_a_kubernetes_service_named_waypost_are_no_settings() {
        let names = "WAYPOST_SERVICE_HOST WAYPOST_SERVICE_PORT WAYPOST_SERVICE_PORT_HTTP WAYPOST_PORT \
            WAYPOST_PORT_7400_TCP WAYPOST_PORT_7400_TCP_ADDR WAYPOST_ADMIN_PORT_7401_TCP_PROTO WAYPOST_CONFIG";
        let env = names.split_whitespace().chain(["WAYPOST_LISTEN", "PATH"]);
        let env = env.map(|name| (name.to_owned(), String::new())).collect();
        let sources = Sources {
            env,
            ..Sources::default()
        };
        let settings: Vec<_> = sources
            .env_settings()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(settings, ["WAYPOST_LISTEN"]);
    }

    #[test]
    fn r36_debug_shows_no_value() {
        let mut sources = Sources::from_text("canary").with_flag("admin.token", "canary");
        sources.env.insert("X".to_owned(), "canary".to_owned());
        assert!(!format!("{sources:?}").contains("canary"));
    }
}
