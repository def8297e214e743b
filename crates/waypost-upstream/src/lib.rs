//! Reaches servers: Streamable HTTP and stdio.
//!
//! [`connect`] turns the settings of one upstream into a [`waypost_hub::upstream::Upstream`].
//! Nothing is opened before the hub asks: an HTTP connection comes with the first request, a child
//! process with the first `server/discover`.

pub mod core_local;
pub mod fault;
pub mod guard;
pub mod parts;

mod ear;
mod event;
mod flight;
mod http;
mod legacy;
mod outcome;
mod probe;
mod server;
mod stdio;

use std::sync::Arc;

use waypost_config::config::{Reach, Upstream as Settings};
use waypost_hub::upstream::Upstream;

pub use crate::fault::Fault;
pub use crate::parts::Parts;
use crate::server::{Server, Transport};
use crate::stdio::{Launcher, ModernStdio};

/// Makes the connection to one configured upstream.
///
/// # Errors
/// [`Fault`] when the settings cannot work on this machine: no trusted certificates for `https`,
/// or a header that cannot be sent.
pub fn connect(settings: &Settings, parts: &Parts) -> Result<Arc<dyn Upstream>, Fault> {
    let name: Arc<str> = settings.name.as_str().into();
    let transport = match &settings.reach {
        Reach::Http { url, headers } => {
            let http = http::Settings {
                name: Arc::clone(&name),
                uri: url.uri().clone(),
                headers: headers
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
                connect_timeout: settings.connect_timeout,
                connections: settings.max_in_flight,
            };
            Transport::Http(http::HttpUpstream::new(http, parts)?)
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
                args: args.clone(),
                env: env.clone(),
                inherit_env: inherit_env.clone(),
                cwd: cwd.clone(),
                secrets: settings.secrets.clone(),
            };
            let launcher = Launcher::new(&name, program, parts);
            Transport::Stdio(ModernStdio::new(&name, &launcher, &parts.tasks))
        }
    };
    Ok(Arc::new(Server {
        name,
        startup_timeout: settings.startup_timeout,
        transport,
    }))
}
