//! The fields of events and spans: in one line, and those of a span each value once.
//!
//! Names and sentences of others are among them, which must not write lines of their own, nor move
//! the cursor of whoever reads them. A call that is carried on says more than once to which
//! upstream it goes.

use std::fmt;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer};

use crate::unseen::is_unseen;

/// Writes fields as usual, but for characters that are not seen, which are escaped, and for those
/// that a span has said before.
#[derive(Debug, Default)]
pub(super) struct Fields(DefaultFields);

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut text = String::new();
        self.0.format_fields(Writer::new(&mut text), fields)?;
        for piece in text.split_inclusive(is_unseen) {
            match piece.chars().next_back().filter(|last| is_unseen(*last)) {
                Some(last) => {
                    writer.write_str(piece.trim_end_matches(last))?;
                    write!(writer, "{}", last.escape_default())?;
                }
                None => writer.write_str(piece)?,
            }
        }
        Ok(())
    }

    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let before = current.fields.len();
        if before > 0 {
            current.fields.push(' ');
        }
        let begins = current.fields.len();
        self.format_fields(current.as_writer(), fields)?;
        let (said, more) = current.fields.split_at_checked(begins).unwrap_or_default();
        if more.is_empty() || said.contains(more) {
            current.fields.truncate(before);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_span_has_said_it_does_not_say_again() {
        let written = Written::default();
        let to = written.clone();
        let builder = tracing_subscriber::fmt().fmt_fields(Fields::default());
        let builder = builder.with_ansi(false).with_writer(move || to.clone());
        tracing::subscriber::with_default(builder.finish(), || {
            let span = tracing::info_span!("request", id = 1, upstream = tracing::field::Empty);
            for upstream in ["u", "u", "other", "u"] {
                span.record("upstream", upstream);
            }
            span.in_scope(|| tracing::info!("said"));
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let fields = r#"request{id=1 upstream="u" upstream="other"}: "#;
        assert!(text.contains(fields), "{text}");
    }

    #[test]
    fn somebody_else_s_text_writes_no_lines_of_its_own() {
        let written = Written::default();
        let to = written.clone();
        let builder = tracing_subscriber::fmt().fmt_fields(Fields::default());
        let builder = builder.with_ansi(false).with_writer(move || to.clone());
        tracing::subscriber::with_default(builder.finish(), || {
            let name = "a\nERROR forged\x1b[2J\u{9b}\u{202e}\u{200b}é";
            tracing::warn!(%name, "`{name}` is dropped");
            let span = tracing::info_span!("request", name = tracing::field::Empty);
            span.record("name", tracing::field::display(name));
            span.in_scope(|| tracing::info!("said"));
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(text.matches(r"a\nERROR forged").count(), 3, "{text}");
        assert_eq!(
            text.matches(r"\u{9b}\u{202e}\u{200b}é").count(),
            3,
            "{text}"
        );
        let unseen = text.lines().flat_map(str::chars).filter(|c| is_unseen(*c));
        assert_eq!(unseen.count(), 0, "{text}");
    }
}
