//! The life of a child: how it starts, what it is given, how it ends.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use waypost_hub::error::Kind;
use waypost_hub::lifecycle::Tasks;
use waypost_hub::upstream::Upstream;

use crate::kit::{
    complete, end_of, failure, in_time, instance, parts, tool, upstream, upstream_with,
};
use crate::stdio::server;

/// The text of the failure to start this.
async fn startup(settings: &str) -> String {
    let upstream = upstream(settings);
    let error = in_time(upstream.discover(None)).await.unwrap_err();
    assert_eq!(
        (error.kind, instance(&*upstream)),
        (Kind::Unavailable, None)
    );
    error.detail.unwrap().into_owned()
}

fn sh(script: &str) -> String {
    format!("command: sh, args: [-c, '{script}']")
}

#[tokio::test]
async fn r56_a_failure_to_start_is_known_at_once_with_its_reason() {
    let text = startup(&sh("echo boom >&2; exit 3")).await;
    assert_eq!(text, "the process exited with code 3: boom");
}

#[tokio::test]
async fn r56_a_command_that_cannot_run_is_named() {
    let text = startup("command: no-such-thing, env: { PATH: /nowhere }").await;
    assert_eq!(
        text,
        "command `no-such-thing` was not found in the child's PATH"
    );
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let plain = script("plain", "#!/bin/sh\n", 0o644);
    let text = startup(&format!("command: '{plain}'")).await;
    assert_eq!(text, format!("command `{plain}` is not executable"));
    let lost = script("lost", "#!/no/such/interpreter\n", 0o755);
    let text = startup(&format!("command: '{lost}'")).await;
    assert_eq!(
        text,
        format!("command `{lost}` cannot be run: its interpreter does not exist")
    );
    let text = startup("command: sh, cwd: /no/such/folder").await;
    assert_eq!(
        text,
        "the working directory `/no/such/folder` does not exist"
    );
}

#[tokio::test]
async fn r56_a_child_that_closes_its_output_and_lives_is_given_up() {
    let text = startup(&sh("exec >&-; exec sleep 1000")).await;
    assert_eq!(text, "the process closed its standard output");
}

#[tokio::test]
async fn r36_secrets_in_a_childs_last_words_are_hidden() {
    let settings = "env: { API_KEY: canary-1 }, inherit_env: [GW_TOKEN]";
    let script = sh("echo $API_KEY and $GW_TOKEN >&2; echo $API_KEY; exit 1");
    let mut parts = parts();
    let mut env = (*parts.env).clone();
    env.insert("GW_TOKEN".into(), "canary-2".into());
    parts.env = env.into();
    let upstream = upstream_with(&format!("{script}, {settings}"), &parts);
    let error = in_time(upstream.discover(None)).await.unwrap_err();
    let text = format!("{error} {error:?} {upstream:?}");
    assert!(
        text.contains("*** and ***") && !text.contains("canary"),
        "{text}"
    );
}

/// Starts what cannot start: what callers are told, and what only the operator is.
async fn words(yaml: &str, tell_callers: bool) -> (String, Option<String>) {
    let mut sources = waypost_config::Sources::from_text(yaml);
    sources.env = [("CANARY".to_owned(), "canary-3".to_owned())].into();
    let config = waypost_config::load(&sources).unwrap().config;
    let mut parts = parts();
    parts.tell_callers = Arc::new(tell_callers.into());
    let upstream = waypost_upstream::connect(&config.upstreams[0], &parts).unwrap();
    let error = in_time(upstream.discover(None)).await.unwrap_err();
    let cause = error.source.map(|cause| cause.to_string());
    (error.detail.unwrap().into_owned(), cause)
}

#[tokio::test]
async fn r36_a_childs_last_words_are_for_the_operator_where_callers_are_many() {
    let yaml = format!("upstreams: {{ u: {{ {} }} }}", sh("echo boom >&2; exit 3"));
    let exit = "the process exited with code 3".to_owned();
    let told = (format!("{exit}: boom"), None);
    assert_eq!(words(&yaml, true).await, told);
    assert_eq!(words(&yaml, false).await, (exit, Some("boom".to_owned())));
}

