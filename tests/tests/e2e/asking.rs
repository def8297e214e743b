//! What a call does while its client has a question, over both of the transports that sessions
//! have.

use serde_json::{Value, json};
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Begun, Kind, Outcome, Peer, Target};
use waypost_tests::gateway::Gateway;

use crate::process::program;

/// A client over HTTP and one that started `waypost stdio --connect`; their gateway lives as long
/// as the last is kept.
async fn clients() -> (Vec<Peer>, Gateway) {
    clients_of("script.py").await
}

async fn clients_of(script: &str) -> (Vec<Peer>, Gateway) {
    let script = format!("{}/tests/e2e/{script}", env!("CARGO_MANIFEST_DIR"));
    let upstream = format!("u: {{ command: python3, args: ['{script}'], required: true }}");
    let more = "tasks: { poll_first: 10ms, poll_least: 10ms }";
    let gateway = Gateway::with(&upstream, more).await.unwrap();
    let program = program().display().to_string();
    let bridge = [
        &program,
        "stdio",
        "--log-level",
        "warn",
        "--connect",
        &gateway.url,
    ];
    let targets = [
        (
            Kind::Http(Revision::Nov2025),
            Target::Url(gateway.url.clone()),
        ),
        (
            Kind::LegacyPipe(Revision::Nov2025),
            Target::Command(bridge.map(str::to_owned).to_vec()),
        ),
    ];
    let mut peers = Vec::new();
    for (kind, target) in targets {
        peers.push(Peer::connect(kind, &target).await.unwrap());
    }
    (peers, gateway)
}

async fn run(peer: &Peer, steps: Value) -> Begun {
    let begun = peer.begin("u_run", json!({ "steps": steps })).await;
    begun.unwrap()
}

fn is_cancelled(told: &Value) -> bool {
    told["method"] == "notifications/cancelled"
}

/// Answers nothing, and lets the server go on whenever it asked; how many questions came, and how many were taken back, before the end.
async fn says_nothing(peer: &Peer, begun: &mut Begun) -> (usize, usize) {
    let (mut asked, mut taken_back) = (0, 0);
    loop {
        while let Some(told) = begun.notification().await.unwrap() {
            taken_back += usize::from(is_cancelled(&told));
        }
        if begun.question().await.unwrap().is_none() {
            // On a pipe they are beside all calls.
            taken_back += peer
                .inbox()
                .iter()
                .filter(|told| is_cancelled(told))
                .count();
            return (asked, taken_back);
        }
        asked += 1;
        begun.pass();
        peer.tool("u_go", json!({})).await.unwrap();
    }
}

/// The outcome of a call whose questions nobody answers; `expected` as [`says_nothing`] has it.
async fn unanswered(peer: &Peer, steps: Value, expected: (usize, usize)) -> Outcome {
    let mut begun = run(peer, steps).await;
    assert_eq!(says_nothing(peer, &mut begun).await, expected, "{peer:?}");
    peer.finish(begun, &Answers::refusing()).await.unwrap()
}

async fn outcome(peer: &Peer, steps: Value, answers: Answers) -> Outcome {
    let begun = run(peer, steps).await;
    peer.finish(begun, &answers).await.unwrap()
}

#[tokio::test]
async fn r24_progress_and_log_messages_go_on_while_the_client_is_asked() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([
            { "progress": 1 }, { "ask": "elicitation/create" }, { "progress": 2 }, { "log": "on" },
            { "answer": 1 }, { "progress": 3 },
        ]);
        let outcome = outcome(&peer, steps, Answers::usual()).await;
        let progress = outcome.progress().into_iter();
        let progress: Vec<_> = progress.map(|params| params["progress"].as_u64()).collect();
        assert_eq!(progress, [Some(1), Some(2), Some(3)], "{outcome:?}");
        assert_eq!(outcome.logs().len(), 1, "{outcome:?}");
        assert!(outcome.text().contains("accept"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_server_that_needs_no_answer_any_more_ends_the_call_with_the_question_open() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([{ "ask": "elicitation/create" }, { "wait": "go" }]);
        let outcome = unanswered(&peer, steps, (1, 1)).await;
        assert_eq!(outcome.text(), "[]");
    }
}

