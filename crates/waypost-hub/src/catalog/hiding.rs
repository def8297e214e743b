//! Takes parameters out of a schema of arguments, wherever it says something of them.
//!
//! A schema can name a parameter in more places than its own `properties`: in those of schemas that
//! hold for the same object (`allOf`, `if`, ...), in `required` and in what depends on others.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use waypost_wire::object::Object;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};
use waypost_wire::uri;

use super::entry::Rejected;

/// Keywords whose schemas are all for the same object,
const SEVERAL: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// with one schema,
const ONE: [&str; 4] = ["not", "if", "then", "else"];
/// or with schemas, or names, by the parameter that has to be there.
const BY_NAME: [&str; 3] = ["dependentRequired", "dependentSchemas", "dependencies"];

/// References to other schemas than the whole.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// So many places are looked at that references lead to. Each is read anew from the whole schema.
const PLACES: usize = 64;

/// Keywords that say something of parameters which are not in `properties`,
const OTHERS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// or of all that there are.
const ALL: [&str; 2] = ["maxProperties", "propertyNames"];

/// What is hidden of a tool's parameters.
pub(super) struct Hiding<'a> {
    hidden: Vec<&'a str>,
    /// Those among them that the server gets all the same.
    set: Vec<&'a str>,
    root: &'a Raw,
    /// Where references lead: what was found there, and what is to be looked at yet.
    places: RefCell<Places>,
    /// See [`Hiding::has_room`].
    is_closed: Cell<bool>,
}

#[derive(Default)]
struct Places {
    known: HashSet<String>,
    ahead: Vec<String>,
}

/// What is left of a schema.
enum Left {
    /// All of it.
    Same,
    Without(Raw),
    /// It wants a parameter that nobody can give.
    Never(String),
}

impl<'a> Hiding<'a> {
    /// Hides these parameters of the tool with this schema.
    pub(super) fn new(
        root: &'a Raw,
        hidden: impl Iterator<Item = &'a str>,
        set: impl Iterator<Item = &'a str>,
    ) -> Self {
        Self {
            hidden: hidden.collect(),
            set: set.collect(),
            root,
            places: RefCell::default(),
            is_closed: Cell::new(false),
        }
    }

    /// The schema that callers see. What is not changed keeps its bytes.
    ///
    /// # Errors
    /// [`Rejected::Needed`] where no call could be made, [`Rejected::Seen`] where a parameter cannot
    /// be taken out, [`Rejected::Unfollowed`] where that cannot be told.
    pub(super) fn schema(&self) -> Result<Raw, Rejected> {
        if self.hidden.iter().any(|name| self.is_referred_to(name)) {
            return Err(Rejected::Seen);
        }
        match self.all()? {
            Left::Same => Ok(self.root.clone()),
            Left::Without(schema) => Ok(schema),
            Left::Never(param) => Err(Rejected::Needed { param }),
        }
    }

    /// Whether something else takes its schema from the one that is taken out.
    fn is_referred_to(&self, name: &str) -> bool {
        let place = name.replace('~', "~0").replace('/', "~1");
        let place = format!("\"#/properties/{place}");
        let mut found = self.root.text().match_indices(&place);
        found.any(|(at, _)| {
            let after = self.root.text().get(at + place.len()..);
            after.is_some_and(|after| after.starts_with(['"', '/']))
        })
    }

    /// Whether the schema says nothing of these parameters, in any of its places.
    ///
    /// # Errors
    /// As [`Hiding::schema`].
    pub(super) fn is_silent(&self) -> Result<bool, Rejected> {
        Ok(matches!(self.all()?, Left::Same))
    }

    /// Whether a parameter that is added to the `properties` of the whole is allowed by all that was
    /// looked at.
    pub(super) fn has_room(&self) -> bool {
        !self.is_closed.get()
    }

    fn all(&self) -> Result<Left, Rejected> {
        let left = self.left(self.root)?;
        loop {
            let place = self.places.borrow_mut().ahead.pop();
            let Some(place) = place else { return Ok(left) };
            let behind = self.at(&place).ok_or(Rejected::Unfollowed)?;
            // It may be used elsewhere too, so nothing is taken out of it.
            match self.left(&behind)? {
                Left::Same => {}
                Left::Without(_) | Left::Never(_) => return Err(Rejected::Seen),
            }
        }
    }

