//! The session id, which is the session: what `initialize` said, sealed.
//!
//! Most clients never recover from "session not found". So an id opens on any replica that has
//! the keys and after any restart, for the principal and the endpoint that it was made for.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use waypost_hub::call::{Principal, View};
use waypost_hub::keys::{Keys, Purpose};
use waypost_hub::registry::now_ms;
use waypost_hub::sealed::{Binding, Sealer};
use waypost_wire::capability::ClientCapabilities;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

/// How long an id is good, counted from `initialize`; tombstones are kept for longer.
const GOOD_FOR_MS: u64 = 365 * 24 * 60 * 60 * 1000;

/// What a sealed text is: one of a kind does not open as another.
const SESSION: &str = "session1";
const STREAM: &str = "stream1";

/// Longer text than this is no id of ours and not worth opening.
const MOST_TEXT: usize = 8 << 10;

/// What a client said of itself in `initialize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Tells the session from all others, everywhere and for ever.
    pub(crate) key: u128,
    /// The version that was agreed on.
    pub(crate) version: String,
    /// Without the extension that this era has no words for: tasks.
    pub(crate) capabilities: ClientCapabilities,
    pub(crate) client_info: Option<Raw>,
    /// The client tells when its roots change.
    pub(crate) tells_roots: bool,
    /// Milliseconds since the epoch.
    pub(crate) born_ms: u64,
}

/// The sealed form.
#[derive(Serialize, Deserialize)]
struct Plain {
    #[serde(rename = "k")]
    key: u128,
    #[serde(rename = "v")]
    version: String,
    #[serde(rename = "c")]
    capabilities: String,
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    client_info: Option<String>,
    #[serde(rename = "r", default, skip_serializing_if = "std::ops::Not::not")]
    tells_roots: bool,
    #[serde(rename = "b")]
    born_ms: u64,
}

/// Makes ids of tickets and opens them.
#[derive(Debug)]
pub(crate) struct Seals(Sealer);

// === impl Ticket ===

impl Ticket {
    /// A new session.
    pub(crate) fn new(
        version: &str,
        capabilities: ClientCapabilities,
        client_info: Option<Raw>,
    ) -> Self {
        Self {
            key: rand::random(),
            version: version.to_owned(),
            capabilities,
            client_info,
            tells_roots: false,
            born_ms: now_ms(),
        }
    }

    /// Under which it is stored, and what tells it from others inside. Nobody can make the id
    /// of it.
    pub(crate) fn name(&self) -> String {
        format!("{:032x}", self.key)
    }

    /// Milliseconds since `initialize`.
    pub(crate) fn age_ms(&self) -> u64 {
        now_ms().saturating_sub(self.born_ms)
    }
}

impl Plain {
    fn of(ticket: &Ticket) -> Self {
        Self {
            key: ticket.key,
            version: ticket.version.clone(),
            capabilities: Raw::from(ticket.capabilities.object()).text().to_owned(),
            client_info: ticket.client_info.as_ref().map(|i| i.text().to_owned()),
            tells_roots: ticket.tells_roots,
            born_ms: ticket.born_ms,
        }
    }

    fn into_ticket(self) -> Option<Ticket> {
        let capabilities = Object::parse(&Bytes::from(self.capabilities)).ok()?;
        let info = self
            .client_info
            .map(|text| Raw::parse(&Bytes::from(text)))
            .transpose();
        Some(Ticket {
            key: self.key,
            version: self.version,
            capabilities: ClientCapabilities::new(capabilities),
            client_info: info.ok()?,
            tells_roots: self.tells_roots,
            born_ms: self.born_ms,
        })
    }
}

// === impl Seals ===

impl Seals {
    /// Seals with the first of the keys, opens with all.
    pub(crate) fn new(keys: &Keys) -> Self {
        Self(Sealer::new(keys, Purpose::Session))
    }

    /// The id: base64url, so visible ASCII. `None` only when sealing fails, which no input does.
    pub(crate) fn seal(
        &self,
        ticket: &Ticket,
        principal: &Principal,
        view: &View,
    ) -> Option<String> {
        let plain = serde_json::to_vec(&Plain::of(ticket)).ok()?;
        self.0.seal(&plain, &binding(SESSION, principal, view))
    }

    /// Names a stream that is open, for whom it was opened alone.
    pub(crate) fn seal_stream(
        &self,
        key: u128,
        principal: &Principal,
        view: &View,
    ) -> Option<String> {
        self.0
            .seal(&key.to_be_bytes(), &binding(STREAM, principal, view))
    }

