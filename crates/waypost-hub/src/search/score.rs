//! What a word is worth in a document: BM25F.
//!
//! The counts of a word in the fields are weighed and added first and saturate together, so that
//! a word said in name, title and description does not count three times (Robertson, Zaragoza
//! and Taylor, "Simple BM25 extension to multiple weighted fields", 2004).

use super::document::{Document, Field};
use super::words::{Text, Vocabulary};

/// How soon more of the same word stops to help.
const SATURATION: f32 = 1.2;

/// A document that has a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub(super) document: u32,
    /// What the word adds to its score.
    pub(super) worth: f32,
}

/// A word, and who has it.
#[derive(Debug)]
pub(super) struct Postings {
    /// How much the word tells: the more the fewer have it.
    pub(super) rarity: f32,
    pub(super) found: Box<[Posting]>,
}

/// The words of all documents.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// One document after the other, and in it one field after the other.
    words: Vec<usize>,
    /// By document: how many words its fields have.
    lengths: Vec<[usize; Field::ALL.len()]>,
}

type PerField = [f32; Field::ALL.len()];

impl Field {
    /// How much a word in it counts, and how much less where the field is long.
    const fn weight(self) -> (f32, f32) {
        match self {
            Self::Source => (3.0, 0.0),
            Self::Name => (2.5, 0.3),
            Self::Title => (1.5, 0.3),
            Self::Summary => (1.5, 0.4),
            Self::Description => (0.8, 0.4),
            Self::Parameters => (1.0, 0.4),
            Self::Details => (0.4, 0.4),
        }
    }

    const fn text(self) -> Text {
        match self {
            Self::Source | Self::Name | Self::Parameters => Text::Names,
            Self::Title | Self::Summary | Self::Description | Self::Details => Text::Prose,
        }
    }
}

impl Counts {
    /// Reads one more document.
    pub(super) fn add(&mut self, document: &Document, words: &mut Vocabulary) {
        let mut lengths = [0; Field::ALL.len()];
        for ((field, text), length) in document.texts().zip(&mut lengths) {
            let before = self.words.len();
            words.read(text, field.text(), |word| self.words.push(word));
            *length = self.words.len() - before;
        }
        self.lengths.push(lengths);
    }

    /// How many documents were read.
    pub(super) fn documents(&self) -> usize {
        self.lengths.len()
    }

    /// Tells what each of `words` words is worth in each document.
    pub(super) fn weigh(self, words: usize) -> Vec<Postings> {
        let average = self.average();
        let mut postings: Vec<Vec<Posting>> = vec![Vec::new(); words];
        // Of one document: by word, what its occurrences add up to.
        let mut sums = vec![0.0_f32; words];
        let mut rest = self.words.iter();
        for (document, lengths) in (0..u32::MAX).zip(&self.lengths) {
            let mut has = Vec::new();
            for (length, by) in lengths.iter().zip(scale(lengths, &average)) {
                for &word in rest.by_ref().take(*length) {
                    let Some(sum) = sums.get_mut(word) else {
                        continue;
                    };
                    if *sum == 0.0 {
                        has.push(word);
                    }
                    *sum += by;
                }
            }
            for word in has {
                if let (Some(sum), Some(found)) = (sums.get_mut(word), postings.get_mut(word)) {
                    let sum = std::mem::take(sum);
                    let worth = sum / (SATURATION + sum);
                    found.push(Posting { document, worth });
                }
            }
        }
        let all = self.lengths.len();
        postings
            .into_iter()
            .map(|found| with_rarity(found, all))
            .collect()
    }

    /// The average length of each field, of those documents that have it.
    fn average(&self) -> PerField {
        let mut average = PerField::default();
        for (field, average) in average.iter_mut().enumerate() {
            let lengths = self.lengths.iter().filter_map(|lengths| lengths.get(field));
            let having = lengths.clone().filter(|length| **length > 0).count();
            *average = float(lengths.sum()) / float(having.max(1));
        }
        average
    }
}

/// What one occurrence counts in each field of a document with fields of these lengths.
fn scale(lengths: &[usize; Field::ALL.len()], average: &PerField) -> PerField {
    let mut scale = PerField::default();
    let fields = Field::ALL.iter().zip(lengths.iter().zip(average));
    for (by, (field, (length, average))) in scale.iter_mut().zip(fields) {
        let (weight, against_length) = field.weight();
        let relative = float(*length) / average.max(1.0);
        *by = weight / (1.0 - against_length + against_length * relative);
    }
    scale
}

/// Makes a word count more the fewer of `all` documents have it.
fn with_rarity(mut found: Vec<Posting>, all: usize) -> Postings {
    let (all, having) = (float(all), float(found.len()));
    let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
    for posting in &mut found {
        posting.worth *= rarity;
    }
    let found = found.into();
    Postings { rarity, found }
}

/// A number of words or documents; those are small.
fn float(number: usize) -> f32 {
    number as f32
}
