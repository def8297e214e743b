//! Lists as clients see them: exact tables to find names in, and the JSON made once.
//!
//! A list is put together from shelves, one for each upstream. A shelf that did not change is the
//! same one in the next catalogue, and in every endpoint that shows it whole, with its text.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use waypost_wire::raw::Raw;

use super::entry::Entry;
use super::read::Reading;
use super::template;
use crate::member::Member;
use crate::search::Index;
use crate::search::document::Document;

/// What one upstream contributes to a list, sorted by original name.
#[derive(Debug)]
pub struct Shelf {
    member: Arc<Member>,
    entries: Vec<Arc<Entry>>,
    by_original: HashMap<Arc<str>, usize>,
    rendered: Raw,
    /// What gave it its entries, where that was an upstream's own list.
    made_of: Option<Arc<Reading>>,
}

/// One kind of things, in listing order, found by the name that clients use.
#[derive(Debug)]
pub struct Table {
    /// In the order of the file; none is empty.
    shelves: Vec<Arc<Shelf>>,
    by_name: HashMap<Arc<str>, Arc<Entry>>,
    by_upstream: HashMap<Arc<str>, usize>,
    /// By upstream, of those that are in a family.
    own: HashMap<Arc<str>, Own>,
    rendered: Raw,
    /// Made when it is first searched.
    index: OnceLock<Index>,
    /// Made when a URI is first looked for among templates.
    templates: OnceLock<template::Index<Arc<Entry>>>,
}

/// All that an upstream in a family has, which is not all listed by itself.
#[derive(Debug)]
struct Own {
    shelf: Arc<Shelf>,
    by_name: HashMap<Arc<str>, Arc<Entry>>,
}

/// What a table is made of.
#[derive(Debug, Default)]
pub(super) struct Shelves {
    /// What is listed, in the order of the file.
    pub(super) listed: Vec<Arc<Shelf>>,
    /// All that upstreams in families have, in the order of the file.
    pub(super) own: Vec<Arc<Shelf>>,
}

/// What a view lists of a kind.
#[derive(Clone, Debug)]
pub struct Listed<'a> {
    shelves: &'a [Arc<Shelf>],
    /// All of it as a JSON array.
    pub rendered: Raw,
}

// === impl Shelf ===

impl Shelf {
    /// Puts entries of one upstream onto a shelf.
    pub fn new(member: &Arc<Member>, mut entries: Vec<Arc<Entry>>) -> Self {
        entries.sort_by(|a, b| a.original.cmp(&b.original));
        let rendered = Raw::array(entries.iter().map(|entry| &entry.definition));
        Self::sorted(member, entries, rendered)
    }

    /// The same of entries that are sorted already and make this text.
    pub(super) fn sorted(member: &Arc<Member>, entries: Vec<Arc<Entry>>, rendered: Raw) -> Self {
        let names = entries.iter().enumerate();
        let by_original = names.map(|(at, entry)| (Arc::clone(&entry.original), at));
        Self {
            member: Arc::clone(member),
            by_original: by_original.collect(),
            entries,
            rendered,
            made_of: None,
        }
    }

    /// The same, which knows what it was made of.
    pub(super) fn made_of(mut self, reading: &Arc<Reading>) -> Self {
        self.made_of = Some(Arc::clone(reading));
        self
    }

    pub(super) fn is_made_of(&self, reading: &Arc<Reading>) -> bool {
        let own = self.made_of.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, reading))
    }

    /// Whose it is.
    pub fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// What is on it.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// All of it as a JSON array.
    pub fn rendered(&self) -> &Raw {
        &self.rendered
    }
}

// === impl Table ===

impl Table {
    /// A table of entries, those of one upstream one after the other.
    pub fn new(entries: &[Arc<Entry>]) -> Self {
        let same = |a: &Arc<Entry>, b: &Arc<Entry>| Arc::ptr_eq(&a.member, &b.member);
        let shelves = entries.chunk_by(same).filter_map(|own| {
            let member = &own.first()?.member;
            Some(Arc::new(Shelf::new(member, own.to_vec())))
        });
        Self::of(Shelves {
            listed: shelves.collect(),
            own: Vec::new(),
        })
    }

