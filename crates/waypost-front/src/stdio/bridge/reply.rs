//! What the daemon answers one HTTP request with: one message, or a stream of them.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use waypost_wire::sse::Decoder;

use super::fault::Fault;

/// An answer that is arriving. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    url: Arc<str>,
    limit: usize,
    body: Body,
    /// Of a stream.
    events: Option<Decoder>,
    over: bool,
    /// Where a stream can be taken up again.
    pub(crate) last: Option<String>,
    /// When, in milliseconds.
    pub(crate) retry: Option<u64>,
}

impl Reply {
    pub(crate) fn new(response: Response<Body>, url: &Arc<str>, limit: usize) -> Self {
        let (head, body) = response.into_parts();
        let kind = head.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let stream = kind.starts_with("text/event-stream");
        Self {
            status: head.status,
            headers: head.headers,
            url: Arc::clone(url),
            limit,
            body,
            events: stream.then(|| Decoder::new(limit)),
            over: false,
            last: None,
            retry: None,
        }
    }

    /// Whether it is a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.events.is_some()
    }

    /// Fails for a status that lets nobody in.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.failed()),
            _ => Ok(()),
        }
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// [`Fault::Status`] for an HTTP error that has no JSON in it, [`Fault::BrokenOff`] and
    /// [`Fault::TooLarge`].
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.over {
            return Ok(None);
        }
        if self.events.is_none() {
            self.over = true;
            return self.whole().await;
        }
        loop {
            if let Some(message) = self.event()? {
                return Ok(Some(message));
            }
            let Some(chunk) = self.chunk().await? else {
                self.over = true;
                return Ok(None);
            };
            if let Some(events) = &mut self.events {
                events.push(&chunk).map_err(|_| self.too_large())?;
            }
        }
    }

    fn event(&mut self) -> Result<Option<Bytes>, Fault> {
        let limit = self.limit;
        let Some(events) = &mut self.events else {
            return Ok(None);
        };
        while let Some(event) = events.next_event().map_err(|_| Fault::TooLarge { limit })? {
            self.last = event.id.or(self.last.take());
            self.retry = event.retry.or(self.retry);
            if !event.data.is_empty() {
                return Ok(Some(event.data));
            }
        }
        Ok(None)
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(_)) => return Err(Fault::BrokenOff),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn whole(&mut self) -> Result<Option<Bytes>, Fault> {
        let mut all = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
            if all.len() > self.limit {
                return Err(self.too_large());
            }
        }
        let text = all.trim_ascii();
        if text.first() == Some(&b'{') && is_message(text) {
            return Ok(Some(all.freeze()));
        }
        if self.status.is_success() && text.is_empty() {
            return Ok(None);
        }
        if self.status.is_success() {
            return Err(Fault::NotMcp);
        }
        Err(self.failed())
    }

    fn failed(&self) -> Fault {
        Fault::Status {
            url: Arc::clone(&self.url),
            status: self.status,
        }
    }

    fn too_large(&self) -> Fault {
        Fault::TooLarge { limit: self.limit }
    }
}

/// The small JSON of a 404 is none.
fn is_message(text: &[u8]) -> bool {
    let message = waypost_wire::message::Message::parse(&Bytes::copy_from_slice(text));
    message.is_ok()
}
