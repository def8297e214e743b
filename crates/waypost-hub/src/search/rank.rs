//! How the words of a query add up.

use super::Hit;
use super::score::Postings;

/// What a query found so far, by document.
#[derive(Debug)]
pub(super) struct Scores {
    found: Vec<Found>,
    /// What all of the query can weigh.
    weight: f32,
    /// Of the word being added: the documents that have it.
    touched: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Found {
    score: f32,
    /// What the words found weigh.
    weight: f32,
    /// The best that the word being added is worth here, and its weight.
    best: (f32, f32),
}

impl Scores {
    pub(super) fn new(documents: usize) -> Self {
        Self {
            found: vec![Found::default(); documents],
            weight: 0.0,
            touched: Vec::new(),
        }
    }

    /// Adds what one word of a query is worth, as the numbers of all words that mean it. Only
    /// the best of these counts: a text that says `delete` and `remove` is not twice as much
    /// about deleting.
    pub(super) fn add(&mut self, alternatives: &[(usize, f32)], postings: &[Postings]) {
        let mut heaviest = 0.0_f32;
        for &(word, share) in alternatives {
            let Some(postings) = postings.get(word) else {
                continue;
            };
            let weight = postings.rarity * share;
            heaviest = heaviest.max(weight);
            for posting in &postings.found {
                self.touch(posting.document, (posting.worth * share, weight));
            }
        }
        self.weight += heaviest;
        for document in std::mem::take(&mut self.touched) {
            if let Some(found) = self.at(document) {
                let (score, weight) = std::mem::take(&mut found.best);
                found.score += score;
                found.weight += weight;
            }
        }
    }

    /// What was found, in order of the documents. Who has more of what was asked for goes before
    /// who has one word of it often.
    pub(super) fn hits(&self) -> impl Iterator<Item = Hit> {
        let found = self.found.iter().enumerate();
        let found = found.filter(|(_, found)| found.score > 0.0);
        found.map(|(document, found)| Hit {
            document,
            score: found.score * (found.weight / self.weight).sqrt(),
        })
    }

    fn touch(&mut self, document: u32, worth: (f32, f32)) {
        let Some(found) = self.at(document) else {
            return;
        };
        let first = found.best.0 == 0.0;
        if worth.0 > found.best.0 {
            found.best = worth;
            if first {
                self.touched.push(document);
            }
        }
    }

    fn at(&mut self, document: u32) -> Option<&mut Found> {
        self.found.get_mut(usize::try_from(document).ok()?)
    }
}
