//! What the tools of an upstream were when they were last approved.
//!
//! The definitions of the first look at an upstream are taken on trust; whatever is new or another
//! later stands out until somebody approves it. Held against each other are the definitions as the
//! server sends them, all of them, by a digest that does not depend on the order of keys or on
//! white space: `_meta`, `annotations` and keys that nobody knows count as much as a description.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use waypost_wire::raw::Raw;

use crate::backoff::Backoff;
use crate::catalog::entry::Kind;
use crate::catalog::read::{Counted, Firsts};
use crate::event::ToolsTrusted;
use crate::lifecycle::Tasks;
use crate::member::Member;
use crate::store::{PinnedTool, Store, StoreError};

/// What could not be read or stored is tried again after so long; the wait doubles.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Deeper than this values are compared byte by byte.
const DEPTH: usize = 64;

/// SHA-256 over a definition. `Display` gives hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// A tool that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What the upstream calls it.
    pub tool: Arc<str>,
    /// What it was when it was last approved; `None` is a new one.
    pub before: Option<Raw>,
    /// What it is.
    pub now: Raw,
    /// Of what it is.
    pub digest: Digest,
    /// Whether it is kept from clients.
    pub held: bool,
}

/// What one upstream's tools were, by original name.
pub(crate) type Pinned = BTreeMap<String, (Digest, Raw)>;

/// What all tools were, by upstream.
#[derive(Debug)]
pub(crate) struct Pins {
    store: Arc<dyn Store>,
    /// `None` until it is known what is stored.
    known: Mutex<Option<HashMap<String, Arc<Pinned>>>>,
    /// One after the other, so that what is stored last is what is known.
    saving: tokio::sync::Mutex<()>,
}

/// Something about a tool that is to be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Approval {
    /// The upstream.
    pub upstream: String,
    /// What it calls the tool.
    pub tool: String,
    /// Of the definition that was looked at.
    pub digest: String,
}

/// What a tool is that is not as it was.
pub(crate) fn compare(pins: &Pinned, tool: &Arc<str>, now: &Raw, held: bool) -> Option<Pending> {
    let digest = Digest::of(now);
    let before = pins.get(&**tool);
    if before.is_some_and(|(before, _)| *before == digest) {
        return None;
    }
    Some(Pending {
        tool: Arc::clone(tool),
        before: before.map(|(_, raw)| raw.clone()),
        now: now.clone(),
        digest,
        held,
    })
}

// === impl Pending ===

impl Pending {
    /// `new` or `changed`.
    pub fn change(&self) -> &'static str {
        match self.before {
            None => "new",
            Some(_) => "changed",
        }
    }
}

// === impl Digest ===

impl Digest {
    /// Of a JSON value.
    pub fn of(raw: &Raw) -> Self {
        let mut hash = Sha256::new();
        add(&mut hash, raw, DEPTH);
        Self(hash.finalize().into())
    }
}

/// Values are told apart by their first byte, and lengths stand before what has one, so that no
/// two values are the same text.
fn add(hash: &mut Sha256, raw: &Raw, depth: usize) {
    if let Some(text) = raw.as_str() {
        return sized(hash, b"s", text.as_bytes());
    }
    let deeper = depth.checked_sub(1);
    if let (Some(deeper), Ok(object)) = (deeper, raw.as_object()) {
        let mut members: Vec<_> = object.iter().collect();
        members.sort_by_key(|(key, _)| *key);
        sized(hash, b"o", &members.len().to_be_bytes());
        for (key, value) in members {
            sized(hash, b"k", key.as_bytes());
            add(hash, value, deeper);
        }
        return;
    }
    if let (Some(deeper), Some(items)) = (deeper, raw.as_array()) {
        sized(hash, b"a", &items.len().to_be_bytes());
        for item in items {
            add(hash, &item, deeper);
        }
        return;
    }
    // Numbers as they are spelled, and an object with a key twice as it is.
    sized(hash, b"r", raw.as_bytes());
}

