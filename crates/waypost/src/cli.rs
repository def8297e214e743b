//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use waypost_config::{Config, Loaded, Log, Problem, Severity, Sources, json_schema, load};
use waypost_testkit::cli::DemoServer;

use crate::exit::Fatal;
use crate::output::print;
use crate::stdio::connect::Connect;
use crate::{check, demo, keys, serve, stdio, tools};

/// One MCP endpoint in front of many MCP servers.
#[derive(Debug, Parser)]
#[command(name = "waypost", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    Serve(Serve),
    Stdio(Stdio),
    /// Check the configuration, connect to the upstreams and show what clients would see
    Check(Check),
    /// Print the JSON Schema of the configuration file
    Schema,
    /// Manage who may call
    Auth {
        #[command(subcommand)]
        command: Auth,
    },
    /// Look at pinned tools that are new or changed, and trust them
    Tools {
        #[command(subcommand)]
        command: Tools,
    },
    /// Run Waypost with demo servers behind it
    Demo(Demo),
    /// Run one of the demo servers alone
    DemoServer(DemoServer),
    /// End the children of a Waypost that died; started by Waypost itself
    #[command(hide = true)]
    Guard,
}

#[derive(Args, Debug)]
pub(crate) struct ConfigFile {
    /// The configuration; `./waypost.yaml` or `~/.config/waypost/waypost.yaml` if not given
    #[arg(long, short, value_name = "FILE", env = "WAYPOST_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    #[command(flatten)]
    file: ConfigFile,
    /// Address of the MCP endpoint
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Address of health, metrics and the admin API
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Args, Debug)]
struct LogFlags {
    /// What is logged: `warn`, `info`, `debug`, or directives such as `info,waypost_hub=debug`
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Form of a log line
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
}

/// Serve one client on standard input and output, for hosts that only launch commands
///
/// Without `--connect` the gateway runs in this process: the same as `waypost serve`, with no
/// listener but what `--admin` asks for. With it, messages are carried to a daemon that runs
/// already. Clients of either era are served; logs go to standard error. It ends when its input
/// does.
#[derive(Args, Debug)]
pub(crate) struct Stdio {
    #[command(flatten)]
    file: ConfigFile,
    /// Serve health, metrics and the admin API on this address
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Be a bridge to the Waypost that runs at this MCP endpoint; no configuration is read
    #[arg(long, value_name = "URL", conflicts_with = "admin")]
    connect: Option<String>,
    /// A header for every request to it; may be given again
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "connect")]
    headers: Vec<String>,
    /// The key that it knows the client by; better given in the environment, where not everybody
    /// on this machine reads it
    #[arg(long, value_name = "KEY", env = "WAYPOST_KEY", hide_env_values = true)]
    key: Option<String>,
    #[command(flatten)]
    log: LogFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    file: ConfigFile,
    /// Look at the file only, connect to nothing
    #[arg(long)]
    offline: bool,
}

#[derive(Debug, Subcommand)]
enum Auth {
    /// Make a bearer key; it is printed once, the configuration holds only its hash
    AddKey {
        /// Whom the key stands for
        name: String,
    },
}

#[derive(Debug, Subcommand)]
enum Tools {
    /// Show what of them became another, line by line
    Pending {
        #[command(flatten)]
        daemon: OfDaemon,
    },
    /// Trust them as they are now
    Approve {
        /// The upstream or tool, by its original name; all if not given
        #[arg(value_name = "UPSTREAM[/TOOL]")]
        target: Option<String>,
        /// Only as long as it still is what has this digest, or one that begins so
        #[arg(long, value_name = "HEX", requires = "target")]
        digest: Option<String>,
        #[command(flatten)]
        daemon: OfDaemon,
    },
}

/// Where the Waypost is that runs.
#[derive(Args, Debug)]
struct OfDaemon {
    #[command(flatten)]
    file: ConfigFile,
    /// Address of its admin API, if it is not the configuration's
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Demo {
    /// Address of the MCP endpoint, 127.0.0.1:7400 if not given; port 0 takes any free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Play a tour of requests and answers against it, then end
    #[arg(long)]
    pub(crate) walkthrough: bool,
}

impl Cli {
    /// What the process was started with; ends it where that is nothing to go by.
    #[must_use]
    pub fn read() -> Self {
        Self::try_parse().unwrap_or_else(|error| with_tip(error).exit())
    }

