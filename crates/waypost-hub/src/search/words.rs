//! Words: how texts and queries are taken apart.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use rust_stemmers::{Algorithm, Stemmer};

use super::synonyms;

/// English words that tell nothing about a need, sorted.
const STOP: &[&str] = &[
    "a",
    "about",
    "above",
    "after",
    "again",
    "all",
    "already",
    "also",
    "always",
    "am",
    "an",
    "and",
    "another",
    "any",
    "are",
    "around",
    "as",
    "at",
    "away",
    "be",
    "because",
    "been",
    "before",
    "behind",
    "being",
    "below",
    "between",
    "both",
    "but",
    "by",
    "can",
    "could",
    "did",
    "do",
    "does",
    "doing",
    "done",
    "down",
    "each",
    "either",
    "else",
    "etc",
    "even",
    "ever",
    "every",
    "for",
    "from",
    "get",
    "getting",
    "give",
    "got",
    "had",
    "has",
    "have",
    "having",
    "he",
    "her",
    "here",
    "him",
    "his",
    "how",
    "if",
    "in",
    "into",
    "is",
    "it",
    "its",
    "just",
    "keep",
    "keeping",
    "keeps",
    "known",
    "late",
    "later",
    "let",
    "like",
    "long",
    "longer",
    "many",
    "me",
    "might",
    "more",
    "most",
    "much",
    "must",
    "my",
    "need",
    "never",
    "no",
    "nor",
    "not",
    "of",
    "off",
    "often",
    "on",
    "once",
    "one",
    "only",
    "or",
    "other",
    "our",
    "out",
    "over",
    "own",
    "per",
    "please",
    "right",
    "same",
    "shall",
    "she",
    "should",
    "since",
    "so",
    "some",
    "somebody",
    "someone",
    "something",
    "soon",
    "still",
    "such",
    "take",
    "takes",
    "taking",
    "than",
    "that",
    "the",
    "their",
    "them",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "through",
    "to",
    "too",
    "until",
    "up",
    "us",
    "use",
    "used",
    "uses",
    "using",
    "very",
    "via",
    "want",
    "was",
    "we",
    "were",
    "what",
    "when",
    "whenever",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whom",
    "whose",
    "why",
    "will",
    "with",
    "within",
    "without",
    "would",
    "yet",
    "you",
    "your",
];

/// A word of a query at least this long, in bytes, stands for those too that begin with it:
/// `repo` for `repository`, `elastic` for `elasticsearch`.
const SHORTEST_PREFIX: usize = 4;

/// What a word counts that begins like the one asked for.
const PREFIX_SHARE: f32 = 0.5;

/// How many such words are tried.
const PREFIXED: usize = 32;

/// What sort of text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// Sentences. A word that begins with a capital there is a name, and `HubSpot` no spot.
    Prose,
    /// Names of programmers: every hump of `PascalCase` is a word.
    Names,
}

/// Characters of a query that are read, and different words of it that count.
const MOST_TEXT: usize = 2_000;
const MOST_WORDS: usize = 64;

/// The words of an index, numbered.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    /// As written, lowercase, to what it counts as; none for those that are ignored. There are
    /// few different ones, so each is stemmed once.
    seen: HashMap<Box<str>, Option<usize>>,
    stems: BTreeMap<Box<str>, usize>,
}

impl Vocabulary {
    /// How many words it has.
    pub(super) fn len(&self) -> usize {
        self.stems.len()
    }

    /// The numbers of a text's words, new ones numbered.
    pub(super) fn read(&mut self, text: &str, sort: Text, mut found: impl FnMut(usize)) {
        split(text, sort, |word| {
            let known = self.seen.get(word).copied();
            if let Some(word) = known.unwrap_or_else(|| self.learn(word)) {
                found(word);
            }
        });
    }

    /// What a query asks for: for each of its words the known ones that mean it, and how much
    /// each of those counts. The same word twice counts once, and what is longer than a need is
    /// told in is not read: whoever asks decides how long the text is.
    pub(super) fn query(&self, text: &str) -> Vec<Vec<(usize, f32)>> {
        let end = text.char_indices().nth(MOST_TEXT).map(|(end, _)| end);
        let text = end.and_then(|end| text.get(..end)).unwrap_or(text);
        let mut asked: Vec<String> = Vec::new();
        split(text, Text::Prose, |word| {
            if asked.len() == MOST_WORDS {
                return;
            }
            if let Some(stem) = stem(word).filter(|stem| !asked.contains(stem)) {
                asked.push(stem);
            }
        });
        asked.iter().map(|word| self.alternatives(word)).collect()
    }

