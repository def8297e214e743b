//! Two servers of one kind that are not ours behind Waypost, and real clients in front.

use anyhow::ensure;
use serde_json::{Value, json};
use tempfile::TempDir;
use waypost_testkit::client::Client;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_tests::gateway::Gateway;
use waypost_tests::interop::{Interop, Steps};

const TOOL: &str = "files_read_text_file";

/// Two servers of files, each with a folder and a note in it.
struct Files {
    interop: Interop,
    home: TempDir,
    gateway: Gateway,
}

impl Files {
    async fn start() -> anyhow::Result<Self> {
        let interop = Interop::find()?;
        // These servers compare resolved paths.
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
        Ok(Self {
            interop,
            home,
            gateway,
        })
    }

    /// Arguments that ask one of the two for the note of one of the two.
    fn read(&self, place: &str, note: &str) -> Value {
        let path = self.home.path().join(note).join("note.txt");
        json!({ "path": path.display().to_string(), "place": place })
    }

    /// All is listed once, and the argument has a value for each.
    async fn is_listed(&self) -> anyhow::Result<()> {
        let client = Client::new(&self.gateway.url);
        let list = client.call("tools/list", json!({})).await?;
        let tools = list.result()["tools"].as_array().cloned();
        let tools = tools.unwrap_or_default();
        let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
        let all = tools.iter().all(|tool| name(tool).starts_with("files_"));
        ensure!(all && !tools.is_empty(), "{}", list.answer);
        let found = tools.iter().find(|tool| name(tool) == TOOL);
        let values = found.and_then(|tool| tool.pointer("/inputSchema/properties/place/enum"));
        ensure!(values == Some(&json!(["home", "work"])), "{values:?}");
        Ok(())
    }

    /// A client of this kind gets from each what is there, and from none what is not.
    async fn is_used_by(&self, kind: Kind) -> anyhow::Result<()> {
        let peer = Peer::connect(kind, &Target::Url(self.gateway.url.clone())).await?;
        let answers = Answers::usual();
        for name in ["home", "work"] {
            let said = peer.call(TOOL, self.read(name, name), &answers).await?;
            ensure!(said.text() == format!("of {name}"), "{kind:?}: {said:?}");
        }
        // The other guards its own folder: the call went where it was to go.
        let astray = self.read("work", "home");
        let astray = peer.call(TOOL, astray, &answers).await?;
        ensure!(astray.is_tool_error(), "{kind:?}: {astray:?}");
        ensure!(astray.text().contains("denied"), "{kind:?}: {astray:?}");
        let nowhere = self.read("nowhere", "home");
        let nowhere = peer.call(TOOL, nowhere, &answers).await?;
        ensure!(nowhere.is_tool_error(), "{kind:?}: {nowhere:?}");
        ensure!(nowhere.text().contains("`home`, `work`"), "{nowhere:?}");
        peer.close().await?;
        Ok(())
    }

    /// The SDKs look at the schema that they were shown.
    async fn is_used_by_sdks(&self) -> anyhow::Result<()> {
        let typescript = || self.interop.node("search_client.mjs");
        let python = || self.interop.session_python("search_client.py");
        for (command, name, mode) in [
            (typescript(), "home", "direct"),
            (python(), "work", "direct"),
            (typescript(), "work", "search"),
            (python(), "home", "search"),
        ] {
            let calls = json!([{ "name": TOOL, "arguments": self.read(name, name) }]);
            let whole = &self.gateway.url;
            let url = match mode {
                "search" => format!("{whole}/search"),
                _ => whole.clone(),
            };
            let steps = Steps::run(command, &[&url, &calls.to_string(), mode]).await?;
            ensure!(*steps.field(TOOL, "described")? == TOOL, "{steps:?}");
            let said = steps.field(TOOL, "text")?;
            ensure!(*said == format!("of {name}"), "{said}");
        }
        Ok(())
    }
}

#[tokio::test]
async fn two_servers_of_files_are_one_with_an_argument() -> anyhow::Result<()> {
    let files = Files::start().await?;
    files.is_listed().await?;
    for kind in Kind::MATRIX.into_iter().filter(|kind| !kind.is_pipe()) {
        Box::pin(files.is_used_by(kind)).await?;
    }
    let part = Client::new(format!("{}/part", files.gateway.url));
    let hidden = part.tool(TOOL, files.read("home", "home")).await?;
    let text = hidden.result()["content"][0]["text"].to_string();
    ensure!(text.contains("none of `work`"), "{}", hidden.answer);
    files.is_used_by_sdks().await
}
