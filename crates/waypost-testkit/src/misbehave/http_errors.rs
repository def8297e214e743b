//! Answers every request by HTTP alone, as proxies and login pages do.

use std::io;

use axum::response::{Html, IntoResponse as _};
use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};

use super::fake::fake_now;
use crate::run::Running;

/// Which refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 500 with an HTML page.
    Html500,
    /// 401 with a challenge.
    Unauthorized,
    /// 429 with `Retry-After: 1`.
    TooManyRequests,
    /// 503 with an empty body.
    Unavailable,
}

/// Nothing is ever answered with JSON.
///
/// # Errors
///
/// When no port is free.
pub async fn http_errors(refusal: Refusal) -> io::Result<Running> {
    fake_now(move |_| match refusal {
        Refusal::Html500 => {
            let page = Html("<html><body><h1>Internal Server Error</h1></body></html>");
            (StatusCode::INTERNAL_SERVER_ERROR, page).into_response()
        }
        Refusal::Unauthorized => {
            let challenge = r#"Bearer resource_metadata="http://127.0.0.1/none", scope="mcp""#;
            (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response()
        }
        Refusal::TooManyRequests => {
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response()
        }
        Refusal::Unavailable => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    })
    .await
}