#[tokio::test]
async fn a_question_that_the_server_takes_back_is_taken_back_at_the_client() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([
            { "ask": "elicitation/create" }, { "wait": "go" }, { "take_back": 1 },
            { "ask": "sampling/createMessage" }, { "wait": "go" }, { "take_back": 1 },
        ]);
        let outcome = unanswered(&peer, steps, (2, 2)).await;
        assert_eq!(outcome.text(), "[]");
    }
}

#[tokio::test]
async fn r19_a_child_that_dies_while_its_client_is_asked_fails_the_call_at_once() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([{ "ask": "elicitation/create" }, { "wait": "go" }, { "die": 1 }]);
        let outcome = unanswered(&peer, steps, (1, 1)).await;
        let text = outcome.answer["error"]["message"].to_string();
        assert!(text.contains("exit") && text.contains('3'), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_an_error_to_the_server_and_the_call_goes_on() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([{ "ask": "sampling/createMessage" }, { "answer": 1 }]);
        let outcome = outcome(&peer, steps, Answers::refusing()).await;
        assert!(outcome.text().contains("-32601"), "{outcome:?}");
    }
}

#[tokio::test]
async fn questions_of_one_call_are_answered_one_by_one() {
    let (peers, _gateway) = clients().await;
    for peer in peers {
        let steps = json!([
            { "ask": "elicitation/create" }, { "ask": "sampling/createMessage" }, { "answer": 1 },
            { "ask": "sampling/createMessage" }, { "answer": 1 }, { "answer": 1 },
        ]);
        let outcome = outcome(&peer, steps, Answers::usual()).await;
        let answers: Value = serde_json::from_str(outcome.text()).unwrap();
        assert_eq!(answers[0]["action"], "accept");
        assert!(
            answers[1]["content"].is_object() && answers[2]["content"].is_object(),
            "{answers}"
        );
    }
}

// === questions of a task that Waypost waits for ===

#[tokio::test]
async fn a_task_that_ends_while_its_client_is_asked_ends_the_call() {
    let (peers, _gateway) = clients_of("job.py").await;
    for peer in peers {
        let steps = json!([
            { "ask": "elicitation/create" }, { "wait": "go" }, { "ask": "roots/list" },
            { "wait": "go" },
        ]);
        let mut begun = run(&peer, steps).await;
        // The second came while the first was open.
        assert_eq!(says_nothing(&peer, &mut begun).await, (2, 2), "{peer:?}");
        let outcome = peer.finish(begun, &Answers::refusing()).await.unwrap();
        assert_eq!(outcome.text(), "[]");
    }
}

#[tokio::test]
async fn r19_a_child_that_dies_while_a_task_of_it_asks_fails_the_call() {
    let (peers, _gateway) = clients_of("job.py").await;
    for peer in peers {
        let steps = json!([{ "ask": "elicitation/create" }, { "wait": "go" }, { "die": 1 }]);
        let outcome = unanswered(&peer, steps, (1, 1)).await;
        let text = outcome.answer["error"]["message"].to_string();
        assert!(text.contains("has ended"), "{outcome:?}");
    }
}

#[tokio::test]
async fn questions_of_one_task_are_answered_one_by_one() {
    let (peers, _gateway) = clients_of("job.py").await;
    for peer in peers {
        let steps = json!([
            { "ask": "elicitation/create" }, { "ask": "roots/list" }, { "answer": 1 },
            { "ask": "sampling/createMessage" }, { "answer": 1 }, { "answer": 1 },
        ]);
        let outcome = outcome(&peer, steps, Answers::usual()).await;
        let answers: Value = serde_json::from_str(outcome.text()).unwrap();
        assert_eq!(answers[0]["action"], "accept");
        assert!(
            answers[1]["roots"].is_array() && answers[2]["content"].is_object(),
            "{answers}"
        );
    }
}
