//! Many callers of one server: nobody gets what is another's, nobody waits for another.

use futures_util::future::join_all;
use serde_json::{Value, json};
use waypost_testkit::client::Client;

use crate::stage::{Stage, Way, both_ways};
use crate::support::{accept, tool_with_meta};

both_ways! {
    r24_equal_progress_tokens_stay_with_their_own_calls,
    r37_a_slow_call_holds_up_nobody_although_ids_are_equal,
    r51_fifty_clients_get_their_own_answers,
    r52_ids_come_back_with_value_and_type,
}

async fn r24_equal_progress_tokens_stay_with_their_own_calls(way: Way) {
    let stage = Stage::new(way).await;
    let run = async |token: Option<Value>, label: &str| {
        let client = stage.client();
        let arguments = json!({ "seconds": 0.2, "label": label });
        let meta = token.map_or(json!({}), |token| json!({ "progressToken": token }));
        let mut post = tool_with_meta(&client, "d_slow_compute", arguments, meta);
        post.message["id"] = json!(1);
        client.ask(post).await.unwrap()
    };
    let tokens = [Some(json!(1)), Some(json!(1)), Some(json!("1")), None];
    let runs = ["a", "b", "c", "d"].iter().zip(&tokens);
    let runs = runs.map(|(label, token)| run(token.clone(), label));
    let replies = join_all(runs).await;
    for ((label, token), reply) in ["a", "b", "c", "d"].iter().zip(&tokens).zip(&replies) {
        assert!(
            reply.text().contains(&format!("\"{label}\"")),
            "{}",
            reply.answer
        );
        let Some(token) = token else {
            assert_eq!(reply.notifications, [Value::Null; 0]);
            continue;
        };
        assert_eq!(reply.notifications.len(), 5);
        for told in &reply.notifications {
            assert_eq!(told["params"]["progressToken"], *token);
            let message = told["params"]["message"].as_str().unwrap();
            assert!(
                message.contains(&format!("\"{label}\"")),
                "{label}: {message}"
            );
        }
    }
    let sent = stage.sent("tools/call");
    let mut tokens: Vec<_> = sent
        .iter()
        .filter_map(|call| call["params"]["_meta"].get("progressToken"))
        .map(Value::to_string)
        .collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(
        tokens.len(),
        3,
        "one each, none for who gave none: {tokens:?}"
    );
}

async fn r37_a_slow_call_holds_up_nobody_although_ids_are_equal(way: Way) {
    let stage = Stage::new(way).await;
    let slow = stage.client();
    let arguments = json!({ "seconds": 600, "label": "slow" });
    let meta = json!({ "progressToken": 0 });
    let mut post = tool_with_meta(&slow, "d_slow_compute", arguments, meta);
    post.message["id"] = json!(0);
    let mut stream = slow.send(post).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let clients: Vec<Client> = (0..10).map(|_| stage.client()).collect();
    let calls = clients.iter().enumerate().map(async |(who, client)| {
        for id in 0..10 {
            let name = format!("{who}-{id}");
            let params = json!({ "name": "d_greet", "arguments": { "name": name } });
            let mut post = client.post("tools/call", params);
            post.message["id"] = json!(id);
            let reply = client.ask(post).await.unwrap();
            assert_eq!(reply.text(), format!("Hello, {name}!"));
            assert_eq!(reply.answer["id"], id);
        }
    });
    join_all(calls).await;
    // The slow one is still at work: closing it is seen as the end of one unfinished call.
    drop(stream);
    stage.wait_for_cancel("tools/call").await;
}

async fn r51_fifty_clients_get_their_own_answers(way: Way) {
    let stage = Stage::new(way).await;
    let rounds = (0..50).map(async |who| {
        let capabilities = json!({ "elicitation": {} });
        let client = stage.client().with_capabilities(capabilities);
        let name = "d_test_input_required_result_multi_round";
        let mut params = json!({ "name": name, "arguments": {} });
        let mut reply = client.call("tools/call", params.clone()).await.unwrap();
        for (key, member) in [("step1", "name"), ("step2", "color")] {
            let answer = accept(json!({ member: format!("{member}-{who}") }));
            params["inputResponses"] = json!({ key: answer });
            params["requestState"] = reply.result()["requestState"].clone();
            reply = client.call("tools/call", params.clone()).await.unwrap();
        }
        assert_eq!(reply.text(), format!("name-{who} likes color-{who}."));
        let echoed = json!({ "message": format!("only for {who}") });
        let reply = client.tool("d_echo", echoed.clone()).await.unwrap();
        assert_eq!(reply.result()["structuredContent"], echoed);
    });
    join_all(rounds).await;
}

async fn r52_ids_come_back_with_value_and_type(way: Way) {
    let stage = Stage::new(way).await;
    let client = stage.client();
    let ids = [
        json!(1),
        json!("1"),
        json!(0),
        json!(-1),
        json!(""),
        json!("6b1c9a4e-52a7-4f6e-8f1f-1d7b3a0c9e55"),
        json!("x".repeat(4096)),
    ];
    let calls = ids.iter().map(async |id| {
        let arguments = json!({ "message": id });
        let mut post = client.post(
            "tools/call",
            json!({ "name": "d_echo", "arguments": arguments }),
        );
        post.message["id"] = id.clone();
        let reply = client.ask(post).await.unwrap();
        assert_eq!(reply.answer["id"], *id);
        assert_eq!(reply.result()["structuredContent"]["message"], *id);
    });
    join_all(calls).await;
}
