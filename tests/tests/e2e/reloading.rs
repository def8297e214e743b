//! The configuration becomes another one while clients are there.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_config::KeyHash;
use waypost_testkit::client::{Arriving, Client};
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::misbehave::echo::echo;
use waypost_testkit::peer::{Answers, Kind, Manners, Peer, Target};
use waypost_testkit::run::ANY_PORT;

use crate::process::{Home, Served, alive, pid_in, program};
use crate::support::{
    SOON, accept, get, page, tool_names, tool_with_meta, until, upstream, wait_for_state,
};

/// A child that writes its process id into a file of its name.
fn child(home: &Path, name: &str, more: &str) -> String {
    let script = format!(
        "echo $$$$ > '{}'; exec '{}' demo-server everything --stdio",
        home.join(name).display(),
        program().display()
    );
    format!("  {name}: {{ command: sh, args: [-c, {script:?}]{more} }}\n")
}

fn write(home: &Home, upstreams: &str) {
    std::fs::write(home.config(), format!("upstreams:\n{upstreams}")).unwrap();
}

async fn next(stream: &mut Arriving) -> Value {
    let next = timeout(SOON, stream.next()).await.unwrap();
    next.unwrap().unwrap()
}

/// The end of a stream: the message that is no notification.
async fn end(stream: &mut Arriving) -> Value {
    loop {
        let message = next(stream).await;
        if message.get("method").is_none() {
            return message;
        }
    }
}

/// Hears of changes of tools from the first message on.
async fn listen(client: &Client) -> Arriving {
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let post = client.post("subscriptions/listen", filter);
    let mut stream = client.send(post).await.unwrap();
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    stream
}

/// A call that takes so long, once it is under way.
async fn slow(client: &Client, tool: &str, seconds: f64) -> Arriving {
    let token = json!({ "progressToken": tool });
    let post = tool_with_meta(client, tool, json!({ "seconds": seconds }), token);
    let mut stream = client.send(post).await.unwrap();
    assert_eq!(next(&mut stream).await["method"], "notifications/progress");
    stream
}

async fn has_tools_of(client: &Client, upstream: &str) -> bool {
    let prefix = format!("{upstream}_");
    tool_names(client)
        .await
        .iter()
        .any(|name| name.starts_with(&prefix))
}

/// `/api/v1/config`.
async fn status(served: &Served) -> Value {
    get(&format!("{}/api/v1/config", served.admin)).await.answer
}

async fn reloads(served: &Served, outcome: &str) -> u64 {
    let metrics = page(&format!("{}/metrics", served.admin)).await;
    let name = format!("waypost_config_reloads_total{{outcome=\"{outcome}\"}} ");
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap();
    line.parse().unwrap()
}

/// What the log says of the first reload: who was added, changed and removed, and how many stayed.
async fn first_difference(served: &Served) -> [Value; 4] {
    let line = served.wait_for_log("\"reloaded\"").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    ["added", "changed", "removed", "kept"].map(|key| line[key].clone())
}

#[tokio::test]
async fn r20_r18_a_reload_touches_only_what_is_different() {
    let home = Home::new("");
    let path = home.path();
    let (kept, removed) = (child(path, "a", ""), child(path, "d", ""));
    let changed = |number: u8| child(path, "b", &format!(", env: {{ N: '{number}' }}"));
    write(&home, &(kept.clone() + &changed(1) + &removed));
    let served = Served::start(&home).await;
    let client = served.client();
    let [a, b, d] = [
        pid_in(&path.join("a")).await,
        pid_in(&path.join("b")).await,
        pid_in(&path.join("d")).await,
    ];
    let before = tool_names(&client).await;
    let mut changes = listen(&client).await;
    let mut calls = [
        slow(&client, "a_test_slow", 3.0).await,
        slow(&client, "b_test_slow", 3.0).await,
        slow(&client, "d_test_slow", 2.0).await,
    ];
    std::fs::remove_file(path.join("b")).unwrap();
    let added = child(path, "c", "");
    write(&home, &(kept + &changed(2) + &added));
    let told = next(&mut changes).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    until("the one that was added", async || {
        has_tools_of(&client, "c").await
    })
    .await;
    assert!(!has_tools_of(&client, "d").await);
    let replaced = pid_in(&path.join("b")).await;
    assert_ne!(replaced, b);
    served.wait_for_log("\"replaced\"").await;
    let greeting = client.tool("b_test_simple_text", json!({})).await.unwrap();
    assert!(
        greeting.result()["content"].is_array(),
        "{}",
        greeting.answer
    );
    for call in &mut calls {
        let end = end(call).await;
        let text = end["result"]["content"][0]["text"].as_str();
        assert!(
            text.is_some_and(|text| text.starts_with("finished")),
            "{end}"
        );
    }
    let gone = client.tool("d_test_simple_text", json!({})).await.unwrap();
    assert!(gone.answer["error"].is_object(), "{}", gone.answer);
    for pid in [b, d] {
        until("its process to end", async || !alive(pid).await).await;
    }
    assert_eq!(pid_in(&path.join("a")).await, a);
    assert!(alive(a).await && alive(replaced).await);
    // The order is the file's, and nobody else's names moved.
    let mut expected = before.clone();
    expected.retain(|name| !name.starts_with("d_"));
    expected.extend(
        before
            .iter()
            .filter_map(|n| Some(format!("c_{}", n.strip_prefix("d_")?))),
    );
    assert_eq!(tool_names(&client).await, expected);
    assert_eq!(
        first_difference(&served).await,
        ["c".into(), "b".into(), "d".into(), json!(1)]
    );
}

