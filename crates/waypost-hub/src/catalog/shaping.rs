//! What the file makes of one upstream's definitions: which there are, under which name, and what
//! they say.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use waypost_config::config::{Pin, Upstream as Settings};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::arguments::Arguments;
use super::entry::{Kind, Rejected};
use super::globs::Globs;
use super::hiding::Hiding;

/// The settings of one upstream, ready for use.
#[derive(Debug)]
pub(crate) struct Shaping {
    tools: Globs,
    prompts: Globs,
    resources: Globs,
    /// Whether tools are held against what they were.
    pub(crate) pin: Option<Pin>,
    ones: HashMap<(Kind, String), One>,
    /// The setting and the tool or prompt that it is for, in the file's order.
    named: Vec<(Kind, &'static str, String)>,
}

/// What becomes of one tool or prompt.
#[derive(Default)]
pub(crate) struct One {
    /// Its name instead of the original one.
    pub(crate) name: Option<String>,
    description: Option<Raw>,
    annotations: Vec<(String, Raw)>,
    /// Not for callers, with the setting that says so.
    hidden: Vec<(&'static str, String)>,
    set: Vec<(String, Raw)>,
}

impl Shaping {
    /// `None` where definitions are shown as they are.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let (tools, prompts) = (&settings.tools, &settings.prompts);
        let mut shaping = Self {
            tools: Globs::new(&tools.filter),
            prompts: Globs::new(&prompts.filter),
            resources: Globs::new(&settings.resources),
            pin: settings.pin,
            ones: HashMap::new(),
            named: Vec::new(),
        };
        for (kind, renamed, described) in [
            (Kind::Tool, &tools.rename, &tools.describe),
            (Kind::Prompt, &prompts.rename, &prompts.describe),
        ] {
            for (of, name) in renamed {
                shaping.one_for(kind, "rename", of).name = Some(name.clone());
            }
            for (of, text) in described {
                shaping.one_for(kind, "describe", of).description = Some(Raw::string(text));
            }
        }
        for (of, params) in &tools.hide_params {
            let hidden = params.iter().map(|name| ("hide_params", name.clone()));
            let one = shaping.one_for(Kind::Tool, "hide_params", of);
            one.hidden.extend(hidden);
        }
        for (of, params) in &tools.set_params {
            let one = shaping.one_for(Kind::Tool, "set_params", of);
            for (name, value) in params {
                one.hidden.push(("set_params", name.clone()));
                one.set.push((name.clone(), json(value.expose())));
            }
        }
        for (of, members) in &tools.annotations {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), json(value)));
            let one = shaping.one_for(Kind::Tool, "annotations", of);
            one.annotations.extend(members);
        }
        let filters = [&shaping.tools, &shaping.prompts, &shaping.resources];
        let is_plain = filters.into_iter().all(Globs::is_empty)
            && shaping.named.is_empty()
            && shaping.pin.is_none();
        (!is_plain).then_some(shaping)
    }

    fn one_for(&mut self, kind: Kind, key: &'static str, of: &str) -> &mut One {
        self.named.push((kind, key, of.to_owned()));
        self.ones.entry((kind, of.to_owned())).or_default()
    }

    /// The patterns over what is of this kind.
    pub(crate) fn globs(&self, kind: Kind) -> &Globs {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Resource | Kind::Template => &self.resources,
        }
    }

    /// What is to become of what the upstream calls `original`.
    pub(crate) fn one(&self, kind: Kind, original: &str) -> Option<&One> {
        // Most have nothing of the kind, and need no key for it.
        if self.ones.is_empty() {
            return None;
        }
        self.ones.get(&(kind, original.to_owned()))
    }

    /// The settings for single ones of a kind: the key, and the original name that it is for.
    pub(super) fn named(&self, kind: Kind) -> impl Iterator<Item = (&'static str, &str)> {
        let own = self.named.iter().filter(move |(of, ..)| *of == kind);
        own.map(|(_, key, name)| (*key, name.as_str()))
    }
}

impl One {
    /// Whether anything but the name becomes another.
    pub(super) fn changes(&self) -> bool {
        self.description.is_some() || !self.annotations.is_empty() || !self.hidden.is_empty()
    }

    /// Changes a definition; its name is left to the catalogue. What is not changed keeps its bytes.
    ///
    /// # Errors
    /// As [`Hiding::schema`].
    pub(super) fn shape(&self, raw: &Raw) -> Result<Raw, Rejected> {
        let mut raw = raw.clone();
        if let Some(text) = &self.description {
            raw = raw.with_member("description", text)?;
        }
        if !self.annotations.is_empty() {
            let own = raw.as_object()?.get("annotations").cloned();
            let own = own.filter(Raw::is_object);
            let mut own = own.unwrap_or_else(Raw::empty_object);
            for (name, value) in &self.annotations {
                own = own.with_member(name, value)?;
            }
            raw = raw.with_member("annotations", &own)?;
        }
        let schema = raw.as_object()?.get("inputSchema").cloned();
        match schema.filter(|schema| schema.is_object() && !self.hidden.is_empty()) {
            Some(schema) => {
                let hidden = self.hidden.iter().map(|(_, name)| name.as_str());
                let set = self.set.iter().map(|(name, _)| name.as_str());
                let schema = Hiding::new(&schema, hidden, set).schema()?;
                Ok(raw.with_member("inputSchema", &schema)?)
            }
            None => Ok(raw),
        }
    }

