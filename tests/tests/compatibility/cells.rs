//! What a client does with a server: one function a feature.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use waypost_testkit::peer::{Answers, Outcome, Peer};

use crate::scene::{DENIED, Scene, Server, Way};

/// How long a feature may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The features, in the page's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    List,
    Call,
    Progress,
    Cancel,
    Elicit,
    Sample,
    Log,
    Read,
    Updated,
    Prompt,
    Task,
}

impl Feature {
    pub(crate) const ALL: [Self; 11] = [
        Self::List,
        Self::Call,
        Self::Progress,
        Self::Cancel,
        Self::Elicit,
        Self::Sample,
        Self::Log,
        Self::Read,
        Self::Updated,
        Self::Prompt,
        Self::Task,
    ];

    /// Whether the server says something that names no call where it comes over a pipe. Modern
    /// clients without keys share one, and whose it is is certain only while there is no other call,
    /// nor one that was given up.
    fn needs_certainty(self) -> bool {
        matches!(self, Self::Elicit | Self::Sample | Self::Log)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Call => "call",
            Self::Progress => "progress",
            Self::Cancel => "cancel",
            Self::Elicit => "elicit",
            Self::Sample => "sample",
            Self::Log => "log",
            Self::Read => "resource read",
            Self::Updated => "resource updated",
            Self::Prompt => "prompt",
            Self::Task => "task",
        }
    }

    /// What has to happen for a yes.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::List => {
                "tools, prompts, resources and templates are listed, as the client's era has them"
            }
            Self::Call => "a tool gets its arguments; unknown tools and tool errors are told apart",
            Self::Progress => {
                "progress comes with the client's own token, in order, before the result"
            }
            Self::Cancel => "a call that is given up is given up at the server",
            Self::Elicit => {
                "the server asks the user in the middle of a call and gets the answer, yes or no"
            }
            Self::Sample => {
                "the server asks the client's model in the middle of a call and gets the answer"
            }
            Self::Log => {
                "the client sets a level and gets messages from that level on, and no others"
            }
            Self::Read => {
                "a listed resource is read; one that is not there has the code of the client's era"
            }
            Self::Updated => {
                "a client that subscribed to a resource is told when its own call changes it"
            }
            Self::Prompt => "a prompt gets its arguments",
            Self::Task => {
                "clients that know tasks get a handle and follow it to the end, others get the plain answer"
            }
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Yes,
    /// There is nothing that could be carried.
    NotApplicable,
    No(String),
}

/// Everything, in the page's order.
pub(crate) async fn all(scene: &Scene<'_>) -> Vec<(Feature, Cell)> {
    let peer = connect(scene).await;
    // First what only one client at a time can do; see `Feature::needs_certainty`. After the first
    // call that is given up on a shared pipe nobody can any more.
    let (certain, others): (Vec<_>, Vec<_>) = Feature::ALL
        .into_iter()
        .partition(|feature| feature.needs_certainty());
    let mut cells = Vec::new();
    for feature in certain {
        cells.push((feature, one(scene, &peer, feature).await));
    }
    scene.others_are_as_far().await;
    for feature in others {
        cells.push((feature, one(scene, &peer, feature).await));
    }
    cells.sort_by_key(|(feature, _)| Feature::ALL.iter().position(|one| one == feature));
    cells
}

/// The client, or what every cell of it is.
async fn connect(scene: &Scene<'_>) -> Result<Peer, Cell> {
    let connected = timeout(PATIENCE, scene.connect()).await;
    let connected = connected.unwrap_or_else(|late| Err(late.into()));
    connected.map_err(|error| Cell::No(format!("does not connect: {error}")))
}