#[tokio::test]
async fn r20_what_is_added_is_there_at_once_and_a_listener_is_told() {
    let [one, two] = [(); 2].map(|()| demo_everything(ANY_PORT));
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    let home = Home::new("");
    let first = format!("  one: {{ url: '{}' }}\n", one.url);
    write(&home, &first);
    let served = Served::start(&home).await;
    let client = served.client();
    let mut changes = listen(&client).await;
    write(
        &home,
        &(first + &format!("  two: {{ url: '{}' }}\n", two.url)),
    );
    let begun = Instant::now();
    assert_eq!(
        next(&mut changes).await["method"],
        "notifications/tools/list_changed"
    );
    let took = begun.elapsed();
    assert!(has_tools_of(&client, "two").await);
    assert!(took.as_secs_f64() < 3.0, "usually half a second: {took:?}");
    let ready = get(&format!("{}/readyz", served.admin)).await;
    assert_eq!(ready.status, 200);
}

#[tokio::test]
async fn r20_an_invalid_file_changes_nothing_and_shows_until_it_is_mended() {
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let good = format!("  one: {{ url: '{}' }}\n", one.url);
    write(&home, &good);
    let served = Served::start(&home).await;
    let client = served.client();
    assert_eq!(status(&served).await["last_error"], Value::Null);
    write(
        &home,
        &(good.clone() + "  two: { url: 'http://h', timeot: 5s, prefix: 'a b' }\n"),
    );
    until("the error in the status", async || {
        status(&served).await["last_error"].is_object()
    })
    .await;
    let shown = status(&served).await;
    let problems = shown["last_error"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 2, "{shown}");
    let text = problems[0].as_str().unwrap();
    assert!(
        text.contains("waypost.yaml:3") && text.contains("timeot"),
        "{text}"
    );
    assert_eq!(shown["last_reload"]["outcome"], "invalid");
    served.wait_for_log("did you mean `timeout`?").await;
    served.wait_for_log("nothing changes").await;
    let gauge = async || {
        let metrics = page(&format!("{}/metrics", served.admin)).await;
        let name = "waypost_config_last_reload_successful ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().to_owned()
    };
    assert_eq!(gauge().await, "0");
    assert_eq!(reloads(&served, "invalid").await, 1);
    assert!(has_tools_of(&client, "one").await);
    assert_eq!(get(&format!("{}/readyz", served.admin)).await.status, 200);
    write(&home, &good.replace("one:", "three:"));
    until("the mended file", async || {
        has_tools_of(&client, "three").await
    })
    .await;
    assert_eq!(gauge().await, "1");
    assert_eq!(status(&served).await["last_error"], Value::Null);
    assert_eq!(status(&served).await["last_reload"]["outcome"], "applied");
}

