//! The tools that a client sees in place of all others.

use bytes::Bytes;
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use crate::catalog::entry::Kind;

/// How many tools are found when the caller does not say.
pub const LIMIT: usize = 5;

/// How many may be asked for: each comes with its schema.
pub const LIMIT_MOST: usize = 20;

/// A tool of the gateway that leads to what the upstreams have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaTool {
    /// What it does.
    pub act: Act,
    /// What it leads to; [`Kind::Resource`] stands for templates too.
    pub kind: Kind,
}

/// What a tool of the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Finds some for a need.
    Find,
    /// Tells all of one.
    Describe,
    /// Calls, gets or reads one.
    Use,
}

impl MetaTool {
    /// All of them, in listing order.
    pub const ALL: [Self; 9] = [
        Self::new(Act::Find, Kind::Tool),
        Self::new(Act::Describe, Kind::Tool),
        Self::new(Act::Use, Kind::Tool),
        Self::new(Act::Find, Kind::Prompt),
        Self::new(Act::Describe, Kind::Prompt),
        Self::new(Act::Use, Kind::Prompt),
        Self::new(Act::Find, Kind::Resource),
        Self::new(Act::Describe, Kind::Resource),
        Self::new(Act::Use, Kind::Resource),
    ];

    const fn new(act: Act, kind: Kind) -> Self {
        Self { act, kind }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match (self.act, self.kind) {
            (Act::Find, Kind::Tool) => "find_tools",
            (Act::Describe, Kind::Tool) => "describe_tool",
            (Act::Use, Kind::Tool) => "call_tool",
            (Act::Find, Kind::Prompt) => "find_prompts",
            (Act::Describe, Kind::Prompt) => "describe_prompt",
            (Act::Use, Kind::Prompt) => "get_prompt",
            (Act::Find, Kind::Resource | Kind::Template) => "find_resources",
            (Act::Describe, Kind::Resource | Kind::Template) => "describe_resource",
            (Act::Use, Kind::Resource | Kind::Template) => "read_resource",
        }
    }

    /// Its definition, as `tools/list` shows it.
    pub fn definition(self) -> Raw {
        let text = match (self.act, self.kind) {
            (Act::Find, Kind::Tool) => FIND,
            (Act::Describe, Kind::Tool) => DESCRIBE,
            (Act::Use, Kind::Tool) => CALL,
            (Act::Find, Kind::Prompt) => FIND_PROMPTS,
            (Act::Describe, Kind::Prompt) => DESCRIBE_PROMPT,
            (Act::Use, Kind::Prompt) => GET_PROMPT,
            (Act::Find, Kind::Resource | Kind::Template) => FIND_RESOURCES,
            (Act::Describe, Kind::Resource | Kind::Template) => DESCRIBE_RESOURCE,
            (Act::Use, Kind::Resource | Kind::Template) => READ_RESOURCE,
        };
        // Each is an object: a test parses them.
        Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap_or_else(|_| Raw::empty_object())
    }
}

/// What a call of one of these tools is about, for the log: the name or URI among its arguments.
pub fn target(params: &Object) -> Option<String> {
    MetaTool::named(&params.str("name")?).filter(|tool| tool.act != Act::Find)?;
    let arguments = params.get("arguments")?.as_object().ok()?;
    arguments.string("name").or_else(|| arguments.string("uri"))
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

const FIND_PROMPTS: &str = concat!(
    r#"{"name":"find_prompts","title":"Find prompts","description":"Finds prepared prompts for what you want to do.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""query":{"type":"string","minLength":1,"description":"What the prompt should help with"},"#,
    r#""limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"#,
    r#""description":"How many to answer"},"#,
    r#""upstream":{"type":"string","description":"Only those of this server"}},"#,
    r#""required":["query"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const DESCRIBE_PROMPT: &str = concat!(
    r#"{"name":"describe_prompt","title":"Describe a prompt","description":"Answers the whole definition of one prompt.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""name":{"type":"string","description":"The name that find_prompts gave"}},"#,
    r#""required":["name"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const GET_PROMPT: &str = concat!(
    r#"{"name":"get_prompt","title":"Get a prompt","description":"Answers the messages of a prompt.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""name":{"type":"string","description":"The name that find_prompts gave"},"#,
    r#""arguments":{"type":"object","description":"What its definition asks for"}},"#,
    r#""required":["name"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":true}}"#,
);

const FIND_RESOURCES: &str = concat!(
    r#"{"name":"find_resources","title":"Find resources","description":"Finds resources to read, and templates of their URIs.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""query":{"type":"string","minLength":1,"description":"What the resource should tell"},"#,
    r#""limit":{"type":"integer","minimum":1,"maximum":20,"default":5,"#,
    r#""description":"How many to answer"},"#,
    r#""upstream":{"type":"string","description":"Only those of this server"}},"#,
    r#""required":["query"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const DESCRIBE_RESOURCE: &str = concat!(
    r#"{"name":"describe_resource","title":"Describe a resource","description":"Answers the whole definition of one resource or template.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""uri":{"type":"string","description":"The URI or template that find_resources gave"}},"#,
    r#""required":["uri"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#,
);

const READ_RESOURCE: &str = concat!(
    r#"{"name":"read_resource","title":"Read a resource","description":"Answers what a resource holds.","#,
    r#""inputSchema":{"type":"object","properties":{"#,
    r#""uri":{"type":"string","description":"A URI; of a template, with its parts filled in"}},"#,
    r#""required":["uri"]},"#,
    r#""annotations":{"readOnlyHint":true,"openWorldHint":true}}"#,
);
