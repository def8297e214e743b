//! Makes what a child says fit to be shown.

/// Shorter values are too common to be hidden: every `1` would vanish.
const LEAST: usize = 4;

/// Hides secrets and control characters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redactor {
    secrets: std::sync::Arc<[Box<str>]>,
}

impl Redactor {
    /// Hides these values; of those with several lines, each line.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let lines = values.into_iter().flat_map(str::lines).map(str::trim);
        let mut secrets: Vec<Box<str>> = lines
            .filter(|line| line.len() >= LEAST)
            .map(Into::into)
            .collect();
        // A secret may be part of another one.
        secrets.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self {
            secrets: secrets.into(),
        }
    }

    /// At most `most` characters of `text`, on one line, without secrets.
    pub(crate) fn clean(&self, text: &[u8], most: usize) -> String {
        let mut text = String::from_utf8_lossy(text).into_owned();
        for secret in self.secrets.iter() {
            if text.contains(&**secret) {
                text = text.replace(&**secret, "***");
            }
        }
        let shown = text
            .trim()
            .chars()
            .filter(|c| !c.is_control() || *c == '\t');
        let mut clean: String = shown.clone().take(most).collect();
        if shown.count() > most {
            clean.push('…');
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r36_secrets_and_control_characters_are_not_shown() {
        let redactor = Redactor::new(["canary", "canary-long", "x", "-----BEGIN\nline-two\n"]);
        let clean = |text: &str| redactor.clean(text.as_bytes(), 40);
        assert_eq!(
            clean("\x1b[31mkey canary-long canary x\r"),
            "[31mkey *** *** x"
        );
        assert_eq!(clean("line-two"), "***");
        assert_eq!(clean(&"é".repeat(50)), format!("{}…", "é".repeat(40)));
    }
}
