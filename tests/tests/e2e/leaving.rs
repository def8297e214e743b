//! Clients that leave without a word, and what is left of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use waypost_testkit::client::{Client, Post};
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::peer::{Kind, Manners, Peer, Target};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::process::{Home, Served, program};
use crate::support::{page, until};

const NOVEMBER: Kind = Kind::Http(Revision::Nov2025);

/// What the daemon holds.
struct Held {
    descriptors: usize,
    resident_kib: usize,
}

impl Held {
    fn by(served: &Served) -> Self {
        let process = format!("/proc/{}", served.pid());
        let descriptors = std::fs::read_dir(format!("{process}/fd")).unwrap();
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS:"));
        let resident = resident.and_then(|line| line.split_whitespace().nth(1));
        Self {
            descriptors: descriptors.count(),
            resident_kib: resident.unwrap().parse().unwrap(),
        }
    }
}

/// A client that comes, does what a client of its number does, and is gone; none says good-bye.
async fn visit(url: &str, number: usize) {
    let target = Target::Url(url.to_owned());
    if number.is_multiple_of(4) {
        // Not even `notifications/initialized`; every other of them has no session at all.
        let client = Client::new(url);
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "c", "version": "1" } });
        let method = ["initialize", "tools/list"][number / 4 % 2];
        let mut post = client.post(method, json!({}));
        post.message["params"] = params;
        let post = post.without("mcp-protocol-version").without("mcp-method");
        client.ask(post).await.unwrap();
        return;
    }
    let manners = Manners {
        get_stream: number.is_multiple_of(5),
        ..Manners::default()
    };
    let peer = Peer::with(NOVEMBER, &target, manners).await.unwrap();
    peer.list("tools").await.unwrap();
    if number % 10 == 1 {
        peer.tool("u_echo", json!({})).await.unwrap();
    }
    if number % 50 == 1 {
        let slow = json!({ "seconds": 60 });
        let mut begun = peer.begin("u_test_slow", slow).await.unwrap();
        begun.notification().await.unwrap();
    }
}

async fn visits(url: &str, count: usize) {
    let visits = (0..count).map(|number| visit(url, number));
    stream::iter(visits)
        .buffer_unordered(32)
        .collect::<Vec<_>>()
        .await;
}

#[tokio::test]
async fn r16_thousands_who_leave_without_a_word_leave_nothing() {
    let server = legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap();
    let home = Home::new(&format!(
        "upstreams:\n  u: {{ url: '{}', required: true, idle_timeout: 1s, max_sessions: 1000, \
         timeout_ceiling: 2s, timeout: 2s }}\n\
         front: {{ session_idle: 1s, session_handshake: 1s }}\n",
        server.url
    ));
    let served = Served::start(&home).await;
    let before = server.sessions().live();
    let freed = async || {
        let sessions = async || {
            let metrics = page(&format!("{}/metrics", served.admin)).await;
            let mut lines = metrics.lines();
            lines.any(|line| line == "waypost_client_sessions 0")
        };
        until("no session of a client", sessions).await;
        let gone = async || server.sessions().live() <= before;
        until("no session of theirs at the server", gone).await;
    };
    // What a daemon that has worked holds for good.
    visits(&served.url, 500).await;
    freed().await;
    let usual = Held::by(&served);
    for _ in 0..2 {
        visits(&served.url, 1000).await;
        freed().await;
    }
    until("the descriptors to be closed", async || {
        Held::by(&served).descriptors <= usual.descriptors + 5
    })
    .await;
    let most = usual.resident_kib + usual.resident_kib / 10 + 4 * 1024;
    until("the memory to be given back", async || {
        Held::by(&served).resident_kib <= most
    })
    .await;
    let echo = served.client().tool("u_echo", json!({})).await.unwrap();
    assert_eq!(echo.text(), "{}");
}

#[tokio::test]
async fn r48_clients_that_vanish_disturb_nobody_at_a_shared_child() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let script = format!(
        "echo $$$$ >> '{}'; exec '{}' demo-server everything --stdio --era legacy",
        started.display(),
        program().display()
    );
    let upstream =
        format!("u: {{ command: sh, args: [-c, {script:?}], required: true, isolation: shared }}");
    let gateway = Gateway::start(&upstream).await.unwrap();
    let target = Target::Url(gateway.url.clone());
    let over = AtomicBool::new(false);
    let vanishing = (0..10).map(async |number: usize| {
        let kind = [NOVEMBER, Kind::Modern][number % 2];
        while !over.load(Ordering::Relaxed) {
            let peer = Peer::connect(kind, &target).await.unwrap();
            let slow = json!({ "seconds": 600 });
            let mut begun = peer.begin("u_test_slow", slow).await.unwrap();
            assert!(begun.notification().await.unwrap().is_some());
        }
    });
    let staying = async {
        let calls = (0..10).map(async |number: usize| {
            let peer = Peer::connect(NOVEMBER, &target).await.unwrap();
            for round in 0..30 {
                let said = json!({ "who": number, "round": round });
                let echo = peer.tool("u_echo", said.clone()).await.unwrap();
                let heard: Value = serde_json::from_str(echo.text()).unwrap();
                assert_eq!(heard, said);
            }
        });
        join_all(calls).await;
        over.store(true, Ordering::Relaxed);
    };
    join(join_all(vanishing), staying).await;
    let started = std::fs::read_to_string(started).unwrap();
    assert_eq!(started.lines().count(), 1, "the child was started again");
}

/// A request of a client that has a session.
fn in_session(post: Post, id: &str) -> Post {
    let post = post.without("mcp-method").without("mcp-name");
    post.without("mcp-protocol-version")
        .header("mcp-session-id", id)
}

#[tokio::test]
async fn r21_a_call_whose_daemon_was_killed_ends_when_its_client_comes_back() {
    let server = legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap();
    let home = Home::new(&format!(
        "upstreams:\n  u: {{ url: '{}', required: true }}\nstate: {{ path: ./db }}\n",
        server.url
    ));
    let served = Served::start(&home).await;
    let target = Target::Url(served.url.clone());
    let peer = Peer::connect(NOVEMBER, &target).await.unwrap();
    let id = peer.session_id().unwrap().to_owned();
    let client = served.client();
    let mut post = in_session(client.post("tools/call", json!({})), &id);
    post.message["id"] = json!("the call");
    post.message["params"] = json!({ "name": "u_test_slow", "arguments": { "seconds": 600 },
        "_meta": { "progressToken": 1 } });
    let mut call = client.send(post).await.unwrap();
    let mut last = None;
    let mut read = async || {
        let event = call.event().await.unwrap().unwrap();
        last = event.id.or(last.take());
        event.data
    };
    while read().await.is_empty() {}
    served.signal("KILL").await;
    drop((call, served));
    let served = Served::start(&home).await;
    let client = served.client();
    let come_back = async |last: &str| {
        let mut get = in_session(client.post("", Value::Null).raw(""), &id);
        get.http_method = http::Method::GET;
        let get = get.header("accept", "text/event-stream");
        client
            .send(get.header("last-event-id", last))
            .await
            .unwrap()
    };
    let mut rest = come_back(&last.unwrap()).await;
    let end = tokio::time::timeout(Duration::from_secs(10), rest.event()).await;
    let end = end.unwrap().unwrap().unwrap();
    let answer: Value = serde_json::from_str(&end.data).unwrap();
    assert_eq!(answer["id"], "the call");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("may have run"), "{message}");
    assert_eq!(rest.event().await.unwrap(), None);
    assert_eq!(come_back(&end.id.unwrap()).await.status, 204);
}
