//! HTTP+SSE of 2024-11-05: one stream down, POSTs up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use http::header::HOST;
use http::{HeaderMap, StatusCode};

use super::connection::Connection;
use super::http::{Events, Shared};
use super::message::Incoming;
use super::options::{Endpoint, GetStream};
use crate::kit::guard;
use crate::kit::http::json_response;
use crate::kit::spawn::spawn;

/// The open streams, by the id in their endpoint.
pub(super) type Connections = Arc<Mutex<HashMap<String, Arc<Connection>>>>;

/// `GET /sse`: the stream, its first event naming where to post.
pub(super) async fn open(
    State(shared): State<Shared>,
    uri: http::Uri,
    headers: HeaderMap,
) -> Response {
    shared.sessions.count_get();
    if let Err(status) = guard::check_origin(&headers, shared.on_loopback) {
        return status.into_response();
    }
    if let GetStream::Refused(status) = shared.options.quirks.get {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::METHOD_NOT_ALLOWED);
        return status.into_response();
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let connection = Arc::new(Connection::new(
        Arc::clone(&shared.server),
        Arc::clone(&shared.options),
        shared.sessions.clone(),
    ));
    let place = endpoint(&shared, &uri, &headers, &id);
    let gone = tokio_util::sync::CancellationToken::new();
    let (over, connections, key) = (gone.clone(), Arc::clone(&shared.connections), id.clone());
    let mut all = lock(&shared.connections);
    all.insert(id, Arc::clone(&connection));
    drop(all);
    let reader = connection.out.read(Some(0));
    spawn(async move {
        over.cancelled().await;
        lock(&connections).remove(&key);
        connection.close();
    });
    let end = shared.options.quirks.line_end.as_str();
    let events = Events {
        opening: Some(format!("event: endpoint{end}data: {place}{end}{end}")),
        first: None,
        reader,
        stream: None,
        line_end: shared.options.quirks.line_end,
        _gone: Some(gone.drop_guard()),
    };
    events.into_response()
}

/// The place to post to, in the words this server is set to use.
fn endpoint(shared: &Shared, uri: &http::Uri, headers: &HeaderMap, id: &str) -> String {
    let folder = uri.path().strip_suffix("/sse").unwrap_or_default();
    let path = format!("{folder}/messages?sessionId={id}");
    match &shared.options.quirks.endpoint {
        Endpoint::AbsolutePath => path,
        Endpoint::Relative => format!("messages?sessionId={id}"),
        Endpoint::FullUrl => {
            let host = headers.get(HOST).and_then(|host| host.to_str().ok());
            format!("http://{}{path}", host.unwrap_or_default())
        }
        Endpoint::OtherOrigin(origin) => format!("{origin}{path}"),
    }
}

/// `POST` to the endpoint: 202, whatever the answer will be.
pub(super) async fn receive(
    State(shared): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(status) = guard::check_origin(&headers, shared.on_loopback) {
        return status.into_response();
    }
    let id = query.get("sessionId").map(String::as_str);
    let found = lock(&shared.connections)
        .get(id.unwrap_or_default())
        .cloned();
    let Some(connection) = found else {
        return (StatusCode::NOT_FOUND, "Could not find session").into_response();
    };
    match Incoming::parse(&body) {
        Ok(message) => {
            connection.receive(message);
            (StatusCode::ACCEPTED, "Accepted").into_response()
        }
        Err((id, fail)) => json_response(StatusCode::BAD_REQUEST, &fail.to_response(&id)),
    }
}

fn lock(connections: &Connections) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Connection>>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}
