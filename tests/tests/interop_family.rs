//! Two servers of one kind that are not ours behind Waypost, and real clients in front.

use anyhow::ensure;
use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Steps};

/// One tool, read from two folders of the same server's kind.
#[tokio::test]
async fn two_servers_of_files_are_one_with_an_argument() -> anyhow::Result<()> {
    let interop = Interop::find()?;
    let home = tempfile::tempdir_in(std::env::temp_dir().canonicalize()?)?;
    let server = interop.package("@modelcontextprotocol/server-filesystem/dist/index.js");
    let mut upstreams = Vec::new();
    for name in ["home", "work"] {
        let folder = home.path().join(name);
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("note.txt"), format!("of {name}"))?;
        let upstream = interop.stdio_upstream(name, &server, &[&folder.display().to_string()]);
        let family = "{ family: { name: files, argument: place },";
        upstreams.push(upstream.replacen('{', family, 1));
    }
    let endpoints = "endpoints: { search: { discovery: search }, part: { upstreams: [work] } }";
    let gateway = Gateway::with(&upstreams.join("\n"), endpoints).await?;
    let note = |name: &str| {
        home.path()
            .join(name)
            .join("note.txt")
            .display()
            .to_string()
    };
    let read = |name: &str| json!({ "path": note(name), "place": name });

    let tool = "files_read_text_file";
    let list = Client::new(&gateway.url)
        .call("tools/list", json!({}))
        .await?;
    let tools = list.result()["tools"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(
        tools.iter().all(|tool| tool["name"]
            .as_str()
            .is_some_and(|n| n.starts_with("files_"))),
        "{}",
        list.answer
    );
    let found = tools.iter().find(|one| one["name"] == tool);
    let values = &found.map(|one| one["inputSchema"]["properties"]["place"]["enum"].clone());
    ensure!(*values == Some(json!(["home", "work"])), "{values:?}");

    let answers = Answers::usual();
    for kind in Kind::MATRIX.into_iter().filter(|kind| !kind.is_pipe()) {
        let peer = Peer::connect(kind, &Target::Url(gateway.url.clone())).await?;
        for name in ["home", "work"] {
            let said = peer.call(tool, read(name), &answers).await?;
            ensure!(said.text() == format!("of {name}"), "{kind:?}: {said:?}");
        }
        // The other server guards its own folder: the call went where it was to go.
        let astray = json!({ "path": note("home"), "place": "work" });
        let astray = peer.call(tool, astray, &answers).await?;
        ensure!(
            astray.is_tool_error() && astray.text().contains("denied"),
            "{astray:?}"
        );
        let nowhere = peer
            .call(tool, json!({ "path": note("home") }), &answers)
            .await?;
        ensure!(nowhere.is_tool_error(), "{kind:?}: {nowhere:?}");
        ensure!(nowhere.text().contains("`home`, `work`"), "{nowhere:?}");
        peer.close().await?;
    }
    let part = Client::new(format!("{}/part", gateway.url));
    let hidden = part.tool(tool, read("home")).await?;
    let text = hidden.result()["content"][0]["text"].to_string();
    ensure!(text.contains("none of `work`"), "{}", hidden.answer);

    // The SDKs check the arguments against the schema that they were shown.
    let calls = ["home", "work"].map(|name| json!({ "name": tool, "arguments": read(name) }));
    let typescript = || interop.node("search_client.mjs");
    let python = || interop.session_python("search_client.py");
    for (command, name, mode) in [
        (typescript(), "home", "direct"),
        (python(), "work", "direct"),
        (typescript(), "work", "search"),
        (python(), "home", "search"),
    ] {
        let call = calls.iter().find(|call| call["arguments"]["place"] == name);
        let calls = Value::from(vec![call.cloned().unwrap_or_default()]).to_string();
        let url = match mode {
            "search" => format!("{}/search", gateway.url),
            _ => gateway.url.clone(),
        };
        let steps = Steps::run(command, &[&url, &calls, mode]).await?;
        ensure!(*steps.field(tool, "described")? == tool, "{steps:?}");
        let said = steps.field(tool, "text")?;
        ensure!(*said == format!("of {name}"), "{said}");
    }
    Ok(())
}
