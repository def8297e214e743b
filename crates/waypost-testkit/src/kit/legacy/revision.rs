//! The revisions of the session era.

use clap::ValueEnum;

/// One revision; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Revision {
    /// 2024-11-05, which had the HTTP+SSE transport.
    #[value(name = "2024-11-05")]
    Nov2024,
    /// 2025-03-26: Streamable HTTP.
    #[value(name = "2025-03-26")]
    Mar2025,
    /// 2025-06-18: elicitation, structured results, the version header.
    #[value(name = "2025-06-18")]
    Jun2025,
    /// 2025-11-25: the experimental tasks, resumable call streams.
    #[value(name = "2025-11-25")]
    Nov2025,
}

impl Revision {
    /// All of them, oldest first.
    pub const ALL: [Self; 4] = [Self::Nov2024, Self::Mar2025, Self::Jun2025, Self::Nov2025];

    /// As the wire writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nov2024 => "2024-11-05",
            Self::Mar2025 => "2025-03-26",
            Self::Jun2025 => "2025-06-18",
            Self::Nov2025 => "2025-11-25",
        }
    }

    /// The revision with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }
}
