//! What a value has to be, and what becomes of one that is something else.

use std::fmt;

use url::Url;
use waypost_wire::error::Malformed;
use waypost_wire::raw::Raw;
use waypost_wire::text::{NAME, clip};

/// What the protocol wants a value to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    String,
    /// Text that is an absolute URI.
    Uri,
    /// Text that is a time with its offset.
    Time,
    /// `true` or `false`.
    Boolean,
    /// A whole number, however it is spelled.
    Integer,
    /// A number from 0 to 1.
    Share,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// An object, whatever is in it.
    Object,
    /// A list of these.
    List(&'static Self),
    /// An object with these members, and any others.
    Members(&'static [Member]),
    /// An object whose members are schemas, each an object.
    Schemas,
    /// A schema that validators take.
    Schema,
}

/// A known member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) needed: bool,
}

/// A value that is not what the protocol wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where in the definition.
    path: String,
    shape: Shape,
}

/// Why a value cannot be there.
pub(super) enum Misfit {
    /// It is something else.
    Flaw(Flaw),
    /// Nobody could tell what it is.
    Unreadable(Malformed),
}

/// A place in a definition.
pub(super) enum At<'a> {
    /// All of it.
    Whole,
    Member(&'a Self, &'a str),
    Item(&'a Self, usize),
}

/// What a value becomes; `None` is what it is.
type Fit = Result<Option<Raw>, Misfit>;

/// A member that must be there.
pub(super) const fn need(name: &'static str, shape: Shape) -> Member {
    Member {
        name,
        shape,
        needed: true,
    }
}

/// A member that may be there.
pub(super) const fn may(name: &'static str, shape: Shape) -> Member {
    Member {
        needed: false,
        ..need(name, shape)
    }
}

// === impl Shape ===

impl Shape {
    /// Leaves out of a value what need not be in it and is wrong, and says what that was.
    pub(super) fn fit(self, value: &Raw, at: &At<'_>, flaws: &mut Vec<Flaw>) -> Fit {
        let text = || value.as_str();
        let fits = match self {
            Self::List(of) => return self.fit_items(*of, value, at, flaws),
            Self::Members(known) => return fit_members(known, value, at, flaws),
            Self::Schemas => return fit_schemas(value, at, flaws),
            Self::String => text().is_some(),
            Self::Uri => text().is_some_and(|text| Url::parse(&text).is_ok()),
            Self::Time => text().is_some_and(|text| is_time(text.as_bytes())),
            Self::Boolean => matches!(value.text(), "true" | "false"),
            Self::Integer => value.decode().is_some_and(|n: f64| n.fract() == 0.0),
            Self::Share => value
                .decode()
                .is_some_and(|n: f64| (0.0..=1.0).contains(&n)),
            Self::OneOf(words) => text().is_some_and(|text| words.contains(&&*text)),
            Self::Object | Self::Schema => value.is_object(),
        };
        if fits { Ok(None) } else { Err(at.flaw(self)) }
    }

    /// Wrong items are left out; a list of which nothing is left is wrong itself.
    fn fit_items(self, of: Self, value: &Raw, at: &At<'_>, flaws: &mut Vec<Flaw>) -> Fit {
        let Some(items) = value.as_array() else {
            return Err(at.flaw(self));
        };
        let before = flaws.len();
        let mut kept = Vec::with_capacity(items.len());
        let mut is_same = true;
        for (index, item) in items.iter().enumerate() {
            match of.fit(item, &At::Item(at, index), flaws) {
                Ok(None) => kept.push(item.clone()),
                Ok(Some(mended)) => {
                    is_same = false;
                    kept.push(mended);
                }
                Err(Misfit::Flaw(flaw)) => {
                    is_same = false;
                    flaws.push(flaw);
                }
                Err(unreadable) => return Err(unreadable),
            }
        }
        if is_same {
            return Ok(None);
        }
        if kept.is_empty() {
            let first = flaws.drain(before..).next();
            return Err(first.map_or_else(|| at.flaw(self), Misfit::Flaw));
        }
        Ok(Some(Raw::array(&kept)))
    }
}

fn fit_members(known: &[Member], value: &Raw, at: &At<'_>, flaws: &mut Vec<Flaw>) -> Fit {
    if !value.is_object() {
        return Err(at.flaw(Shape::Object));
    }
    let object = value.as_object()?;
    let (mut gone, mut changed) = (Vec::new(), Vec::new());
    for member in known {
        let at = At::Member(at, member.name);
        let Some(own) = object.get(member.name) else {
            if member.needed {
                return Err(at.flaw(member.shape));
            }
            continue;
        };
        if own.is_null() && !member.needed {
            // Says nothing, as if it were not there.
            gone.push(member.name);
            continue;
        }
        match member.shape.fit(own, &at, flaws) {
            Ok(None) => {}
            Ok(Some(mended)) => changed.push((own.clone(), mended)),
            Err(Misfit::Flaw(flaw)) if !member.needed => {
                flaws.push(flaw);
                gone.push(member.name);
            }
            Err(misfit) => return Err(misfit),
        }
    }
    if gone.is_empty() {
        return Ok((!changed.is_empty()).then(|| value.with_parts(&changed)));
    }
    let mut object = value.with_parts(&changed).as_object()?;
    for name in gone {
        object.remove(name);
    }
    Ok(Some(object.into()))
}