    pub(super) fn of(shelves: Shelves) -> Self {
        let (mut shelves, own) = (shelves.listed, shelves.own);
        shelves.retain(|shelf| !shelf.entries.is_empty());
        let entries = shelves.iter().flat_map(|shelf| &shelf.entries);
        let by_name = entries.map(|entry| (Arc::clone(&entry.exposed), Arc::clone(entry)));
        let upstreams = shelves.iter().enumerate();
        let by_upstream = upstreams.map(|(at, shelf)| (Arc::clone(&shelf.member.name), at));
        let rendered = match shelves.as_slice() {
            [one] => one.rendered.clone(),
            several => Raw::concat(several.iter().map(|shelf| &shelf.rendered)),
        };
        Self {
            by_name: by_name.collect(),
            by_upstream: by_upstream.collect(),
            own: own.into_iter().map(Own::of).collect(),
            rendered,
            shelves,
            index: OnceLock::new(),
            templates: OnceLock::new(),
        }
    }

    /// The first of `known` that is made of the same shelves, or a new one.
    pub(super) fn of_known<'a>(
        mut shelves: Shelves,
        known: impl IntoIterator<Item = &'a Arc<Self>>,
    ) -> Arc<Self> {
        shelves.listed.retain(|shelf| !shelf.entries.is_empty());
        let same = |table: &&Arc<Self>| {
            let both = table.shelves.iter().zip(&shelves.listed);
            let is_own = |shelf: &Arc<Shelf>| {
                let own = table.own.get(&shelf.member.name);
                own.is_some_and(|own| Arc::ptr_eq(&own.shelf, shelf))
            };
            table.shelves.len() == shelves.listed.len()
                && both.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
                && table.own.len() == shelves.own.len()
                && shelves.own.iter().all(is_own)
        };
        match known.into_iter().find(same) {
            Some(table) => Arc::clone(table),
            None => Arc::new(Self::of(shelves)),
        }
    }

    /// What has this name or URI.
    pub fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name)
    }

    /// What has this name or URI at the endpoint of one upstream.
    pub fn get_at(&self, upstream: &str, name: &str) -> Option<&Arc<Entry>> {
        match self.own.get(upstream) {
            Some(own) => own.by_name.get(name),
            None => {
                let found = self.get(name);
                found.filter(|entry| *entry.member.name == *upstream)
            }
        }
    }

    /// What an upstream itself calls `original`, be it shown by itself or not.
    pub fn of_member(&self, member: &Member, original: &str) -> Option<&Arc<Entry>> {
        let shelf = self.whole_shelf(&member.name)?;
        shelf.entries.get(*shelf.by_original.get(original)?)
    }

    /// Everything that upstreams have, in no order, and some of it twice.
    pub(crate) fn everything(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let own = self.own.values().flat_map(|own| &own.shelf.entries);
        self.entries().chain(own)
    }

    /// Everything that is listed, in listing order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.shelves.iter().flat_map(|shelf| &shelf.entries)
    }

    /// Finds its entries by their position in listing order. The first call makes it, which takes
    /// a while for thousands of entries; see [`Table::is_indexed`].
    pub fn index(&self) -> &Index {
        self.index.get_or_init(|| {
            let text = |entry: &Arc<Entry>| {
                Document::of(&source(entry), entry.plain_name(), &entry.definition)
            };
            let documents: Vec<Document> = self.entries().map(text).collect();
            Index::new(&documents)
        })
    }

    /// Finds its entries, which are templates, by URIs that begin like them.
    pub(super) fn templates(&self) -> &template::Index<Arc<Entry>> {
        self.templates.get_or_init(|| {
            let entries = self.entries();
            template::Index::new(entries.map(|entry| (&*entry.original, Arc::clone(entry))))
        })
    }

    /// Whether its index is made.
    pub fn is_indexed(&self) -> bool {
        self.index.get().is_some()
    }

    /// All that an upstream has, be it listed by itself or not; `None` is nothing.
    pub fn whole_shelf(&self, upstream: &str) -> Option<&Arc<Shelf>> {
        match self.own.get(upstream) {
            Some(own) => Some(&own.shelf),
            None => self.shelf(upstream),
        }
    }

    /// What an upstream contributes to the list; `None` is nothing.
    pub fn shelf(&self, upstream: &str) -> Option<&Arc<Shelf>> {
        self.shelves.get(*self.by_upstream.get(upstream)?)
    }

    /// Who contributes something.
    pub(super) fn upstreams(&self) -> impl Iterator<Item = &str> {
        self.shelves.iter().map(|shelf| &*shelf.member.name)
    }

    /// All of it.
    pub fn listed(&self) -> Listed<'_> {
        Listed {
            shelves: &self.shelves,
            rendered: self.rendered.clone(),
        }
    }

    /// What comes of one upstream.
    pub fn listed_of(&self, upstream: &str) -> Listed<'_> {
        self.whole_shelf(upstream)
            .map_or_else(Listed::nothing, |shelf| Listed {
                shelves: std::slice::from_ref(shelf),
                rendered: shelf.rendered.clone(),
            })
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::of(Shelves::default())
    }
}

