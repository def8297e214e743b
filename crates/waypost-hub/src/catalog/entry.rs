//! One tool, prompt, resource or template in the catalogue.

use std::sync::Arc;

use waypost_wire::links;
use waypost_wire::meta::{META, ORIGINAL_NAME};
use waypost_wire::method;
use waypost_wire::object::Object;
use waypost_wire::param::{self, BadAnnotation, ParamHeader};
use waypost_wire::raw::Raw;

use super::arguments::Arguments;
use super::family::Choice;
use super::shaping::One;
use super::sound::shape::Flaw;
use super::sound::{Sound, sound};
use crate::member::Member;
use crate::registry::{Catalogue, Listing};

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Called by name (`tools/call`).
    Tool,
    /// Filled in by name (`prompts/get`).
    Prompt,
    /// Read by URI (`resources/read`).
    Resource,
    /// A pattern of URIs to read; announced and advertised together with the resources.
    Template,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Tool, Self::Prompt, Self::Resource, Self::Template];

    /// The kind that a list method lists.
    pub fn of_list(method: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.list_method() == method)
    }

    /// The method that lists it.
    pub fn list_method(self) -> &'static str {
        match self {
            Self::Tool => method::TOOLS_LIST,
            Self::Prompt => method::PROMPTS_LIST,
            Self::Resource => method::RESOURCES_LIST,
            Self::Template => method::RESOURCES_TEMPLATES_LIST,
        }
    }

    /// The member of the result that holds the list.
    pub fn list_member(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource => "resources",
            Self::Template => "resourceTemplates",
        }
    }

    /// The member of a definition that names it.
    pub fn name_member(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }

    /// The server capability without which the list is not asked for.
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tool => "tools",
            Self::Prompt => "prompts",
            Self::Resource | Self::Template => "resources",
        }
    }

    /// The notification that says the list changed.
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tool => method::TOOLS_CHANGED,
            Self::Prompt => method::PROMPTS_CHANGED,
            Self::Resource | Self::Template => method::RESOURCES_CHANGED,
        }
    }

    /// One of it, in words.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "resource template",
        }
    }

    /// This kind's list of an upstream.
    pub fn listing(self, lists: &Catalogue) -> Option<&Listing> {
        self.slot_ref(lists).as_ref()
    }

    /// Where this kind's list of an upstream is kept.
    pub fn slot(self, lists: &mut Catalogue) -> &mut Option<Listing> {
        match self {
            Self::Tool => &mut lists.tools,
            Self::Prompt => &mut lists.prompts,
            Self::Resource => &mut lists.resources,
            Self::Template => &mut lists.templates,
        }
    }

    fn slot_ref(self, lists: &Catalogue) -> &Option<Listing> {
        match self {
            Self::Tool => &lists.tools,
            Self::Prompt => &lists.prompts,
            Self::Resource => &lists.resources,
            Self::Template => &lists.templates,
        }
    }
}

/// One thing that clients can name.
#[derive(Debug)]
pub struct Entry {
    /// The name or URI that clients use.
    pub exposed: Arc<str>,
    /// The one that the upstream uses.
    pub original: Arc<str>,
    /// The upstream that has it.
    pub member: Arc<Member>,
    /// The definition as clients see it.
    pub definition: Raw,
    /// Arguments that travel in headers too; tools only.
    pub params: Arc<[ParamHeader]>,
    /// The name that the file gives it, without what stands before it.
    pub renamed: Option<Arc<str>>,
    /// What of its arguments is not the caller's to give; `None` is nothing.
    pub arguments: Option<Arc<Arguments>>,
    /// URIs of resources that it is shown with, as its server and as clients know them, where that
    /// is not the same; both JSON text.
    pub ui: Vec<(Raw, Raw)>,
    /// The tools that it stands for, of which a call says the one that is meant; `member` is the
    /// first that has one. `None` is a tool like any.
    pub choice: Option<Arc<Choice>>,
}

/// A definition that is not shown, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// Nobody could ask for it.
    #[error("it has no `{member}`")]
    Unnamed {
        /// The one that should be a string: see [`Kind::name_member`].
        member: &'static str,
    },
    /// A member that is missing or something else than the protocol says.
    #[error("{0}")]
    Flaw(Flaw),
    /// Valid by the grammar of JSON, which lets text be half a character, and numbers any.
    #[error("many readers cannot decode it: half a character, or a number too large")]
    Undecoded,
    /// A tool that wants its arguments to be something else than an object.
    #[error("its `inputSchema` is not of the type `object`")]
    Arguments,
    /// No object, or one with a key twice.
    #[error("its definition is not readable: {0}")]
    Unreadable(#[from] waypost_wire::error::Malformed),
    /// A tool whose `x-mcp-header` breaks the rules; clients must drop it (specification:
    /// transports, custom headers from tool parameters).
    #[error("{0}")]
    Annotation(#[from] BadAnnotation),
    /// The file hides a parameter that the server needs, and gives it no value: no call could work.
    #[error(
        "its parameter `{param}` is hidden, but the server needs it; hint: give it a value in \
         `tools.set_params`"
    )]
    Needed {
        /// The parameter.
        param: String,
    },
    /// The file hides a parameter that callers would see all the same.
    #[error("a hidden parameter of it is behind a `$ref`, where it would still be seen")]
    Seen,
    /// The file hides a parameter of which it cannot be told whether callers would see it.
    #[error("a parameter of it is hidden, and what its references lead to cannot be looked at")]
    Unfollowed,
}

