//! The programs that must be on the machine, and how new they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::ask;

/// The suite needs Node 22, and our own resolver hook needs this minor of it.
const NODE: (u32, u32) = (22, 15);
/// What the pinned Python packages need.
const PYTHON: (u32, u32) = (3, 10);
/// The folder of what npm and pip keep, below that of the peers.
pub(crate) const CACHE: &str = "cache";

/// What was found on the machine.
#[derive(Debug)]
pub(crate) struct Tools {
    /// The system's Node when it is new enough to run the peers.
    pub(crate) node: Option<PathBuf>,
    /// A Python that can make virtual environments.
    pub(crate) python: String,
    /// Everything that, when it changes, makes an old installation unusable.
    pub(crate) fingerprint: String,
}

impl Tools {
    /// Looks for Node, npm and Python, and says all that is missing at once. `home` is the peers' folder.
    pub(crate) fn find(home: &Path) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let node =
            ask(Command::new("node").args(["-p", "process.version + ' ' + process.execPath"]));
        if node.is_none() {
            missing.push("`node` (any version; 22 is fetched by npm where it is older)".to_owned());
        }
        if ask(contained(&mut Command::new("npm"), home).arg("--version")).is_none() {
            missing.push("`npm`".to_owned());
        }
        let python = find_python();
        if python.is_none() {
            missing.push(format!(
                "`python3` {}.{} or newer with the modules `venv` and `ensurepip`",
                PYTHON.0, PYTHON.1
            ));
        }
        let (Some(node), Some((python, python_version)), []) = (node, python, missing.as_slice())
        else {
            anyhow::bail!(
                "the interop tests need what is not here: {}\n\nhint: install it and run \
                 `cargo xtask test` again; nothing is skipped without it",
                missing.join(", ")
            );
        };
        Ok(Self {
            node: new_enough(&node),
            python,
            fingerprint: format!("node {node}\npython {python_version}\n"),
        })
    }
}

/// Keeps the caches of npm and pip, and npm's logs beside its cache, below `home`.
///
/// For programs that start one of them too: the settings are inherited.
pub(crate) fn contained<'a>(command: &'a mut Command, home: &Path) -> &'a mut Command {
    let cache = home.join(CACHE);
    command
        .env("npm_config_cache", cache.join("npm"))
        .env("npm_config_update_notifier", "false")
        .env("PIP_CACHE_DIR", cache.join("pip"))
}

/// The first Python that is new enough, with its version.
fn find_python() -> Option<(String, String)> {
    [
        "python3",
        "python3.14",
        "python3.13",
        "python3.12",
        "python3.11",
        "python3.10",
    ]
    .into_iter()
    .find_map(|name| {
        let script = "import venv, ensurepip, sys; print(sys.version, sys.executable)";
        let version = ask(Command::new(name).args(["-c", script]))?;
        (major_minor(&version)? >= PYTHON).then(|| (name.to_owned(), version))
    })
}

/// The path in `v22.1.0 /usr/bin/node` when that version runs the peers.
fn new_enough(node: &str) -> Option<PathBuf> {
    let (version, path) = node.strip_prefix('v')?.split_once(' ')?;
    (major_minor(version)? >= NODE).then(|| path.into())
}

/// The first two numbers of a version.
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_node_is_not_used() {
        assert_eq!(new_enough("v20.20.2 /usr/bin/node"), None);
        assert_eq!(new_enough("v22.14.0 /usr/bin/node"), None);
        assert_eq!(
            new_enough("v22.15.0 /usr/bin/node"),
            Some("/usr/bin/node".into())
        );
        assert_eq!(new_enough("v24.0.0 /my node"), Some("/my node".into()));
    }

    #[test]
    fn versions_are_read_by_their_first_two_numbers() {
        assert_eq!(major_minor("3.11.7 (main, Jun) [GCC]"), Some((3, 11)));
        assert_eq!(major_minor("nonsense"), None);
    }
}
