//! Finds the tools, prompts and resources that meet a need told in words.
//!
//! Search mode shows a client a few tools that find the others, and those live on this ranking:
//! BM25F, where a definition is several [fields](document::Field) and a word in the name tells
//! more than one in the description of a parameter. The index is built with a catalogue and then
//! only read. Equal texts rank equally everywhere: no clock, no chance, ties in listing order.

pub mod document;
pub mod meta;
mod rank;
mod score;
mod synonyms;
mod words;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeSet;

use document::Document;
use rank::Scores;
use score::{Counts, Postings};
use words::{Text, Vocabulary};

/// Texts that can be searched, found by their position in the list they were made from.
#[derive(Debug, Default)]
pub struct Index {
    words: Vocabulary,
    /// By word: who has it, and what it is worth there.
    postings: Vec<Postings>,
    documents: usize,
}

/// A document that a query found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its position in the list that the index was made from.
    pub document: usize,
    /// How well it fits, above 0; comparable within one answer only.
    pub score: f32,
}

impl Index {
    /// Makes an index of documents, in listing order.
    pub fn new<'a>(documents: impl IntoIterator<Item = &'a Document>) -> Self {
        let mut words = Vocabulary::default();
        let mut counts = Counts::default();
        for document in documents {
            counts.add(document, &mut words);
        }
        Self {
            documents: counts.documents(),
            postings: counts.weigh(words.len()),
            words,
        }
    }

    /// How many documents it has.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// The best documents for a query, at most `limit`, best first.
    ///
    /// A query without any known word finds nothing.
    pub fn search(&self, query: &str, limit: usize) -> Vec<Hit> {
        self.search_among(query, limit, |_| true)
    }

    /// Like [`Index::search`], among those documents whose position passes `keep`.
    pub fn search_among(
        &self,
        query: &str,
        limit: usize,
        keep: impl Fn(usize) -> bool,
    ) -> Vec<Hit> {
        let mut scores = Scores::new(self.documents);
        for alternatives in self.words.query(query) {
            scores.add(&alternatives, &self.postings);
        }
        let mut hits: Vec<Hit> = scores.hits().filter(|hit| keep(hit.document)).collect();
        if hits.len() > limit {
            // Almost every document has some word of a long query; only the best are sorted.
            hits.select_nth_unstable_by(limit, Hit::order);
            hits.truncate(limit);
        }
        hits.sort_unstable_by(Hit::order);
        hits
    }
}

/// The words that a text is searched by, each as the part that its forms share.
pub fn stems(text: &str) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    words::split(text, Text::Prose, |word| stems.extend(words::stem(word)));
    stems
}

impl Hit {
    /// Best first, equals in the order of the catalogue.
    fn order(&self, other: &Self) -> Ordering {
        let score = other.score.total_cmp(&self.score);
        score.then(self.document.cmp(&other.document))
    }
}