#[tokio::test]
async fn r20_a_config_map_is_noticed_when_its_folder_is_replaced() {
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let path = home.path();
    let version = |folder: &str, name: &str| {
        std::fs::create_dir(path.join(folder)).unwrap();
        let text = format!("upstreams: {{ {name}: {{ url: '{}' }} }}\n", one.url);
        std::fs::write(path.join(folder).join("waypost.yaml"), text).unwrap();
    };
    version("..one", "one");
    std::fs::remove_file(home.config()).unwrap();
    symlink("..one", path.join("..data")).unwrap();
    symlink("..data/waypost.yaml", home.config()).unwrap();
    let served = Served::start(&home).await;
    let client = served.client();
    assert!(has_tools_of(&client, "one").await);
    for (old, new, name) in [("..one", "..two", "two"), ("..two", "..three", "three")] {
        version(new, name);
        symlink(new, path.join("..data_tmp")).unwrap();
        std::fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
        std::fs::remove_dir_all(path.join(old)).unwrap();
        until(name, async || has_tools_of(&client, name).await).await;
    }
    assert_eq!(status(&served).await["watch"], "on");
}

#[tokio::test]
async fn r69_a_new_file_in_an_included_folder_and_a_new_secret_are_noticed() {
    let server = echo().await.unwrap();
    let home = Home::new("include: [more.d/*.yaml]\nupstreams: {}\n");
    let folder = home.path().join("more.d");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(home.path().join("token"), "first\n").unwrap();
    let served = Served::start(&home).await;
    let client = served.client();
    let included = format!(
        "upstreams: {{ e: {{ url: '{}', headers: {{ x-key: '${{file:token}}' }} }} }}\n",
        server.url
    );
    std::fs::write(folder.join("e.yaml"), included).unwrap();
    until("the included one", async || {
        has_tools_of(&client, "e").await
    })
    .await;
    let key = async || {
        let reply = client.tool("e_work", json!({})).await.unwrap();
        let headers = reply.result()["structuredContent"]["headers"].clone();
        let headers = headers.as_array().unwrap().clone();
        let found = headers.into_iter().find(|pair| pair[0] == "x-key").unwrap();
        found[1].as_str().unwrap().to_owned()
    };
    assert_eq!(key().await, "first");
    std::fs::write(home.path().join("token"), "second\n").unwrap();
    until("the new secret", async || key().await == "second").await;
    let shown = status(&served).await.to_string() + &served.log();
    assert!(!shown.contains("second"), "{shown}");
}

#[tokio::test]
async fn sighup_reloads_also_where_nothing_is_watched_and_says_what_needs_a_restart() {
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let text = |name: &str, more: &str| {
        format!(
            "reload: signal\n{more}upstreams: {{ {name}: {{ url: '{}' }} }}\n",
            one.url
        )
    };
    std::fs::write(home.config(), text("one", "")).unwrap();
    let mut served = Served::start(&home).await;
    let client = served.client();
    served.signal("HUP").await;
    until("a reload without a difference", async || {
        reloads(&served, "unchanged").await == 1
    })
    .await;
    assert_eq!(status(&served).await["watch"], "off");
    std::fs::write(home.config(), text("two", "limits: { parked: 7 }\n")).unwrap();
    served.signal("HUP").await;
    until("another upstream", async || {
        has_tools_of(&client, "two").await
    })
    .await;
    until("the reload", async || {
        reloads(&served, "applied").await == 1
    })
    .await;
    assert_eq!(
        status(&served).await["needs_restart"],
        json!(["limits.parked"])
    );
    served.wait_for_log("needs a restart").await;
    served.signal("TERM").await;
    assert_eq!(served.code().await, Some(0));
}

