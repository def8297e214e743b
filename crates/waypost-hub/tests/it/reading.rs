//! Answers that stay good: of resources, and of lists.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Principal, Session, View};
use waypost_hub::error::{CallError, Kind};
use waypost_hub::hub::Hub;
use waypost_hub::reply::Reply;
use waypost_hub::status::State;
use waypost_wire::error::ErrorObject;
use waypost_wire::meta::RequestMeta;

use crate::fake::{Fake, call, declaring, error, hub, names, reply, result, upstreams};
use crate::listening::{Voices, acknowledges, listen, listen_at, next, notification, say, settled};
use crate::supervising::{state, until};

/// A server whose resources live for a minute, and how often it was read from. What it says
/// besides the contents is up to the test.
fn server(name: &str, said: &Value) -> (Arc<Fake>, Voices) {
    let voices = Voices::default();
    let heard = Arc::clone(&voices);
    let lists = [
        (
            "resources/list",
            json!({ "resources": [{ "uri": "file:///x", "name": "x" }], "ttlMs": 60_000 }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
    ];
    let capabilities = json!({ "resources": { "subscribe": true, "listChanged": true } });
    let (said, reads) = (said.clone(), AtomicUsize::new(0));
    let fake = Fake::new(name, capabilities, &lists, move |call: &Call| {
        if call.method == "subscriptions/listen" {
            return Ok(acknowledges(&heard, call));
        }
        let read = reads.fetch_add(1, Ordering::SeqCst);
        let mut answer = said.clone();
        let contents = json!([{ "uri": call.params.string("uri"), "text": read.to_string() }]);
        answer["contents"] = contents;
        Ok(reply(&answer))
    });
    (fake, voices)
}

fn read(uri: &str) -> Call {
    call("resources/read", &json!({ "uri": uri }))
}

fn of(principal: &str, mut call: Call) -> Call {
    call.principal = Principal::new(principal);
    call
}

/// How often the server had been read from when it gave the answer.
async fn text(hub: &Arc<Hub>, call: Call) -> String {
    let read = result(hub.call(call).await).await;
    read["contents"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_given_again_as_long_as_its_server_said_and_no_longer() {
    let said = json!({ "ttlMs": 60_000, "cacheScope": "public", "_meta": { "x": 1.0 } });
    let (a, _) = server("a", &said);
    let (b, _) = server("b", &said);
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let first = result(hub.call(read("file:///x")).await).await;
    tokio::time::advance(Duration::from_secs(20)).await;
    let again = result(hub.call(read("file:///x")).await).await;
    assert_eq!(first["ttlMs"], 60_000);
    assert_eq!(again["ttlMs"], 40_000, "what is left");
    for member in ["contents", "cacheScope", "resultType", "_meta"] {
        assert_eq!(again[member], first[member], "{member}");
    }
    // The same under its long form, and another server's under its own.
    let long = result(hub.call(read("a+file:///x")).await).await;
    assert_eq!(
        long["contents"][0],
        json!({ "uri": "a+file:///x", "text": "0" })
    );
    assert_eq!((a.seen().len(), b.seen().len()), (1, 0));
    assert_eq!(text(&hub, read("b+file:///x")).await, "0");
    assert_eq!(b.seen().len(), 1);
    assert_eq!(text(&hub, of("somebody", read("file:///x"))).await, "0");
    tokio::time::advance(Duration::from_secs(40)).await;
    assert_eq!(text(&hub, read("file:///x")).await, "1");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_private_is_given_to_nobody_else() {
    for said in [
        json!({ "ttlMs": 60_000, "cacheScope": "private" }),
        json!({ "ttlMs": 60_000 }),
        json!({ "ttlMs": 60_000, "cacheScope": "all" }),
    ] {
        let (a, _) = server("a", &said);
        let hub = settled(&upstreams(&["a"]), &[&a]).await;
        let in_session = |id: &str| Call {
            session: Some(Session::new(id, CancellationToken::new())),
            ..of("ann", read("file:///x"))
        };
        for (call, expected) in [
            (of("ann", read("file:///x")), "0"),
            (of("bob", read("file:///x")), "1"),
            (of("ann", read("file:///x")), "0"),
            (in_session("1"), "2"),
            (in_session("2"), "3"),
            (in_session("1"), "2"),
        ] {
            assert_eq!(text(&hub, call).await, expected, "{said}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_that_its_server_gave_no_time_or_that_was_asked_for_in_another_way() {
    for said in [
        json!({}),
        json!({ "ttlMs": 0, "cacheScope": "public" }),
        json!({ "ttlMs": "5" }),
    ] {
        let (a, _) = server("a", &said);
        let hub = settled(&upstreams(&["a"]), &[&a]).await;
        for expected in ["0", "1"] {
            assert_eq!(text(&hub, read("file:///x")).await, expected, "{said}");
        }
    }
    let (a, _) = server("a", &json!({ "ttlMs": 60_000, "cacheScope": "public" }));
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let more = json!({ "uri": "file:///x", "range": 1 });
    let mut odd = read("file:///x");
    odd.meta = RequestMeta {
        rest: crate::fake::object(&json!({ "x/y": 1 })),
        ..odd.meta
    };
    let mut traced = read("file:///x");
    traced.meta.rest = crate::fake::object(&json!({ "traceparent": "00-1" }));
    for (call, expected) in [
        (call("resources/read", &more), "0"),
        (odd, "1"),
        (read("file:///x"), "2"),
        (traced, "2"),
    ] {
        assert_eq!(text(&hub, call).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_questions_are_not_kept() {
    let answers = [
        Reply::error(ErrorObject::new(-32602, "no")),
        reply(
            &json!({ "resultType": "input_required", "ttlMs": 60_000, "cacheScope": "public",
            "inputRequests": { "k": { "method": "elicitation/create", "params": {} } } }),
        ),
        reply(&json!({ "contents": [], "ttlMs": 60_000, "cacheScope": "public" })),
    ];
    let answers = Mutex::new(
        answers
            .into_iter()
            .collect::<std::collections::VecDeque<_>>(),
    );
    let lists = [("resources/list", json!({ "resources": [] }))];
    let a = Fake::new("a", json!({ "resources": {} }), &lists, move |call| {
        if call.method == "resources/templates/list" {
            return Ok(reply(&json!({ "resourceTemplates": [] })));
        }
        Ok(answers.lock().unwrap().pop_front().unwrap())
    });
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let ask = || declaring(read("file:///x"), &json!({ "elicitation": {} }));
    assert_eq!(error(hub.call(ask()).await).await["code"], -32602);
    assert_eq!(
        result(hub.call(ask()).await).await["resultType"],
        "input_required"
    );
    for _ in 0..2 {
        assert_eq!(result(hub.call(ask()).await).await["contents"], json!([]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_has_changed_is_read_again() {
    let (a, voices) = server("a", &json!({ "ttlMs": 3_600_000, "cacheScope": "public" }));
    let (b, _) = server("b", &json!({ "ttlMs": 3_600_000, "cacheScope": "public" }));
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x"] });
    let mut events = listen(&hub, &filter).await;
    next(&mut events).await;
    // What is told while the stream is not read is not heard yet.
    let tell = async |uri: &str, events: &mut _| {
        let updated = notification("notifications/resources/updated", &json!({ "uri": uri }));
        say(&voices, &updated);
        next(events).await
    };
    assert_eq!(text(&hub, read("file:///x")).await, "0");
    assert_eq!(text(&hub, read("a+file:///y")).await, "1");
    assert_eq!(text(&hub, read("b+file:///x")).await, "0");
    tell("file:///x", &mut events).await;
    assert_eq!(text(&hub, read("file:///x")).await, "2");
    assert_eq!(text(&hub, read("a+file:///y")).await, "1", "another one");
    tell("file:///x/part", &mut events).await;
    assert_eq!(text(&hub, read("file:///x")).await, "3");
    let changed = notification("notifications/resources/list_changed", &json!({}));
    say(&voices, &changed);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(text(&hub, read("file:///x")).await, "4");
    assert_eq!(text(&hub, read("a+file:///y")).await, "5");
    assert_eq!(text(&hub, read("b+file:///x")).await, "0", "another's");
    // It is another process from here on.
    a.lost.notify_one();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(text(&hub, read("file:///x")).await, "6");
}

#[tokio::test(start_paused = true)]
async fn what_has_changed_is_read_again_however_it_is_spelled() {
    let (a, voices) = server("a", &json!({ "ttlMs": 3_600_000, "cacheScope": "public" }));
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    let filter = json!({ "resourceSubscriptions": ["file:///x"] });
    let mut events = listen(&hub, &filter).await;
    next(&mut events).await;
    let spellings = [
        "file:///x",
        "FILE:///x",
        "file:///%78",
        "file:///./x",
        "file:///x?q",
    ];
    for (before, uri) in spellings.iter().enumerate() {
        assert_eq!(text(&hub, read(uri)).await, before.to_string());
    }
    let updated = notification(
        "notifications/resources/updated",
        &json!({ "uri": "file:///x" }),
    );
    say(&voices, &updated);
    next(&mut events).await;
    for (before, uri) in spellings.iter().enumerate() {
        let again = before + spellings.len();
        assert_eq!(text(&hub, read(uri)).await, again.to_string(), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_on_its_way_when_its_resource_changed_is_not_kept() {
    let said = json!({ "contents": [], "ttlMs": 60_000, "cacheScope": "public" });
    let lists = [
        (
            "resources/list",
            json!({ "resources": [{ "uri": "file:///x", "name": "x" }] }),
        ),
        (
            "resources/templates/list",
            json!({ "resourceTemplates": [] }),
        ),
        ("resources/read", said),
    ];
    let voices = Voices::default();
    let heard = Arc::clone(&voices);
    let capabilities = json!({ "resources": { "listChanged": true } });
    let a = Fake::new("a", capabilities, &lists, move |call| {
        Ok(acknowledges(&heard, call))
    });
    let hub = settled(&upstreams(&["a"]), &[&a]).await;
    *a.lists_take.lock().unwrap() = Duration::from_millis(200);
    let changes = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let changed = notification("notifications/resources/list_changed", &json!({}));
        say(&voices, &changed);
    };
    let (slow, ()) = tokio::join!(hub.call(read("file:///x")), changes);
    result(slow).await;
    for reads in [2, 2] {
        result(hub.call(read("file:///x")).await).await;
        assert_eq!(a.count("resources/read"), reads);
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_within_the_room_that_the_file_gives() {
    let yaml = |room: &str| format!("cache: {{ resources: {room} }}\n{}", upstreams(&["a"]));
    let large = "x".repeat(100_000);
    let said = json!({ "ttlMs": 60_000, "cacheScope": "public", "more": large });
    for (room, kept) in [("0", 0), ("64KiB", 0), ("250KiB", 2), ("64MiB", 9)] {
        let (a, _) = server("a", &said);
        let hub = settled(&yaml(room), &[&a]).await;
        let mut found = 0;
        for uri in 0..9 {
            text(&hub, read(&format!("file:///{uri}"))).await;
        }
        for uri in 0..9 {
            let before = a.seen().len();
            text(&hub, read(&format!("file:///{uri}"))).await;
            found += usize::from(a.seen().len() == before);
        }
        assert!(found <= kept, "{room}: {found}");
        assert_eq!(found > 0, kept > 0, "{room}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_view_hides_is_unknown_there_although_it_is_kept() {
    let (a, _) = server("a", &json!({ "ttlMs": 60_000, "cacheScope": "public" }));
    let yaml = format!(
        "endpoints:\n  few: {{ resources: {{ deny: ['*'] }} }}\n{}",
        upstreams(&["a"])
    );
    let hub = settled(&yaml, &[&a]).await;
    text(&hub, read("file:///x")).await;
    let hidden = Call {
        view: View::Endpoint("few".into()),
        ..read("file:///x")
    };
    assert_eq!(error(hub.call(hidden).await).await["code"], -32602);
}

/// What a list says of how long it is good and for whom.
async fn freshness(hub: &Arc<Hub>, view: View) -> (u64, Value) {
    let list = Call {
        view,
        ..call("tools/list", &json!({}))
    };
    let list = result(hub.call(list).await).await;
    (list["ttlMs"].as_u64().unwrap(), list["cacheScope"].clone())
}

fn with_list(name: &str, more: &Value) -> Arc<Fake> {
    let fake = Fake::with_tools(name, &["x"]);
    let mut lists = fake.lists.lock().unwrap();
    for (key, value) in more.as_object().unwrap() {
        lists.get_mut("tools/list").unwrap()[key] = value.clone();
    }
    drop(lists);
    fake
}

#[tokio::test(start_paused = true)]
async fn a_list_is_good_for_what_is_left_of_the_shortest_life_among_its_sources() {
    let a = with_list("a", &json!({ "ttlMs": 600_000, "cacheScope": "public" }));
    let b = with_list("b", &json!({ "ttlMs": 60_000, "cacheScope": "public" }));
    let c = with_list(
        "c",
        &json!({ "ttlMs": 86_400_000, "cacheScope": "private" }),
    );
    let yaml = format!(
        "cache: {{ list_ttl: 5m }}\nendpoints:\n  ab: {{ upstreams: [a, b] }}\n  ac: {{ upstreams: [a, c] }}\n{}",
        upstreams(&["a", "b", "c"])
    );
    let hub = hub(&yaml, &[&a, &b, &c]).await;
    names(&hub).await;
    let own = |name: &str| View::Upstream(name.into());
    let endpoint = |name: &str| View::Endpoint(name.into());
    // Time passes between reading and listing, a few milliseconds perhaps.
    for (view, most, scope) in [
        (View::All, 60_000, "private"),
        (own("a"), 300_000, "public"),
        (own("b"), 60_000, "public"),
        (own("c"), 300_000, "private"),
        (endpoint("ab"), 60_000, "public"),
        (endpoint("ac"), 300_000, "private"),
    ] {
        let (ttl, said) = freshness(&hub, view.clone()).await;
        assert!(ttl <= most && ttl + 30_000 > most, "{view:?}: {ttl}");
        assert_eq!(said, scope, "{view:?}");
        let (later, _) = freshness(&hub, view.clone()).await;
        assert!(later <= ttl, "{view:?}: {later}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_depends_on_its_caller_or_is_not_whole_is_shared_with_nobody_or_kept_by_nobody()
{
    let public = json!({ "ttlMs": 60_000, "cacheScope": "public" });
    let (a, slow) = (with_list("a", &public), with_list("slow", &public));
    let keys = "auth: { keys: [{ name: k, hash: 'sha256:0000000000000000000000000000000000000000000000000000000000000000', endpoint: e }] }\nendpoints: { e: {} }\n";
    let bound = hub(&format!("{keys}{}", upstreams(&["a"])), &[&a]).await;
    assert_eq!(freshness(&bound, View::All).await.1, "private");
    slow.slow.store(true, Ordering::SeqCst);
    let partial = hub(&upstreams(&["a", "slow"]), &[&a, &slow]).await;
    assert_eq!(freshness(&partial, View::All).await.0, 0);
    assert!(freshness(&partial, View::Upstream("a".into())).await.0 > 0);
    let off = format!("cache: {{ list_ttl: 0 }}\n{}", upstreams(&["a"]));
    let off = hub(&off, &[&a]).await;
    assert_eq!(freshness(&off, View::All).await.0, 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lists_life_has_that_upstream_read_again_once_and_no_other() {
    let a = with_list("a", &json!({ "ttlMs": 40_000, "cacheScope": "public" }));
    let b = with_list("b", &json!({ "ttlMs": 500_000, "cacheScope": "public" }));
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let before = (a.count("tools/list"), b.count("tools/list"));
    tokio::time::sleep(Duration::from_secs(40)).await;
    for _ in 0..20 {
        names(&hub).await;
    }
    let after = (a.count("tools/list"), b.count("tools/list"));
    assert_eq!(after, (before.0 + 1, before.1));
}

#[tokio::test(start_paused = true)]
async fn updates_of_a_part_are_told_as_the_whole_was_called() {
    let (a, _) = server("a", &json!({}));
    let (b, voices) = server("b", &json!({}));
    let hub = settled(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let mut events = listen(&hub, &json!({ "resourceSubscriptions": ["b+file:///x"] })).await;
    next(&mut events).await;
    let part = notification(
        "notifications/resources/updated",
        &json!({ "uri": "file:///x/part" }),
    );
    say(&voices, &part);
    assert_eq!(next(&mut events).await.1["uri"], "b+file:///x/part");
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_to_be_kept_while_an_upstream_has_yet_to_say_what_it_has() {
    let lists = |ttl: u64| {
        [
            ("tools/list", json!({ "tools": [], "ttlMs": ttl })),
            ("prompts/list", json!({ "prompts": [], "ttlMs": ttl })),
        ]
    };
    let capabilities = json!({ "tools": {}, "prompts": {} });
    let a = Fake::new(
        "a",
        capabilities.clone(),
        &lists(60_000),
        |_| unreachable!(),
    );
    let b = Fake::new("b", capabilities, &lists(60_000)[1..], |_| {
        Err(CallError::upstream(Kind::BadUpstream, &"b".into()))
    });
    b.down.store(true, Ordering::SeqCst);
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    until("down", || state(&hub, "b") == State::Down).await;
    let kept = async |method: &str| {
        let list = result(hub.call(call(method, &json!({}))).await).await;
        list["ttlMs"].as_u64().unwrap() > 0
    };
    assert!(!kept("prompts/list").await, "it was never reached");
    b.down.store(false, Ordering::SeqCst);
    until("up", || {
        hub.catalog().member("b").unwrap().learned().is_some()
    })
    .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(kept("prompts/list").await);
    assert!(!kept("tools/list").await, "it was never read");
}

#[tokio::test(start_paused = true)]
async fn r05_updates_of_a_part_that_a_denied_template_stands_for_are_not_told() {
    let deny = "resources: { deny: ['mail://{folder}/raw'] }";
    let by_file = format!("upstreams: {{ a: {{ url: 'http://127.0.0.1:9', {deny} }} }}");
    let by_view = upstreams(&["a"]) + &format!("endpoints: {{ e: {{ {deny} }} }}");
    for (yaml, view) in [(by_file, View::All), (by_view, View::Endpoint("e".into()))] {
        let (a, voices) = server("a", &json!({}));
        let templates = json!({ "resourceTemplates": [{ "uriTemplate": "mail://{folder}/raw" }] });
        a.lists
            .lock()
            .unwrap()
            .insert("resources/templates/list".to_owned(), templates);
        let hub = settled(&yaml, &[&a]).await;
        let wanted = json!({ "resourceSubscriptions": ["mail://inbox"] });
        let mut events = listen_at(&hub, view, &wanted).await;
        next(&mut events).await;
        for part in ["raw", "1"] {
            let part = json!({ "uri": format!("mail://inbox/{part}") });
            say(
                &voices,
                &notification("notifications/resources/updated", &part),
            );
        }
        assert_eq!(next(&mut events).await.1["uri"], "mail://inbox/1");
    }
}

#[tokio::test(start_paused = true)]
async fn who_listens_waits_for_those_that_may_have_the_resource() {
    let (a, voices) = server("a", &json!({}));
    let b = Fake::with_tools("b", &["x"]);
    *b.lists_take.lock().unwrap() = Duration::from_secs(2);
    let hub = hub(&upstreams(&["a", "b"]), &[&a, &b]).await;
    let wanted = json!({ "resourceSubscriptions": ["file:///unlisted"] });
    let mut events = listen(&hub, &wanted).await;
    let (_, acknowledged) = next(&mut events).await;
    assert_eq!(acknowledged["notifications"], wanted);
    let whole = json!({ "uri": "file:///unlisted" });
    say(
        &voices,
        &notification("notifications/resources/updated", &whole),
    );
    assert_eq!(next(&mut events).await.1["uri"], "file:///unlisted");
}
