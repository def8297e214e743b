//! Clients and servers of the session era: what must hold however they come together.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;
use waypost::daemon::Daemon;
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::{Endpoint, LineEnd, Lost, Options, Quirks, Revision, Transport};
use waypost_testkit::misbehave::sessions;
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::process::{Home, Served, program};
use crate::support::{until, upstream, wait_for_state};

const NOVEMBER: Kind = Kind::Http(Revision::Nov2025);

async fn connect(kind: Kind, url: &str) -> Peer {
    Peer::connect(kind, &Target::Url(url.to_owned()))
        .await
        .unwrap()
}

async fn in_front_of(running: &Running) -> Gateway {
    let upstream = format!("u: {{ url: '{}', required: true }}", running.url);
    Gateway::start(&upstream).await.unwrap()
}

async fn session_server() -> Running {
    legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap()
}

/// The demo server of the session era as a child that notes its process id in `file`.
fn noted_child(file: &std::path::Path, isolation: &str) -> String {
    let script = format!(
        "echo $$ >> '{}'\nexec '{}' demo-server everything --stdio --era legacy",
        file.display(),
        program().display()
    );
    // `$` begins a variable in the configuration.
    let script = script.replace('$', "$$");
    format!("u: {{ command: sh, args: [-c, {script:?}], required: true, isolation: {isolation} }}")
}

/// What `ps` says of the noted processes: the state of each that is there.
async fn states(file: &std::path::Path) -> Vec<String> {
    let noted = std::fs::read_to_string(file).unwrap_or_default();
    let pids = noted.split_whitespace().collect::<Vec<_>>().join(",");
    let asked = Command::new("ps")
        .args(["-o", "stat=", "-p", &pids])
        .output();
    let printed = String::from_utf8(asked.await.unwrap().stdout).unwrap();
    printed.split_whitespace().map(str::to_owned).collect()
}

/// Everything says who asked: both what was asked and what was answered.
fn telling(name: &'static str) -> Answers {
    Answers::new(move |_, params| {
        let message = params["message"].as_str().unwrap_or_default();
        let content = json!({ "username": name, "email": message });
        Ok(json!({ "action": "accept", "content": content }))
    })
}

async fn asked_ten_times(peer: &Peer, name: &'static str) -> Vec<String> {
    asked(peer, name, 10).await
}

/// What so many calls at once, each of which is asked, are answered.
async fn asked(peer: &Peer, name: &'static str, times: usize) -> Vec<String> {
    let answers = telling(name);
    let calls = (0..times).map(|number| {
        let args = json!({ "message": format!("{name}-{number}") });
        peer.call("u_test_elicitation", args, &answers)
    });
    let mut texts = Vec::new();
    for outcome in join_all(calls).await {
        let outcome = outcome.unwrap();
        for asked in &outcome.asked {
            let message = asked.params["message"].as_str().unwrap();
            assert!(message.starts_with(name), "{name} was asked {message}");
        }
        texts.push(outcome.text().to_owned());
    }
    texts
}

#[tokio::test]
async fn r21_a_session_outlives_the_daemon_that_opened_it() {
    let server = session_server().await;
    let home = Home::new(&format!(
        "upstreams:\n  u: {{ url: '{}', required: true }}\nstate: {{ path: ./db }}\n",
        server.url
    ));
    let served = Served::start(&home).await;
    let before = connect(NOVEMBER, &served.url).await;
    let id = before.session_id().unwrap().to_owned();
    let echo = before.tool("u_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}");
    served.signal("KILL").await;
    drop(served);
    let served = Served::start(&home).await;
    let after = Peer::rejoin(NOVEMBER, &served.url, &id, &Manners::default()).unwrap();
    assert!(!after.list("tools").await.unwrap().is_empty());
    let args = json!({ "message": "Who?" });
    let answers = Answers::usual();
    let asked = after.call("u_test_elicitation", args, &answers).await;
    assert!(asked.unwrap().text().contains("action=accept"));
    assert_eq!(after.open_stream().await.unwrap().unwrap(), 200);
    let manners = Manners {
        headers: vec![("mcp-session-id".to_owned(), id.clone())],
        ..Manners::default()
    };
    let target = Target::Url(served.url.clone());
    let again = Peer::with(NOVEMBER, &target, manners).await.unwrap();
    assert_ne!(again.session_id().unwrap(), id, "any old id, a new session");
    let deleted = after.delete().await.unwrap().unwrap();
    assert!(deleted.is_success(), "{deleted}");
    let gone = after.request("tools/list", json!({}), &answers).await;
    assert_eq!(gone.unwrap().status.unwrap(), 404);
}

