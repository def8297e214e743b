//! What the file makes of one upstream's definitions: which there are, under which name, and what
//! they say.

use std::collections::HashMap;

use bytes::Bytes;
use waypost_config::config::{Pin, Upstream as Settings};
use waypost_wire::object::Object;
use waypost_wire::raw::Raw;

use super::arguments::Arguments;
use super::entry::{Kind, Rejected};
use super::globs::Globs;

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
#[derive(Debug, Default)]
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

    /// Changes a definition: its name is left to the catalogue.
    ///
    /// # Errors
    /// [`Rejected::Needed`] for a tool that no call could reach.
    pub(super) fn shape(&self, object: &mut Object) -> Result<(), Rejected> {
        if let Some(text) = &self.description {
            object.set("description", text.clone());
        }
        if !self.annotations.is_empty() {
            let own = object
                .get("annotations")
                .and_then(|raw| raw.as_object().ok());
            let mut own = own.unwrap_or_default();
            for (name, value) in &self.annotations {
                own.set(name, value.clone());
            }
            object.set("annotations", own.into());
        }
        self.hide(object)
    }

    /// Takes parameters out of what callers see.
    fn hide(&self, object: &mut Object) -> Result<(), Rejected> {
        let schema = object
            .get("inputSchema")
            .filter(|_| !self.hidden.is_empty());
        let Some(mut schema) = schema.and_then(|raw| raw.as_object().ok()) else {
            return Ok(());
        };
        let properties = schema
            .get("properties")
            .and_then(|raw| raw.as_object().ok());
        if let Some(mut properties) = properties {
            for (_, name) in &self.hidden {
                properties.remove(name);
            }
            schema.set("properties", properties.into());
        }
        if let Some(required) = schema.get("required").and_then(Raw::as_array) {
            let is_hidden = |raw: &Raw| {
                let name = raw.as_str()?;
                self.hidden.iter().find(|(_, own)| **own == *name)
            };
            let is_set = |name: &str| self.set.iter().any(|(own, _)| own == name);
            let mut hidden = required.iter().filter_map(is_hidden);
            if let Some((_, name)) = hidden.find(|(_, name)| !is_set(name)) {
                return Err(Rejected::Needed {
                    param: name.clone(),
                });
            }
            let left: Vec<Raw> = required
                .into_iter()
                .filter(|raw| is_hidden(raw).is_none())
                .collect();
            // To old versions of JSON Schema an empty one is an error.
            if left.is_empty() {
                schema.remove("required");
            } else {
                schema.set("required", Raw::array(&left));
            }
        }
        object.set("inputSchema", schema.into());
        Ok(())
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
        let hidden = self.hidden.iter();
        let unknown = hidden.filter(|(_, name)| !properties.contains(name));
        let known = || properties.iter().map(|(name, _)| name.to_owned()).collect();
        unknown
            .map(|(key, name)| (*key, name.as_str(), known()))
            .collect()
    }
}

/// The configuration made it, so it is JSON.
fn json(text: &str) -> Raw {
    Raw::parse(&Bytes::from(text.to_owned())).unwrap_or_else(|_| Raw::null())
}
