//! Where in the configuration something stands: `upstreams.builds.args[1]`.

use std::fmt;

/// The keys and positions that lead from the top to one value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeyPath(Vec<Step>);

/// One step of a [`KeyPath`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether it is these keys or below them.
    pub(crate) fn starts_with(&self, keys: &[&str]) -> bool {
        let same = |(step, key): (&Step, &&str)| matches!(step, Step::Key(own) if own == key);
        self.0.len() >= keys.len() && self.0.iter().zip(keys).all(same)
    }

    /// The path of the map or list this value is in.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, steps) = self.0.split_last()?;
        Some(Self(steps.to_vec()))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_plain(key) && position == 0 => f.write_str(key)?,
                Step::Key(key) if is_plain(key) => write!(f, ".{key}")?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_like_the_file() {
        let tools = KeyPath::default().key("upstreams").key("a").key("tools");
        assert_eq!(
            tools.key("deny").index(2).to_string(),
            "upstreams.a.tools.deny[2]"
        );
        assert_eq!(
            tools.key("timeouts").key("x_*").to_string(),
            r#"upstreams.a.tools.timeouts["x_*"]"#
        );
    }
}
