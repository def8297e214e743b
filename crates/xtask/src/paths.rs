//! Where things are: the workspace and its target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

/// The workspace's root and its target directory, both absolute.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Paths {
    /// Asks cargo, so that `CARGO_TARGET_DIR` and cargo's own configuration are obeyed.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("the workspace's root is not above `crates/xtask`")?
            .to_owned();
        let output = cargo()
            .args(["metadata", "--no-deps", "--format-version=1"])
            .current_dir(&root)
            .output()
            .context("cannot run `cargo metadata`")?;
        anyhow::ensure!(output.status.success(), "`cargo metadata` failed");
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let target = metadata
            .get("target_directory")
            .and_then(serde_json::Value::as_str)
            .context("`cargo metadata` names no target directory")?;
        Ok(Self {
            root,
            target: target.into(),
        })
    }

    /// The checked-in scripts and manifests of the peers.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.root.join("tests/interop")
    }

    /// Where the peers are installed; the value of `WAYPOST_INTEROP`.
    pub(crate) fn interop(&self) -> PathBuf {
        self.target.join("interop")
    }
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
