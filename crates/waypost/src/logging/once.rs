//! The fields of a span, each value once.
//!
//! A call that is carried on says more than once to which upstream it goes.

use std::fmt;

use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormattedFields;
use tracing_subscriber::fmt::format::{DefaultFields, FormatFields, Writer};

/// Writes fields as usual, but for those that a span has said before.
#[derive(Debug, Default)]
pub(super) struct Once(DefaultFields);

impl<'w> FormatFields<'w> for Once {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        self.0.format_fields(writer, fields)
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
        self.0.format_fields(current.as_writer(), fields)?;
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
        let builder = tracing_subscriber::fmt().fmt_fields(Once::default());
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
}