/// A definition as an upstream sent it, read as far as needed.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) original: Arc<str>,
    raw: Raw,
    params: Arc<[ParamHeader]>,
    pub(super) renamed: Option<Arc<str>>,
    arguments: Option<Arc<Arguments>>,
    /// URIs of the resources that it is shown with, parts of its text.
    pub(super) ui: Vec<Raw>,
    /// What of it is left out, as it breaks the protocol.
    pub(super) flaws: Vec<Flaw>,
}

impl Definition {
    /// Reads a definition.
    pub(super) fn read(kind: Kind, raw: &Raw) -> Result<Self, Rejected> {
        let Sound { definition, flaws } = sound(kind, raw)?;
        let object = definition.as_object()?;
        let member = kind.name_member();
        let original = object.string(member).ok_or(Rejected::Unnamed { member })?;
        let schema = if kind == Kind::Tool {
            object.get("inputSchema")
        } else {
            None
        };
        let params = schema.map_or(Ok(Vec::new()), param::declared)?;
        Ok(Self {
            original: original.into(),
            raw: definition,
            ui: ui(kind, &object),
            params: params.into(),
            renamed: None,
            arguments: None,
            flaws,
        })
    }

    /// The definition as the file wants it to be.
    pub(super) fn shaped(mut self, kind: Kind, one: &One) -> Result<Self, Rejected> {
        if one.changes() {
            self.raw = one.shape(&self.raw)?;
            self.ui = ui(kind, &self.raw.as_object()?);
        }
        self.renamed = one.name.as_deref().map(Into::into);
        let arguments = one.arguments();
        self.arguments = arguments.map(|own| Arc::new(own.of(&self.params)));
        Ok(self)
    }

    /// The name that it would have without anything before it.
    pub(super) fn plain_name(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.original)
    }

    /// The definition under the name that clients will use. Nothing but the name changes, and the
    /// resources in `ui`; the original name is kept in `_meta`.
    pub(super) fn named(&self, kind: Kind, name: &str, ui: &[(Raw, Raw)]) -> Raw {
        let raw = if ui.is_empty() {
            self.raw.clone()
        } else {
            self.raw.with_parts(ui)
        };
        if *name == *self.original {
            return raw;
        }
        // It could be read once, so it can be again.
        let mut object = raw.as_object().unwrap_or_default();
        object.set(kind.name_member(), Raw::string(name));
        let meta = object.get(META).and_then(|raw| raw.as_object().ok());
        let mut meta = meta.unwrap_or_default();
        meta.set(ORIGINAL_NAME, Raw::string(&self.original));
        object.set(META, meta.into());
        object.into()
    }

    /// The entry with this name, whose definition was made by [`Definition::named`].
    pub(super) fn entry(&self, member: &Arc<Member>, name: &str, definition: Raw) -> Entry {
        let exposed = if *name == *self.original {
            Arc::clone(&self.original)
        } else {
            name.into()
        };
        Entry {
            exposed,
            original: Arc::clone(&self.original),
            member: Arc::clone(member),
            definition,
            params: Arc::clone(&self.params),
            renamed: self.renamed.clone(),
            arguments: self.arguments.clone(),
            ui: Vec::new(),
            choice: None,
        }
    }

    /// What a tool takes, as clients see it; `None` where it says nothing.
    pub(super) fn schema(&self) -> Option<Raw> {
        self.part("inputSchema")
    }

    /// A member of it, as clients see it.
    pub(super) fn part(&self, key: &str) -> Option<Raw> {
        self.raw.as_object().ok()?.get(key).cloned()
    }
}

fn ui(kind: Kind, definition: &Object) -> Vec<Raw> {
    match kind {
        Kind::Tool => links::ui_uris(definition),
        Kind::Prompt | Kind::Resource | Kind::Template => Vec::new(),
    }
}

impl Entry {
    /// The same, which is shown with these resources.
    pub(super) fn with_ui(mut self, ui: Vec<(Raw, Raw)>) -> Self {
        self.ui = ui;
        self
    }

    /// Whether a call of it may be for this upstream.
    pub(crate) fn is_of(&self, upstream: &str) -> bool {
        let choice = self.choice.as_ref();
        choice.map_or_else(
            || *self.member.name == *upstream,
            |choice| choice.is_of(upstream),
        )
    }

    /// What it is called where it comes from, or by the file.
    pub(crate) fn plain_name(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.original)
    }
}