    /// What a call's arguments are to be; `None` where that is the caller's alone.
    pub(super) fn arguments(&self) -> Option<Arguments> {
        let hidden = self.hidden.iter().map(|(_, name)| name.clone());
        (!self.hidden.is_empty()).then(|| Arguments::new(hidden, self.set.clone()))
    }

    /// Parameters that it names and the tool does not have, each with its setting.
    pub(super) fn unknown_params(&self, object: &Object) -> Vec<(&'static str, &str, Vec<String>)> {
        let schema = object
            .get("inputSchema")
            .and_then(|raw| raw.as_object().ok());
        let properties = schema.as_ref().and_then(|schema| schema.get("properties"));
        let properties = properties
            .and_then(|raw| raw.as_object().ok())
            .unwrap_or_default();
        // It may be in a place of the schema that is not looked at here.
        let text = object.get("inputSchema").map(Raw::text).unwrap_or_default();
        let is_there =
            |name: &str| properties.contains(name) || text.contains(Raw::string(name).text());
        let hidden = self.hidden.iter();
        let unknown = hidden.filter(|(_, name)| !is_there(name));
        let known = || properties.iter().map(|(name, _)| name.to_owned()).collect();
        unknown
            .map(|(key, name)| (*key, name.as_str(), known()))
            .collect()
    }
}

impl fmt::Debug for One {
    /// Leaves out values that are set: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("One");
        out.field("name", &self.name);
        out.field("description", &self.description);
        out.field("annotations", &self.annotations);
        out.field("hidden", &self.hidden).finish_non_exhaustive()
    }
}

/// The configuration made it, so it is JSON.
fn json(text: &str) -> Raw {
    Raw::parse(&Bytes::from(text.to_owned())).unwrap_or_else(|_| Raw::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number spelling, key order, white space, `$ref`, unknown keys.
    const SEND: &str = r##"{ "x-new" : [1.0], "name":"send", "description":"Sends \u0069t.",
        "inputSchema":{"$defs":{"n":{"minimum":1.50}}, "properties":{"to":{"a" : 1e2},"token":{},"n":{"$ref":"#/$defs/n","big":12345678901234567890123}}, "required":["token", "to"] },
        "outputSchema":{"properties":{"token":{}},"required":["token"]},
        "annotations":{ "openWorldHint":true, "readOnlyHint" : false }, "_meta":{"z":1e2} }"##;

    #[track_caller]
    fn check(settings: &str, replaced: &[(&str, &str)]) {
        let yaml = format!("upstreams: {{ u: {{ command: x, tools: {settings} }} }}");
        let config = waypost_config::parse_str(&yaml).unwrap().config;
        let shaping = Shaping::of(&config.upstreams[0]).unwrap();
        let raw = Raw::parse(&Bytes::from(SEND)).unwrap();
        let expected = replaced.iter().fold(SEND.to_owned(), |text, (old, new)| {
            assert_eq!(text.matches(old).count(), 1, "{old}");
            text.replace(old, new)
        });
        let one = shaping.one(Kind::Tool, "send").unwrap();
        assert_eq!(one.shape(&raw).unwrap().text(), expected);
        assert!(shaping.one(Kind::Prompt, "send").is_none());
    }

    #[test]
    fn a20_only_what_the_file_names_becomes_another_byte_for_byte() {
        check("{ rename: { send: x } }", &[]);
        check(
            "{ describe: { send: \"Mails\\nit.\" } }",
            &[(r#""Sends \u0069t.""#, r#""Mails\nit.""#)],
        );
        check(
            "{ annotations: { send: { readOnlyHint: true, x: 1.0, y: [a, 'true', 1e2] } } }",
            &[(
                r#""readOnlyHint" : false }"#,
                r#""readOnlyHint" : true ,"x":1.0,"y":["a","true",1e2]}"#,
            )],
        );
        check(
            "{ set_params: { send: { token: 1 } } }",
            &[
                (r#","token":{},"n""#, r#","n""#),
                (r#"["token", "to"]"#, r#"["to"]"#),
            ],
        );
        check(
            "{ set_params: { send: { token: 1, to: 2 } }, hide_params: { send: [n] } }",
            &[
                (
                    r#"{"$defs":{"n":{"minimum":1.50}}, "properties""#,
                    r#"{"$defs":{"n":{"minimum":1.50}},"properties""#,
                ),
                (
                    r##"{"to":{"a" : 1e2},"token":{},"n":{"$ref":"#/$defs/n","big":12345678901234567890123}}, "required":["token", "to"] }"##,
                    "{}}",
                ),
            ],
        );
    }

    #[test]
    fn an_upstream_of_which_the_file_says_nothing_is_not_shaped() {
        let yaml = "upstreams: { u: { command: x, tools: { timeouts: { a: 1s } } } }";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        assert!(Shaping::of(&config.upstreams[0]).is_none());
    }

    #[test]
    fn values_that_are_set_are_not_printed() {
        let yaml = "upstreams: { u: { command: x, tools: { set_params: { a: { b: canary } } } } }";
        let config = waypost_config::parse_str(yaml).unwrap().config;
        let shaping = Shaping::of(&config.upstreams[0]);
        assert!(!format!("{shaping:?} {config:?}").contains("canary"));
    }
}