#[tokio::test]
async fn whose_key_is_taken_away_is_out() {
    const ADA: &str = "wp_ada-0123456789abcdef";
    const BOB: &str = "wp_bob-0123456789abcdef";
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let text = |names: &[(&str, &str)]| {
        let keys = names.iter();
        let keys = keys.map(|(n, key)| format!("{{ name: {n}, hash: '{}' }}", KeyHash::of(key)));
        let keys = keys.collect::<Vec<_>>().join(", ");
        format!(
            "auth: {{ keys: [{keys}] }}\nupstreams: {{ u: {{ url: '{}' }} }}\n",
            one.url
        )
    };
    std::fs::write(home.config(), text(&[("ada", ADA), ("bob", BOB)])).unwrap();
    let served = Served::start(&home).await;
    let client = served.client();
    let post = |method: &str, params: Value, key: &str| {
        let post = client.post(method, params);
        post.header("authorization", &format!("Bearer {key}"))
    };
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listeners = Vec::new();
    for key in [ADA, BOB] {
        let mut stream = client
            .send(post("subscriptions/listen", filter.clone(), key))
            .await;
        next(stream.as_mut().unwrap()).await;
        listeners.push(stream.unwrap());
    }
    let manners = |key: &str| Manners {
        get_stream: true,
        headers: vec![("authorization".to_owned(), format!("Bearer {key}"))],
        ..Manners::default()
    };
    let target = Target::Url(served.url.clone());
    let kind = Kind::Http(Revision::Nov2025);
    let peer = Peer::with(kind, &target, manners(ADA)).await.unwrap();
    peer.list("tools").await.unwrap();
    std::fs::write(home.config(), text(&[("bob", BOB)])).unwrap();
    let ask = async |key: &str| {
        let asked = client.ask(post("tools/list", json!({}), key)).await;
        asked.unwrap().status.as_u16()
    };
    until("the key to be refused", async || ask(ADA).await == 401).await;
    assert_eq!(ask(BOB).await, 200);
    let last = end(&mut listeners[0]).await;
    assert_eq!(last["result"]["resultType"], "complete", "{last}");
    assert!(peer.list("tools").await.is_err());
    let sessions = async || {
        let metrics = page(&format!("{}/metrics", served.admin)).await;
        metrics
            .lines()
            .any(|line| line == "waypost_client_sessions 0")
    };
    until("its session to be given up", sessions).await;
    // The other one still hears.
    std::fs::write(home.config(), text(&[("bob", BOB)]).replace("u:", "v:")).unwrap();
    let told = next(&mut listeners[1]).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_question_that_waits_is_answered_where_it_was_asked() {
    let server = legacy_everything(ANY_PORT, Options::default())
        .await
        .unwrap();
    let home = Home::new("");
    let with = |key: &str| {
        format!(
            "  u: {{ url: '{}', headers: {{ x-key: {key} }}, required: true }}\n",
            server.url
        )
    };
    write(&home, &with("one"));
    let served = Served::start(&home).await;
    let client = served
        .client()
        .with_capabilities(json!({ "elicitation": {} }));
    let mut params = json!({ "name": "u_test_elicitation", "arguments": { "message": "Who?" } });
    let asked = client.call("tools/call", params.clone()).await.unwrap();
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required", "{}", asked.answer);
    write(&home, &with("two"));
    served.wait_for_log("\"replaced\"").await;
    let questions = result["inputRequests"].as_object().unwrap();
    let answer = accept(json!({ "username": "Ada", "email": "a@b.example" }));
    let answers = questions.keys().map(|key| (key.clone(), answer.clone()));
    params["inputResponses"] = Value::Object(answers.collect());
    params["requestState"] = result["requestState"].clone();
    let over = client.call("tools/call", params).await.unwrap();
    assert!(over.text().contains("Ada"), "{}", over.answer);
    served.wait_for_log("\"left\"").await;
}

#[tokio::test]
async fn a_session_hears_no_more_of_what_is_denied_and_can_answer_when_the_tool_is_gone() {
    let server = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let with = |more: &str| format!("  u: {{ url: '{}', required: true{more} }}\n", server.url);
    write(&home, &with(""));
    let served = Served::start(&home).await;
    let (uri, updated) = ("test://watched-resource", "notifications/resources/updated");
    let kind = Kind::Http(Revision::Nov2025);
    let peer = Peer::connect(kind, &Target::Url(served.url.clone())).await;
    let peer = peer.unwrap();
    peer.watch(&[uri]).await.unwrap();
    let change = async || {
        let tool = "u_test_trigger_resource_update";
        peer.tool(tool, json!({})).await.unwrap();
    };
    change().await;
    assert_eq!(peer.told(updated).await.unwrap()["params"]["uri"], uri);
    let is_denied = async || peer.read(uri, &Answers::refusing()).await.unwrap().code() != 0;
    write(&home, &with(&format!(", resources: {{ deny: ['{uri}'] }}")));
    until("denied", is_denied).await;
    for _ in 0..3 {
        change().await;
    }
    let told = peer.inbox();
    assert!(
        told.iter().all(|told| told["method"] != updated),
        "{told:?}"
    );
    write(&home, &with(""));
    assert!(
        peer.told(updated).await.is_some(),
        "it may have missed some"
    );

    let asks = json!({ "message": "Who?" });
    let mut begun = peer.begin("u_test_elicitation", asks).await.unwrap();
    assert!(begun.question().await.unwrap().is_some());
    std::fs::write(home.config(), "upstreams: {}").unwrap();
    let client = served.client();
    until("gone", async || tool_names(&client).await.is_empty()).await;
    let over = peer.finish(begun, &Answers::usual()).await.unwrap();
    assert!(over.result()["content"].is_array(), "{}", over.answer);
    served.wait_for_log("\"left\"").await;
}

#[tokio::test]
async fn rules_of_an_upstream_count_at_once_and_leave_its_process_alone() {
    let home = Home::new("");
    let path = home.path();
    write(&home, &child(path, "a", ""));
    let served = Served::start(&home).await;
    let client = served.client();
    let pid = pid_in(&path.join("a")).await;
    let mut call = slow(&client, "a_test_slow", 2.0).await;
    write(
        &home,
        &child(path, "a", ", tools: { deny: ['test_simple*'] }, prefix: x_"),
    );
    until("the prefix", async || has_tools_of(&client, "x").await).await;
    let names = tool_names(&client).await;
    assert!(
        !names.contains(&"x_test_simple_text".to_owned()),
        "{names:?}"
    );
    let denied = client.tool("x_test_simple_text", json!({})).await.unwrap();
    assert!(denied.answer["error"].is_object(), "{}", denied.answer);
    assert!(end(&mut call).await["result"].is_object());
    wait_for_state(&served.admin, "a", "up").await;
    assert_eq!(upstream(&served.admin, "a").await["state"], "up");
    assert_eq!(pid_in(&path.join("a")).await, pid);
    assert!(alive(pid).await);
}

#[tokio::test]
async fn what_concerns_the_door_counts_on_connections_that_are_open() {
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let text = |more: &str| format!("{more}upstreams: {{ one: {{ url: '{}' }} }}\n", one.url);
    std::fs::write(home.config(), text("")).unwrap();
    let served = Served::start(&home).await;
    let client = served.client();
    let from = async |origin: &str| {
        let post = client.post("server/discover", json!({}));
        let reply = client.ask(post.header("origin", origin)).await;
        reply.unwrap().status.as_u16()
    };
    let origin = "https://app.example";
    assert_eq!(from(origin).await, 403);
    assert!(!served.log().contains("\"DEBUG\""));
    let more = "front: { allowed_origins: ['https://app.example'] }\nlog: { level: debug }\n";
    std::fs::write(home.config(), text(more)).unwrap();
    until("the origin to be let in", async || {
        from(origin).await == 200
    })
    .await;
    served.wait_for_log("\"DEBUG\"").await;
    std::fs::write(
        home.config(),
        text("admin: { token: letmein-0123456789abcdef }\n"),
    )
    .unwrap();
    let api = format!("{}/api/v1/config", served.admin);
    until("the token to be asked for", async || {
        get(&api).await.status == 401
    })
    .await;
    assert_eq!(from(origin).await, 403);
}

#[tokio::test]
async fn nothing_is_reloaded_once_it_drains() {
    let home = Home::new("");
    let path = home.path();
    write(&home, &child(path, "a", ""));
    let mut served = Served::start(&home).await;
    let mut call = slow(&served.client(), "a_test_slow", 1.5).await;
    served.signal("TERM").await;
    served.wait_for_log("draining").await;
    write(&home, "  {}\n");
    served.signal("HUP").await;
    assert!(end(&mut call).await["result"].is_object());
    assert_eq!(served.code().await, Some(0));
    assert!(!served.log().contains("\"reloaded\""), "{}", served.log());
}

#[tokio::test]
async fn a_host_on_a_pipe_sees_what_its_file_says_now() {
    let one = demo_everything(ANY_PORT).await.unwrap();
    let home = Home::new("");
    let with = |name: &str| format!("  {name}: {{ url: '{}' }}\n", one.url);
    write(&home, &with("one"));
    let config = home.config().display().to_string();
    let program = program().display().to_string();
    let command = [program.as_str(), "stdio", "--config", config.as_str()];
    let target = Target::Command(command.map(str::to_owned).to_vec());
    let peer = Peer::connect(Kind::ModernPipe, &target).await.unwrap();
    let has = async |name: &str| {
        let tools = peer.list("tools").await.unwrap();
        let named = |tool: &Value| tool["name"].as_str().unwrap().starts_with(name);
        tools.iter().any(named)
    };
    until("the first one", async || has("one_").await).await;
    write(&home, &(with("one") + &with("two")));
    until("the second one", async || has("two_").await).await;
    peer.close().await.unwrap();
}
