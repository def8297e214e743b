//! Which resources a session is to hear of: those that it is subscribed to, and those that its
//! client is subscribing to, perhaps in several requests at once.

/// Resources of one session; the hub takes no more on one stream.
pub(crate) const MOST_RESOURCES: usize = 1_000;

/// The resources of one session, as its client names them.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    uris: Vec<String>,
    begun: Vec<Begun>,
    last: u64,
}

/// A `resources/subscribe` that is not answered yet.
#[derive(Debug)]
struct Begun {
    number: u64,
    uri: String,
    /// The client was told of changes before it asked.
    stood: bool,
    /// It goes again where no request for it succeeds.
    is_new: bool,
    /// The server agreed, so that the session listens to it.
    wished: bool,
    /// The client has unsubscribed since.
    taken_back: bool,
}

/// What came of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Made,
    /// The client does not want it any more.
    TakenBack,
    /// There are as many as there may be.
    Full,
}

impl Resources {
    /// Those of a session that goes on.
    pub(crate) fn new(uris: Vec<String>) -> Self {
        Self {
            uris,
            ..Self::default()
        }
    }

    /// All that is listened to.
    pub(crate) fn all(&self) -> &[String] {
        &self.uris
    }

    /// Those that the client was told it is subscribed to.
    pub(crate) fn standing(&self) -> Vec<String> {
        let stands = |uri: &&String| !self.is_on_trial(uri);
        self.uris.iter().filter(stands).cloned().collect()
    }

    /// Begins a request; `None` when there are as many resources as there may be.
    pub(crate) fn begin(&mut self, uri: &str) -> Option<u64> {
        let known = self.knows(uri);
        if !known && self.uris.len() >= MOST_RESOURCES {
            return None;
        }
        let stood = known && !self.is_on_trial(uri);
        self.last += 1;
        self.begun.push(Begun {
            number: self.last,
            uri: uri.to_owned(),
            stood,
            is_new: !stood,
            wished: false,
            taken_back: false,
        });
        Some(self.last)
    }

    /// The server agrees.
    pub(crate) fn wish(&mut self, number: u64) -> Wish {
        let Some(begun) = self.begun.iter_mut().find(|one| one.number == number) else {
            return Wish::TakenBack;
        };
        if begun.taken_back {
            return Wish::TakenBack;
        }
        if !self.uris.contains(&begun.uri) {
            if self.uris.len() >= MOST_RESOURCES {
                return Wish::Full;
            }
            self.uris.push(begun.uri.clone());
        }
        begun.wished = true;
        Wish::Made
    }

    /// The client is told that it is subscribed. `false` when it does not want that any more.
    pub(crate) fn stand(&mut self, number: u64) -> bool {
        let Some(begun) = self.end(number).filter(|begun| !begun.taken_back) else {
            return false;
        };
        let others = self.begun.iter_mut();
        for other in others.filter(|other| other.uri == begun.uri) {
            other.is_new = false;
        }
        true
    }

    /// The server refuses what the client was told of until now; whether that changes anything.
    pub(crate) fn refuse(&mut self, number: u64) -> bool {
        let begun = self.end(number).filter(|begun| begun.stood);
        begun.is_some_and(|begun| self.remove(&begun.uri))
    }

    /// The request fails or is given up; whether that changes anything.
    pub(crate) fn give_up(&mut self, number: u64) -> bool {
        let begun = self.end(number);
        let Some(begun) = begun.filter(|begun| begun.is_new && begun.wished) else {
            return false;
        };
        let mut others = self.begun.iter();
        // What another was promised, or is yet to be, is that one's.
        if others.any(|other| other.wished && other.uri == begun.uri) {
            return false;
        }
        self.remove(&begun.uri)
    }

    /// The client unsubscribes; whether that changes anything.
    pub(crate) fn take_back(&mut self, uri: &str) -> bool {
        for begun in self.begun.iter_mut().filter(|begun| begun.uri == uri) {
            begun.taken_back = true;
            begun.wished = false;
        }
        self.remove(uri)
    }

