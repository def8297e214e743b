//! Task handles: an upstream's task id, tied to the upstream, the tool and the caller.
//!
//! `{upstream}~{tool}~{body}~{seal}`, or `{upstream}~{tool}~{body}~{instance}~{seal}` for tasks
//! that die with one process or session. A handle carries all that routing it back takes, so any
//! replica with the keys serves it, after any restart; no table is kept.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq as _};

use crate::call::Principal;
use crate::catalog::named;
use crate::error::{CallError, Kind};
use crate::keys::{Keys, Purpose};
use crate::member::Member;

/// Ids up to this many bytes get a handle; a longer one would not fit into the `Mcp-Name` header
/// of many HTTP stacks.
const LONGEST_ID: usize = 2048;
/// No handle is longer than this many bytes; anything that is, is not looked at.
const LONGEST_HANDLE: usize = 3072;
/// Ids up to this many plain characters stand in the handle as they are.
const LONGEST_PLAIN: usize = 128;
/// Bytes of the HMAC that make the seal.
const SEAL_LEN: usize = 16;
/// Characters of a tag: 48 bits.
const TAG_LEN: usize = 8;

/// A keyed tag of a name, as 8 characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag([u8; TAG_LEN]);

/// Makes handles and opens them.
#[derive(Clone)]
pub(crate) struct Seals {
    seal: Vec<[u8; 32]>,
    tag: Vec<[u8; 32]>,
}

/// What a handle stands for. Whether its caller is shown the tool is still to be seen.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Where the task lives.
    pub member: Arc<Member>,
    /// The tool that made it.
    pub tool: Tag,
    /// The upstream's id.
    pub id: String,
    /// The process or session that has it, where its tasks die with one.
    pub instance: Option<Arc<str>>,
}

/// A handle taken apart; nothing in it is checked yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'a> {
    /// All that the seal covers.
    sealed: &'a str,
    upstream: &'a str,
    tool: Tag,
    body: &'a str,
    instance: Option<Tag>,
    seal: &'a str,
}

// === impl Tag ===

