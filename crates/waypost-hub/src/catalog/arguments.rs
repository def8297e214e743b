//! Arguments of calls that are not the caller's to give.

use std::fmt;
use std::sync::Arc;

use waypost_wire::error::Malformed;
use waypost_wire::object::Object;
use waypost_wire::param::ParamHeader;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

/// What the file says of a tool's parameters.
#[derive(Clone, Default)]
pub struct Arguments {
    /// Callers may not give them.
    hidden: Vec<String>,
    /// The server gets them with each call. They may be secrets.
    set: Vec<(String, Raw)>,
    /// Those of the tool's header parameters that callers see.
    pub params: Arc<[ParamHeader]>,
}

/// Arguments that a call cannot be made with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// Nobody could tell which of two values with one key the server takes.
    #[error("`arguments`: {0}")]
    Unreadable(#[from] Malformed),
    /// One that callers do not see.
    #[error("the tool has no parameter `{name}`")]
    Unknown {
        /// Its name, perhaps shortened.
        name: String,
    },
}

impl Arguments {
    pub(super) fn new(hidden: impl Iterator<Item = String>, set: Vec<(String, Raw)>) -> Self {
        let mut hidden: Vec<String> = hidden.collect();
        hidden.sort();
        hidden.dedup();
        Self {
            hidden,
            set,
            params: Arc::default(),
        }
    }

    /// The same for a tool with these header parameters.
    pub(super) fn of(mut self, declared: &[ParamHeader]) -> Self {
        let is_seen = |param: &&ParamHeader| {
            let first = param.path.first();
            !first.is_some_and(|first| self.hidden.contains(first))
        };
        self.params = declared.iter().filter(is_seen).cloned().collect();
        self
    }

    /// Names of those that callers may not give.
    pub fn hidden(&self) -> &[String] {
        &self.hidden
    }

    /// The arguments that the server gets. What the caller gave keeps its bytes and its order; what
    /// the file gives comes after it.
    ///
    /// # Errors
    /// [`BadArguments`] where the caller gave what is not its to give, or a key twice.
    pub fn complete(&self, given: Option<&Raw>) -> Result<Option<Raw>, BadArguments> {
        let mut arguments = match given.filter(|raw| !raw.is_null()) {
            Some(raw) => raw.as_object()?,
            None if self.set.is_empty() => return Ok(given.cloned()),
            None => Object::new(),
        };
        if let Some(name) = self.hidden.iter().find(|name| arguments.contains(name)) {
            let name = clip(name, NAME).into_owned();
            return Err(BadArguments::Unknown { name });
        }
        if self.set.is_empty() {
            return Ok(given.cloned());
        }
        for (name, value) in &self.set {
            arguments.set(name, value.clone());
        }
        Ok(Some(arguments.into()))
    }
}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<&str> = self.set.iter().map(|(name, _)| name.as_str()).collect();
        let mut out = f.debug_struct("Arguments");
        out.field("hidden", &self.hidden).field("set", &set);
        out.field("params", &self.params).finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::parse(&Bytes::from(text.to_owned())).unwrap()
    }

    #[track_caller]
    fn check(set: &[(&str, &str)], given: Option<&str>, expected: Result<Option<&str>, &str>) {
        let set: Vec<_> = set
            .iter()
            .map(|(name, value)| ((*name).to_owned(), raw(value)))
            .collect();
        let hidden = set.iter().map(|(name, _)| name.clone());
        let arguments = Arguments::new(hidden.chain(["h".to_owned()]), set.clone());
        let given = given.map(raw);
        let got = arguments
            .complete(given.as_ref())
            .map_err(|e| e.to_string());
        let got = got.as_ref().map(|raw| raw.as_ref().map(Raw::text));
        assert_eq!(got.map_err(String::as_str), expected);
    }

    #[test]
    fn what_the_caller_gives_keeps_its_bytes_and_what_is_set_comes_after_it() {
        let set = [("t", "1.0"), ("u", r#"{"b":[ ]}"#)];
        let given = r#"{"z":1.0,"a":12345678901234567890123,"m":{ "x" : 1 }}"#;
        let expected =
            r#"{"z":1.0,"a":12345678901234567890123,"m":{ "x" : 1 },"t":1.0,"u":{"b":[ ]}}"#;
        check(&set, Some(given), Ok(Some(expected)));
        check(&set, None, Ok(Some(r#"{"t":1.0,"u":{"b":[ ]}}"#)));
        check(&set, Some("null"), Ok(Some(r#"{"t":1.0,"u":{"b":[ ]}}"#)));
        check(&[], Some("{ \"z\" : 1 }"), Ok(Some("{ \"z\" : 1 }")));
        check(&[], None, Ok(None));
    }

    #[test]
    fn what_is_not_the_callers_to_give_is_refused_by_name() {
        let set = [("t", "1")];
        for given in [r#"{"t":2}"#, r#"{"\u0074":2}"#, r#"{"t":null}"#] {
            check(&set, Some(given), Err("the tool has no parameter `t`"));
        }
        check(
            &set,
            Some(r#"{"h":1}"#),
            Err("the tool has no parameter `h`"),
        );
        check(
            &[],
            Some(r#"{"h":1}"#),
            Err("the tool has no parameter `h`"),
        );
        check(
            &set,
            Some(r#"{"a":1,"\u0061":2}"#),
            Err("`arguments`: key `a` is repeated"),
        );
        check(&[], Some("[]"), Err("`arguments`: not a JSON object"));
    }

    #[test]
    fn values_that_are_set_are_not_printed() {
        let set = vec![("key".to_owned(), raw(r#""canary""#))];
        let arguments = Arguments::new(["key".to_owned()].into_iter(), set);
        let text = format!("{arguments:?}");
        assert!(text.contains("key") && !text.contains("canary"), "{text}");
    }
}