/// Sessions do not know the schemas `true` and `false`; there are objects that say the same. What
/// is no schema says nothing.
fn fit_schemas(value: &Raw, at: &At<'_>, flaws: &mut Vec<Flaw>) -> Fit {
    if !value.is_object() {
        return Err(at.flaw(Shape::Object));
    }
    let object = value.as_object()?;
    let mut changed = Vec::new();
    for (name, schema) in object.iter().filter(|(_, schema)| !schema.is_object()) {
        let mut same = Raw::empty_object();
        match schema.text() {
            "true" => {}
            "false" => same = same.with_member("not", &Raw::empty_object())?,
            _ => flaws.push(Flaw {
                path: At::Member(at, name).to_string(),
                shape: Shape::Object,
            }),
        }
        changed.push((schema.clone(), same));
    }
    Ok((!changed.is_empty()).then(|| value.with_parts(&changed)))
}

/// `2026-07-28T09:30:00.5+02:00`, with or without seconds; that there is such a day is not looked at.
fn is_time(text: &[u8]) -> bool {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_of = |text: &[u8], form: &[u8]| {
        let same = |(byte, form): (&u8, &u8)| match form {
            b'0' => byte.is_ascii_digit(),
            _ => byte == form,
        };
        text.len() == form.len() && text.iter().zip(form).all(same)
    };
    let Some((minute, rest)) = text.split_at_checked(16) else {
        return false;
    };
    let zone = rest
        .iter()
        .position(|byte| matches!(byte, b'Z' | b'+' | b'-'));
    let Some((second, zone)) = zone.and_then(|at| rest.split_at_checked(at)) else {
        return false;
    };
    let is_second = match second.split_at_checked(3) {
        None => second.is_empty(),
        Some((second, part)) => {
            let part = part.strip_prefix(b".").map_or(part.is_empty(), digits);
            is_of(second, b":00") && part
        }
    };
    let is_zone = zone == b"Z" || is_of(zone, b"+00:00") || is_of(zone, b"-00:00");
    is_of(minute, b"0000-00-00T00:00") && is_second && is_zone
}

impl fmt::Display for Shape {
    /// What a value is that is not of this shape.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::String => "no string",
            Self::Uri => "no absolute URI",
            Self::Time => "no time of ISO 8601 with its offset",
            Self::Boolean => "no boolean",
            Self::Integer => "no integer",
            Self::Share => "no number from 0 to 1",
            Self::OneOf(words) => return write!(f, "none of `{}`", words.join("`, `")),
            Self::Object | Self::Members(_) | Self::Schemas => "no object",
            Self::List(_) => "no array",
            Self::Schema => "nothing that validators of schemas take",
        })
    }
}

// === impl Flaw ===

impl Flaw {
    /// A place in a schema that validators stop at.
    pub(super) fn of_schema(path: String) -> Self {
        let shape = Shape::Schema;
        Self { path, shape }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its `{}` is {}", self.path, self.shape)
    }
}

impl From<Malformed> for Misfit {
    fn from(why: Malformed) -> Self {
        Self::Unreadable(why)
    }
}

// === impl At ===

impl At<'_> {
    fn flaw(&self, shape: Shape) -> Misfit {
        let path = self.to_string();
        Misfit::Flaw(Flaw { path, shape })
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Member(At::Whole, name) => f.write_str(name),
            Self::Member(of, name) => write!(f, "{of}.{}", clip(name, NAME)),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_day_a_time_of_day_and_an_offset() {
        for fine in [
            "2026-07-28T09:30:00Z",
            "2026-07-28T09:30Z",
            "2026-07-28T09:30:00.125+02:00",
            "2026-07-28T09:30:00-11:30",
        ] {
            assert!(is_time(fine.as_bytes()), "{fine}");
        }
        for wrong in [
            "",
            "2026-07-28",
            "2026-07-28T09:30:00",
            "2026-07-28 09:30:00Z",
            "2026-07-28T09:30:00.Z",
            "2026-07-28T09:30:0Z",
            "2026-07-28T09:30:00+0200",
            "28.7.2026, 09:30:00 Z",
        ] {
            assert!(!is_time(wrong.as_bytes()), "{wrong}");
        }
    }
}
