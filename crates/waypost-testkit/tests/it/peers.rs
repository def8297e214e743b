//! Every kind of client against the servers of its own era: the fixtures of the matrix.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use waypost_testkit::demo::all::AllServer;
use waypost_testkit::demo::tasks::Options as Tasks;
use waypost_testkit::demo::{demo_all, legacy_all};
use waypost_testkit::kit::legacy::{Options, Revision, Transport};
use waypost_testkit::kit::stdio::{serve, serve_legacy};
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};

/// The servers, by how they are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Modern,
    Session,
    Sessionless,
    /// Both eras on one endpoint, or one pipe.
    Dual,
    Sse,
    Pipe,
}

/// A client and what keeps its server running.
struct Scene {
    peer: Peer,
    server: Server,
    _running: Option<Running>,
}

fn quick() -> Tasks {
    Tasks {
        poll_interval: Duration::from_millis(20),
        work: Duration::from_millis(10),
        ..Tasks::default()
    }
}

async fn scene(kind: Kind, server: Server) -> Scene {
    let options = Options {
        modern: server == Server::Dual,
        sessions: server != Server::Sessionless,
        transport: match server {
            Server::Sse => Transport::Sse,
            _ => Transport::Http,
        },
        ..Options::default()
    };
    if kind.is_pipe() {
        let peer = piped(kind, server, options).await;
        return Scene {
            peer,
            server,
            _running: None,
        };
    }
    let running = match server {
        Server::Modern => demo_all(ANY_PORT, quick()).await.unwrap(),
        _ => legacy_all(ANY_PORT, quick(), options).await.unwrap(),
    };
    let target = Target::Url(running.url.clone());
    let peer = Peer::connect(kind, &target).await.unwrap();
    Scene {
        peer,
        server,
        _running: Some(running),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has no lifecycle to join")]
async fn piped(kind: Kind, server: Server, options: Options) -> Peer {
    let all = Arc::new(AllServer::open(quick(), CancellationToken::new()).unwrap());
    let (ours, theirs) = tokio::io::duplex(65_536);
    let (read, write) = tokio::io::split(theirs);
    if kind == Kind::ModernPipe && server != Server::Dual {
        tokio::spawn(serve(all, read, write));
    } else {
        tokio::spawn(serve_legacy(all, options, read, write));
    }
    let (read, write) = tokio::io::split(ours);
    let peer = Peer::over(kind, read, write, Manners::default());
    peer.await.unwrap()
}

/// A module for each client and server, with a test for each thing they do together.
macro_rules! together {
    ($($name:ident: $kind:expr, $server:expr;)*) => {
        $(mod $name {
            use super::*;
            together!(@ $kind, $server; lists, calls, reads_and_prompts, tells_progress, logs,
                asks, takes_a_no, cancels, runs_tasks, tells_changes);
        })*
    };
    (@ $kind:expr, $server:expr; $($test:ident),*) => {
        $(#[tokio::test]
        async fn $test() {
            super::$test(scene($kind, $server).await).await;
        })*
    };
}

together! {
    modern: Kind::Modern, Server::Modern;
    modern_dual: Kind::Modern, Server::Dual;
    november: Kind::Http(Revision::Nov2025), Server::Session;
    june: Kind::Http(Revision::Jun2025), Server::Session;
    march: Kind::Http(Revision::Mar2025), Server::Session;
    november_dual: Kind::Http(Revision::Nov2025), Server::Dual;
    november_sessionless: Kind::Http(Revision::Nov2025), Server::Sessionless;
    march_sessionless: Kind::Http(Revision::Mar2025), Server::Sessionless;
    sse: Kind::Sse(Revision::Nov2024), Server::Sse;
    sse_november: Kind::Sse(Revision::Nov2025), Server::Sse;
    pipe_modern: Kind::ModernPipe, Server::Pipe;
    pipe_modern_dual: Kind::ModernPipe, Server::Dual;
    pipe_legacy: Kind::LegacyPipe(Revision::Nov2025), Server::Pipe;
    pipe_legacy_dual: Kind::LegacyPipe(Revision::Nov2025), Server::Dual;
}

async fn lists(scene: Scene) {
    let peer = &scene.peer;
    for (what, name) in [
        ("tools", "test_simple_text"),
        ("prompts", "test_simple_prompt"),
        ("resources", "static-text"),
        ("resourceTemplates", "template"),
    ] {
        let list = peer.list(what).await.unwrap();
        assert!(list.iter().any(|item| item["name"] == name), "{what}");
    }
    if let Some(asked) = peer.kind().revision() {
        assert_eq!(peer.agreed(), Some(asked));
        let capabilities = &peer.opening()["capabilities"];
        assert!(capabilities.get("extensions").is_none());
        let sessions = scene.server != Server::Sessionless;
        assert_eq!(capabilities["tools"].get("listChanged").is_some(), sessions);
        let tasks = sessions && asked == Revision::Nov2025;
        assert_eq!(capabilities.get("tasks").is_some(), tasks);
        let http = matches!(peer.kind(), Kind::Http(_));
        assert_eq!(peer.session_id().is_some(), sessions && http);
        let result = peer.ask("tools/list", json!({})).await.unwrap();
        assert_eq!(result.as_object().unwrap().len(), 1, "only `tools`");
        let execution = result["tools"][0].get("execution");
        assert_eq!(execution.is_some(), tasks);
    } else {
        assert_eq!(peer.opening()["supportedVersions"], json!(["2026-07-28"]));
    }
}

async fn calls(scene: Scene) {
    let echo = scene.peer.tool("echo", json!({ "message": "hi" }));
    let echo = echo.await.unwrap();
    assert_eq!(echo.text(), r#"{"message":"hi"}"#);
    let structured = echo.result().get("structuredContent").is_some();
    let old = scene
        .peer
        .agreed()
        .is_some_and(|agreed| agreed < Revision::Jun2025);
    assert_eq!(structured, !old);
    let unknown = scene.peer.tool("no_such_tool", json!({}));
    assert_eq!(unknown.await.unwrap().code(), -32602);
    let fails = scene.peer.tool("test_error_handling", json!({}));
    assert!(fails.await.unwrap().is_tool_error());
}

async fn reads_and_prompts(scene: Scene) {
    let (peer, answers) = (&scene.peer, Answers::usual());
    let read = peer.read("test://static-text", &answers).await.unwrap();
    assert_eq!(
        read.text(),
        "This is the content of the static text resource."
    );
    let missing = peer.read("test://nothing", &answers).await.unwrap();
    let legacy = peer.kind().revision().is_some();
    assert_eq!(missing.code(), if legacy { -32002 } else { -32602 });
    let arguments = json!({ "arg1": "a", "arg2": "b" });
    let prompt = peer.prompt("test_prompt_with_arguments", arguments, &answers);
    assert_eq!(
        prompt.await.unwrap().text(),
        "Prompt with arguments: arg1='a', arg2='b'"
    );
}

async fn tells_progress(scene: Scene) {
    let call = scene.peer.tool("test_tool_with_progress", json!({}));
    let outcome = call.await.unwrap();
    let steps: Vec<_> = outcome
        .progress()
        .iter()
        .map(|step| step["progress"].as_u64())
        .collect();
    assert_eq!(steps, [Some(0), Some(50), Some(100)]);
    assert_eq!(outcome.text(), "reported progress three times");
}

async fn logs(scene: Scene) {
    let peer = &scene.peer;
    let levels = async || {
        let outcome = peer.tool("test_logging_tool", json!({}));
        let outcome = outcome.await.unwrap();
        let levels = outcome.logs().into_iter().map(|told| told["level"].clone());
        levels.collect::<Vec<_>>()
    };
    let unasked = levels().await;
    if peer.kind().revision().is_some() {
        assert_eq!(unasked.len(), 7, "from `info` on");
    } else {
        assert!(unasked.is_empty());
    }
    peer.set_level("error").await.unwrap();
    if scene.server != Server::Sessionless {
        assert_eq!(levels().await, ["error", "critical", "alert", "emergency"]);
    }
}

async fn asks(scene: Scene) {
    let (peer, answers) = (&scene.peer, Answers::usual());
    let call = async |tool: &str, args: Value| peer.call(tool, args, &answers).await.unwrap();
    let sampled = call("test_sampling", json!({ "prompt": "Well?" })).await;
    if scene.server == Server::Sessionless {
        assert!(sampled.is_tool_error() && sampled.asked.is_empty());
        assert_eq!(sampled.text(), "the client does not support: sampling");
        return;
    }
    assert_eq!(sampled.text(), "LLM response: sampled text");
    assert_eq!(sampled.asked[0].method, "sampling/createMessage");
    let prompt = &sampled.asked[0].params["messages"][0]["content"]["text"];
    assert_eq!(*prompt, "Well?");
    let roots = call("test_list_roots", json!({})).await;
    assert_eq!(roots.text(), "Roots: file:///root");
    let form = call("test_elicitation", json!({ "message": "Who?" })).await;
    assert_eq!(
        form.text(),
        r#"User response: action=accept, content={"email":"my email","username":"my username"}"#
    );
    assert_eq!(form.asked[0].params["message"], "Who?");
    let several = call("test_input_required_result_multiple_inputs", json!({})).await;
    assert_eq!(several.text(), "sampled text my name; roots: file:///root");
    assert_eq!(several.asked.len(), 3);
    let rounds = call("test_input_required_result_multi_round", json!({})).await;
    assert_eq!(rounds.text(), "my name likes my color.");
    let prompt = peer.prompt("test_input_required_result_prompt", json!({}), &answers);
    assert_eq!(prompt.await.unwrap().text(), "The context is: my context");
}

async fn takes_a_no(scene: Scene) {
    if scene.server == Server::Sessionless {
        return;
    }
    let peer = &scene.peer;
    let args = json!({ "message": "Who?" });
    let answers = Answers::declining();
    let declined = peer.call("test_elicitation", args.clone(), &answers);
    assert_eq!(
        declined.await.unwrap().text(),
        "User response: action=decline, content={}"
    );
    let refused = peer.tool("test_elicitation", args);
    let refused = refused.await.unwrap();
    assert_eq!(refused.asked.len(), 1);
    if peer.kind().revision().is_some() {
        assert!(refused.is_tool_error());
        let why = "`elicitation/create` was refused: this client does not answer";
        assert!(refused.text().starts_with(why), "{}", refused.text());
    } else {
        assert_eq!(refused.result()["resultType"], "input_required");
    }
}

async fn cancels(scene: Scene) {
    let peer = &scene.peer;
    let mut slow = peer
        .begin("test_slow", json!({ "seconds": 60 }))
        .await
        .unwrap();
    let first = slow.notification().await.unwrap().unwrap();
    assert_eq!(first["params"]["progressToken"], slow.id());
    peer.cancel(slow).await.unwrap();
    let count = async || {
        let counts = peer.tool("test_cancelled", json!({}));
        serde_json::from_str::<Value>(counts.await.unwrap().text()).unwrap()
    };
    let cancelled = async {
        while count().await["cancelled"] != 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), cancelled)
        .await
        .unwrap();
    assert_eq!(
        count().await,
        json!({ "started": 1, "finished": 0, "cancelled": 1 })
    );
}

async fn runs_tasks(scene: Scene) {
    let (peer, answers) = (&scene.peer, Answers::usual());
    let run = async |tool: &str, args: Value| peer.task(tool, args, &answers).await.unwrap();
    let slow = run("slow_compute", json!({ "seconds": 0.05, "label": "a" })).await;
    assert_eq!(slow.text(), "slow_compute \"a\" finished after 0.05 s");
    let has_tasks = match peer.kind().revision() {
        None => true,
        Some(revision) => revision == Revision::Nov2025 && scene.server != Server::Sessionless,
    };
    assert_eq!(slow.task.is_some(), has_tasks);
    let failing = run("failing_job", json!({})).await;
    assert!(failing.is_tool_error());
    if !has_tasks {
        return;
    }
    assert_eq!(failing.text(), "failing_job failed, as it always does");
    let broken = run("protocol_error_job", json!({})).await;
    assert_eq!(broken.code(), -32603);
    let confirmed = run("confirm_delete", json!({ "filename": "a.txt" })).await;
    assert_eq!(confirmed.text(), "Deleted a.txt.");
    assert_eq!(confirmed.asked.len(), 1);
    let both = run("multi_input", json!({})).await;
    assert_eq!(both.text(), "my name likes my color.");
    let first = run("test_tool_with_task", json!({})).await;
    assert_eq!(first.text(), "Hello, my name!");
}

async fn tells_changes(scene: Scene) {
    if scene.server == Server::Sessionless {
        return;
    }
    let peer = &scene.peer;
    peer.watch(&["test://watched-resource"]).await.unwrap();
    for (tool, method) in [
        (
            "test_trigger_tool_change",
            "notifications/tools/list_changed",
        ),
        (
            "test_trigger_prompt_change",
            "notifications/prompts/list_changed",
        ),
        (
            "test_trigger_resource_change",
            "notifications/resources/list_changed",
        ),
        (
            "test_trigger_resource_update",
            "notifications/resources/updated",
        ),
    ] {
        peer.tool(tool, json!({})).await.unwrap();
        let told = peer.told(method).await.unwrap();
        if tool == "test_trigger_resource_update" {
            assert_eq!(told["params"]["uri"], "test://watched-resource");
        }
    }
}

#[tokio::test]
async fn a_question_can_be_left_open_and_answered_later() {
    for (kind, server) in [
        (Kind::Modern, Server::Modern),
        (Kind::Http(Revision::Nov2025), Server::Session),
        (Kind::LegacyPipe(Revision::Nov2025), Server::Pipe),
    ] {
        let scene = scene(kind, server).await;
        let peer = &scene.peer;
        let args = json!({ "message": "Later?" });
        let mut open = peer.begin("test_elicitation", args).await.unwrap();
        let asked = open.question().await.unwrap().unwrap();
        assert_eq!(asked.params["message"], "Later?");
        assert_eq!(peer.tool("echo", json!({})).await.unwrap().text(), "{}");
        let answered = peer.finish(open, &Answers::declining()).await.unwrap();
        assert_eq!(answered.text(), "User response: action=decline, content={}");
        assert_eq!(answered.asked, [asked]);
        let mut plain = peer.begin("echo", json!({})).await.unwrap();
        assert_eq!(plain.question().await.unwrap(), None);
        let plain = peer.finish(plain, &Answers::refusing()).await.unwrap();
        assert_eq!(plain.text(), "{}");
    }
}