fn sized(hash: &mut Sha256, mark: &[u8], text: &[u8]) {
    hash.update(mark);
    hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
    hash.update(text);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Pins ===

impl Pins {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            known: Mutex::default(),
            saving: tokio::sync::Mutex::default(),
        }
    }

    /// Learns what is stored. Should that fail (`false`), nothing is taken on trust in its place.
    pub(crate) async fn remember(&self) -> bool {
        let stored = match self.store.pins().await {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(%error, source = %error.source,
                    "what tools were is not known; where `pin` is `block` none is shown");
                return false;
            }
        };
        let mut all: HashMap<String, Pinned> = HashMap::new();
        for pin in stored {
            let own = all.entry(pin.upstream).or_default();
            own.insert(pin.tool, (Digest::of(&pin.definition), pin.definition));
        }
        let all = all.into_iter().map(|(name, own)| (name, Arc::new(own)));
        *self.lock() = Some(all.collect());
        true
    }

    /// The same, until it works.
    pub(crate) async fn remember_at_last(&self) {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        loop {
            tokio::time::sleep(backoff.failed()).await;
            if self.remember().await {
                return;
            }
        }
    }

    /// Tells members what their tools were. What one lists of which nothing was seen before is
    /// trusted.
    pub(crate) fn tell(self: &Arc<Self>, members: &[Arc<Member>], background: &Tasks) {
        for member in members.iter().filter(|m| m.settings.pin.is_some()) {
            let (pinned, is_new) = self.of(member);
            member.set_pinned(pinned);
            if is_new {
                let (pins, name) = (Arc::clone(self), Arc::clone(&member.name));
                background.spawn(|stop| async move {
                    stop.run_until_cancelled(pins.save_for_sure(&name)).await;
                });
            }
        }
    }

    /// What a member's tools were, and whether that is only known since now.
    fn of(&self, member: &Member) -> (Option<Arc<Pinned>>, bool) {
        let mut known = self.lock();
        let Some(all) = &mut *known else {
            return (None, false);
        };
        if let Some(own) = all.get(&*member.name) {
            return (Some(Arc::clone(own)), false);
        }
        // It may have had another name in the file.
        let former = member
            .settings
            .aliases
            .iter()
            .find_map(|name| all.get(name));
        let own = former.cloned().or_else(|| first_look(member).map(Arc::new));
        if let Some(own) = &own {
            all.insert(member.name.to_string(), Arc::clone(own));
        }
        let is_new = own.is_some();
        (own, is_new)
    }

    /// Trusts these tools as they are now, over restarts too.
    ///
    /// # Errors
    /// [`StoreError`] when it is not known that they are stored; until a restart nothing changes.
    pub(crate) async fn approve(
        &self,
        member: &Member,
        tools: &[Pending],
    ) -> Result<(), StoreError> {
        let _turn = self.saving.lock().await;
        let known = self.get(&member.name).unwrap_or_default();
        let mut own = Pinned::clone(&known);
        for pending in tools {
            own.insert(
                pending.tool.to_string(),
                (pending.digest, pending.now.clone()),
            );
        }
        self.store
            .save_pins(&member.name, stored(&member.name, &own))
            .await?;
        if let Some(all) = &mut *self.lock() {
            all.insert(member.name.to_string(), Arc::new(own));
        }
        Ok(())
    }

    async fn save_for_sure(&self, upstream: &str) {
        let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
        loop {
            let turn = self.saving.lock().await;
            let Some(own) = self.get(upstream) else {
                return;
            };
            let saved = self.store.save_pins(upstream, stored(upstream, &own)).await;
            drop(turn);
            let Err(error) = saved else { return };
            tracing::error!(upstream, %error, source = %error.source,
                "what its tools are is not remembered yet");
            tokio::time::sleep(backoff.failed()).await;
        }
    }

    fn get(&self, upstream: &str) -> Option<Arc<Pinned>> {
        self.lock().as_ref()?.get(upstream).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<HashMap<String, Arc<Pinned>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All tools that a member lists; `None` before there are any.
fn first_look(member: &Member) -> Option<Pinned> {
    let learned = member.learned()?;
    let items = &Kind::Tool.listing(&learned.catalogue)?.items;
    let name = |raw: &Raw| raw.as_object().ok()?.string(Kind::Tool.name_member());
    let mut own = Pinned::new();
    let mut firsts = Firsts::default();
    for raw in items {
        let pin = || (Digest::of(raw), raw.clone());
        match firsts.read(Kind::Tool, raw) {
            Ok(Counted::As(definition)) => {
                own.insert(definition.original.to_string(), pin());
            }
            Ok(Counted::Not(_)) => {}
            // Where none of its name can be read: so it was.
            Err(_) => {
                if let Some(name) = name(raw) {
                    own.entry(name).or_insert_with(pin);
                }
            }
        }
    }
    if own.is_empty() {
        return None;
    }
    ToolsTrusted {
        upstream: &member.name,
        tools: own.len(),
    }
    .emit();
    Some(own)
}

fn stored(upstream: &str, own: &Pinned) -> Vec<PinnedTool> {
    let pin = |(tool, (_, definition)): (&String, &(Digest, Raw))| PinnedTool {
        upstream: upstream.to_owned(),
        tool: tool.clone(),
        definition: definition.clone(),
    };
    own.iter().map(pin).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(&Raw::parse(&Bytes::from(text.to_owned())).unwrap())
    }

    #[test]
    fn a_digest_depends_on_neither_the_order_of_keys_nor_white_space_nor_escapes() {
        let one = digest(r#"{"name":"a","inputSchema":{"x":[1.0,{"b":null,"a":true}]}}"#);
        let two = digest(
            r#"{ "inputSchema": {"x" : [ 1.0, {"a":true, "b":null} ]}, "n\u0061me": "\u0061" }"#,
        );
        assert_eq!(one, two);
        assert_eq!(one.to_string().len(), 64);
    }

    #[test]
    fn a_digest_depends_on_everything_else() {
        let all = [
            "{}",
            "[]",
            "null",
            "\"\"",
            "\"null\"",
            "0",
            "0.0",
            "\"0\"",
            "[[]]",
            "[[],[]]",
            "[{}]",
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":{"b":2}}"#,
            r#"["a",1]"#,
            r#"[1,"a"]"#,
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"a":2}"#,
            r#"{"ab":""}"#,
            r#"{"a":"b"}"#,
        ];
        let digests: std::collections::HashSet<_> = all.iter().map(|text| digest(text)).collect();
        assert_eq!(digests.len(), all.len());
    }
}