#[tokio::test]
async fn r36_the_path_of_a_child_is_for_the_operator() {
    let yaml = "upstreams: { u: { command: no-such-thing, env: { PATH: /nowhere } } }";
    let (told, cause) = words(yaml, true).await;
    assert!(!told.contains("nowhere"), "{told}");
    assert_eq!(
        cause.unwrap(),
        "PATH is `***`",
        "what the file sets is hidden"
    );
}

#[tokio::test]
async fn r36_what_came_into_the_arguments_from_outside_is_hidden() {
    let script = "echo \"usage: $0\" >&2; exit 2";
    let yaml = format!(
        "upstreams: {{ u: {{ command: sh, args: [-c, '{script}', '--key=${{CANARY}}'] }} }}"
    );
    let (told, _) = words(&yaml, true).await;
    assert_eq!(told, "the process exited with code 2: usage: --key=***");
    let yaml = "upstreams: { u: { command: '/bin/${CANARY}/x' } }";
    assert_eq!(
        words(yaml, true).await.0,
        "command `/bin/***/x` does not exist"
    );
}

#[tokio::test]
async fn two_that_start_a_server_at_once_share_one_process() {
    let script = crate::stdio::SERVER;
    let upstream = upstream(&format!("command: python3, args: ['{script}']"));
    let (one, two) =
        in_time(async { tokio::join!(upstream.discover(None), upstream.discover(None)) }).await;
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    let first = instance(&*upstream);
    complete(&*upstream, tool("echo")).await;
    assert!(first.is_some() && instance(&*upstream) == first);
}

#[tokio::test]
async fn r40_a_child_gets_its_own_environment_and_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap().display().to_string();
    let mut parts = parts();
    let mut env = (*parts.env).clone();
    env.insert("GW_TOKEN".into(), "canary".into());
    parts.env = env.into();
    let script = crate::stdio::SERVER;
    let settings =
        format!("command: python3, args: ['{script}'], env: {{ K: v }}, cwd: '{folder}'");
    let upstream = upstream_with(&settings, &parts);
    in_time(upstream.discover(None)).await.unwrap();
    let got = complete(&*upstream, tool("environ")).await;
    assert_eq!(got.string("cwd").unwrap(), folder);
    let names: Vec<String> = got.get("env").unwrap().decode().unwrap();
    assert!(names.contains(&"K".to_owned()) && names.contains(&"PATH".to_owned()));
    assert!(!names.contains(&"GW_TOKEN".to_owned()) && !names.contains(&"CARGO".to_owned()));
}

#[tokio::test]
async fn r35_a_dead_child_fails_its_calls_at_once_and_is_replaced() {
    let upstream = server().await;
    let first = instance(&*upstream).unwrap();
    let held = join_all((0..10).map(|_| end_of(&*upstream, tool("hold"))));
    let (held, kill) =
        in_time(async { tokio::join!(held, end_of(&*upstream, tool("kill"))) }).await;
    for error in held.into_iter().chain([kill]) {
        let error = error.unwrap_err();
        let detail = "the process was killed by signal 9: about to die";
        assert_eq!(error.detail.as_deref(), Some(detail));
        assert_eq!((error.kind, error.retryable), (Kind::Unavailable, false));
    }
    in_time(upstream.lost()).await;
    assert_eq!(instance(&*upstream), None);
    // Who calls meanwhile waits for the next.
    complete(&*upstream, tool("echo")).await;
    assert_ne!(instance(&*upstream).unwrap(), first);
}

#[tokio::test]
async fn discovery_asks_the_child_that_is_there() {
    let upstream = server().await;
    let first = instance(&*upstream);
    in_time(upstream.discover(None)).await.unwrap();
    assert_eq!(instance(&*upstream), first);
}

fn alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

/// Whether an orphan is dead; whoever adopts it reaps it, sooner or later.
fn ended(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.contains(") Z ") || !alive(pid)
}

async fn pids(upstream: &dyn Upstream) -> [i32; 2] {
    let got = complete(upstream, tool("pids")).await;
    ["own", "child"].map(|name| got.get(name).unwrap().decode().unwrap())
}

#[tokio::test]
async fn r01_closing_ends_the_whole_group_and_reaps_it() {
    let upstream = server().await;
    let [own, child] = pids(&*upstream).await;
    assert!(alive(own) && alive(child));
    in_time(upstream.close()).await;
    assert!(!alive(own) && ended(child));
    assert_eq!(failure(&*upstream).await.kind, Kind::Unavailable);
    assert!(in_time(upstream.discover(None)).await.is_err());
}

