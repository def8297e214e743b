//! What is run, where, and in which environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use waypost_config::Secret;

use super::redact::Redactor;

/// What a child gets of Waypost's environment without being named.
const PASSED_ON: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "SHELL",
    "TERM",
    // Proxies, in both spellings.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    // Private certificate authorities.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Where programs are looked for when there is no PATH at all.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Characters shown of a command or path.
const LONGEST: usize = 1024;

/// Words in the names of variables whose values are likely secret.
const SECRET_WORDS: &[&str] = &[
    "TOKEN",
    "KEY",
    "SECRET",
    "PASS",
    "CREDENTIAL",
    "AUTH",
    "PROXY",
];

/// What the configuration says about the child.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, Secret)>,
    pub(crate) inherit_env: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// What came into these settings from outside the file.
    pub(crate) secrets: Vec<Secret>,
}

/// Why a child could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnFault {
    /// The path is for the operator.
    #[error("command `{command}` was not found in the child's PATH")]
    NotInPath { command: String, path: String },
    #[error("command `{command}` does not exist")]
    NotFound { command: String },
    #[error("command `{command}` is not executable")]
    NotExecutable { command: String },
    #[error("command `{command}` cannot be run: its interpreter does not exist")]
    NoInterpreter { command: String },
    #[error("command `{command}` cannot be run: it is neither a program nor a script with `#!`")]
    NotAProgram { command: String },
    #[error("the working directory `{cwd}` does not exist")]
    NoDirectory { cwd: String },
    #[error("command `{command}` cannot be run: {kind}")]
    Other {
        command: String,
        kind: io::ErrorKind,
    },
}