async fn one(scene: &Scene<'_>, peer: &Result<Peer, Cell>, feature: Feature) -> Cell {
    let peer = match peer {
        Ok(peer) => peer,
        Err(cell) => return cell.clone(),
    };
    // Cancelled calls are counted for the whole server.
    let alone = feature.needs_certainty() || feature == Feature::Cancel;
    let (_alone, _beside) = if alone {
        (Some(scene.server_lock().write().await), None)
    } else {
        (None, Some(scene.server_lock().read().await))
    };
    let tried = timeout(PATIENCE, Box::pin(tried(scene, peer, feature))).await;
    match tried.context("takes too long") {
        Ok(Ok(cell)) => cell,
        Ok(Err(error)) | Err(error) => Cell::No(format!("{error:#}")),
    }
}

async fn tried(scene: &Scene<'_>, peer: &Peer, feature: Feature) -> anyhow::Result<Cell> {
    match feature {
        Feature::List => lists(scene, peer).await,
        Feature::Call => calls(scene, peer).await,
        Feature::Progress => tells_progress(scene, peer).await,
        Feature::Cancel => cancels(scene, peer).await,
        Feature::Elicit => return elicits(scene, peer).await,
        Feature::Sample => return samples(scene, peer).await,
        Feature::Log => logs(scene, peer).await,
        Feature::Read => reads(scene, peer).await,
        Feature::Updated => return hears_updates(scene, peer).await,
        Feature::Prompt => prompts(scene, peer).await,
        Feature::Task => return runs_tasks(scene, peer).await,
    }?;
    Ok(Cell::Yes)
}

/// Fails with the whole outcome when it has another text.
fn said(outcome: &Outcome, text: &str) -> anyhow::Result<()> {
    ensure!(outcome.text() == text, "expected `{text}`: {outcome:?}");
    Ok(())
}

/// Calls a tool of the server, by the way that the client has to it.
async fn call(
    scene: &Scene<'_>,
    peer: &Peer,
    tool: &str,
    arguments: Value,
) -> anyhow::Result<Outcome> {
    let (tool, arguments) = scene.tool(tool, arguments);
    Ok(peer.tool(&tool, arguments).await?)
}

async fn lists(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let (simple, _) = scene.tool("test_simple_text", json!({}));
    for (what, name) in [
        ("tools", simple),
        ("prompts", scene.named("test_simple_prompt")),
        ("resources", "static-text".to_owned()),
        ("resourceTemplates", "template".to_owned()),
    ] {
        let list = peer.list(what).await?;
        let found = list
            .iter()
            .any(|item| item.get("name") == Some(&json!(name)));
        ensure!(found, "no `{name}` among {} {what}", list.len());
    }
    match scene.way() {
        Way::Whole => {}
        Way::View => {
            let list = peer.list("tools").await?;
            let denied = DENIED.map(|tool| json!(scene.named(tool)));
            let is_denied = |item: &Value| denied.iter().any(|name| item.get("name") == Some(name));
            ensure!(!list.iter().any(is_denied), "denied tools are listed");
        }
        Way::Search => finds(scene, peer).await?,
    }
    let list = peer.ask("tools/list", json!({})).await?;
    let modern = list.get("resultType") == Some(&json!("complete"))
        && list.get("ttlMs").is_some_and(Value::is_u64)
        && list.get("cacheScope").is_some_and(Value::is_string);
    ensure!(modern == scene.is_modern(), "a list of the other era");
    Ok(())
}

/// What is not listed is found, and described as a list would have it.
async fn finds(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let name = scene.named("test_simple_text");
    let upstream = scene.handle();
    let query = json!({ "query": "simple text", "upstream": upstream.trim_end_matches('~') });
    let found = peer.tool("find_tools", query).await?;
    ensure!(found.text().contains(&format!("{name:?}")), "{found:?}");
    let described = peer.tool("describe_tool", json!({ "name": name })).await?;
    ensure!(described.text().contains("inputSchema"), "{described:?}");
    Ok(())
}