    /// Whether the client has unsubscribed since the request began.
    pub(crate) fn is_taken_back(&self, number: u64) -> bool {
        let mut begun = self.begun.iter();
        begun.any(|begun| begun.number == number && begun.taken_back)
    }

    fn knows(&self, uri: &str) -> bool {
        self.uris.iter().any(|known| known == uri)
    }

    /// Whether it is listened to only for requests that are not answered yet.
    fn is_on_trial(&self, uri: &str) -> bool {
        let mut begun = self.begun.iter();
        begun.any(|begun| begun.is_new && begun.wished && begun.uri == uri)
    }

    fn end(&mut self, number: u64) -> Option<Begun> {
        let at = self.begun.iter().position(|begun| begun.number == number)?;
        Some(self.begun.swap_remove(at))
    }

    fn remove(&mut self, uri: &str) -> bool {
        let before = self.uris.len();
        self.uris.retain(|known| known != uri);
        self.uris.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(resources: &mut Resources, uri: &str) -> u64 {
        let number = resources.begin(uri).unwrap();
        assert_eq!(resources.wish(number), Wish::Made);
        number
    }

    #[test]
    fn what_fails_takes_its_own_wish_back_and_no_other_s() {
        let mut resources = Resources::default();
        let (a, b) = (wished(&mut resources, "x"), wished(&mut resources, "x"));
        assert!(resources.standing().is_empty());
        assert!(resources.stand(b));
        assert!(!resources.give_up(a));
        assert_eq!(resources.standing(), ["x"]);
        // One that is still asked about is left to who asks last.
        let (a, b) = (wished(&mut resources, "y"), wished(&mut resources, "y"));
        assert!(!resources.give_up(a));
        assert_eq!(resources.all(), ["x", "y"]);
        assert!(resources.give_up(b));
        assert_eq!(resources.all(), ["x"]);
        // Nor does one go that stood before.
        let again = wished(&mut resources, "x");
        assert_eq!(resources.standing(), ["x"]);
        assert!(!resources.give_up(again));
        assert_eq!(resources.all(), ["x"]);
    }

    #[test]
    fn a_refusal_takes_away_only_what_stood_when_it_was_asked_for() {
        let mut resources = Resources::new(vec!["x".to_owned()]);
        let first = resources.begin("y").unwrap();
        let second = wished(&mut resources, "y");
        assert!(resources.stand(second));
        assert!(!resources.refuse(first));
        assert_eq!(resources.all(), ["x", "y"]);
        let again = resources.begin("x").unwrap();
        assert!(resources.refuse(again));
        assert_eq!(resources.all(), ["y"]);
    }

    #[test]
    fn who_unsubscribes_meanwhile_is_not_subscribed() {
        let mut resources = Resources::default();
        let early = resources.begin("x").unwrap();
        let late = wished(&mut resources, "x");
        assert!(resources.take_back("x"));
        assert!(resources.is_taken_back(early));
        assert_eq!(resources.wish(early), Wish::TakenBack);
        assert!(!resources.stand(late));
        assert!(resources.all().is_empty());
        // Who wants it after that does.
        let again = wished(&mut resources, "x");
        assert!(!resources.give_up(early));
        assert!(resources.stand(again));
        assert_eq!(resources.standing(), ["x"]);
    }

    #[test]
    fn there_are_as_many_as_there_may_be() {
        let uris = (1..MOST_RESOURCES).map(|n| format!("x:{n}")).collect();
        let mut resources = Resources::new(uris);
        let (a, b) = (resources.begin("a").unwrap(), resources.begin("b").unwrap());
        assert_eq!(resources.wish(a), Wish::Made);
        assert_eq!(resources.wish(b), Wish::Full);
        assert_eq!(resources.begin("c"), None);
        assert!(resources.begin("x:1").is_some());
    }
}
