//! What is in a definition, as far as clients look (specification: schema, of each version that
//! clients speak). Members that are not named here are nobody's business.

use super::shape::Shape::{
    Boolean, Integer, List, Members, Object, OneOf, Schemas, Share, String, Time, Uri,
};
use super::shape::{Member, may, need};
use crate::catalog::entry::Kind;

/// What a definition of this kind has.
pub(super) fn of(kind: Kind) -> &'static [Member] {
    match kind {
        Kind::Tool => TOOL,
        Kind::Prompt => PROMPT,
        Kind::Resource => RESOURCE,
        Kind::Template => TEMPLATE,
    }
}

const TOOL: &[Member] = &[
    need("name", String),
    may("title", String),
    may("description", String),
    may("icons", ICONS),
    need("inputSchema", Members(SCHEMA)),
    may("outputSchema", Members(SCHEMA)),
    may("annotations", Members(TOOL_ANNOTATIONS)),
    may("execution", Members(EXECUTION)),
    may("_meta", Object),
];

/// The roots of a tool's schemas; of their `type` more has to be known.
const SCHEMA: &[Member] = &[
    may("$schema", String),
    may("properties", Schemas),
    may("required", List(&String)),
];

const TOOL_ANNOTATIONS: &[Member] = &[
    may("title", String),
    may("readOnlyHint", Boolean),
    may("destructiveHint", Boolean),
    may("idempotentHint", Boolean),
    may("openWorldHint", Boolean),
];

const EXECUTION: &[Member] = &[may(
    "taskSupport",
    OneOf(&["forbidden", "optional", "required"]),
)];

const PROMPT: &[Member] = &[
    need("name", String),
    may("title", String),
    may("description", String),
    may("icons", ICONS),
    may("arguments", List(&Members(ARGUMENT))),
    may("_meta", Object),
];

const ARGUMENT: &[Member] = &[
    need("name", String),
    may("title", String),
    may("description", String),
    may("required", Boolean),
];

const RESOURCE: &[Member] = &[
    need("uri", Uri),
    need("name", String),
    may("title", String),
    may("description", String),
    may("icons", ICONS),
    may("mimeType", String),
    may("size", Integer),
    may("annotations", Members(ANNOTATIONS)),
    may("_meta", Object),
];

const TEMPLATE: &[Member] = &[
    need("uriTemplate", String),
    need("name", String),
    may("title", String),
    may("description", String),
    may("icons", ICONS),
    may("mimeType", String),
    may("annotations", Members(ANNOTATIONS)),
    may("_meta", Object),
];

const ANNOTATIONS: &[Member] = &[
    may("audience", List(&OneOf(&["assistant", "user"]))),
    may("lastModified", Time),
    may("priority", Share),
];

const ICONS: super::shape::Shape = List(&Members(ICON));

const ICON: &[Member] = &[
    need("src", String),
    may("mimeType", String),
    may("sizes", List(&String)),
    may("theme", OneOf(&["dark", "light"])),
];