    /// Does what the command line asks for.
    ///
    /// # Errors
    /// [`Fatal`], from which the exit code follows.
    pub fn run(self) -> Result<(), Fatal> {
        match self.command {
            Command::Serve(serve) => {
                let sources = serve.sources();
                serve::run(load_some(&sources)?, sources)
            }
            Command::Stdio(stdio) => stdio.run(),
            Command::Check(check) => {
                let sources = Sources::from_process(check.file.config);
                let loaded = load_some(&sources)?;
                if let Some(file) = &sources.file {
                    print(&format!("checking `{}`", file.display()));
                }
                check::run(loaded, check.offline)
            }
            Command::Schema => {
                print(&format!("{:#}", json_schema()));
                Ok(())
            }
            Command::Auth {
                command: Auth::AddKey { name },
            } => keys::add(&name),
            Command::Tools { command } => command.run(),
            Command::Demo(demo) => demo::run(demo),
            Command::DemoServer(server) => demo::server(server),
            Command::Guard => {
                let guarded = waypost_upstream::guard::run(std::io::stdin().lock());
                Ok(guarded.context("the guard lost its input")?)
            }
        }
    }
}

/// Tells whoever names the configuration bare how it is named.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let is_file = |text: &str| {
        let extension = std::path::Path::new(text).extension();
        extension.is_some_and(|end| end == "yaml" || end == "yml" || end == "json")
    };
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(file))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && is_file(file)
    {
        let tip = format!("write `--config {file}`").into();
        let tips = ContextValue::StyledStrs(vec![tip]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The configuration. One of which nothing was found is a mistake, not a gateway to nowhere.
fn load_some(sources: &Sources) -> Result<Loaded, Fatal> {
    let loaded = load(sources).map_err(Fatal::Config)?;
    if sources.file.is_some() || !loaded.config.upstreams.is_empty() {
        return Ok(loaded);
    }
    Err(Fatal::Config(vec![Problem {
        severity: Severity::Error,
        at: String::new(),
        file: None,
        line: None,
        column: None,
        what: "no configuration file was found, and nothing else names an upstream".to_owned(),
        hint: Some(
            "write `./waypost.yaml` or `~/.config/waypost/waypost.yaml`, or name a file with \
             `--config`"
                .to_owned(),
        ),
    }]))
}

impl Serve {
    fn sources(self) -> Sources {
        let flags = [("listen", self.listen), ("admin", self.admin)];
        with_flags(self.file, flags, self.log)
    }
}

impl Stdio {
    fn run(self) -> Result<(), Fatal> {
        if let Some(url) = self.connect {
            return stdio::connect::run(&Connect {
                url,
                headers: self.headers,
                key: self.key,
                log: self.log.alone()?,
            });
        }
        let with_admin = self.admin.is_some();
        let sources = with_flags(self.file, [("admin", self.admin)], self.log);
        stdio::run(load_some(&sources)?, sources, with_admin)
    }
}

impl Tools {
    fn run(self) -> Result<(), Fatal> {
        match self {
            Self::Pending { daemon } => tools::pending(&daemon.config()?),
            Self::Approve {
                target,
                digest,
                daemon,
            } => tools::approve(&daemon.config()?, target.as_deref(), digest.as_deref()),
        }
    }
}

impl OfDaemon {
    fn config(self) -> Result<Config, Fatal> {
        let sources = Sources::from_process(self.file.config);
        let loaded = load(&with(sources, [("admin", self.admin)]));
        Ok(loaded.map_err(Fatal::Config)?.config)
    }
}

impl LogFlags {
    /// What they say where there is no configuration.
    fn alone(self) -> Result<Log, Fatal> {
        let sources = Sources::from_text(String::new());
        let sources = self.on(sources);
        Ok(load(&sources).map_err(Fatal::Config)?.config.log)
    }

    fn on(self, sources: Sources) -> Sources {
        let format = self.log_format.map(|format| {
            match format {
                Format::Text => "text",
                Format::Json => "json",
            }
            .to_owned()
        });
        let flags = [("log.level", self.log_level), ("log.format", format)];
        with(sources, flags)
    }
}

fn with<const N: usize>(sources: Sources, flags: [(&'static str, Option<String>); N]) -> Sources {
    let given = flags.into_iter();
    let given = given.filter_map(|(key, value)| Some((key, value?)));
    given.fold(sources, |sources, (key, value)| {
        sources.with_flag(key, value)
    })
}

/// Where the configuration comes from; flags win.
fn with_flags<const N: usize>(
    file: ConfigFile,
    flags: [(&'static str, Option<String>); N],
    log: LogFlags,
) -> Sources {
    log.on(with(Sources::from_process(file.config), flags))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_file_that_is_named_bare_is_told_its_flag() {
        let said = |words: &str| {
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            with_tip(error).to_string()
        };
        let tip = "write `--config my/waypost.yaml`";
        assert!(said("waypost check my/waypost.yaml").contains(tip));
        assert!(said("waypost serve my/waypost.yaml").contains(tip));
        assert!(!said("waypost check other").contains("--config other"));
    }

    #[test]
    fn flags_win_over_the_file() {
        let arguments = "waypost serve --listen 127.0.0.1:1 --admin 127.0.0.1:2 --log-format json \
             --log-level warn";
        let cli = Cli::try_parse_from(arguments.split_whitespace()).unwrap();
        let Command::Serve(serve) = cli.command else {
            panic!("serve")
        };
        let mut sources = serve.sources();
        sources.env.clear();
        sources.file = None;
        sources.text = Some("{ listen: 127.0.0.1:9, admin: 127.0.0.1:9 }".to_owned());
        let config = load(&sources).unwrap().config;
        assert_eq!(config.listen.port(), 1);
        assert_eq!(config.admin.port(), 2);
        assert_eq!(config.log.level, "warn");
        assert_eq!(config.log.format, waypost_config::LogFormat::Json);
    }
}