impl Tag {
    /// The characters.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<Self> {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let bytes: [u8; TAG_LEN] = text.as_bytes().try_into().ok()?;
        bytes.iter().all(plain).then_some(Self(bytes))
    }

    /// `what` keeps tags of different things apart.
    fn of(key: &[u8; 32], what: &[u8], text: &str) -> Self {
        let mut mac = mac(key);
        mac.update(what);
        mac.update(text.as_bytes());
        let digest = mac.finalize().into_bytes();
        let encoded = URL_SAFE_NO_PAD.encode(digest);
        let mut tag = [b'-'; TAG_LEN];
        for (to, from) in tag.iter_mut().zip(encoded.bytes()) {
            *to = from;
        }
        Self(tag)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Seals ===

impl Seals {
    /// Seals with the first of the keys, opens with all.
    pub(crate) fn new(keys: &Keys) -> Self {
        Self {
            seal: keys.derive(Purpose::Handle),
            tag: keys.derive(Purpose::ToolTag),
        }
    }

    /// The tags under which handles may name a tool: one for each key, the newest first.
    /// `tool` is the original name.
    pub(crate) fn tool_tags(&self, tool: &str) -> Vec<Tag> {
        self.tags(b"tool\0", tool)
    }

    /// The handle of the upstream's task `id` for this caller. `instance` is the process or
    /// session that made the task, where its tasks die with one; `tool` is the original name.
    ///
    /// # Errors
    /// [`Kind::BadUpstream`] for an id of more than 2,048 bytes.
    pub(crate) fn wrap(
        &self,
        member: &Member,
        instance: Option<&str>,
        tool: &str,
        id: &str,
        principal: &Principal,
    ) -> Result<String, CallError> {
        member.note_task(instance.is_some());
        self.seal(&member.name, tool, id, instance, principal)
            .ok_or_else(|| {
                CallError::upstream(Kind::BadUpstream, &member.name)
                    .detail(format!("its task id is longer than {LONGEST_ID} bytes"))
            })
    }

    /// What a handle stands for, as long as this caller may use it here. `members` are searched
    /// by name and former names. `None`, whatever is wrong: not a handle, damaged, another
    /// principal's, of an unknown upstream or instance.
    pub(crate) fn open(
        &self,
        handle: &str,
        principal: &Principal,
        members: &[Arc<Member>],
    ) -> Option<Opened> {
        let parts = self.unseal(handle, principal)?;
        let member = named(members, parts.upstream)?;
        // After a reload what made the task may be about to leave.
        let before = || member.leaving().find_map(|m| self.at(&m, parts, principal));
        self.at(member, parts, principal).or_else(before)
    }

    /// The same at this one alone, where it is called as the handle says.
    pub(crate) fn open_at(
        &self,
        handle: &str,
        principal: &Principal,
        member: &Arc<Member>,
    ) -> Option<Opened> {
        let parts = self.unseal(handle, principal)?;
        let is_its = member.is_called(parts.upstream);
        is_its.then(|| self.at(member, parts, principal))?
    }

    /// The name of the upstream that the handle was made for; `None` where it was not made for this
    /// caller.
    pub(crate) fn upstream_of<'a>(
        &self,
        handle: &'a str,
        principal: &Principal,
    ) -> Option<&'a str> {
        Some(self.unseal(handle, principal)?.upstream)
    }

    fn at(&self, member: &Arc<Member>, parts: Parts<'_>, principal: &Principal) -> Option<Opened> {
        // Handles are for callers without sessions.
        let instance = member.upstream.instance(principal, None);
        if !self.same_instance(parts.instance, instance.as_deref()) {
            return None;
        }
        member.note_task(instance.is_some());
        Some(Opened {
            tool: parts.tool,
            id: decode_body(parts.body)?,
            member: Arc::clone(member),
            instance,
        })
    }

    fn seal(
        &self,
        upstream: &str,
        tool: &str,
        id: &str,
        instance: Option<&str>,
        principal: &Principal,
    ) -> Option<String> {
        if id.len() > LONGEST_ID {
            return None;
        }
        let tool = *self.tool_tags(tool).first()?;
        let mut handle = format!("{upstream}~{}~{}", tool.as_str(), encode_body(id));
        if let Some(instance) = instance {
            let tag = *self.instance_tags(instance).first()?;
            handle.push('~');
            handle.push_str(tag.as_str());
        }
        let seal = seal(self.seal.first()?, &handle, principal);
        handle.push('~');
        handle.push_str(&seal);
        Some(handle)
    }

    fn unseal<'a>(&self, handle: &'a str, principal: &Principal) -> Option<Parts<'a>> {
        let parts = Parts::of(handle)?;
        // Every key is tried, also after a match: how long it takes tells nothing.
        let good = self.seal.iter().fold(Choice::from(0), |good, key| {
            let expected = seal(key, parts.sealed, principal);
            good | expected.as_bytes().ct_eq(parts.seal.as_bytes())
        });
        bool::from(good).then_some(parts)
    }

    fn same_instance(&self, tag: Option<Tag>, instance: Option<&str>) -> bool {
        match (tag, instance) {
            (None, None) => true,
            (Some(tag), Some(instance)) => self.instance_tags(instance).contains(&tag),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn instance_tags(&self, instance: &str) -> Vec<Tag> {
        self.tags(b"instance\0", instance)
    }

    fn tags(&self, what: &[u8], text: &str) -> Vec<Tag> {
        let keys = self.tag.iter();
        keys.map(|key| Tag::of(key, what, text)).collect()
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seals({} keys)", self.seal.len())
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    fn of(handle: &'a str) -> Option<Self> {
        if handle.len() > LONGEST_HANDLE {
            return None;
        }
        let (sealed, seal) = handle.rsplit_once('~')?;
        let mut parts = sealed.split('~');
        let this = Self {
            sealed,
            upstream: parts.next()?,
            tool: Tag::parse(parts.next()?)?,
            body: parts.next()?,
            instance: match parts.next() {
                Some(text) => Some(Tag::parse(text)?),
                None => None,
            },
            seal,
        };
        parts.next().is_none().then_some(this)
    }
}

fn is_plain(id: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=LONGEST_PLAIN).contains(&id.len()) && id.bytes().all(plain)
}

/// The id in characters that need no encoding in a header and hold no `~`.
fn encode_body(id: &str) -> String {
    if is_plain(id) {
        id.to_owned()
    } else {
        format!("={}", URL_SAFE_NO_PAD.encode(id))
    }
}

fn decode_body(body: &str) -> Option<String> {
    match body.strip_prefix('=') {
        Some(encoded) => String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok(),
        None => is_plain(body).then(|| body.to_owned()),
    }
}

/// The length in front makes the border between text and principal unambiguous.
fn seal(key: &[u8; 32], text: &str, principal: &Principal) -> String {
    let mut mac = mac(key);
    mac.update(&(text.len() as u64).to_be_bytes());
    mac.update(text.as_bytes());
    mac.update(principal.as_str().as_bytes());
    let digest = mac.finalize().into_bytes();
    URL_SAFE_NO_PAD.encode(digest.split_at(SEAL_LEN).0)
}

fn mac(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC itself fills a short key up to the hash's block with zeroes.
    let mut block = [0; 64];
    for (to, from) in block.iter_mut().zip(key) {
        *to = *from;
    }
    Hmac::new(&block.into())
}

#[cfg(test)]
mod tests;
