//! Which path is what.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::any;
use http::request::Parts as Head;
use http::{Method, Request};
use uuid::Uuid;
use waypost_hub::call::{Principal, View};

use crate::Parts;
use crate::admit::{self, Admitted};
use crate::answer;
use crate::event::Finish;
use crate::legacy;
use crate::modern::{self, Asker};
use crate::refusal::{Refusal, Refused};
use crate::rescue;

const ROOT: &str = "/mcp";
const REQUEST_ID: &str = "x-request-id";

/// Serves MCP at `/mcp` and `/mcp/<view>`; every other path is a small JSON 404, the ones where
/// clients look for OAuth among them.
///
/// The caller's [`Principal`] is read from the request's extensions. A layer that sets it, or
/// refuses, belongs on [`Router::route_layer`]: the 404s stay open then, as clients expect.
pub fn routes(parts: Parts) -> Router {
    Router::new()
        .route(ROOT, any(serve))
        .route("/mcp/", any(serve))
        .route("/mcp/{view}", any(serve))
        .fallback(nothing_here)
        .with_state(Arc::new(parts))
}

async fn nothing_here(request: Request<Body>) -> Response {
    let (head, _) = request.into_parts();
    let mut finish = Finish::new(request_id(&head), principal(&head));
    let refusal = Refusal::NoSuchPath;
    finish.outcome(rescue::outcome(&refusal));
    answer::nothing_here(&refusal)
}

async fn serve(State(parts): State<Arc<Parts>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let request_id = request_id(&head);
    let principal = principal(&head);
    let mut finish = Finish::new(Arc::clone(&request_id), principal.clone());
    let Some(view) = view(&parts, head.uri.path()) else {
        let refusal = Refusal::NoSuchView;
        finish.outcome(rescue::outcome(&refusal));
        return answer::nothing_here(&refusal);
    };
    let asker = Asker {
        request_id,
        principal,
        view,
    };
    let admitted = match (&head.method, &parts.sessions) {
        (&Method::POST, _) => admit::admit(&parts, &head, body).await,
        (&Method::GET | &Method::DELETE, Some(sessions)) => {
            return legacy::stream_or_end(&parts, sessions, asker, &head, finish).await;
        }
        _ => Err(Refused::from(Refusal::NotPost)),
    };
    match admitted {
        Err(refused) => {
            finish.outcome(rescue::outcome(&refused.refusal));
            answer::refused(&refused)
        }
        Ok(Admitted::Notification) => {
            finish.outcome("accepted");
            answer::accepted()
        }
        Ok(Admitted::Request(admission)) => modern::answer(&parts, asker, *admission, finish).await,
        Ok(Admitted::Legacy(message)) => match &parts.sessions {
            Some(sessions) => {
                legacy::message(&parts, sessions, asker, &head, *message, finish).await
            }
            // Not admitted without.
            None => answer::refused(&Refusal::NotPost.into()),
        },
    }
}

/// Names of views need no percent encoding, so a path that has some names none.
fn view(parts: &Parts, path: &str) -> Option<View> {
    match path.strip_prefix(ROOT)?.trim_matches('/') {
        "" => Some(View::All),
        name => (parts.views)(name),
    }
}

fn principal(head: &Head) -> Principal {
    head.extensions
        .get()
        .cloned()
        .unwrap_or_else(Principal::anonymous)
}

/// The id that a layer in front gave, else a new one.
fn request_id(head: &Head) -> Arc<str> {
    let given = head.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    match given {
        Some(id) if !id.is_empty() && id.len() <= 128 => id.into(),
        _ => Uuid::new_v4().to_string().into(),
    }
}