impl Program {
    /// The child's whole environment: the passed-on variables of `ours`, then the named ones, then
    /// those of the file.
    pub(crate) fn environment(
        &self,
        ours: &BTreeMap<OsString, OsString>,
    ) -> BTreeMap<OsString, OsString> {
        let all = self.inherit_env.iter().any(|name| name == "*");
        let passed = |name: &OsStr| {
            let name = name.as_bytes();
            all || name.starts_with(b"LC_")
                || PASSED_ON.iter().any(|n| n.as_bytes() == name)
                || self.inherit_env.iter().any(|n| n.as_bytes() == name)
        };
        let mut env: BTreeMap<OsString, OsString> = ours
            .iter()
            .filter(|(name, _)| passed(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (name, value) in &self.env {
            env.insert(name.into(), value.expose().into());
        }
        env
    }

    /// Hides what the child was given and must not be shown when it says it aloud.
    pub(crate) fn redactor(&self, env: &BTreeMap<OsString, OsString>) -> Redactor {
        let set = self.env.iter().map(|(_, value)| value);
        let set = set.chain(&self.secrets).map(Secret::expose);
        let secret = |name: &str| {
            let upper = name.to_ascii_uppercase();
            SECRET_WORDS.iter().any(|word| upper.contains(word))
                || self.inherit_env.iter().any(|named| named == name)
        };
        let inherited = env.iter().filter_map(|(name, value)| {
            let named = name.to_str().is_some_and(secret);
            value.to_str().filter(|_| named)
        });
        Redactor::new(set.chain(inherited))
    }

    /// The command, ready to start: its own process group, piped streams, nothing inherited.
    pub(crate) fn command(
        &self,
        env: &BTreeMap<OsString, OsString>,
    ) -> Result<(Command, PathBuf), SpawnFault> {
        if let Some(cwd) = &self.cwd
            && !cwd.is_dir()
        {
            let cwd = cwd.display().to_string();
            return Err(SpawnFault::NoDirectory { cwd });
        }
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
        let program = self.resolve(path)?;
        let mut command = Command::new(&program);
        command
            .args(&self.args)
            .env_clear()
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        Ok((command, program))
    }

    fn resolve(&self, path: &OsStr) -> Result<PathBuf, SpawnFault> {
        let command = self.command.clone();
        let base = self.cwd.as_deref().unwrap_or(Path::new(""));
        if command.contains('/') {
            let program = base.join(&command);
            let command = program.display().to_string();
            return match look(&program) {
                Found::Yes => Ok(program),
                Found::NotExecutable => Err(SpawnFault::NotExecutable { command }),
                Found::No => Err(SpawnFault::NotFound { command }),
            };
        }
        let mut unusable = None;
        for folder in std::env::split_paths(path) {
            let program = base.join(folder).join(&command);
            match look(&program) {
                Found::Yes => return Ok(program),
                Found::NotExecutable => unusable = unusable.or(Some(program)),
                Found::No => {}
            }
        }
        Err(match unusable {
            Some(program) => SpawnFault::NotExecutable {
                command: program.display().to_string(),
            },
            None => SpawnFault::NotInPath {
                command,
                path: path.to_string_lossy().into_owned(),
            },
        })
    }
}

impl SpawnFault {
    /// What the operator may know beside the text.
    pub(crate) fn aside(&self) -> Option<String> {
        match self {
            Self::NotInPath { path, .. } => Some(format!("PATH is `{path}`")),
            Self::NotFound { .. }
            | Self::NotExecutable { .. }
            | Self::NoInterpreter { .. }
            | Self::NotAProgram { .. }
            | Self::NoDirectory { .. }
            | Self::Other { .. } => None,
        }
    }

    /// The same without secrets: commands and paths are put together from outside values too.
    pub(crate) fn clean(mut self, redactor: &Redactor) -> Self {
        let texts = match &mut self {
            Self::NotInPath { command, path } => [Some(command), Some(path)],
            Self::NoDirectory { cwd: text }
            | Self::NotFound { command: text }
            | Self::NotExecutable { command: text }
            | Self::NoInterpreter { command: text }
            | Self::NotAProgram { command: text }
            | Self::Other { command: text, .. } => [Some(text), None],
        };
        for text in texts.into_iter().flatten() {
            *text = redactor.clean(text.as_bytes(), LONGEST);
        }
        self
    }

    /// What the system's refusal to start `program` means.
    pub(crate) fn of(error: &io::Error, program: &Path) -> Self {
        const ENOEXEC: i32 = 8;
        let command = program.display().to_string();
        match error.kind() {
            // The file itself was there a moment ago.
            io::ErrorKind::NotFound => Self::NoInterpreter { command },
            io::ErrorKind::PermissionDenied => Self::NotExecutable { command },
            _ if error.raw_os_error() == Some(ENOEXEC) => Self::NotAProgram { command },
            kind => Self::Other { command, kind },
        }
    }
}

enum Found {
    Yes,
    NotExecutable,
    No,
}

fn look(program: &Path) -> Found {
    match std::fs::metadata(program) {
        Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => Found::Yes,
        Ok(_) => Found::NotExecutable,
        Err(_) => Found::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &str) -> Program {
        Program {
            command: command.to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            cwd: None,
            secrets: Vec::new(),
        }
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(n, v)| (n.into(), v.into())).collect()
    }

    #[test]
    fn r40_a_child_gets_little_of_our_environment_unless_told() {
        let ours = env(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("GW_TOKEN", "canary"),
            ("AWS_SECRET", "canary"),
            ("https_proxy", "http://proxy"),
        ]);
        let mut program = program("x");
        program.env = vec![("K".to_owned(), Secret::new("v"))];
        let names = |program: &Program| {
            let env = program.environment(&ours);
            let names: Vec<_> = env.keys().map(|n| n.to_str().unwrap().to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names(&program), "K LC_ALL PATH https_proxy");
        program.inherit_env = vec!["GW_TOKEN".to_owned()];
        assert_eq!(names(&program), "GW_TOKEN K LC_ALL PATH https_proxy");
        program.inherit_env = vec!["*".to_owned()];
        assert_eq!(
            names(&program),
            "AWS_SECRET GW_TOKEN K LC_ALL PATH https_proxy"
        );
        let env = program.environment(&ours);
        let clean = program.redactor(&env).clean(b"canary in /bin", 99);
        assert_eq!(clean, "*** in /bin");
    }

    #[test]
    fn r40_the_command_is_looked_up_in_the_childs_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = folder.path().to_str().unwrap().to_owned();
        for (name, mode) in [("run", 0o755), ("plain", 0o644)] {
            std::fs::write(at(name), "").unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let resolve = |name: &str| program(name).resolve(OsStr::new(&path));
        assert_eq!(resolve("run"), Ok(at("run")));
        let command = at("plain").display().to_string();
        assert_eq!(resolve("plain"), Err(SpawnFault::NotExecutable { command }));
        let fault = resolve("no-such").unwrap_err();
        let text = "command `no-such` was not found in the child's PATH";
        assert_eq!(fault.to_string(), text);
        assert_eq!(fault.aside(), Some(format!("PATH is `{path}`")));
        let text = resolve("/no/such").unwrap_err().to_string();
        assert_eq!(text, "command `/no/such` does not exist");
        let mut near = program("./run");
        near.cwd = Some(folder.path().to_owned());
        assert_eq!(near.resolve(OsStr::new("")), Ok(at("./run")));
    }
}
