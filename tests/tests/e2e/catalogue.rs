//! Names and lists as clients see them.

use serde_json::{Value, json};
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_everything, demo_tasks};
use waypost_testkit::misbehave::header_mismatch_once::header_mismatch_once;
use waypost_testkit::misbehave::legacy_only::{Sdk, legacy_only};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::fake::{Fake, text, tool, tools};
use crate::process::{Home, Served};
use crate::stage::quick;
use crate::support::tool_names;

/// A server with these tools, which say what they were called by.
async fn naming(all: Value) -> Fake {
    Fake::start(move |rpc| match rpc.method.as_str() {
        "tools/list" => Some(rpc.ok(&tools(&all))),
        "tools/call" => {
            let header = rpc.headers["mcp-name"].to_str().unwrap();
            Some(rpc.ok(&text(header)))
        }
        _ => None,
    })
    .await
}

#[tokio::test]
async fn r03_r07_every_name_fits_and_leads_to_its_own_tool() {
    let long = "a_very_long_name_".repeat(4);
    let names = ["calendar.read", "a.b", "a_b", "Get-It", &long];
    let server = naming(names.iter().map(|name| tool(name)).collect()).await;
    let upstreams = format!("u: {{ url: '{}' }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let exposed = tool_names(&client).await;
    assert_eq!(exposed.len(), names.len());
    let mut called = Vec::new();
    for name in &exposed {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        assert!(name.len() <= 45 && name.bytes().all(fits), "{name}");
        let reply = client.tool(name, json!({})).await.unwrap();
        called.push(reply.text().to_owned());
    }
    called.sort();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(called, expected);
    assert!(exposed.contains(&"u_Get-It".to_owned()) && exposed.contains(&"u_a_b".to_owned()));
    let again = gateway.restart().await.unwrap();
    assert_eq!(tool_names(&Client::new(&again.url)).await, exposed);
}

#[tokio::test]
async fn r05_a_hidden_tool_cannot_be_called() {
    let demo = demo_tasks(ANY_PORT, quick()).await.unwrap();
    let upstreams = format!(
        "u: {{ url: '{}', tools: {{ allow: ['*_job', greet], deny: [failing_*] }} }}",
        demo.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let names = tool_names(&client).await;
    assert_eq!(names, ["u_external_job", "u_greet", "u_protocol_error_job"]);
    let error = async |name: &str| {
        let mut error = client.tool(name, json!({})).await.unwrap().answer["error"].take();
        let message = error["message"].as_str().unwrap().replace(name, "NAME");
        error["message"] = message.into();
        error
    };
    let denied = error("u_failing_job").await;
    assert_eq!(denied["code"], -32602);
    assert_eq!(denied, error("u_never_was").await);
    assert_eq!(demo.seen().count("tools/call"), 0);
}

#[tokio::test]
async fn r18_lists_are_the_same_bytes_whoever_answers_and_after_a_restart() {
    let (one, two) = (
        demo_everything(ANY_PORT).await.unwrap(),
        demo_tasks(ANY_PORT, quick()).await.unwrap(),
    );
    let upstreams = format!(
        "zeta: {{ url: '{}' }}\nalpha: {{ url: '{}' }}\nmid: {{ url: '{}' }}",
        one.url, two.url, one.url
    );
    let mut gateway = Gateway::start(&upstreams).await.unwrap();
    let lists = async |url: &str| {
        let client = Client::new(url);
        let mut all = Vec::new();
        for method in [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ] {
            let mut post = client.post(method, json!({}));
            post.message["id"] = json!(1);
            let raw = client.ask(post).await.unwrap().raw;
            let text = String::from_utf8(raw.to_vec()).unwrap();
            // How long it still holds is the one thing that may differ.
            all.push(text.split_once("\"ttlMs\"").unwrap().0.to_owned());
        }
        all
    };
    let first = lists(&gateway.url).await;
    let names = tool_names(&Client::new(&gateway.url)).await;
    let place = |prefix: &str| {
        names
            .iter()
            .position(|name| name.starts_with(prefix))
            .unwrap()
    };
    assert!(place("zeta_") < place("alpha_") && place("alpha_") < place("mid_"));
    for _ in 0..3 {
        assert_eq!(lists(&gateway.url).await, first);
        gateway = gateway.restart().await.unwrap();
    }
}

#[tokio::test]
async fn r30_a_uri_that_two_servers_have_leads_to_the_first_and_the_others_own_form_to_the_other() {
    let (one, two) = (
        demo_everything(ANY_PORT).await.unwrap(),
        demo_everything(ANY_PORT).await.unwrap(),
    );
    let upstreams = format!("a: {{ url: '{}' }}\nb: {{ url: '{}' }}", one.url, two.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    let list = client.call("resources/list", json!({})).await.unwrap();
    let uris: Vec<_> = list.result()["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["uri"].clone())
        .collect();
    let (plain, qualified) = (
        json!("test://watched-resource"),
        json!("b+test://watched-resource"),
    );
    assert!(
        uris.contains(&plain) && uris.contains(&qualified),
        "{uris:?}"
    );
    client
        .tool("b_test_trigger_resource_update", json!({}))
        .await
        .unwrap();
    for (uri, expected) in [(&plain, "update 0"), (&qualified, "update 1")] {
        let reply = client
            .call("resources/read", json!({ "uri": uri }))
            .await
            .unwrap();
        assert_eq!(
            reply.result()["contents"][0]["text"],
            expected,
            "{}",
            reply.answer
        );
    }
    assert_eq!(one.seen().count("resources/read"), 1);
}

#[tokio::test]
async fn r30_a_uri_in_an_answer_leads_back_to_the_server_that_said_it() {
    let (one, two) = (
        demo_everything(ANY_PORT).await.unwrap(),
        demo_everything(ANY_PORT).await.unwrap(),
    );
    let upstreams = format!("a: {{ url: '{}' }}\nb: {{ url: '{}' }}", one.url, two.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let client = Client::new(&gateway.url);
    // The others are the server's own alone.
    let alone = Client::new(format!("{}/b", gateway.url));
    for (client, uri) in [
        (&client, "b+test://embedded-resource"),
        (&alone, "test://embedded-resource"),
    ] {
        let said = client.tool("b_test_embedded_resource", json!({}));
        let said = said.await.unwrap();
        let resource = &said.result()["content"][0]["resource"];
        assert_eq!(resource["uri"], uri, "{}", said.answer);
        let read = client.call("resources/read", json!({ "uri": uri }));
        let read = read.await.unwrap();
        assert_eq!(read.result()["contents"][0]["uri"], uri, "{}", read.answer);
    }
    let first = client.tool("a_test_embedded_resource", json!({}));
    let first = first.await.unwrap();
    let resource = &first.result()["content"][0]["resource"];
    assert!(resource["uri"].is_string(), "{}", first.answer);
    client
        .call("resources/read", json!({ "uri": resource["uri"] }))
        .await
        .unwrap();
    let reads = |server: &Running| server.seen().count("resources/read");
    // What the second said was still good when it was asked for by its other form.
    assert_eq!((reads(&one), reads(&two)), (1, 1));
}

#[tokio::test]
async fn a_tool_with_broken_annotations_is_left_out_with_a_warning() {
    let mut broken = tool("broken");
    broken["inputSchema"]["properties"] = json!({ "a": { "type": "array", "x-mcp-header": "A" } });
    let server = naming(json!([broken, tool("sound")])).await;
    let home = Home::new(&format!(
        "upstreams: {{ u: {{ url: '{}', required: true }} }}",
        server.url
    ));
    let waypost = Served::start(&home).await;
    assert_eq!(tool_names(&waypost.client()).await, ["u_sound"]);
    let warning = waypost.wait_for_log("broken").await;
    assert!(
        warning.contains("\"WARN\"") && warning.contains("\"u\""),
        "{warning}"
    );
}

#[tokio::test]
async fn a_server_that_finds_our_headers_wrong_is_listed_again_and_called_once_more() {
    let server = header_mismatch_once().await.unwrap();
    let upstreams = format!("u: {{ url: '{}', required: true }}", server.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let lists = server.seen().count("tools/list");
    let client = Client::new(&gateway.url);
    let reply = client.tool("u_work", json!({})).await.unwrap();
    assert_eq!(reply.text(), "done", "{}", reply.answer);
    assert_eq!(server.seen().count("tools/call"), 2);
    assert!(server.seen().count("tools/list") > lists);
}

#[tokio::test]
async fn servers_of_both_eras_stand_side_by_side() {
    let (old, demo) = (
        legacy_only(Sdk::TypeScript).await.unwrap(),
        demo_tasks(ANY_PORT, quick()).await.unwrap(),
    );
    let upstreams = format!(
        "old: {{ url: '{}' }}\nt: {{ url: '{}' }}",
        old.url, demo.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    crate::support::wait_for_state(&gateway.admin, "old", "up").await;
    let client = Client::new(&gateway.url);
    let reply = client
        .tool("t_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");
}

#[tokio::test]
async fn discover_is_the_union_of_what_is_behind() {
    let (one, two) = (
        demo_everything(ANY_PORT).await.unwrap(),
        demo_tasks(ANY_PORT, quick()).await.unwrap(),
    );
    let upstreams = format!("e: {{ url: '{}' }}\nt: {{ url: '{}' }}", one.url, two.url);
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let discover = async |path: &str| {
        let client = Client::new(format!("{}{path}", gateway.url));
        client
            .call("server/discover", json!({}))
            .await
            .unwrap()
            .result()
            .clone()
    };
    let all = discover("").await;
    assert_eq!(all["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        all["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "waypost"
    );
    assert!(all["ttlMs"].is_u64() && all["cacheScope"].is_string());
    for capability in ["tools", "prompts", "resources", "completions"] {
        assert!(
            all["capabilities"][capability].is_object(),
            "{capability}: {all}"
        );
    }
    assert_eq!(all["capabilities"]["tasks"], Value::Null);
    let instructions = all["instructions"].as_str().unwrap();
    assert!(
        instructions.contains("One of everything") && instructions.contains("Start with greet")
    );
    let alone = discover("/t").await;
    assert!(
        alone["capabilities"]["prompts"].is_null() && alone["capabilities"]["tools"].is_object()
    );
    let tasks = |result: &Value| {
        result["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].clone()
    };
    assert_eq!(
        [tasks(&all), tasks(&alone), tasks(&discover("/e").await)],
        [json!({}), json!({}), Value::Null]
    );
}