#[tokio::test]
async fn r01_an_upstream_that_is_dropped_takes_its_child_with_it() {
    let upstream = server().await;
    let [own, child] = pids(&*upstream).await;
    drop(upstream);
    // Were the test over when only the first is gone, the runtime would be too, before the second is.
    in_time(async {
        while alive(own) || !ended(child) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn r01_a_child_that_ignores_everything_is_killed() {
    let script = "trap \"\" TERM; read line; id=1; \
        echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":1,\\\"result\\\":{\\\"supportedVersions\\\":[\\\"2026-07-28\\\"]}}\"; \
        exec sleep 1000";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sh");
    std::fs::write(&path, script).unwrap();
    let settings = format!("command: sh, args: ['{}']", path.display());
    let upstream = upstream(&settings);
    upstream.discover(None).await.unwrap();
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    upstream.close().await;
    assert!(
        before.elapsed() >= Duration::from_secs(10),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test]
async fn stopping_lets_calls_finish_and_then_ends_the_child() {
    let tasks = Tasks::default();
    let mut parts = parts();
    parts.tasks = tasks.clone();
    let script = crate::stdio::SERVER;
    let upstream = upstream_with(&format!("command: python3, args: ['{script}']"), &parts);
    in_time(upstream.discover(None)).await.unwrap();
    let [own, child] = pids(&*upstream).await;
    let held = upstream.call(tool("hold"));
    tokio::pin!(held);
    let drained = tokio::select! {
        biased;
        reply = &mut held => panic!("{reply:?}"),
        _ = complete(&*upstream, tool("echo")) => tasks.drain(Duration::from_secs(20)),
    };
    let finish = async {
        complete(&*upstream, tool("release")).await;
        held.await
    };
    let (drained, reply) = in_time(async { tokio::join!(drained, finish) }).await;
    assert!(drained && reply.is_ok() && !alive(own) && ended(child));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_never_says_anything_is_given_up_when_its_time_is_over() {
    let upstream = upstream(&sh("cat >/dev/null"));
    let started = tokio::time::Instant::now();
    let error = upstream.discover(None).await.unwrap_err();
    assert_eq!(error.kind, Kind::Timeout);
    assert_eq!(error.detail.as_deref(), Some("did not answer within 30s"));
    assert_eq!(started.elapsed().as_secs(), 60, "half for either era");
    assert_eq!(instance(&*upstream), None);
}

#[tokio::test]
async fn a_server_that_is_at_work_is_not_silent() {
    let upstream = server().await;
    let first = instance(&*upstream);
    let [own, child] = pids(&*upstream).await;
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    let own = Pid::from_raw(own).unwrap();
    let plays = async {
        in_time(async {
            loop {
                let seen = complete(&*upstream, tool("cancelled")).await;
                if seen.get("held").is_some_and(|held| held.text() != "[]") {
                    return;
                }
            }
        })
        .await;
        kill_process(own, Signal::STOP).unwrap();
        tokio::time::pause();
        let facts = upstream.discover(None).await;
        tokio::time::resume();
        kill_process(own, Signal::CONT).unwrap();
        facts.unwrap();
        complete(&*upstream, tool("release")).await;
    };
    // Has no deadline: the clock jumps meanwhile.
    let hold = async { upstream.call(tool("hold")).await?.into_end().await };
    let (held, ()) = Box::pin(futures_util::future::join(hold, plays)).await;
    held.unwrap();
    assert_eq!(instance(&*upstream), first);
}

#[tokio::test]
async fn a_server_that_went_silent_is_restarted_and_stays_modern() {
    let upstream = server().await;
    let first = instance(&*upstream);
    let [own, child] = pids(&*upstream).await;
    // Ends the child of the child here: the test is over before its stopped parent is given up.
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    kill_process(Pid::from_raw(own).unwrap(), Signal::STOP).unwrap();
    // Nothing else happens from here on, so its patience is over at once.
    tokio::time::pause();
    let error = upstream.discover(None).await.unwrap_err();
    assert_eq!(error.kind, Kind::Timeout);
    upstream.lost().await;
    tokio::time::resume();
    in_time(upstream.discover(None)).await.unwrap();
    assert_ne!(instance(&*upstream), first);
    complete(&*upstream, tool("echo")).await;
}
