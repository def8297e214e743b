//! One server, whatever it speaks and however it is reached.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use waypost_hub::call::{Call, Principal, Session};
use waypost_hub::error::CallError;
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};

use crate::fault::Fault;
use crate::flight::Want;
use crate::http::HttpUpstream;
use crate::probe::{self, Answered, Discovery};
use crate::stdio::{ModernStdio, Speaker};

/// One server.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) startup_timeout: Duration,
    pub(crate) transport: Transport,
}

/// How it is reached.
#[derive(Debug)]
pub(crate) enum Transport {
    Http(HttpUpstream),
    Stdio(ModernStdio),
}

impl Server {
    async fn ask(&self, stdio: &ModernStdio) -> Result<Discovery, CallError> {
        let fail = |fault: Fault| fault.into_call(&self.name);
        let speaker = stdio.speaker(Want::Look).await.map_err(fail)?;
        let patience = self.startup_timeout / 2;
        let discovery = timeout(patience, discover(&self.name, &speaker)).await;
        discovery.unwrap_or_else(|_| Err(fail(Fault::Silent(patience))))
    }
}

async fn discover(name: &Arc<str>, speaker: &Speaker) -> Result<Discovery, CallError> {
    let send = |call| async {
        let reply = speaker.call(call).await?;
        Ok(Answered {
            status: None,
            reply,
        })
    };
    probe::discover(name, send).await
}

impl Upstream for Server {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(async move {
            let discovery = match &self.transport {
                Transport::Http(http) => http.probe().await?,
                Transport::Stdio(stdio) => self.ask(stdio).await?,
            };
            discovery.modern(&self.name)
        })
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        Box::pin(async move {
            let reply = match &self.transport {
                Transport::Http(http) => http.call(call).await,
                Transport::Stdio(stdio) => stdio.call(call).await,
            };
            reply.map_err(|fault| fault.into_call(&self.name))
        })
    }

    fn instance(&self, _: &Principal, _: Option<&Session>) -> Option<Arc<str>> {
        match &self.transport {
            Transport::Http(_) => None,
            Transport::Stdio(stdio) => {
                let speaker = stdio.current()?;
                Some(Arc::clone(speaker.child.instance()))
            }
        }
    }

    fn lost(&self) -> BoxFuture<'_, ()> {
        let speaker = match &self.transport {
            Transport::Http(_) => None,
            Transport::Stdio(stdio) => stdio.last(),
        };
        Box::pin(async move {
            match speaker {
                Some(speaker) => speaker.child.lost().await,
                None => std::future::pending().await,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        match &self.transport {
            Transport::Http(_) => Box::pin(async {}),
            Transport::Stdio(stdio) => Box::pin(stdio.close()),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
