//! Signals and crashes of the daemon.

use std::time::{Duration, Instant};

use serde_json::json;
use waypost_testkit::demo::demo_tasks;
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Begun, Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;

use crate::draining::{answer, ask, asking};
use crate::process::{Home, Served, alive, pid_in, program};
use crate::stage::quick;
use crate::support::{get, tool_with_meta, until};

/// A configuration with a child behind a shell, which notes both process ids.
struct Family {
    home: Home,
}

impl Family {
    fn new(more: &str) -> Self {
        let home = Home::new("");
        let (shell, server) = (home.path().join("shell"), home.path().join("server"));
        let script = format!(
            "echo $$$$ > '{}'; '{}' demo-server tasks --stdio <&0 & echo $! > '{}'; wait",
            shell.display(),
            program().display(),
            server.display()
        );
        // A background job of a shell reads nothing unless it is given the input by another number.
        let script = format!("exec 3<&0; {}", script.replace("<&0", "<&3"));
        let yaml = format!(
            "{more}\nupstreams: {{ c: {{ command: sh, args: [-c, {script:?}], required: true }} }}"
        );
        std::fs::write(home.config(), yaml).unwrap();
        Self { home }
    }

    async fn pids(&self) -> [u32; 2] {
        [
            pid_in(&self.home.path().join("shell")).await,
            pid_in(&self.home.path().join("server")).await,
        ]
    }
}

async fn gone(pids: [u32; 2]) {
    for pid in pids {
        until("the children to be gone", async || !alive(pid).await).await;
    }
}

#[tokio::test]
async fn r01_a_stop_leaves_no_child_and_no_grandchild() {
    let family = Family::new("");
    let mut waypost = Served::start(&family.home).await;
    let pids = family.pids().await;
    let client = waypost.client();
    let reply = client.tool("c_greet", json!({ "name": "Ada" })).await;
    assert_eq!(reply.unwrap().text(), "Hello, Ada!");
    waypost.signal("TERM").await;
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
    // Waited for, not only told.
    for pid in pids {
        assert!(!alive(pid).await, "{}", waypost.log());
    }
}

#[tokio::test]
async fn r01_a_crash_takes_even_children_with_it_that_do_not_care() {
    let home = Home::new("");
    let (shell, sleeper) = (home.path().join("shell"), home.path().join("sleeper"));
    // Neither notices that its input ended.
    let script = format!(
        "sleep 600 & echo $! > '{}'; echo $$$$ > '{}'; '{}' demo-server tasks --stdio; wait",
        sleeper.display(),
        shell.display(),
        program().display()
    );
    let child = json!({ "command": "sh", "args": ["-c", script], "required": true });
    let yaml = json!({ "upstreams": { "c": child } });
    std::fs::write(home.config(), yaml.to_string()).unwrap();
    let mut waypost = Served::start(&home).await;
    let pids = [pid_in(&shell).await, pid_in(&sleeper).await];
    for pid in pids {
        assert!(alive(pid).await);
    }
    waypost.signal("KILL").await;
    assert_eq!(waypost.code().await, None);
    gone(pids).await;
}

#[tokio::test]
async fn r42_sigterm_lets_calls_finish_ends_listening_and_exits_0_in_time() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "drain_grace: 3s\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let mut waypost = Served::start(&home).await;
    let listener = waypost.client();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let post = listener.post("subscriptions/listen", filter);
    let id = post.message["id"].clone();
    let mut idle = listener.send(post).await.unwrap();
    idle.next().await.unwrap().unwrap();
    let caller = waypost.client();
    let arguments = json!({ "seconds": 0.8, "label": "in flight" });
    let post = tool_with_meta(
        &caller,
        "t_slow_compute",
        arguments,
        json!({ "progressToken": 1 }),
    );
    let mut call = caller.send(post).await.unwrap();
    call.next().await.unwrap().unwrap();

    let asked = Instant::now();
    waypost.signal("TERM").await;
    let ready = format!("{}/readyz", waypost.admin);
    let draining = async || get(&ready).await.status == 503;
    until("readiness to go", draining).await;
    assert_eq!(get(&format!("{}/healthz", waypost.admin)).await.status, 200);
    let end = idle.next().await.unwrap().unwrap();
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&id, &json!("complete"))
    );
    let reply = call.finish().await.unwrap();
    assert!(
        reply.text().contains("finished after 0.8 s"),
        "{}",
        reply.answer
    );
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
    );
}

