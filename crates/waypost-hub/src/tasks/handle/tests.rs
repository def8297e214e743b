use proptest::prelude::*;

use super::*;

fn keys(bytes: &[u8]) -> Keys {
    Keys::new(bytes.iter().map(|b| vec![*b; 32]).collect()).unwrap()
}

fn seals(bytes: &[u8]) -> Seals {
    Seals::new(&keys(bytes))
}

fn who(name: &str) -> Principal {
    Principal::new(name)
}

#[test]
fn a_handle_is_plain_ascii_that_begins_with_the_upstream() {
    let seals = seals(&[1]);
    let plain = seals
        .seal("ci", "build", "a.B_3-x", None, &who("ann"))
        .unwrap();
    let parts: Vec<_> = plain.split('~').collect();
    assert_eq!((parts.len(), parts[0], parts[2]), (4, "ci", "a.B_3-x"));
    assert_eq!((parts[1].len(), parts[3].len()), (8, 22));
    let odd = seals
        .seal("ci", "build", "a~b/é", Some("7"), &who("ann"))
        .unwrap();
    let parts: Vec<_> = odd.split('~').collect();
    assert_eq!((parts.len(), parts[2]), (5, "=YX5iL8Op"));
    assert!(odd.bytes().all(|b| b.is_ascii_graphic()));
}

#[test]
fn r80_a_handle_opens_only_for_its_principal() {
    let seals = seals(&[1]);
    let handle = seals.seal("ci", "build", "1", None, &who("ann")).unwrap();
    assert!(seals.unseal(&handle, &who("ann")).is_some());
    assert!(seals.unseal(&handle, &who("bob")).is_none());
    assert!(seals.unseal(&handle, &who("")).is_none());
}

#[test]
fn r80_equal_ids_of_two_upstreams_have_different_handles() {
    let seals = seals(&[1]);
    let [a, b] = ["a", "b"].map(|name| seals.seal(name, "t", "1", None, &who("x")).unwrap());
    let swapped = format!("a{}", b.strip_prefix('b').unwrap());
    assert!(seals.unseal(&a, &who("x")).is_some());
    assert!(seals.unseal(&swapped, &who("x")).is_none());
}

#[test]
fn the_first_key_seals_and_all_open() {
    let (old, both, new) = (seals(&[1]), seals(&[2, 1]), seals(&[2]));
    let of_old = old.seal("ci", "build", "1", Some("i"), &who("x")).unwrap();
    let of_both = both.seal("ci", "build", "1", Some("i"), &who("x")).unwrap();
    assert!(both.unseal(&of_old, &who("x")).is_some());
    assert!(new.unseal(&of_both, &who("x")).is_some());
    assert!(old.unseal(&of_both, &who("x")).is_none());
    let parts = both.unseal(&of_old, &who("x")).unwrap();
    assert!(both.tool_tags("build").contains(&parts.tool));
    assert!(both.same_instance(parts.instance, Some("i")));
}

#[test]
fn another_instance_is_not_the_same() {
    let seals = seals(&[1]);
    let tag = seals.instance_tags("child 1").first().copied();
    assert!(seals.same_instance(tag, Some("child 1")));
    assert!(!seals.same_instance(tag, Some("child 2")));
    assert!(!seals.same_instance(tag, None));
    assert!(!seals.same_instance(None, Some("child 1")));
}

#[test]
fn what_is_not_a_handle_does_not_open() {
    let seals = seals(&[1]);
    let long = "x".repeat(LONGEST_HANDLE + 1);
    for text in [
        "",
        "~",
        "~~~",
        "tasks-conformance-nonexistent-12345",
        "a~b~c~d~e~f",
        &long,
    ] {
        assert!(seals.unseal(text, &who("x")).is_none(), "{text}");
    }
}

#[test]
fn the_longest_id_fits_and_a_longer_one_is_refused() {
    let seals = seals(&[1]);
    let upstream = "u".repeat(32);
    let mut id = "é".repeat(LONGEST_ID / 2);
    let handle = seals
        .seal(&upstream, "t", &id, Some("i"), &who("x"))
        .unwrap();
    let parts = seals.unseal(&handle, &who("x")).unwrap();
    assert_eq!(decode_body(parts.body).as_ref(), Some(&id));
    id.push('x');
    assert_eq!(seals.seal(&upstream, "t", &id, None, &who("x")), None);
}

proptest! {
    #[test]
    fn opening_gives_back_what_was_wrapped(id in ".{0,200}", tool in ".{0,40}", name in "\\PC{0,20}", child in proptest::option::of("[a-z0-9]{0,9}")) {
        let seals = seals(&[1]);
        let handle = seals.seal("up-1", &tool, &id, child.as_deref(), &who(&name)).unwrap();
        let parts = seals.unseal(&handle, &who(&name)).unwrap();
        prop_assert_eq!(parts.upstream, "up-1");
        prop_assert_eq!(decode_body(parts.body), Some(id));
        prop_assert!(seals.tool_tags(&tool).contains(&parts.tool));
        prop_assert!(seals.same_instance(parts.instance, child.as_deref()));
    }

    #[test]
    fn no_character_can_be_changed(id in "[ -~]{0,20}", at in any::<prop::sample::Index>(), to in "[ -~é\n]") {
        let seals = seals(&[1]);
        let handle = seals.seal("up", "tool", &id, None, &who("x")).unwrap();
        let mut chars: Vec<_> = handle.chars().collect();
        let at = at.index(chars.len());
        let to = to.chars().next().unwrap();
        prop_assume!(chars[at] != to);
        chars[at] = to;
        let changed: String = chars.into_iter().collect();
        prop_assert!(seals.unseal(&changed, &who("x")).is_none());
    }

    #[test]
    fn the_border_between_handle_and_principal_cannot_be_moved(a in "[a-z~]{1,10}", b in "[a-z~]{1,10}") {
        let key = [1; 32];
        let whole = format!("{a}{b}");
        prop_assert_ne!(seal(&key, &a, &who(&b)), seal(&key, &whole, &who("")));
    }
}