    fn is_hidden(&self, name: &str) -> bool {
        self.hidden.contains(&name)
    }

    fn left(&self, schema: &Raw) -> Result<Left, Rejected> {
        if !schema.is_object() {
            return Ok(Left::Same);
        }
        let object = schema.as_object()?;
        if self.closes(schema, &object) {
            self.is_closed.set(true);
        }
        let mut changed = Changed::default();
        if let Some(param) = self.names(&object, &mut changed)? {
            return Ok(Left::Never(param));
        }
        for key in SEVERAL {
            if let Some(param) = self.several(key, &object, &mut changed)? {
                return Ok(Left::Never(param));
            }
        }
        for key in ONE {
            if let Some(own) = object.get(key) {
                changed.put(own, self.left(own)?);
            }
        }
        for key in BY_NAME {
            self.by_name(key, &object, &mut changed)?;
        }
        self.note_references(&object)?;
        changed.made(schema)
    }

    /// `properties` and `required`.
    fn names(&self, object: &Object, changed: &mut Changed) -> Result<Option<String>, Rejected> {
        if let Some(own) = object.get("properties").filter(|own| own.is_object()) {
            let mut properties = own.as_object()?;
            let before = properties.len();
            for name in &self.hidden {
                properties.remove(name);
            }
            if properties.len() < before {
                changed.0.push((own.clone(), Some(properties.into())));
            }
        }
        let Some(own) = object.get("required") else {
            return Ok(None);
        };
        let all = own.as_array().unwrap_or_default();
        let is_hidden = |raw: &&Raw| raw.as_str().is_some_and(|name| self.is_hidden(&name));
        let mut gone = all.iter().filter(is_hidden).filter_map(Raw::as_str);
        if let Some(name) = gone.find(|name| !self.set.contains(&&**name)) {
            return Ok(Some(clip(&name, NAME).into_owned()));
        }
        let left: Vec<&Raw> = all.iter().filter(|raw| !is_hidden(raw)).collect();
        if left.len() < all.len() {
            // To old versions of JSON Schema an empty one is an error.
            let left = (!left.is_empty()).then(|| Raw::array(left));
            changed.0.push((own.clone(), left));
        }
        Ok(None)
    }

    fn several(
        &self,
        key: &str,
        object: &Object,
        changed: &mut Changed,
    ) -> Result<Option<String>, Rejected> {
        let Some(own) = object.get(key) else {
            return Ok(None);
        };
        let (mut left, mut is_same, mut never) = (Vec::new(), true, None);
        for schema in own.as_array().unwrap_or_default() {
            match self.left(&schema)? {
                Left::Same => left.push(schema),
                Left::Without(schema) => {
                    is_same = false;
                    left.push(schema);
                }
                Left::Never(param) if key == "allOf" => return Ok(Some(param)),
                // It is no choice.
                Left::Never(param) => {
                    is_same = false;
                    never = Some(param);
                }
            }
        }
        if left.is_empty() {
            return Ok(never);
        }
        if !is_same {
            changed.0.push((own.clone(), Some(Raw::array(&left))));
        }
        Ok(None)
    }

    fn by_name(&self, key: &str, object: &Object, changed: &mut Changed) -> Result<(), Rejected> {
        let Some(own) = object.get(key).filter(|own| own.is_object()) else {
            return Ok(());
        };
        let mut left = Object::new();
        let mut is_same = true;
        for (name, wants) in own.as_object()?.iter() {
            if self.is_hidden(name) {
                is_same = false;
                continue;
            }
            let Some(names) = wants.as_array() else {
                let mut inner = Changed::default();
                inner.put(wants, self.left(wants)?);
                is_same &= inner.0.is_empty();
                let made = inner.0.into_iter().next().and_then(|(_, made)| made);
                left.set(name, made.unwrap_or_else(|| wants.clone()));
                continue;
            };
            let is_seen = |raw: &&Raw| !raw.as_str().is_some_and(|name| self.is_hidden(&name));
            let seen: Vec<&Raw> = names.iter().filter(is_seen).collect();
            is_same &= seen.len() == names.len();
            left.set(name, Raw::array(seen));
        }
        if !is_same {
            changed.0.push((own.clone(), Some(left.into())));
        }
        Ok(())
    }

