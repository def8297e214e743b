//! Who shares a process of a modern server.

use std::collections::HashSet;

use rustix::process::{Pid, test_kill_process};
use tokio_util::sync::CancellationToken;
use waypost_hub::call::{Call, Carrier, Principal, Session};
use waypost_hub::error::Kind;
use waypost_hub::reply::End;
use waypost_hub::upstream::Upstream;

use crate::kit::{complete, end_of, in_time, tool, upstream};
use crate::stdio::SERVER;

fn settings(more: &str) -> String {
    format!("command: python3, args: ['{SERVER}'], {more}")
}

fn by(principal: &str, session: Option<&Session>) -> Call {
    let mut call = tool("pids");
    call.principal = Principal::new(principal);
    call.session = session.cloned();
    call
}

async fn pid(upstream: &dyn Upstream, call: Call) -> i32 {
    let got = complete(upstream, call).await;
    got.get("own").unwrap().decode().unwrap()
}

fn alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

async fn until_gone(pid: i32) {
    in_time(async {
        while alive(pid) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn callers_that_are_kept_apart_have_a_process_each() {
    let upstream = upstream(&settings("isolation: principal, max_sessions: 2"));
    in_time(upstream.discover(None)).await.unwrap();
    let home = pid(&*upstream, tool("pids")).await;
    let (ann, bob) = (by("ann", None), by("bob", None));
    let of_ann = pid(&*upstream, ann.clone()).await;
    let of_bob = pid(&*upstream, bob).await;
    assert_eq!(HashSet::from([home, of_ann, of_bob]).len(), 3);
    assert_eq!(pid(&*upstream, ann.clone()).await, of_ann);
    let instance = |name| upstream.instance(&Principal::new(name), None);
    assert!(instance("ann").is_some() && instance("ann") != instance("bob"));
    assert!(instance("carl").is_none());
    let mut call = ann;
    call.carrier = Carrier::watched();
    pid(&*upstream, call.clone()).await;
    assert_eq!(call.carrier.instance(), instance("ann"));

    let error = end_of(&*upstream, by("carl", None)).await.unwrap_err();
    assert_eq!(error.kind, Kind::Throttled);
    in_time(upstream.close()).await;
    assert!([home, of_ann, of_bob].into_iter().all(|pid| !alive(pid)));
}

#[tokio::test]
async fn a_call_for_a_process_that_is_gone_reaches_no_other() {
    let upstream = upstream(&settings(""));
    in_time(upstream.discover(None)).await.unwrap();
    let now = upstream.instance(&Principal::own(), None);
    let mut call = tool("pids");
    call.carrier = Carrier::only(now.as_ref());
    pid(&*upstream, call.clone()).await;
    assert!(!call.carrier.is_astray());
    for gone in [Some("gone".into()), None] {
        call.carrier = Carrier::only(gone.as_ref());
        let end = end_of(&*upstream, call.clone()).await.unwrap();
        assert!(matches!(end, End::Error(error) if error.code() == -32602));
        assert!(call.carrier.is_astray());
    }
    in_time(upstream.close()).await;
}

#[tokio::test]
async fn r01_a_released_session_takes_its_process_along() {
    let upstream = upstream(&settings("isolation: session"));
    in_time(upstream.discover(None)).await.unwrap();
    let released = CancellationToken::new();
    let session = Session::new("s1", released.clone());
    let first = pid(&*upstream, by("ann", Some(&session))).await;
    let other = pid(&*upstream, by("ann", None)).await;
    assert_ne!(first, other);
    released.cancel();
    until_gone(first).await;
    assert!(alive(other));
    let again = Session::new("s1", CancellationToken::new());
    assert!(alive(pid(&*upstream, by("ann", Some(&again))).await));
    in_time(upstream.close()).await;
}

#[tokio::test]
async fn an_unused_process_of_one_caller_is_ended() {
    let upstream = upstream(&settings("isolation: principal, idle_timeout: 200ms"));
    in_time(upstream.discover(None)).await.unwrap();
    let home = pid(&*upstream, tool("pids")).await;
    let of_ann = pid(&*upstream, by("ann", None)).await;
    until_gone(of_ann).await;
    assert!(alive(home));
    assert_ne!(pid(&*upstream, by("ann", None)).await, of_ann);
    in_time(upstream.close()).await;
}

#[tokio::test]
async fn what_cannot_be_started_takes_no_place() {
    let settings = "command: /no/such/program, era: modern, isolation: principal, max_sessions: 1";
    let upstream = upstream(settings);
    for name in ["ann", "bob"] {
        let error = end_of(&*upstream, by(name, None)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
    }
    in_time(upstream.close()).await;
}

#[tokio::test]
async fn r35_a_program_that_ends_at_once_is_not_started_for_every_caller() {
    let log = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let log = log.join(format!("starts-{}", std::process::id()));
    std::fs::write(&log, "").unwrap();
    let script = format!("echo >> {}; exit 3", log.display());
    let upstream = upstream(&format!(
        "command: sh, args: [-c, '{script}'], era: modern, isolation: principal"
    ));
    for name in ["ann", "bob", "carl", "dora", "eve"] {
        let error = end_of(&*upstream, by(name, None)).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.to_string().contains("code 3"), "{error}");
    }
    let starts = std::fs::read_to_string(&log).unwrap().lines().count();
    // The first end is no pattern.
    assert_eq!(starts, 2);
    in_time(upstream.close()).await;
    std::fs::remove_file(&log).unwrap();
}
