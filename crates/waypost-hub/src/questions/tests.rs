use waypost_wire::method;

use super::*;
use crate::sample;

const KEPT: Duration = Duration::from_secs(10);

fn member() -> Arc<Member> {
    let config = sample::config("upstreams: { a: { url: 'http://127.0.0.1:9' } }");
    sample::members(&config).remove(0)
}

fn target(member: &Arc<Member>) -> Target {
    Target {
        member: Arc::clone(member),
        original: "x".into(),
        params: Arc::default(),
        arguments: None,
        choice: Chosen::Alone,
    }
}

fn state(text: &str) -> Object {
    Object::from_iter([(REQUEST_STATE, Raw::string(text))])
}

/// A call of this caller that comes back with a state.
fn back(caller: &str, text: &str) -> (Call, Made) {
    let mut call = Call::own(method::TOOLS_CALL, state(text));
    call.principal = Principal::new(caller);
    let made = Made::of(&call, Kind::Tool, "x");
    (call, made)
}

impl Questions {
    fn ask(&self, caller: &str, text: &str, member: &Arc<Member>, kept: Duration) {
        let (_, made) = back(caller, text);
        self.note(&state(text), &made, &target(member), kept);
    }

    fn knows(&self, caller: &str, text: &str) -> bool {
        let (call, made) = back(caller, text);
        self.know(&call, &made)
    }

    fn len(&self) -> usize {
        let table = self.table();
        let own = table.own.values().map(BTreeMap::len).sum();
        assert_eq!((table.ends.len(), own), (table.asked.len(), own));
        own
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answered_in_time_is_answered_no_more_and_holds_nobody() {
    let (questions, member) = (Questions::default(), member());
    questions.ask("ann", "1", &member, KEPT);
    let (call, made) = back("ann", "1");
    assert!(questions.knows("ann", "1"));
    assert!(questions.elsewhere(&call, &made, None).is_some());
    questions.ask("ann", "2", &member, KEPT);
    tokio::time::advance(KEPT).await;
    assert!(!questions.knows("ann", "2"));
    let (call, made) = back("ann", "2");
    assert!(questions.elsewhere(&call, &made, None).is_none());
    questions.sweep();
    assert_eq!((questions.len(), Arc::strong_count(&member)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_again_keeps_none_behind_it() {
    let (questions, member) = (Questions::default(), member());
    questions.ask("ann", "again", &member, KEPT);
    questions.ask("ann", "1", &member, KEPT);
    tokio::time::advance(KEPT / 2).await;
    questions.ask("ann", "again", &member, KEPT);
    assert_eq!(questions.len(), 2);
    tokio::time::advance(KEPT / 2).await;
    questions.ask("ann", "2", &member, KEPT);
    assert_eq!(questions.len(), 2, "of the first nothing is left");
    assert!(questions.knows("ann", "again") && questions.knows("ann", "2"));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_asked_a_lot_displaces_nobody_else() {
    let (questions, member) = (Questions::default(), member());
    questions.ask("ann", "1", &member, KEPT);
    for number in 0..=MOST {
        questions.ask("bob", &number.to_string(), &member, KEPT);
    }
    assert_eq!(questions.len(), MOST);
    assert!(questions.knows("ann", "1"));
    assert!(!questions.knows("bob", "0"), "the first to end");
    assert!(questions.knows("bob", &MOST.to_string()));
    questions.forget(&member);
    assert_eq!(questions.len(), 0);
}