/// A client of the session era whose call has asked it something, and the daemon, which was told
/// to end then.
async fn asked_and_ending(grace: &str) -> (Peer, Begun, Served) {
    let script = format!("{}/tests/e2e/script.py", env!("CARGO_MANIFEST_DIR"));
    let home = Home::new(&format!(
        "drain_grace: {grace}\nupstreams: {{ u: {{ command: python3, args: ['{script}'], required: true }} }}"
    ));
    let waypost = Served::start(&home).await;
    let target = Target::Url(waypost.url.clone());
    let peer = Peer::connect(Kind::Http(Revision::Nov2025), &target);
    let peer = peer.await.unwrap();
    let steps = json!({ "steps": [{ "ask": "elicitation/create" }, { "answer": 1 }] });
    let mut begun = peer.begin("u_run", steps).await.unwrap();
    assert!(begun.question().await.unwrap().is_some());
    waypost.signal("TERM").await;
    waypost.wait_for_log("draining").await;
    (peer, begun, waypost)
}

#[tokio::test]
async fn r42_a_client_that_is_asked_can_still_answer_while_the_daemon_ends() {
    let (peer, begun, mut waypost) = Box::pin(asked_and_ending("1m")).await;
    let outcome = peer.finish(begun, &Answers::usual()).await.unwrap();
    assert!(outcome.text().contains("accept"), "{outcome:?}");
    assert_eq!(waypost.code().await, Some(0), "{}", waypost.log());
}

#[tokio::test]
async fn r42_a_call_of_a_session_that_outlives_the_grace_ends_with_an_error() {
    let (peer, mut begun, mut waypost) = Box::pin(asked_and_ending("300ms")).await;
    begun.pass();
    let outcome = peer.finish(begun, &Answers::refusing()).await.unwrap();
    assert_eq!(outcome.code(), -32603, "{outcome:?}");
    assert!(waypost.code().await.is_some());
}

#[tokio::test]
async fn r42_a_second_signal_exits_at_once() {
    let family = Family::new("drain_grace: 10m");
    let mut waypost = Served::start(&family.home).await;
    let pids = family.pids().await;
    let client = waypost.client();
    let meta = json!({ "progressToken": 1 });
    let post = tool_with_meta(&client, "c_slow_compute", json!({ "seconds": 600 }), meta);
    let mut call = client.send(post).await.unwrap();
    call.next().await.unwrap().unwrap();
    waypost.signal("TERM").await;
    waypost.wait_for_log("draining").await;
    waypost.signal("TERM").await;
    let second = Instant::now();
    waypost.code().await;
    assert!(
        second.elapsed() < Duration::from_secs(3),
        "{:?}",
        second.elapsed()
    );
    gone(pids).await;
}

#[tokio::test]
async fn r42_children_are_asked_to_leave_only_when_their_calls_are_over() {
    for name in ["TERM", "INT"] {
        let family = Family::new("");
        let mut waypost = Served::start(&family.home).await;
        let pids = family.pids().await;
        let client = waypost.client();
        let arguments = json!({ "seconds": 0.6, "label": "in flight" });
        let meta = json!({ "progressToken": 1 });
        let post = tool_with_meta(&client, "c_slow_compute", arguments, meta);
        let mut call = client.send(post).await.unwrap();
        call.next().await.unwrap().unwrap();
        waypost.signal(name).await;
        let reply = call.finish().await.unwrap();
        assert!(
            reply.text().contains("finished after 0.6 s"),
            "{name}: {}",
            reply.answer
        );
        assert_eq!(waypost.code().await, Some(0), "{name}: {}", waypost.log());
        for pid in pids {
            assert!(!alive(pid).await, "{name}");
        }
    }
}

#[tokio::test]
async fn answers_to_a_task_are_sent_once_though_the_daemon_is_killed_in_between() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let home = Home::new(&format!(
        "state: {{ path: ./db }}\nupstreams: {{ t: {{ url: '{}', required: true }} }}",
        demo.url
    ));
    let (name, file) = ("t_confirm_delete", json!({ "filename": "a" }));
    let mut waypost = Served::start(&home).await;
    let client = asking(&waypost);
    let asked = ask(&client, name, &file).await;
    let unused = ask(&client, name, &file).await;
    let first = answer(&client, name, &file, &asked).await;
    assert_eq!(first.result()["resultType"], "complete", "{}", first.answer);
    assert_eq!(demo.seen().count("tasks/update"), 1);
    waypost.signal("KILL").await;
    waypost.code().await;
    let waypost = Served::start(&home).await;
    let client = asking(&waypost);
    let again = answer(&client, name, &file, &asked).await;
    assert_eq!(again.result()["content"], first.result()["content"]);
    assert_eq!(demo.seen().count("tasks/update"), 1);
    // One that was not used is good.
    let other = answer(&client, name, &file, &unused).await;
    assert_eq!(other.result()["resultType"], "complete", "{}", other.answer);
    assert_eq!(demo.seen().count("tasks/update"), 2);
}