#[tokio::test]
async fn r1_children_are_as_many_as_configured_after_fifty_sessions() {
    for (isolation, most) in [("session", 1), ("shared", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let upstream = noted_child(&file, isolation);
        let gateway = Gateway::start(&upstream).await.unwrap();
        for _ in 0..10 {
            let sessions = (0..5).map(|_| async {
                let peer = connect(NOVEMBER, &gateway.url).await;
                let echo = peer.tool("u_echo", json!({})).await.unwrap();
                assert_eq!(echo.text(), "{}", "{:?}", echo.answer);
                peer.close().await.unwrap();
            });
            join_all(sessions).await;
        }
        let left = async || states(&file).await.len() <= most;
        until(&format!("at most {most} children ({isolation})"), left).await;
        let states = states(&file).await;
        assert!(
            states.iter().all(|state| !state.starts_with('Z')),
            "{states:?}"
        );
        let noted = std::fs::read_to_string(&file).unwrap().lines().count();
        let own = isolation == "session";
        assert_eq!(noted >= 50, own, "{isolation}: {noted} children");
        assert!(gateway.stop().await);
        let none = async || crate::eras::states(&file).await.is_empty();
        until("no child to be left", none).await;
    }
}

#[tokio::test]
async fn both_eras_are_served_at_once_on_one_endpoint() {
    let (old, new) = (
        session_server().await,
        demo_everything(ANY_PORT).await.unwrap(),
    );
    let upstreams = format!(
        "old: {{ url: '{}', required: true }}\nnew: {{ url: '{}', required: true }}",
        old.url, new.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let kinds = Kind::MATRIX.into_iter().filter(|kind| !kind.is_pipe());
    let peers = join_all(kinds.map(|kind| connect(kind, &gateway.url))).await;
    for round in 0..5 {
        let calls = peers.iter().flat_map(|peer| {
            ["old_echo", "new_echo"].map(|tool| peer.tool(tool, json!({ "round": round })))
        });
        for outcome in join_all(calls).await {
            assert_eq!(outcome.unwrap().text(), format!(r#"{{"round":{round}}}"#));
        }
    }
}

#[tokio::test]
async fn a_session_client_is_asked_by_a_child_in_the_middle_of_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = noted_child(&folder.path().join("pids"), "session");
    let gateway = Gateway::start(&upstream).await.unwrap();
    let peer = connect(NOVEMBER, &gateway.url).await;
    let args = json!({ "message": "Who?" });
    let mut begun = peer.begin("u_test_elicitation", args).await.unwrap();
    let asked = begun.question().await.unwrap().unwrap();
    assert_eq!(asked.method, "elicitation/create");
    assert_eq!(asked.params["message"], "Who?");
    // The call is open, and others go on beside it.
    assert_eq!(peer.tool("u_echo", json!({})).await.unwrap().text(), "{}");
    let outcome = peer.finish(begun, &telling("Ada")).await.unwrap();
    assert_eq!(
        outcome.text(),
        r#"User response: action=accept, content={"email":"Who?","username":"Ada"}"#
    );
}

/// The servers behind which clients must not hear each other's questions.
async fn upstreams_that_ask() -> Vec<(String, Option<Running>, tempfile::TempDir)> {
    let sse = Options {
        transport: Transport::Sse,
        ..Options::default()
    };
    let mut all = Vec::new();
    for options in [Options::default(), sse] {
        let running = legacy_everything(ANY_PORT, options).await.unwrap();
        let upstream = format!("u: {{ url: '{}', required: true }}", running.url);
        all.push((upstream, Some(running), tempfile::tempdir().unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    all.push((
        noted_child(&folder.path().join("pids"), "session"),
        None,
        folder,
    ));
    all
}

#[tokio::test]
async fn r10_two_session_clients_never_hear_each_others_questions() {
    for (upstream, _running, _folder) in upstreams_that_ask().await {
        let gateway = Gateway::start(&upstream).await.unwrap();
        let one = connect(NOVEMBER, &gateway.url).await;
        let two = connect(Kind::Http(Revision::Jun2025), &gateway.url).await;
        let (first, second) =
            tokio::join!(asked_ten_times(&one, "one"), asked_ten_times(&two, "two"));
        for (texts, name) in [(first, "one"), (second, "two")] {
            for text in texts {
                let own = format!(r#""username":"{name}""#);
                assert!(text.contains(&own), "{upstream}: {name} got {text}");
            }
        }
    }
}

/// Without keys two modern clients are one caller; over a pipe a question names no call.
#[tokio::test]
async fn r10_two_modern_clients_never_hear_each_others_questions() {
    for (at, (upstream, _running, _folder)) in upstreams_that_ask().await.into_iter().enumerate() {
        // On a stream of its own each question names its call.
        let is_certain = at == 0;
        let upstream = upstream.replace("isolation: session", "isolation: principal");
        let gateway = Gateway::start(&upstream).await.unwrap();
        let one = connect(Kind::Modern, &gateway.url).await;
        let two = connect(Kind::Modern, &gateway.url).await;
        let (first, second) =
            tokio::join!(asked_ten_times(&one, "one"), asked_ten_times(&two, "two"));
        // A question that cannot be certain is refused, and its call fails; none goes astray.
        for (texts, own, other) in [(first, "one", "two"), (second, "two", "one")] {
            let of = |name: &str| format!(r#""username":"{name}""#);
            let astray = texts.iter().any(|text| text.contains(&of(other)));
            assert!(!astray, "{upstream}: {texts:?}");
            let answered = texts.iter().all(|text| text.contains(&of(own)));
            assert!(answered || !is_certain, "{upstream}: {texts:?}");
        }
        let alone = asked(&one, "one", 1).await;
        let answered = alone[0].contains(r#""username":"one""#);
        assert!(answered, "{upstream}: {alone:?}");
    }
}

#[tokio::test]
async fn r2_a_lost_session_is_opened_again_once_for_twenty_calls() {
    for lost in [
        Lost::NotFound,
        Lost::PlainText,
        Lost::BadRequest,
        Lost::ServerError,
        Lost::JsonRpc,
    ] {
        let server = sessions::forgets_sessions(lost).await.unwrap();
        let gateway = in_front_of(&server).await;
        for kind in [Kind::Modern, NOVEMBER] {
            let peer = connect(kind, &gateway.url).await;
            assert_eq!(peer.tool("u_echo", json!({})).await.unwrap().text(), "{}");
            let opened = server.sessions().opened();
            server.sessions().forget_all();
            let calls = (0..20).map(|number| peer.tool("u_echo", json!({ "number": number })));
            for (number, outcome) in join_all(calls).await.into_iter().enumerate() {
                let (outcome, wanted) = (outcome.unwrap(), format!(r#"{{"number":{number}}}"#));
                assert_eq!(outcome.text(), wanted, "{lost:?}: {:?}", outcome.answer);
            }
            // One for the client's calls; the one that lists is opened again on its own.
            let again = server.sessions().opened() - opened;
            assert!(
                (1..=2).contains(&again),
                "{lost:?}: {again} sessions were opened"
            );
        }
    }
}

#[tokio::test]
async fn r14_the_endpoint_of_an_sse_server_is_found_however_it_is_named() {
    for endpoint in [
        Endpoint::AbsolutePath,
        Endpoint::Relative,
        Endpoint::FullUrl,
    ] {
        for line_end in [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr] {
            let server = sessions::sse(endpoint.clone(), line_end).await.unwrap();
            let gateway = in_front_of(&server).await;
            let peer = connect(NOVEMBER, &gateway.url).await;
            let echo = peer.tool("u_echo", json!({})).await.unwrap();
            assert_eq!(echo.text(), "{}", "{endpoint:?}, {line_end:?}");
        }
    }
}

#[tokio::test]
async fn r14_an_sse_server_that_names_another_origin_is_refused() {
    let elsewhere = Endpoint::OtherOrigin("http://127.0.0.1:9".to_owned());
    let server = sessions::sse(elsewhere, LineEnd::Lf).await.unwrap();
    for era in ["auto", "sse"] {
        let upstreams = format!("u: {{ url: '{}', era: {era} }}", server.url);
        let gateway = Gateway::start(&upstreams).await.unwrap();
        wait_for_state(&gateway.admin, "u", "down").await;
        let error = upstream(&gateway.admin, "u").await["lastError"]["message"].clone();
        let error = error.as_str().unwrap();
        let says = ["HTTP+SSE", "another origin", "hint: "];
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[tokio::test]
async fn r22_a_client_keeps_its_own_session_at_the_server() {
    let server = session_server().await;
    let gateway = in_front_of(&server).await;
    let one = connect(NOVEMBER, &gateway.url).await;
    let two = connect(NOVEMBER, &gateway.url).await;
    let count = async |peer: &Peer| {
        let outcome = peer.tool("u_test_count", json!({})).await.unwrap();
        outcome.text().to_owned()
    };
    let mut counted = Vec::new();
    for _ in 0..5 {
        counted.push((count(&one).await, count(&two).await));
    }
    let last = &counted[4];
    assert!(last.0.contains('5') && last.1.contains('5'), "{counted:?}");
    let live = server.sessions().live();
    one.close().await.unwrap();
    two.close().await.unwrap();
    assert!(server.sessions().wait_for(|all| all.deleted() == 2).await);
    assert_eq!(server.sessions().live(), live - 2, "R64: one DELETE each");
}

#[tokio::test]
async fn r12_r29_python_like_servers_and_noisy_children_work() {
    let server = sessions::python_like().await.unwrap();
    let noisy = format!(
        "noisy: {{ command: '{}', args: [demo-server, everything, --stdio, --era, legacy, --fault, stray-lines], required: true }}",
        program().display()
    );
    let upstreams = format!("u: {{ url: '{}', required: true }}\n{noisy}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    for kind in [Kind::Modern, NOVEMBER] {
        let peer = connect(kind, &gateway.url).await;
        for upstream in ["u", "noisy"] {
            let echo = peer
                .tool(&format!("{upstream}_echo"), json!({}))
                .await
                .unwrap();
            assert_eq!(echo.text(), "{}", "{upstream}");
            let args = json!({ "message": "Who?" });
            let tool = format!("{upstream}_test_elicitation");
            let asked = peer.call(&tool, args, &telling("Ada")).await.unwrap();
            assert!(
                asked.text().contains("Ada"),
                "{upstream}: {:?}",
                asked.answer
            );
        }
    }
}

/// A client of the session era that leaves the connection has not given its call up; the end of its
/// session does.
#[tokio::test]
async fn r75_the_end_of_a_session_cancels_its_calls() {
    let server = session_server().await;
    let gateway = in_front_of(&server).await;
    let peer = connect(NOVEMBER, &gateway.url).await;
    let mut slow = peer
        .begin("u_test_slow", json!({ "seconds": 60 }))
        .await
        .unwrap();
    assert!(slow.notification().await.unwrap().is_some());
    peer.close().await.unwrap();
    let other = connect(NOVEMBER, &gateway.url).await;
    let cancelled = async || {
        let counts = other.tool("u_test_cancelled", json!({})).await.unwrap();
        let counts: Value = serde_json::from_str(counts.text()).unwrap();
        counts["cancelled"] == 1
    };
    until("the call to be cancelled", cancelled).await;
    drop(slow);
}

/// Sessions that nobody ends are freed when they are idle, with what they hold at the server.
#[tokio::test]
async fn r16_abandoned_sessions_are_freed_and_come_back_when_they_are_used() {
    let server = session_server().await;
    let upstream = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::with(&upstream, "front: { session_idle: 300ms }")
        .await
        .unwrap();
    let before = server.sessions().live();
    let manners = Manners {
        get_stream: false,
        ..Manners::default()
    };
    let mut peers = Vec::new();
    for _ in 0..20 {
        let target = Target::Url(gateway.url.clone());
        let peer = Peer::with(NOVEMBER, &target, manners.clone())
            .await
            .unwrap();
        peer.tool("u_echo", json!({})).await.unwrap();
        peers.push(peer);
    }
    let freed = |all: &waypost_testkit::kit::legacy::Sessions| all.live() <= before;
    assert!(server.sessions().wait_for(freed).await);
    let echo = peers[0].tool("u_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}", "{:?}", echo.answer);
}

#[tokio::test]
async fn r09_a_list_that_changes_reaches_clients_though_its_server_did_not_announce_that() {
    for transport in [Transport::Http, Transport::Sse] {
        let quirks = Quirks {
            unannounced: true,
            ..Quirks::default()
        };
        let options = Options {
            transport,
            quirks,
            ..Options::default()
        };
        let server = legacy_everything(ANY_PORT, options).await.unwrap();
        let gateway = in_front_of(&server).await;
        let peer = connect(NOVEMBER, &gateway.url).await;
        let (change, new) = ("u_test_trigger_tool_change", json!("u_test_dynamic_tool"));
        let has = async || {
            let tools = peer.list("tools").await.unwrap();
            tools.iter().any(|tool| tool["name"] == new)
        };
        assert!(!has().await);
        peer.tool(change, json!({})).await.unwrap();
        let told = peer.told("notifications/tools/list_changed").await;
        assert!(told.is_some(), "{transport:?}: nothing is told");
        assert!(has().await, "{transport:?}");
    }
}

/// How long a server takes to start that is slow.
const START: Duration = Duration::from_secs(3);

#[tokio::test]
async fn r19_a_slow_start_does_not_hold_up_the_client() {
    let slow = sessions::slow_initialize(START).await.unwrap();
    let quick = session_server().await;
    let state = tempfile::tempdir().unwrap();
    let yaml = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nstate: {{ path: '{}' }}\nupstreams:\n  \
         slow: {{ url: '{}', era: legacy }}\n  u: {{ url: '{}' }}",
        state.path().join("db").display(),
        slow.url,
        quick.url
    );
    let config = waypost_config::parse_str(&yaml).unwrap().config;
    let begun = Instant::now();
    // A gateway of ours waits for the first attempt with every server, this one does not.
    let daemon = Daemon::start(config, waypost::daemon::Options::default());
    let daemon = Box::pin(daemon).await.unwrap();
    let peer = connect(NOVEMBER, &daemon.url()).await;
    let names = async || {
        let tools = peer.list("tools").await.unwrap().into_iter();
        tools.map(|tool| tool["name"].clone()).collect::<Vec<_>>()
    };
    until("the quick server", async || {
        names().await.contains(&json!("u_echo"))
    })
    .await;
    assert!(begun.elapsed() < START, "{:?}", begun.elapsed());
    assert!(!names().await.contains(&json!("slow_echo")));
    let listed = async || {
        let told = peer.told("notifications/tools/list_changed").await;
        assert!(told.is_some(), "nothing is told");
        names().await.contains(&json!("slow_echo"))
    };
    until("the slow server's tools", listed).await;
    let echo = peer.tool("slow_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}", "{:?}", echo.answer);
}

#[tokio::test]
async fn only_a_client_with_a_session_learns_that_a_visit_is_over() {
    let children = format!(
        "u: {{ command: {:?}, args: [demo-server, everything, --stdio, --era, legacy], \
         required: true }}",
        program().display().to_string()
    );
    let server = session_server().await;
    let gateways = [
        in_front_of(&server).await,
        Gateway::start(&children).await.unwrap(),
    ];
    for gateway in gateways {
        for (kind, times) in [(NOVEMBER, 1), (Kind::Modern, 0)] {
            let peer = connect(kind, &gateway.url).await;
            let (tool, answers) = ("u_test_elicitation_url", Answers::usual());
            let called = peer.call(tool, json!({}), &answers).await.unwrap();
            assert_eq!(called.text(), "URL elicitation: accept");
            let told = called.told("notifications/elicitation/complete");
            assert_eq!(told.len(), times, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_goes_to_its_servers_and_comes_back_as_one_array() {
    let server = session_server().await;
    let gateway = in_front_of(&server).await;
    let peer = connect(Kind::Http(Revision::Mar2025), &gateway.url).await;
    let call = |id: u32, text: &str| {
        let params = json!({ "name": "u_echo", "arguments": { "text": text } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([call(1, "one"), call(2, "two")]).to_string();
    let client = Client::new(&gateway.url);
    let mut post = client.post("", Value::Null).raw(batch);
    post.headers.clear();
    for (name, value) in [
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("mcp-session-id", peer.session_id().unwrap()),
    ] {
        post = post.header(name, value);
    }
    let reply = client.ask(post).await.unwrap();
    assert_eq!(reply.status, 200);
    let answers = reply.answer.as_array().unwrap();
    for (id, text) in [(1, "one"), (2, "two")] {
        let answer = answers.iter().find(|answer| answer["id"] == id).unwrap();
        assert!(answer.to_string().contains(text), "{answer}");
    }
    assert_eq!(answers.len(), 2);
}