    /// The stream that a name of it names.
    pub(crate) fn open_stream(
        &self,
        name: &str,
        principal: &Principal,
        view: &View,
    ) -> Option<u128> {
        let plain = self.unlock(name, &binding(STREAM, principal, view))?;
        Some(u128::from_be_bytes(plain.try_into().ok()?))
    }

    fn unlock(&self, text: &str, binding: &Binding) -> Option<Vec<u8>> {
        if text.len() > MOST_TEXT {
            return None;
        }
        self.0.open(text, binding)
    }

    /// What is in an id; `None` for one that was not made with one of the keys for this very
    /// principal and endpoint, or too long ago.
    pub(crate) fn open(&self, id: &str, principal: &Principal, view: &View) -> Option<Ticket> {
        let plain = self.unlock(id, &binding(SESSION, principal, view))?;
        let plain: Plain = serde_json::from_slice(&plain).ok()?;
        plain
            .into_ticket()
            .filter(|ticket| ticket.age_ms() <= GOOD_FOR_MS)
    }
}

/// What a sealed text is tied to without it being in there.
fn binding(kind: &str, principal: &Principal, view: &View) -> Binding {
    let view = view.name().map(|name| format!("/{name}"));
    Binding::new(
        kind,
        &[principal.as_str(), view.as_deref().unwrap_or_default()],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(bytes: &[u8]) -> Seals {
        Seals::new(&Keys::new(bytes.iter().map(|b| vec![*b; 32]).collect()).unwrap())
    }

    fn ticket() -> Ticket {
        let text = Bytes::from_static(br#"{"elicitation":{"form":{}},"roots":{}}"#);
        let info = Bytes::from_static(br#"{"name":"t","version":"1.0"}"#);
        Ticket::new(
            "2025-06-18",
            ClientCapabilities::new(Object::parse(&text).unwrap()),
            Some(Raw::parse(&info).unwrap()),
        )
    }

    fn ann() -> Principal {
        Principal::new("ann")
    }

    #[test]
    fn r21_an_id_opens_for_its_principal_and_endpoint_alone() {
        let seals = seals(&[1]);
        let ticket = ticket();
        let id = seals.seal(&ticket, &ann(), &View::All).unwrap();
        assert!(id.bytes().all(|b| (0x21..0x7f).contains(&b)), "{id}");
        assert_eq!(seals.open(&id, &ann(), &View::All), Some(ticket));
        let builds = View::Upstream("builds".into());
        assert_eq!(seals.open(&id, &ann(), &builds), None);
        assert_eq!(seals.open(&id, &Principal::new("bob"), &View::All), None);
    }

    #[test]
    fn r21_a_stream_is_named_for_its_principal_and_endpoint_alone() {
        let seals = seals(&[1]);
        let name = seals.seal_stream(7, &ann(), &View::All).unwrap();
        assert_eq!(seals.open_stream(&name, &ann(), &View::All), Some(7));
        let builds = View::Upstream("builds".into());
        assert_eq!(seals.open_stream(&name, &ann(), &builds), None);
        let bob = Principal::new("bob");
        assert_eq!(seals.open_stream(&name, &bob, &View::All), None);
        assert_eq!(seals.open(&name, &ann(), &View::All), None, "no session id");
        let id = seals.seal(&ticket(), &ann(), &View::All).unwrap();
        assert_eq!(seals.open_stream(&id, &ann(), &View::All), None);
    }

    #[test]
    fn r44_any_replica_with_the_key_opens_an_id() {
        let id = seals(&[1]).seal(&ticket(), &ann(), &View::All).unwrap();
        assert!(seals(&[2, 1]).open(&id, &ann(), &View::All).is_some());
        assert_eq!(seals(&[2]).open(&id, &ann(), &View::All), None);
    }

    #[test]
    fn r45_an_id_of_another_making_does_not_open() {
        let seals = seals(&[1]);
        let foreign = "0b9c1f5e-8a43-4d0c-9c6e-111111111111";
        for id in ["", "x", foreign, &"A".repeat(300), &"A".repeat(100_000)] {
            assert_eq!(seals.open(id, &ann(), &View::All), None);
        }
        let id = seals.seal(&ticket(), &ann(), &View::All).unwrap();
        let mut bytes = id.into_bytes();
        bytes[40] ^= 1;
        let changed = String::from_utf8(bytes).unwrap();
        assert_eq!(seals.open(&changed, &ann(), &View::All), None);
    }

    #[test]
    fn an_id_of_long_ago_does_not_open() {
        let seals = seals(&[1]);
        let mut ticket = ticket();
        ticket.born_ms -= GOOD_FOR_MS + 60_000;
        let id = seals.seal(&ticket, &ann(), &View::All).unwrap();
        assert_eq!(seals.open(&id, &ann(), &View::All), None);
    }
}
