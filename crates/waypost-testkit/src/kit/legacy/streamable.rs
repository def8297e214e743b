//! Streamable HTTP of 2025-03-26 to 2025-11-25.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::ACCEPT;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::{Exchange, initialize, notified};
use super::http::{Events, Shared, is_modern, priming};
use super::log::Log;
use super::message::Incoming;
use super::options::GetStream;
use super::refusal::{self, SESSION};
use super::revision::Revision;
use super::session::Session;
use crate::kit::fail::Fail;
use crate::kit::guard;
use crate::kit::http::{json_response, receive as receive_modern};
use crate::kit::request::Request;
use crate::kit::words::HEADER_VERSION;

/// Anything at `/mcp`.
pub(super) async fn receive(
    State(shared): State<Shared>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if shared.options.modern && method == Method::POST && is_modern(Some(&headers), &body) {
        return receive_modern(State(shared.modern), headers, body).await;
    }
    if let Err(status) = guard::check_origin(&headers, shared.on_loopback) {
        return status.into_response();
    }
    let answered = match method {
        Method::POST => post(&shared, &headers, &body).await,
        Method::GET => get(&shared, &headers),
        Method::DELETE => delete(&shared, &headers),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED.into_response()),
    };
    answered.unwrap_or_else(|refusal| refusal)
}

async fn post(shared: &Shared, headers: &HeaderMap, body: &[u8]) -> Result<Response, Response> {
    guard::check_media(headers).map_err(|status| status.into_response())?;
    let incoming = Incoming::parse(body).map_err(|(id, fail)| refused(&id, &fail))?;
    if let Incoming::Request(request) = &incoming
        && request.method == "initialize"
    {
        return Ok(open(shared, request).await);
    }
    let id = match &incoming {
        Incoming::Request(request) => request.id.clone(),
        _ => Value::Null,
    };
    let session = find(shared, headers, &id)?;
    match incoming {
        Incoming::Notification { method, params } => {
            notification(shared, &session, &method, &params).await;
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Incoming::Answer(answer) => {
            if !session.answered(answer) {
                tracing::debug!("an answer to nothing");
            }
            Ok(StatusCode::ACCEPTED.into_response())
        }
        Incoming::Request(request) => Ok(answer(shared, session, request).await),
    }
}

async fn notification(
    shared: &Shared,
    session: &Session,
    method: &str,
    params: &Map<String, Value>,
) {
    if let Some(takes) = shared.options.quirks.initialized_takes
        && method == "notifications/initialized"
    {
        tokio::time::sleep(takes).await;
    }
    notified(session, method, params);
}

async fn open(shared: &Shared, request: &Request) -> Response {
    if let Some(takes) = shared.options.quirks.initialize_takes {
        tokio::time::sleep(takes).await;
    }
    let opened = initialize(&*shared.server, &shared.options, request, Log::default());
    let (session, result) = match opened {
        Ok(opened) => opened,
        Err(fail) => return refused(&request.id, &fail),
    };
    let body = json!({ "jsonrpc": "2.0", "id": request.id, "result": result });
    let response = if shared.options.quirks.always_streams {
        streamed(shared, &body)
    } else {
        json_response(StatusCode::OK, &body)
    };
    if !shared.options.sessions {
        return response;
    }
    shared.sessions.open(&session);
    session.follow(&shared.server);
    refusal::with_session(response, &session.id)
}

/// One message as an event stream that belongs to no session yet.
fn streamed(shared: &Shared, message: &Value) -> Response {
    let log = Log::default();
    log.push(message.clone());
    log.end();
    let events = Events {
        opening: None,
        first: None,
        reader: log.read(Some(0)),
        stream: None,
        line_end: shared.options.quirks.line_end,
        _gone: None,
    };
    events.into_response()
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is a whole response, as an answer is"
)]
fn find(shared: &Shared, headers: &HeaderMap, id: &Value) -> Result<Arc<Session>, Response> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text(HEADER_VERSION).map(Revision::parse);
    let session = if shared.options.sessions {
        let named = text(SESSION).ok_or_else(|| refusal::missing(shared.options.quirks.sdk))?;
        let found = shared.sessions.get(named);
        found.ok_or_else(|| refusal::lost(shared.options.quirks.lost, id))?
    } else {
        let revision = version.flatten().unwrap_or(Revision::Mar2025);
        let session = Session::new(revision, json!({}), Log::default());
        notified(&session, "notifications/initialized", &Map::new());
        Arc::new(session)
    };
    match version {
        Some(None) => Err(refusal::version()),
        _ => Ok(session),
    }
}

