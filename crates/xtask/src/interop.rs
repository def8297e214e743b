//! Installs the peers of the interop tests under `target/interop`, and nowhere else.
//!
//! ```text
//! target/interop/bin/node      a Node that is new enough: the system's or the npm package's
//! target/interop/npm/          node_modules, from the checked-in lock file
//! target/interop/cache/        what npm and pip keep of their downloads, and npm's logs
//! target/interop/venv/         a Python environment, from the checked-in pins
//! target/interop/venv-v1/      another, for the packages of the session era
//! target/interop/stamp         what all of this was made from
//! ```

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use anyhow::Context as _;

use crate::paths::Paths;
use crate::run::{run, say};
use crate::tools::{CACHE, Tools, contained};

/// The npm package that brings a Node where the system's is too old.
const NODE_PACKAGE: &str = "node@22.23.3";
/// What npm reads; copied beside `node_modules` because npm installs where the manifest is.
const NPM_FILES: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// The Python environments, each with the pins it is made from.
const PYTHON: [(&str, &str); 2] = [
    ("venv", "requirements.txt"),
    ("venv-v1", "requirements-v1.txt"),
];

/// Installs what is missing. A second run with unchanged manifests and tools only compares the stamp.
pub(crate) fn install(paths: &Paths) -> anyhow::Result<()> {
    let home = paths.interop();
    let tools = Tools::find(&home)?;
    let stamp = home.join("stamp");
    let wanted = stamp_text(&paths.manifests(), &home, &tools)?;
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    say(&format!("installing the peers into {}", home.display()));
    clear(&home)?;
    fs::create_dir_all(home.join("bin"))?;
    node(&home, &tools)?;
    npm_packages(&paths.manifests(), &home)?;
    for (venv, pins) in PYTHON {
        python_packages(
            &paths.manifests().join(pins),
            &home.join(venv),
            &home,
            &tools,
        )?;
    }
    // Last, so that an installation cut short is begun again.
    fs::write(&stamp, wanted).context("cannot write the stamp")
}

/// All that an installation depends on, as text: no digest can collide, and a diff says what moved.
fn stamp_text(manifests: &Path, home: &Path, tools: &Tools) -> anyhow::Result<String> {
    // Virtual environments hold absolute paths, so a moved checkout installs again.
    let mut text = format!("{}\n{}{NODE_PACKAGE}\n", home.display(), tools.fingerprint);
    let pins = PYTHON.iter().map(|(_, pins)| *pins);
    for name in NPM_FILES.into_iter().chain(pins) {
        let path = manifests.join(name);
        let content =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.push_str(&format!("--- {name}\n{content}"));
    }
    Ok(text)
}

/// Puts a Node of the right age at `bin/node`.
fn node(home: &Path, tools: &Tools) -> anyhow::Result<()> {
    let node = match &tools.node {
        Some(system) => system.clone(),
        None => fetch_node(home)?,
    };
    std::os::unix::fs::symlink(&node, home.join("bin/node"))
        .with_context(|| format!("cannot link {}", node.display()))
}

fn fetch_node(home: &Path) -> anyhow::Result<std::path::PathBuf> {
    let prefix = home.join("node22");
    fs::create_dir_all(&prefix)?;
    run(
        "npm: Node 22",
        contained(&mut Command::new("npm"), home)
            .args([
                "install",
                "--no-save",
                "--no-package-lock",
                "--no-audit",
                "--no-fund",
            ])
            .arg("--prefix")
            .arg(&prefix)
            .arg(NODE_PACKAGE)
            .current_dir(&prefix),
    )?;
    let package = prefix.join("node_modules/node");
    let node = package.join("bin/node");
    if !node.exists() {
        // The package fetches its binary in an install script, which some npm settings hold back.
        run(
            "npm: the binary of Node 22",
            // It starts npm itself.
            contained(&mut Command::new("node"), home)
                .arg("installArchSpecificPackage.js")
                .current_dir(&package),
        )?;
    }
    anyhow::ensure!(
        node.exists(),
        "the npm package `{NODE_PACKAGE}` brought no binary"
    );
    Ok(node)
}

fn npm_packages(manifests: &Path, home: &Path) -> anyhow::Result<()> {
    let folder = home.join("npm");
    fs::create_dir_all(&folder)?;
    for name in NPM_FILES {
        fs::copy(manifests.join(name), folder.join(name))
            .with_context(|| format!("cannot copy `{name}`"))?;
    }
    run(
        "npm: packages",
        // The peers need no install scripts, and engine warnings name the system's Node, not ours.
        contained(&mut Command::new("npm"), home)
            .args([
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
            ])
            .current_dir(&folder),
    )
}

fn python_packages(pins: &Path, venv: &Path, home: &Path, tools: &Tools) -> anyhow::Result<()> {
    run(
        "python: environment",
        contained(&mut Command::new(&tools.python), home)
            .args(["-m", "venv"])
            .arg(venv),
    )?;
    run(
        "python: packages",
        contained(&mut Command::new(venv.join("bin/python")), home)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .arg("--requirement")
            .arg(pins),
    )
}

/// Removes an installation but not its cache, which saves the next one most downloads.
fn clear(home: &Path) -> anyhow::Result<()> {
    let entries = match fs::read_dir(home) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.with_context(|| format!("cannot read {}", home.display()))?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == CACHE {
            continue;
        }
        let path = entry.path();
        let removed = if entry.file_type()?.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}