async fn calls(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let exact = json!({ "message": "hi", "number": 12_345_678_901_234_567_u64 });
    let echo = call(scene, peer, "echo", exact.clone()).await?;
    said(&echo, &exact.to_string())?;
    let denied = match scene.way() {
        Way::View => DENIED.as_slice(),
        Way::Whole | Way::Search => &[],
    };
    for name in denied.iter().chain(&["no_such_tool"]) {
        let unknown = call(scene, peer, name, json!({})).await?;
        ensure!(unknown.code() == -32602, "`{name}` is known: {unknown:?}");
    }
    let fails = call(scene, peer, "test_error_handling", json!({})).await?;
    ensure!(fails.is_tool_error(), "no tool error: {fails:?}");
    Ok(())
}

async fn tells_progress(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let (tool, arguments) = scene.tool("test_tool_with_progress", json!({}));
    let begun = peer.begin(&tool, arguments).await?;
    let token = json!(begun.id());
    let outcome = peer.finish(begun, &Answers::refusing()).await?;
    said(&outcome, "reported progress three times")?;
    let steps = outcome.progress();
    let done: Vec<_> = steps
        .iter()
        .filter_map(|step| step.get("progress")?.as_u64())
        .collect();
    ensure!(done == [0, 50, 100], "{outcome:?}");
    let own = steps
        .iter()
        .all(|step| step.get("progressToken") == Some(&token));
    ensure!(own, "not the client's token {token}: {outcome:?}");
    Ok(())
}