    /// Whether a schema, which holds for all parameters, is against one that it does not know.
    fn closes(&self, schema: &Raw, object: &Object) -> bool {
        let is_root = schema.as_bytes().as_ptr() == self.root.as_bytes().as_ptr();
        let is_against = |key: &str| {
            let own = object.get(key);
            own.is_some_and(|own| !["true", "{}"].contains(&own.text()))
        };
        // The whole one knows it, as it gets it.
        ALL.iter().any(|key| is_against(key))
            || !is_root && OTHERS.iter().any(|key| is_against(key))
    }

    /// Has what references lead to looked at, each place once: they can lead in circles, and many
    /// to one place.
    fn note_references(&self, object: &Object) -> Result<(), Rejected> {
        for key in REFERENCES {
            let Some(place) = object.str(key) else {
                continue;
            };
            let place = place.strip_prefix('#').ok_or(Rejected::Unfollowed)?;
            let place = uri::decoded(place);
            if place.is_empty() {
                continue;
            }
            // The name of an anchor, which could be anywhere.
            if !place.starts_with('/') {
                return Err(Rejected::Unfollowed);
            }
            let mut places = self.places.borrow_mut();
            if !places.known.contains(&place) {
                if places.known.len() == PLACES {
                    return Err(Rejected::Unfollowed);
                }
                places.known.insert(place.clone());
                places.ahead.push(place);
            }
        }
        Ok(())
    }

    /// The value at this place of the schema (RFC 6901).
    fn at(&self, place: &str) -> Option<Raw> {
        let mut value = self.root.clone();
        for step in place.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            value = match value.as_array() {
                Some(items) => items.get(step.parse::<usize>().ok()?)?.clone(),
                None => value.as_object().ok()?.get(&step)?.clone(),
            };
        }
        Some(value)
    }
}

/// Values of an object's members that become others, or go.
#[derive(Default)]
struct Changed(Vec<(Raw, Option<Raw>)>);

impl Changed {
    fn put(&mut self, own: &Raw, left: Left) {
        match left {
            Left::Same => {}
            Left::Without(schema) => self.0.push((own.clone(), Some(schema))),
            Left::Never(_) => {
                let mut nothing = Object::new();
                nothing.set("not", Raw::empty_object());
                self.0.push((own.clone(), Some(nothing.into())));
            }
        }
    }