    fn alternatives(&self, word: &str) -> Vec<(usize, f32)> {
        let known = |word: &str, share| Some((*self.stems.get(word)?, share));
        let mut all: Vec<(usize, f32)> = known(word, 1.0).into_iter().collect();
        let same = synonyms::of(word).iter();
        all.extend(same.filter_map(|other| known(other, synonyms::SHARE)));
        if word.len() >= SHORTEST_PREFIX {
            let longer = (Bound::Excluded(word), Bound::Unbounded);
            let longer = self.stems.range::<str, _>(longer);
            let longer = longer.take_while(|(other, _)| other.starts_with(word));
            all.extend(
                longer
                    .take(PREFIXED)
                    .map(|(_, &number)| (number, PREFIX_SHARE)),
            );
        }
        all
    }

    fn learn(&mut self, word: &str) -> Option<usize> {
        let next = self.stems.len();
        let number = stem(word).map(|stem| *self.stems.entry(stem.into()).or_insert(next));
        self.seen.insert(word.into(), number);
        number
    }
}

/// The part of a lowercase word that its forms share; none for one that tells nothing.
pub(super) fn stem(word: &str) -> Option<String> {
    if STOP.binary_search(&word).is_ok() {
        return None;
    }
    // Words of other languages are hardly touched, and the same in text and query.
    let stemmer = Stemmer::create(Algorithm::English);
    Some(stemmer.stem(&american(word)).into_owned())
}

/// One spelling for `colour` and `color`, `summarise` and `summarize`.
fn american(word: &str) -> String {
    const ENDINGS: &[(&str, &str)] = &[
        ("our", "or"),
        ("ours", "ors"),
        ("oured", "ored"),
        ("ise", "ize"),
        ("ises", "izes"),
        ("ised", "ized"),
        ("iser", "izer"),
        ("ising", "izing"),
        ("isation", "ization"),
        ("isations", "izations"),
    ];
    let changed = ENDINGS.iter().find_map(|(british, american)| {
        // Short ones are others: `hour`, `rise`.
        let root = word.strip_suffix(british).filter(|_| word.len() > 5)?;
        Some(format!("{root}{american}"))
    });
    changed.unwrap_or_else(|| word.to_owned())
}

/// Finds the words of a text, lowercase: runs of letters and digits, and of those in
/// `camelCase` or with digits the parts too. In prose, a pair with a hyphen is one word as well:
/// `to-do`. Single letters are left out.
pub(super) fn split(text: &str, sort: Text, mut found: impl FnMut(&str)) {
    let mut word = String::new();
    let mut tell = |parts: [&str; 2]| {
        word.clear();
        let chars = parts.iter().flat_map(|part| part.chars());
        word.extend(chars.flat_map(char::to_lowercase));
        // A single character of a script without letters is a word.
        if word.len() > 1 {
            found(&word);
        }
    };
    let mut before = "";
    for run in text.split(|c: char| !c.is_alphanumeric() && c != '-') {
        for part in run.split('-') {
            if sort == Text::Prose && !before.is_empty() && !part.is_empty() {
                tell([before, part]);
            }
            before = part;
            tell([part, ""]);
            let whole = sort == Text::Prose && part.starts_with(char::is_uppercase);
            if !whole {
                parts(part, |part| tell([part, ""]));
            }
        }
        before = "";
    }
}

/// The humps of a run that has several.
fn parts(run: &str, mut found: impl FnMut(&str)) {
    let mut rest = run;
    while let Some((part, after)) = rest.split_at_checked(hump(rest)) {
        if part.is_empty() || part.len() == run.len() {
            break;
        }
        found(part);
        rest = after;
    }
}

/// Where the first part of a run ends: before an upper-case letter that begins a word, and
/// between letters and digits.
fn hump(run: &str) -> usize {
    let kind = |c: char| (c.is_numeric(), c.is_uppercase());
    let mut chars = run.char_indices().peekable();
    let Some((_, mut last)) = chars.next() else {
        return 0;
    };
    while let Some((at, c)) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(|&(_, next)| next.is_lowercase());
        let ends = match (kind(last), kind(c)) {
            ((was, _), (is, _)) if was != is => true,
            ((_, false), (_, true)) => true,
            // The last capital of `HTTPServer` belongs to what follows.
            ((_, true), (_, true)) => next_is_lower,
            _ => false,
        };
        if ends {
            return at;
        }
        last = c;
    }
    run.len()
}
