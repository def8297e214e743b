//! What of a definition is searched.

use serde_json::Value;
use waypost_wire::raw::Raw;

/// How deep a schema is read; deeper names tell nothing about the tool.
const DEPTH: usize = 6;

/// How much text of one field is read, in bytes: some descriptions are whole manuals.
const LONGEST: usize = 16 * 1024;

/// A part of a definition. Parts differ in how much a word in them tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The upstream it comes from.
    Source,
    /// Its own name, as the upstream says it.
    Name,
    /// Its title.
    Title,
    /// The first sentence of its description.
    Summary,
    /// The rest of its description.
    Description,
    /// The names of its parameters.
    Parameters,
    /// What is said of the parameters, and the values they may have.
    Details,
}

impl Field {
    /// All of them, in the order of [`Document::texts`].
    pub(super) const ALL: [Self; 7] = [
        Self::Source,
        Self::Name,
        Self::Title,
        Self::Summary,
        Self::Description,
        Self::Parameters,
        Self::Details,
    ];
}

/// The searchable text of one tool, prompt, resource or template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    texts: [String; Field::ALL.len()],
}

impl Document {
    /// Reads a definition, of any kind, as it stands in a list; `source` is the upstream and
    /// `name` what it calls the thing. What is not readable is not searched.
    pub fn of(source: &str, name: &str, definition: &Raw) -> Self {
        let mut document = Self::default();
        document.add(Field::Source, source);
        document.add(Field::Name, name);
        let Some(Value::Object(definition)) = definition.decode() else {
            return document;
        };
        let text = |member: &str| definition.get(member).and_then(Value::as_str);
        // Prompts and tools have their name twice then; resources are named by their URI.
        let is_resource = ["uri", "uriTemplate"]
            .iter()
            .any(|key| definition.contains_key(*key));
        if let Some(label) = text("name").filter(|_| is_resource) {
            document.add(Field::Title, label);
        }
        let annotations = definition.get("annotations");
        let annotated = annotations.and_then(|a| a.get("title")?.as_str());
        document.add(
            Field::Title,
            text("title").or(annotated).unwrap_or_default(),
        );
        let (summary, rest) = first_sentence(text("description").unwrap_or_default());
        document.add(Field::Summary, summary);
        document.add(Field::Description, rest);
        if let Some(schema) = definition.get("inputSchema") {
            document.add_schema(schema, DEPTH);
        }
        for argument in definition
            .get("arguments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let text = |member: &str| {
                argument
                    .get(member)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            document.add(Field::Parameters, text("name"));
            document.add(Field::Details, text("description"));
        }
        document
    }

    /// Adds text to a field.
    pub fn add(&mut self, field: Field, text: &str) {
        let Some(has) = Field::ALL
            .iter()
            .position(|f| *f == field)
            .and_then(|at| self.texts.get_mut(at))
        else {
            return;
        };
        let room = LONGEST.saturating_sub(has.len());
        let fits = text.floor_char_boundary(room);
        has.push_str(text.get(..fits).unwrap_or_default());
        has.push('\n');
    }

    /// Every field and its text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (Field, &str)> {
        Field::ALL
            .into_iter()
            .zip(self.texts.iter().map(String::as_str))
    }

    /// Adds the names and words of a schema's properties, those of its parts too.
    fn add_schema(&mut self, schema: &Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        for (name, property) in object(schema, "properties") {
            self.add(Field::Parameters, name);
            if let Some(text) = property.get("description").and_then(Value::as_str) {
                self.add(Field::Details, text);
            }
            self.add_schema(property, depth);
        }
        for (_, part) in object(schema, "$defs").chain(object(schema, "definitions")) {
            self.add_schema(part, depth);
        }
        for value in list(schema, "enum").filter_map(Value::as_str) {
            self.add(Field::Details, value);
        }
        let parts = ["anyOf", "oneOf", "allOf"];
        for part in parts
            .into_iter()
            .flat_map(|key| list(schema, key))
            .chain(schema.get("items"))
        {
            self.add_schema(part, depth);
        }
    }
}

fn object<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn list<'a>(schema: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    schema
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Cuts a description after its first sentence or paragraph.
fn first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let ends = [". ", ".\n", "\n\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min();
    text.split_at_checked(end.unwrap_or(text.len()))
        .unwrap_or((text, ""))
}
