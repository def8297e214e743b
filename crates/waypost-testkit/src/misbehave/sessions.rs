//! Session-era servers, each with one fault. Apart from it they are *demo-everything* at
//! revision 2025-11-25; [`Running::sessions`] counts what they saw and makes them forget.

use std::io;
use std::time::Duration;

use crate::demo::legacy_everything;
use crate::kit::legacy::{Endpoint, GetStream, LineEnd, Lost, Options, Quirks, Sdk, Transport};
use crate::run::{ANY_PORT, Running};

/// Says in this way that it does not know a session. `sessions().forget_all()` makes it forget
/// all of them, as a restart does.
///
/// # Errors
///
/// When no port is free.
pub async fn forgets_sessions(lost: Lost) -> io::Result<Running> {
    with(Quirks {
        lost,
        ..Quirks::default()
    })
    .await
}

/// Accepts `notifications/initialized` only after `takes`; requests before that are errors, and
/// `sessions().early()` counts them.
///
/// # Errors
///
/// When no port is free.
pub async fn strict_initialized(takes: Duration) -> io::Result<Running> {
    with(Quirks {
        initialized_takes: Some(takes),
        ..Quirks::default()
    })
    .await
}

/// Answers `initialize` only after `takes`.
///
/// # Errors
///
/// When no port is free.
pub async fn slow_initialize(takes: Duration) -> io::Result<Running> {
    with(Quirks {
        initialize_takes: Some(takes),
        ..Quirks::default()
    })
    .await
}

/// Has no lasting GET stream; `sessions().gets()` counts who tries.
///
/// # Errors
///
/// When no port is free.
pub async fn no_get_stream(get: GetStream) -> io::Result<Running> {
    with(Quirks {
        get,
        ..Quirks::default()
    })
    .await
}

/// Puts the questions of a call on the GET stream.
///
/// # Errors
///
/// When no port is free.
pub async fn asks_on_get() -> io::Result<Running> {
    with(Quirks {
        questions_on_get: true,
        ..Quirks::default()
    })
    .await
}

/// Refuses as the Python SDK 1.x does (400, `id: "server-error"`, a session id to be ignored) and
/// answers everything as event streams with CR LF.
///
/// # Errors
///
/// When no port is free.
pub async fn python_like() -> io::Result<Running> {
    with(Quirks {
        sdk: Sdk::Python,
        lost: Lost::ServerError,
        always_streams: true,
        line_end: LineEnd::CrLf,
        ..Quirks::default()
    })
    .await
}

/// Speaks HTTP+SSE and names its endpoint in this way; its stream is at `/p/sse`.
///
/// # Errors
///
/// When no port is free.
pub async fn sse(endpoint: Endpoint, line_end: LineEnd) -> io::Result<Running> {
    let quirks = Quirks {
        endpoint,
        line_end,
        ..Quirks::default()
    };
    let options = Options {
        transport: Transport::Sse,
        quirks,
        ..Options::default()
    };
    legacy_everything(ANY_PORT, options).await
}

async fn with(quirks: Quirks) -> io::Result<Running> {
    let options = Options {
        quirks,
        ..Options::default()
    };
    legacy_everything(ANY_PORT, options).await
}