async fn answer(shared: &Shared, session: Arc<Session>, request: Request) -> Response {
    let quirks = &shared.options.quirks;
    if quirks.initialized_takes.is_some() && !session.is_initialized() && request.method != "ping" {
        shared.sessions.count_early();
        let why = "Received request before initialization was complete";
        return json_response(
            StatusCode::OK,
            &Fail::invalid_params(why).to_response(&request.id),
        );
    }
    let (number, log) = session.open_stream();
    let resumable = shared.options.sessions && session.revision >= Revision::Nov2025;
    let exchange = Exchange {
        server: Arc::clone(&shared.server),
        session: Arc::clone(&session),
        said: log.clone(),
        asks: if quirks.questions_on_get {
            session.standalone.clone()
        } else {
            log.clone()
        },
        sessions: shared.options.sessions,
        all: shared.sessions.clone(),
        resumable,
    };
    let mut reader = log.read(Some(0));
    crate::kit::spawn::spawn(async move {
        exchange.answer(&request).await;
        log.end();
    });
    // Only with a session can a client come back for the rest, or cancel by a message.
    let gone = (!shared.options.sessions).then(|| session.ended.clone().drop_guard());
    let first = reader.next().await;
    match first {
        Some((_, only)) if only.get("method").is_none() && !quirks.always_streams => {
            json_response(StatusCode::OK, &only)
        }
        first => {
            let events = Events {
                opening: resumable.then(|| priming(number, 0, quirks.line_end)),
                first,
                reader,
                stream: shared.options.sessions.then_some(number),
                line_end: quirks.line_end,
                _gone: gone,
            };
            events.into_response()
        }
    }
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is a whole response, as an answer is"
)]
fn get(shared: &Shared, headers: &HeaderMap) -> Result<Response, Response> {
    shared.sessions.count_get();
    let quirks = &shared.options.quirks;
    if !shared.options.sessions {
        return Err(StatusCode::METHOD_NOT_ALLOWED.into_response());
    }
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/event-stream") || accept.contains("*/*"))
    {
        return Err(StatusCode::NOT_ACCEPTABLE.into_response());
    }
    if let GetStream::Refused(status) = quirks.get {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::METHOD_NOT_ALLOWED);
        return Err(status.into_response());
    }
    let session = find(shared, headers, &Value::Null)?;
    let last = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .and_then(|id| id.split_once('_'))
        .and_then(|(stream, after)| Some((stream.parse().ok()?, after.parse().ok()?)));
    let (stream, log, after) = match last {
        Some((stream, after)) => match session.stream(stream) {
            Some(log) => (stream, log, Some(after)),
            None => return Err(StatusCode::BAD_REQUEST.into_response()),
        },
        None => (0, session.standalone.clone(), None),
    };
    if quirks.get == GetStream::Closes && last.is_none() {
        let nothing = Log::default();
        nothing.end();
        return Ok(stream_of(shared, 0, &nothing, None));
    }
    if stream == 0 {
        // A message goes out on one stream: the client that comes back takes it over.
        log.cut();
    }
    Ok(stream_of(shared, stream, &log, after))
}

fn stream_of(shared: &Shared, stream: u64, log: &Log, after: Option<u64>) -> Response {
    let line_end = shared.options.quirks.line_end;
    let reader = log.read(after);
    let events = Events {
        opening: Some(priming(stream, reader.place(), line_end)),
        first: None,
        reader,
        stream: Some(stream),
        line_end,
        _gone: None,
    };
    events.into_response()
}

#[expect(
    clippy::result_large_err,
    reason = "a refusal is a whole response, as an answer is"
)]
fn delete(shared: &Shared, headers: &HeaderMap) -> Result<Response, Response> {
    if !shared.options.sessions {
        return Err(StatusCode::METHOD_NOT_ALLOWED.into_response());
    }
    let session = find(shared, headers, &Value::Null)?;
    shared.sessions.delete(&session);
    Ok(StatusCode::OK.into_response())
}

fn refused(id: &Value, fail: &Fail) -> Response {
    json_response(StatusCode::BAD_REQUEST, &fail.to_response(id))
}
