//! Durations (`500ms`, `5m`) and sizes (`4MiB`) as text.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The longest duration taken: beyond it clocks overflow and nobody means it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A duration as written; checked when compiled, so that the problem knows its key.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct DurationText(pub(crate) String);

/// A number of bytes as written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct SizeText(pub(crate) String);

/// A duration as written, where a bare number means milliseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct MillisText(pub(crate) String);

/// What is wrong with a text, and what to write instead.
pub(crate) type Wrong = (&'static str, String);

macro_rules! text_schema {
    ($type:ident, $format:literal) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $format })
            }
        }
    };
}

text_schema!(DurationText, "waypost-duration");
text_schema!(SizeText, "waypost-size");
text_schema!(MillisText, "waypost-milliseconds");

/// Reads `500ms`, `5s`, `5m`, `1h` or `0`.
///
/// # Errors
///
/// What is wrong and what to write.
pub(crate) fn duration(text: &str) -> Result<Duration, Wrong> {
    const SHAPE: &str = "write a number and a unit, as in `500ms`, `5s`, `5m` or `1h`";
    let (number, unit) = split(text);
    let Ok(number) = number.parse::<u64>() else {
        return Err(("not a duration", SHAPE.to_owned()));
    };
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        "" if number == 0 => Some(0),
        "" => {
            return Err((
                "a duration needs a unit",
                format!("write `{number}s` or `{number}ms`"),
            ));
        }
        _ => return Err(("not a duration", SHAPE.to_owned())),
    };
    match millis.map(Duration::from_millis) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(("longer than a year", "write a shorter duration".to_owned())),
    }
}

/// Reads what [`duration`] reads, and a bare number as milliseconds.
///
/// # Errors
///
/// What is wrong and what to write.
pub(crate) fn millis(text: &str) -> Result<Duration, Wrong> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return duration(&format!("{text}ms"));
    }
    duration(text)
}

/// Reads `65536`, `64KiB`, `4MiB` or `1GiB`.
///
/// # Errors
///
/// What is wrong and what to write.
pub(crate) fn size(text: &str) -> Result<usize, Wrong> {
    const SHAPE: &str = "write bytes or use a unit, as in `65536`, `64KiB`, `4MiB` or `1GiB`";
    let (number, unit) = split(text);
    let Ok(number) = number.parse::<usize>() else {
        return Err(("not a size", SHAPE.to_owned()));
    };
    let bytes = match unit {
        "" | "B" => Some(number),
        "KiB" => number.checked_mul(1 << 10),
        "MiB" => number.checked_mul(1 << 20),
        "GiB" => number.checked_mul(1 << 30),
        "K" | "KB" | "k" | "kB" => return Err(("not a size", format!("write `{number}KiB`"))),
        "M" | "MB" | "m" | "mb" => return Err(("not a size", format!("write `{number}MiB`"))),
        "G" | "GB" | "g" | "gb" => return Err(("not a size", format!("write `{number}GiB`"))),
        _ => return Err(("not a size", SHAPE.to_owned())),
    };
    bytes.ok_or_else(|| ("larger than memory can be", SHAPE.to_owned()))
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("5s", 5_000),
            ("5 m", 300_000),
            ("1h", 3_600_000),
            ("0", 0),
        ] {
            assert_eq!(
                duration(text).unwrap(),
                Duration::from_millis(millis),
                "{text}"
            );
        }
        for (text, what, hint) in [
            ("30", "a duration needs a unit", "write `30s` or `30ms`"),
            ("-5s", "not a duration", "`500ms`"),
            ("1.5s", "not a duration", "`500ms`"),
            ("5 minutes", "not a duration", "`500ms`"),
            ("", "not a duration", "`500ms`"),
            ("9000h", "longer than a year", "shorter"),
            ("18446744073709551615h", "longer than a year", "shorter"),
            ("99999999999999999999s", "not a duration", "`500ms`"),
        ] {
            let wrong = duration(text).unwrap_err();
            assert!(
                wrong.0 == what && wrong.1.contains(hint),
                "{text}: {wrong:?}"
            );
        }
        assert_eq!(millis("1500").unwrap(), Duration::from_millis(1500));
        assert_eq!(millis("2s").unwrap(), Duration::from_secs(2));
    }

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("12", 12),
            ("12B", 12),
            ("64KiB", 65_536),
            ("4 MiB", 4 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(size(text).unwrap(), bytes, "{text}");
        }
        assert_eq!(size("4MB").unwrap_err().1, "write `4MiB`");
        assert_eq!(size("x").unwrap_err().0, "not a size");
        assert_eq!(
            size("99999999999999GiB").unwrap_err().0,
            "larger than memory can be"
        );
    }
}
