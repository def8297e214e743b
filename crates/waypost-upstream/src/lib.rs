//! Reaches servers: Streamable HTTP, HTTP+SSE and stdio.
//!
//! [`connect`] turns the settings of one upstream into a [`waypost_hub::upstream::Upstream`].
//! Nothing is opened before the hub asks: an HTTP connection comes with the first request, a child
//! process or a session with the first `server/discover` or call.

pub mod core_local;
pub mod fault;
pub mod guard;
pub mod parts;

mod backoff;
mod door;
mod ear;
mod event;
mod flight;
mod http;
mod legacy;
mod outcome;
mod outlet;
mod probe;
mod server;
mod stdio;

use std::sync::Arc;

use waypost_config::config::{Isolation, Reach, Upstream as Settings, UpstreamEra};
use waypost_hub::upstream::Upstream;

pub use crate::fault::Fault;
pub use crate::legacy::Places;
use crate::legacy::http::{HttpDial, Transport as Carried};
use crate::legacy::link::Dial;
use crate::legacy::{Legacy, PipeDial};
pub use crate::parts::Parts;
use crate::server::{Server, Transport};
use crate::stdio::{Apart, Launcher, Processes};

/// Makes the connection to one configured upstream.
///
/// # Errors
/// [`Fault`] when the settings cannot work on this machine: no trusted certificates for `https`,
/// or a header that cannot be sent.
pub fn connect(settings: &Settings, parts: &Parts) -> Result<Arc<dyn Upstream>, Fault> {
    let name: Arc<str> = settings.name.as_str().into();
    let (transport, dial): (_, Arc<dyn Dial>) = match &settings.reach {
        Reach::Http {
            url,
            headers,
            message_url,
        } => {
            let http = http::Settings {
                name: Arc::clone(&name),
                uri: url.uri().clone(),
                headers: headers
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
                connect_timeout: settings.connect_timeout,
                connections: settings.max_in_flight,
                messages: message_url.as_ref().map(|url| url.uri().clone()),
            };
            let carried = match settings.era {
                UpstreamEra::Sse => Carried::Sse,
                UpstreamEra::Auto | UpstreamEra::Modern | UpstreamEra::Legacy => Carried::Either,
            };
            let dial = HttpDial::new(&http, carried, settings.startup_timeout, parts)?;
            let http = http::HttpUpstream::new(http, parts)?;
            (Transport::Http(Arc::new(http)), Arc::new(dial))
        }
        Reach::Stdio {
            command,
            args,
            env,
            inherit_env,
            cwd,
        } => {
            let program = stdio::Program {
                command: command.clone(),
                args: args.iter().map(|arg| arg.expose().to_owned()).collect(),
                env: env.clone(),
                inherit_env: inherit_env.clone(),
                cwd: cwd.clone(),
                secrets: settings.secrets.clone(),
            };
            let launcher = Launcher::new(&name, program, parts);
            let apart = Apart {
                isolation: settings.isolation.unwrap_or(Isolation::Shared),
                idle_timeout: settings.idle_timeout,
                most: settings.max_sessions,
            };
            let stdio = Processes::new(&name, &launcher, &parts.tasks, apart);
            (Transport::Stdio(stdio), Arc::new(PipeDial(launcher)))
        }
    };
    let sessions = legacy::Settings {
        upstream: Arc::clone(&name),
        isolation: settings.isolation.unwrap_or(Isolation::Session),
        declare: settings.declare.clone(),
        idle_timeout: settings.idle_timeout,
        max_sessions: settings.max_sessions,
        startup_timeout: settings.startup_timeout,
        patience: parts.answer_within,
        places: parts.places.clone(),
    };
    let legacy = Legacy::new(sessions, dial, &parts.tasks, Arc::clone(&parts.parked));
    let startup = settings.startup_timeout;
    Ok(Arc::new(Server::new(
        name,
        settings.era,
        startup,
        transport,
        legacy,
    )))
}