/// Where it comes from, in words to search for.
fn source(entry: &Entry) -> String {
    match &entry.choice {
        None => entry.member.name.to_string(),
        Some(choice) => {
            let values = choice.instances.iter().map(|(value, _)| &**value);
            let words: Vec<&str> = std::iter::once(&*choice.family).chain(values).collect();
            words.join(" ")
        }
    }
}

// === impl Own ===

impl Own {
    fn of(shelf: Arc<Shelf>) -> (Arc<str>, Self) {
        let entries = shelf.entries.iter();
        let by_name = entries.map(|entry| (Arc::clone(&entry.exposed), Arc::clone(entry)));
        let by_name = by_name.collect();
        (Arc::clone(&shelf.member.name), Self { shelf, by_name })
    }
}

// === impl Listed ===

impl<'a> Listed<'a> {
    /// An empty list.
    pub fn nothing() -> Self {
        Self {
            shelves: &[],
            rendered: Raw::array([]),
        }
    }

    /// Its entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        self.shelves.iter().flat_map(|shelf| &shelf.entries)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.entries.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shelves.is_empty()
    }

    /// How many come before what follows `original` of the upstream `upstream`, be it there or
    /// not. `is_before` tells which upstreams are before that one in the file.
    pub fn after(
        &self,
        upstream: &str,
        original: &str,
        is_before: impl Fn(&Member) -> bool,
    ) -> usize {
        let mut passed = 0;
        for shelf in self.shelves {
            if *shelf.member.name == *upstream {
                let up_to = |entry: &Arc<Entry>| *entry.original <= *original;
                return passed + shelf.entries.partition_point(up_to);
            }
            if !is_before(&shelf.member) {
                break;
            }
            passed += shelf.entries.len();
        }
        passed
    }

    /// A part of it as a JSON array, and the last entry in that.
    pub fn part(&self, range: &Range<usize>) -> (Raw, Option<&'a Arc<Entry>>) {
        let part = || {
            let entries = self.entries().skip(range.start);
            entries.take(range.len())
        };
        if range.start == 0 && range.len() >= self.len() {
            return (self.rendered.clone(), self.entries().last());
        }
        let text = Raw::array(part().map(|entry| &entry.definition));
        (text, part().last())
    }
}

/// Whether two lists are the same text; mostly they are the same bytes.
pub(crate) fn same(a: &Raw, b: &Raw) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    (a.len() == b.len() && a.as_ptr() == b.as_ptr()) || a == b
}
