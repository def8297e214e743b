//! The tools that a client sees in place of all others.

use bytes::Bytes;
use waypost_wire::raw::Raw;

/// How many tools are found when the caller does not say.
pub const LIMIT: usize = 5;

/// How many may be asked for: each comes with its schema.
pub const LIMIT_MOST: usize = 20;

/// A tool of the gateway that leads to those of the upstreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaTool {
    /// Finds tools for a need.
    Find,
    /// Tells all of one tool.
    Describe,
    /// Calls one.
    Call,
}

impl MetaTool {
    /// All of them, in listing order.
    pub const ALL: [Self; 3] = [Self::Find, Self::Describe, Self::Call];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Find => "find_tools",
            Self::Describe => "describe_tool",
            Self::Call => "call_tool",
        }
    }

    /// Its definition, as `tools/list` shows it.
    pub fn definition(self) -> Raw {
        let text = match self {
            Self::Find => FIND,
            Self::Describe => DESCRIBE,
            Self::Call => CALL,
        };
        // Each is an object: a test parses them.
        Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap_or_else(|_| Raw::empty_object())
    }
}

const FIND: &str = concat!(
    r#"{"name":"find_tools","title":"Find tools","description":"Finds tools for what you want to "#,
    r#"do. Many more tools exist than are listed here; this finds them. Say the need in a few "#,
    r#"plain words, with the product's name if you know it: \"open an issue on GitHub\". Answers "#,
    r#"the best ones with their input schemas; call one of them with call_tool.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""query":{"type":"string","minLength":1,"description":"What the tool should do"},"#,
    r#""limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"#,
    r#""description":"How many tools to answer"},"#,
    r#""upstream":{"type":"string","description":"Only tools of this server"}},"#,
    r#""required":["query"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const DESCRIBE: &str = concat!(
    r#"{"name":"describe_tool","title":"Describe a tool","description":"Answers the whole "#,
    r#"definition of one tool: description, input and output schema, annotations.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""name":{"type":"string","description":"The name that find_tools gave"}},"#,
    r#""required":["name"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const CALL: &str = concat!(
    r#"{"name":"call_tool","title":"Call a tool","description":"Calls a tool that find_tools "#,
    r#"found, and answers what it answers.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""name":{"type":"string","description":"The name that find_tools gave"},"#,
    r#""arguments":{"type":"object","description":"What the tool's input schema asks for"}},"#,
    r#""required":["name"]}}"#,
);
