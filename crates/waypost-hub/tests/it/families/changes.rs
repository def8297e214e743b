//! Upstreams of a family come, go and are away.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use waypost_hub::call::View;
use waypost_hub::status::State;

use super::{TWO, calls, names, plain, refused, server, tools, use_of, values};
use crate::fake::{call, declaring, hub, result, value};
use crate::listening::{listen, next, nothing};
use crate::reloading::reload;
use crate::supervising::{state, until};
use serde_json::json;

/// The file with the first of the two only.
fn alone() -> &'static str {
    TWO.split("  test:").next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_comes_or_goes_by_a_reload_does_so_in_the_argument() {
    let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("job")]));
    let hub = hub(alone(), &[&prod]).await;
    until("up", || state(&hub, "prod") == State::Up).await;
    assert_eq!(
        values(&tools(&hub, View::All).await, "k8s_job"),
        ["prod"],
        "one is a family too"
    );
    let mut changes = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut changes).await;
    reload(&hub, TWO, &[("test", &test)]);
    assert_eq!(
        next(&mut changes).await.0,
        "notifications/tools/list_changed"
    );
    let both = tools(&hub, View::All).await;
    assert_eq!(values(&both, "k8s_job"), ["prod", "EU 1"]);
    result(
        hub.call(use_of("k8s_job", json!({ "cluster": "EU 1" })))
            .await,
    )
    .await;
    reload(&hub, alone(), &[]);
    assert_eq!(
        next(&mut changes).await.0,
        "notifications/tools/list_changed"
    );
    let said = refused(&hub, use_of("k8s_job", json!({ "cluster": "EU 1" }))).await;
    assert_eq!(said, "`cluster` is none of `prod`: `EU 1`");
    // Out of the family, it is an upstream like any; its connection stays.
    let plain = alone().replace(", family: { name: k8s, argument: cluster }", "");
    reload(&hub, &plain, &[]);
    next(&mut changes).await;
    result(hub.call(use_of("prod_job", json!({}))).await).await;
    assert_eq!(calls(&prod, "tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r18_an_answer_for_an_upstream_that_a_reload_took_away_leaves_the_argument_out_too() {
    let without = format!("{}  other: {{ command: x }}\n", alone());
    for file in [alone(), &without.replace("  prod:", "  first:")] {
        let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("ask")]));
        let hub = hub(TWO, &[&prod, &test]).await;
        until("up", || state(&hub, "test") == State::Up).await;
        let asking = json!({ "elicitation": {} });
        let params = json!({ "name": "k8s_ask", "arguments": { "cluster": "EU 1", "a": 1.0 } });
        let asked = hub.call(declaring(call("tools/call", &params), &asking));
        let asked = result(asked.await).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        reload(&hub, file, &[("first", &prod), ("other", &prod)]);
        let mut again = params;
        again["requestState"] = asked["requestState"].clone();
        again["inputResponses"] = json!({ "q": {} });
        result(
            hub.call(declaring(call("tools/call", &again), &asking))
                .await,
        )
        .await;
        let got = calls(&test, "tools/call").remove(1);
        assert_eq!(value(&got.params)["arguments"], json!({ "a": 1.0 }));
        assert!(calls(&prod, "tools/call").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn r18_an_answer_goes_to_the_upstream_that_asked_whatever_became_of_the_others() {
    let asking = json!({ "elicitation": {} });
    let files = [
        TWO.replace("prod: {", "prod: { timeout: 31s,"),
        TWO.replace("prod: {", "prod: { tools: { deny: [ask] },"),
        TWO.replace("EU 1", "EU 2"),
        TWO.replace("argument: cluster", "argument: place"),
        TWO.split("  prod:").next().unwrap().to_owned()
            + "  test:"
            + TWO.split("  test:").nth(1).unwrap(),
    ];
    for file in files {
        let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("ask")]));
        let hub = hub(TWO, &[&prod, &test]).await;
        until("up", || state(&hub, "test") == State::Up).await;
        let ask = async |params: &serde_json::Value| {
            result(
                hub.call(declaring(call("tools/call", params), &asking))
                    .await,
            )
            .await
        };
        let of = |cluster: &str| json!({ "name": "k8s_ask", "arguments": { "cluster": cluster } });
        // Both give what they ask the same state.
        let mut asked = Vec::new();
        for cluster in ["EU 1", "prod"] {
            asked.push(ask(&of(cluster)).await["requestState"].clone());
        }
        assert_eq!(asked[0], asked[1]);
        reload(&hub, &file, &[]);
        let mut again = of("EU 1");
        again["requestState"] = asked[0].clone();
        again["inputResponses"] = json!({ "q": {} });
        ask(&again).await;
        let counts = [&prod, &test].map(|fake| calls(fake, "tools/call").len());
        assert_eq!(counts, [1, 2], "{file}");
        let got = calls(&test, "tools/call").remove(1);
        assert_eq!(value(&got.params)["arguments"], json!({}), "{file}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_is_away_can_still_be_named() {
    let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("job")]));
    let hub = hub(TWO, &[&prod, &test]).await;
    until("up", || state(&hub, "test") == State::Up).await;
    let before = tools(&hub, View::All).await;
    let mut changes = listen(&hub, &json!({ "toolsListChanged": true })).await;
    next(&mut changes).await;
    test.down.store(true, Ordering::SeqCst);
    let there = || hub.call(use_of("k8s_job", json!({ "cluster": "EU 1" })));
    let error = there().await.unwrap_err();
    assert!(error.to_string().contains("upstream `test`"), "{error}");
    until("down", || state(&hub, "test") == State::Down).await;
    assert_eq!(tools(&hub, View::All).await, before);
    nothing(&mut changes).await;
    test.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "test") == State::Up).await;
    result(there().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_an_upstream_that_is_starting() {
    let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("job")]));
    *test.lists_take.lock().unwrap() = Duration::from_secs(3);
    let hub = hub(TWO, &[&prod, &test]).await;
    until("up", || state(&hub, "prod") == State::Up).await;
    assert_eq!(state(&hub, "test"), State::Starting);
    let mut call = hub.call(use_of("k8s_job", json!({ "cluster": "EU 1" })));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut call).await;
    assert!(early.is_err(), "it is not answered yet");
    result(call.await).await;
    assert_eq!(calls(&test, "tools/call").len(), 1);
    assert!(calls(&prod, "tools/call").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_an_upstream_that_a_reload_replaced() {
    let [prod, slow, fast] = ["prod", "test", "test"].map(|name| server(name, &[plain("job")]));
    *slow.lists_take.lock().unwrap() = Duration::from_secs(10_000);
    let hub = hub(TWO, &[&prod, &slow]).await;
    until("up", || state(&hub, "prod") == State::Up).await;
    let began = Instant::now();
    let mut call = hub.call(use_of("k8s_job", json!({ "cluster": "EU 1" })));
    let early = tokio::time::timeout(Duration::from_secs(1), &mut call).await;
    assert!(early.is_err(), "it is not answered yet");
    // It is at another address now.
    let (first, second) = TWO.split_once("  test:").unwrap();
    let other = format!("{first}  test:{}", second.replace(":9", ":8"));
    reload(&hub, &other, &[("test", &fast)]);
    result(call.await).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(calls(&fast, "tools/call").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_whose_tools_could_not_be_read_is_to_be_named_again_later() {
    let [prod, test] = ["prod", "test"].map(|name| server(name, &[plain("job")]));
    let error = waypost_wire::error::ErrorObject::new(-32603, "not now");
    *test.refuses.lock().unwrap() = Some(("tools/list".to_owned(), error));
    let hub = hub(TWO, &[&prod, &test]).await;
    until("up", || state(&hub, "prod") == State::Up).await;
    until("known", || {
        hub.catalog()
            .member("test")
            .is_some_and(|m| m.learned().is_some())
    })
    .await;
    let there = || hub.call(use_of("k8s_job", json!({ "cluster": "EU 1" })));
    let error = there().await.unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("its list of tools could not be read yet"),
        "{said}"
    );
    *test.refuses.lock().unwrap() = None;
    until("read", || {
        let catalog = hub.catalog();
        let member = catalog.member("test").unwrap();
        !member.is_unread(waypost_hub::catalog::entry::Kind::Tool)
    })
    .await;
    result(there().await).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_stays_with_its_family_when_another_of_it_becomes_the_first() {
    let [prod, test, other] = ["prod", "test", "other"].map(|name| server(name, &[plain("job")]));
    prod.down.store(true, Ordering::SeqCst);
    let hub = hub(TWO, &[&prod, &test]).await;
    until("up", || state(&hub, "test") == State::Up).await;
    let late = "upstreams:\n  other: { url: \"http://127.0.0.1:9\", prefix: k8s_ }\n";
    let file = TWO.replace("upstreams:\n", late);
    reload(&hub, &file, &[("other", &other)]);
    until("up", || state(&hub, "other") == State::Up).await;
    let all = tools(&hub, View::All).await;
    assert_eq!(names(&all), ["other_job", "k8s_job"]);
    assert_eq!(values(&all, "k8s_job"), ["EU 1"]);
    prod.down.store(false, Ordering::SeqCst);
    until("up", || state(&hub, "prod") == State::Up).await;
    let all = tools(&hub, View::All).await;
    assert_eq!(names(&all), ["other_job", "k8s_job"]);
    assert_eq!(values(&all, "k8s_job"), ["prod", "EU 1"]);
}