    fn made(self, schema: &Raw) -> Result<Left, Rejected> {
        if self.0.is_empty() {
            return Ok(Left::Same);
        }
        let goes = |value: &Raw| {
            let same = |(own, made): &(Raw, Option<Raw>)| {
                made.is_none() && own.as_bytes().as_ptr() == value.as_bytes().as_ptr()
            };
            self.0.iter().any(same)
        };
        let object = schema.as_object()?;
        let gone = object.iter().filter(|(_, value)| goes(value));
        let gone: Vec<&str> = gone.map(|(name, _)| name).collect();
        let kept = self
            .0
            .iter()
            .filter_map(|(own, made)| Some((own.clone(), made.clone()?)));
        let made = schema.with_parts(&kept.collect::<Vec<_>>());
        if gone.is_empty() {
            return Ok(Left::Without(made));
        }
        let mut object = made.as_object()?;
        for name in gone {
            object.remove(name);
        }
        Ok(Left::Without(object.into()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// `d` is hidden, `s` too, but the server gets it.
    fn hide(schema: &str) -> Result<String, String> {
        let root = Raw::parse(&Bytes::from(schema.to_owned())).unwrap();
        let hiding = Hiding::new(&root, ["d", "s"].into_iter(), ["s"].into_iter());
        let schema = hiding.schema();
        schema.map(|raw| raw.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn r30_a_hidden_parameter_is_nowhere_in_the_schema() {
        for (schema, left) in [
            (r#"{ "properties":{"a":{ "properties":{"d":{}} }} }"#, None),
            (
                r#"{"x":1.0,"allOf":[{ "properties":{"d":{},"a":1.0} },{ "y":[ ] }]}"#,
                Some(r#"{"x":1.0,"allOf":[{ "properties":{"a":1.0} },{ "y":[ ] }]}"#),
            ),
            (
                r#"{"anyOf":[{"required":["d"]},{"required":["s"],"x":1},{"required":["a","s"]}]}"#,
                Some(r#"{"anyOf":[{"x":1},{"required":["a"]}]}"#),
            ),
            (
                r#"{"if":{"required":["d"]},"then":{"properties":{"d":{}}},"else":{"x":1}}"#,
                Some(r#"{"if":{"not":{}},"then":{"properties":{}},"else":{"x":1}}"#),
            ),
            (
                r#"{"dependentRequired":{"d":["a"],"a":["d","b"]},"dependencies":{"a":{"properties":{"s":{}}},"s":{}}}"#,
                Some(r#"{"dependentRequired":{"a":["b"]},"dependencies":{"a":{"properties":{}}}}"#),
            ),
            (
                r##"{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"b":{}}}}}"##,
                None,
            ),
            (r##"{"anyOf":[{"$ref":"#"}]}"##, None),
            (
                r##"{"$ref":"#/$defs/a","$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}"##,
                None,
            ),
        ] {
            assert_eq!(hide(schema).unwrap(), left.unwrap_or(schema), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_cannot_do_without_it_is_refused() {
        for (schema, why) in [
            (
                r#"{"allOf":[{"required":["d"]}]}"#,
                "its parameter `d` is hidden, but",
            ),
            (
                r#"{"oneOf":[{"required":["d"]}]}"#,
                "its parameter `d` is hidden, but",
            ),
            (
                r##"{"allOf":[{"$ref":"#/$defs/a%20b"}],"$defs":{"a b":{"properties":{"d":{}}}}}"##,
                "behind a `$ref`",
            ),
            (
                r##"{"$ref":"#it","$defs":{"a":{"$anchor":"it","properties":{"d":{}}}}}"##,
                "cannot be looked at",
            ),
            (
                r##"{"$dynamicRef":"#it","$defs":{"a":{"$dynamicAnchor":"it","properties":{"d":{}}}}}"##,
                "cannot be looked at",
            ),
            (r##"{"not":{"$ref":"#/$defs/a"}}"##, "cannot be looked at"),
            (
                r##"{"properties":{"d":{"type":"string"},"q":{"$ref":"#/properties/d"}}}"##,
                "behind a `$ref`",
            ),
            (r#"{"$ref":"https://a.example/b"}"#, "cannot be looked at"),
            (
                r#"{"properties":{"d":{},"\u0064":{}}}"#,
                "key `d` is repeated",
            ),
        ] {
            let said = hide(schema).unwrap_err();
            assert!(said.contains(why), "{schema}: {said}");
        }
    }

    #[test]
    fn references_that_lead_in_circles_end() {
        let many = vec![r##"{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}"##; 20].join(",");
        let schema = |b: &str| {
            format!(
                r##"{{"anyOf":[{many}],"$defs":{{"a":{{"anyOf":[{many}]}},"b":{{"oneOf":[{many}{b}]}}}}}}"##
            )
        };
        assert_eq!(hide(&schema("")).unwrap(), schema(""));
        let said = hide(&schema(r#",{"required":["s"]}"#)).unwrap_err();
        assert!(said.contains("behind a `$ref`"), "{said}");
    }

    #[test]
    fn a_chain_of_references_is_followed_to_its_end_or_refused() {
        let chain = |length: usize| {
            let link = |at: usize| format!(r##""{at}":{{"$ref":"#/$defs/{}"}}"##, at + 1);
            let links: Vec<String> = (0..length).map(link).collect();
            format!(
                r##"{{"$ref":"#/$defs/0","$defs":{{{},"{length}":{{"properties":{{"d":{{}}}}}}}}}}"##,
                links.join(",")
            )
        };
        for (length, why) in [(12, "behind a `$ref`"), (PLACES, "cannot be looked at")] {
            let said = hide(&chain(length)).unwrap_err();
            assert!(said.contains(why), "{length}: {said}");
        }
    }
}
