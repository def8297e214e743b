//! A connection that carries one session: a pipe, or the stream of HTTP+SSE.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::answer::{Exchange, initialize, notified};
use super::log::Log;
use super::message::Incoming;
use super::options::{Options, Sdk};
use super::session::Session;
use super::sessions::Sessions;
use crate::kit::fail::Fail;
use crate::kit::request::Request;
use crate::kit::server::Server;
use crate::kit::spawn::spawn;

/// The connection and, after `initialize`, its session.
pub(super) struct Connection {
    server: Arc<dyn Server>,
    options: Arc<Options>,
    sessions: Sessions,
    /// Everything that goes to the client.
    pub(super) out: Log,
    session: Mutex<Option<Arc<Session>>>,
    /// The client is gone.
    over: CancellationToken,
}

impl Connection {
    pub(super) fn new(server: Arc<dyn Server>, options: Arc<Options>, sessions: Sessions) -> Self {
        Self {
            server,
            options,
            sessions,
            out: Log::default(),
            session: Mutex::default(),
            over: CancellationToken::new(),
        }
    }

    fn session(&self) -> Option<Arc<Session>> {
        let session = self.session.lock();
        session.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes one message; answers come on the stream, in any order.
    pub(super) fn receive(&self, message: Incoming) {
        match message {
            Incoming::Request(request) if request.method == "initialize" => self.open(&request),
            Incoming::Request(request) => self.request(request),
            Incoming::Notification { method, params } => self.notification(method, params),
            Incoming::Answer(answer) => {
                if !self
                    .session()
                    .is_some_and(|session| session.answered(answer))
                {
                    tracing::debug!("an answer to nothing");
                }
            }
        }
    }

    fn open(&self, request: &Request) {
        if self.session().is_some() {
            let fail = Fail::invalid_request("this session is initialized already");
            self.out.push(fail.to_response(&request.id));
            return;
        }
        let out = self.out.clone();
        let (session, result) = match initialize(&*self.server, &self.options, request, out) {
            Ok(opened) => opened,
            Err(fail) => return self.out.push(fail.to_response(&request.id)),
        };
        self.sessions.open(&session);
        session.follow(&self.server);
        let mut slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(session);
        drop(slot);
        let (out, takes) = (self.out.clone(), self.options.quirks.initialize_takes);
        let message = json!({ "jsonrpc": "2.0", "id": request.id, "result": result });
        self.later(takes, move || out.push(message));
    }

    fn later(&self, takes: Option<std::time::Duration>, work: impl FnOnce() + Send + 'static) {
        let Some(takes) = takes else { return work() };
        let over = self.over.clone();
        spawn(async move {
            let waited = over.run_until_cancelled(tokio::time::sleep(takes)).await;
            if waited.is_some() {
                work();
            }
        });
    }

    fn notification(&self, method: String, params: Map<String, Value>) {
        let Some(session) = self.session() else {
            return;
        };
        let takes = self.options.quirks.initialized_takes;
        let takes = takes.filter(|_| method == "notifications/initialized");
        self.later(takes, move || notified(&session, &method, &params));
    }

    fn request(&self, request: Request) {
        let Some(session) = self.session() else {
            let fail = match (request.method.as_str(), self.options.quirks.sdk) {
                ("server/discover", Sdk::TypeScript) => Fail::method_not_found("server/discover"),
                (_, Sdk::Python) => Fail::invalid_params("Invalid request parameters"),
                _ => Fail::invalid_request("Server not initialized"),
            };
            return self.out.push(fail.to_response(&request.id));
        };
        let strict = self.options.quirks.initialized_takes.is_some();
        if strict && !session.is_initialized() && request.method != "ping" {
            self.sessions.count_early();
            let fail = Fail::invalid_params("Received request before initialization was complete");
            return self.out.push(fail.to_response(&request.id));
        }
        let exchange = Exchange {
            server: Arc::clone(&self.server),
            session,
            said: self.out.clone(),
            asks: self.out.clone(),
            sessions: true,
            all: self.sessions.clone(),
            resumable: false,
        };
        spawn(async move { exchange.answer(&request).await });
    }

    /// The client is gone: its calls are dropped.
    pub(super) fn close(&self) {
        self.over.cancel();
        self.out.end();
        if let Some(session) = self.session() {
            self.sessions.close(&session);
        }
    }
}