async fn cancels(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let counts = async || {
        let counts = call(scene, peer, "test_cancelled", json!({})).await?;
        let counts: Value = serde_json::from_str(counts.text())?;
        let count = |name: &str| counts.get(name).and_then(Value::as_u64);
        let all = count("cancelled").zip(count("finished"));
        all.context("no counts")
    };
    let (cancelled, finished) = counts().await?;
    let (tool, arguments) = scene.tool("test_slow", json!({ "seconds": 60 }));
    let mut slow = peer.begin(&tool, arguments).await?;
    let first = slow.notification().await?;
    ensure!(first.is_some(), "the slow call does not begin");
    peer.cancel(slow).await?;
    let deadline = Instant::now() + PATIENCE / 2;
    while counts().await? != (cancelled + 1, finished) {
        ensure!(
            Instant::now() < deadline,
            "the server goes on with the call"
        );
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn elicits(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<Cell> {
    let (tool, args) = scene.tool("test_elicitation", json!({ "message": "Who?" }));
    let form = peer.call(&tool, args.clone(), &Answers::usual()).await?;
    if scene.server == Server::Sessionless {
        return cannot_ask(&form, "elicitation");
    }
    said(
        &form,
        r#"User response: action=accept, content={"email":"my email","username":"my username"}"#,
    )?;
    let asked = form.asked.first().context("nothing was asked")?;
    ensure!(form.asked.len() == 1, "asked more than once: {form:?}");
    ensure!(
        asked.params.get("message") == Some(&json!("Who?")),
        "{asked:?}"
    );
    let declined = peer.call(&tool, args, &Answers::declining()).await?;
    said(&declined, "User response: action=decline, content={}")?;
    Ok(Cell::Yes)
}

async fn samples(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<Cell> {
    let (tool, args) = scene.tool("test_sampling", json!({ "prompt": "Well?" }));
    let sampled = peer.call(&tool, args, &Answers::usual()).await?;
    if scene.server == Server::Sessionless {
        return cannot_ask(&sampled, "sampling");
    }
    said(&sampled, "LLM response: sampled text")?;
    let asked = sampled.asked.first().context("nothing was asked")?;
    let prompt = asked.params.pointer("/messages/0/content/text");
    ensure!(prompt == Some(&json!("Well?")), "{asked:?}");
    Ok(Cell::Yes)
}

/// The server itself says, at once, that it cannot ask.
fn cannot_ask(outcome: &Outcome, what: &str) -> anyhow::Result<Cell> {
    said(outcome, &format!("the client does not support: {what}"))?;
    ensure!(
        outcome.is_tool_error() && outcome.asked.is_empty(),
        "{outcome:?}"
    );
    Ok(Cell::NotApplicable)
}

async fn logs(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    peer.set_level("error").await?;
    let outcome = call(scene, peer, "test_logging_tool", json!({})).await?;
    said(&outcome, "logged at every level")?;
    let logs = outcome.logs();
    let levels: Vec<_> = logs
        .iter()
        .filter_map(|told| told.get("level")?.as_str())
        .collect();
    ensure!(
        levels == ["error", "critical", "alert", "emergency"],
        "from `error` on: {levels:?}"
    );
    Ok(())
}

async fn reads(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let answers = Answers::usual();
    let own = own_uri(scene, "test://static-text");
    let list = peer.list("resources").await?;
    let listed = list.iter().any(|item| item.get("uri") == Some(&json!(own)));
    ensure!(listed, "no `{own}` among {} resources", list.len());
    let read = peer.read(&own, &answers).await?;
    said(&read, "This is the content of the static text resource.")?;
    let missing = peer
        .read(&own.replace("static-text", "nothing"), &answers)
        .await?;
    let code = if scene.is_modern() { -32602 } else { -32002 };
    ensure!(missing.code() == code, "expected {code}: {missing:?}");
    Ok(())
}

/// The same URIs are on every server: the first in the file has them plainly.
fn own_uri(scene: &Scene<'_>, uri: &str) -> String {
    match scene.server {
        Server::Modern => uri.to_owned(),
        _ => format!("{}+{uri}", scene.named("").trim_end_matches('_')),
    }
}

async fn hears_updates(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<Cell> {
    let uri = own_uri(scene, "test://watched-resource");
    if scene.server == Server::Sessionless {
        // A listen stream stands for other things too.
        let refused = scene.is_modern() || peer.watch(&[&uri]).await.is_err();
        ensure!(refused, "promises what the server cannot tell");
        return Ok(Cell::NotApplicable);
    }
    peer.watch(&[&uri]).await?;
    call(scene, peer, "test_trigger_resource_update", json!({})).await?;
    loop {
        let told = peer.told("notifications/resources/updated").await;
        let told = told.context("is not told")?;
        // Those that others changed on servers that this client listens to come as well.
        if told.pointer("/params/uri") == Some(&json!(uri)) {
            return Ok(Cell::Yes);
        }
    }
}

async fn prompts(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<()> {
    let name = scene.named("test_prompt_with_arguments");
    let arguments = json!({ "arg1": "a", "arg2": "b" });
    let prompt = peer.prompt(&name, arguments, &Answers::usual()).await?;
    said(&prompt, "Prompt with arguments: arg1='a', arg2='b'")
}

/// `slow_compute` may be a task, `failing_job` is nothing else.
async fn runs_tasks(scene: &Scene<'_>, peer: &Peer) -> anyhow::Result<Cell> {
    let answers = Answers::usual();
    let args = json!({ "seconds": 0.05, "label": "a" });
    let (tool, args) = scene.tool("slow_compute", args);
    let slow = peer.task(&tool, args, &answers).await?;
    said(&slow, "slow_compute \"a\" finished after 0.05 s")?;
    if scene.server == Server::Sessionless {
        ensure!(slow.task.is_none(), "{slow:?}");
        return Ok(Cell::NotApplicable);
    }
    let (tool, args) = scene.tool("failing_job", json!({}));
    let failing = peer.task(&tool, args, &answers).await?;
    said(&failing, "failing_job failed, as it always does")?;
    ensure!(failing.is_tool_error(), "{failing:?}");
    let id = failing
        .task
        .as_ref()
        .and_then(|task| task.get("taskId")?.as_str());
    let handle = id.is_some_and(|id| id.starts_with(&scene.handle()));
    ensure!(
        handle == scene.is_modern(),
        "a handle: {handle}; {failing:?}"
    );
    ensure!(scene.is_modern() || slow.task.is_none(), "{slow:?}");
    Ok(Cell::Yes)
}
