//! JSON-RPC request ids.

use crate::error::Malformed;
use crate::raw::Raw;

/// A request id as it was spelled: `1` and `"1"` are different ids and come back as they went in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Raw);

impl Id {
    /// Takes a value as an id.
    ///
    /// # Errors
    /// [`Malformed::Wrong`] unless it is a string or an integer.
    pub fn new(raw: Raw) -> Result<Self, Malformed> {
        let text = raw.text();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if raw.is_string() || integer {
            return Ok(Self(raw));
        }
        Err(Malformed::Wrong {
            member: "id",
            expected: "a string or an integer",
        })
    }

    /// An id of our own.
    pub fn number(value: u64) -> Self {
        Self(Raw::from_serialize(&value))
    }

    /// The number that it is, also where it was spelled as a string: some peers make one of every
    /// id.
    pub fn as_number(&self) -> Option<u64> {
        let text = self.0.text();
        let digits = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'));
        let digits = digits.unwrap_or(text);
        let number: u64 = digits.parse().ok()?;
        // `+7` and `007` are names.
        (digits.len() == 1 || digits.starts_with(|c: char| ('1'..='9').contains(&c)))
            .then_some(number)
    }

    /// Whether an answer with this id is the one to the request `sent`.
    pub fn is_answer_to(&self, sent: &Self) -> bool {
        let number = || self.as_number().filter(|_| !sent.0.is_string());
        self == sent || number().is_some_and(|number| sent.as_number() == Some(number))
    }

    /// The JSON value.
    pub fn raw(&self) -> &Raw {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn id(text: &'static str) -> Id {
        Id::new(Raw::parse(&Bytes::from_static(text.as_bytes())).unwrap()).unwrap()
    }

    #[test]
    fn a_number_may_come_back_as_a_string_and_a_string_only_as_it_was() {
        let check = |got, sent, expected| {
            assert_eq!(id(got).is_answer_to(&id(sent)), expected, "{got} {sent}");
        };
        check("5", "5", true);
        check("\"5\"", "5", true);
        check("\"0\"", "0", true);
        check("\"05\"", "5", false);
        check("\"+5\"", "5", false);
        check("\"\"", "5", false);
        check("6", "5", false);
        check("5", "\"5\"", false);
        check("\"a\"", "\"a\"", true);
        check("-5", "-5", true);
    }
}
