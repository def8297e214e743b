//! Named endpoints and pages, to clients of both eras.

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;
use waypost_config::KeyHash;
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::{demo_everything, demo_tasks};
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Kind, Manners, Peer, Target};
use waypost_testkit::run::{ANY_PORT, Running};
use waypost_tests::gateway::Gateway;

use crate::process::{Home, run};
use crate::stage::quick;
use crate::support::{SOON, created, get, tool_names, until, wait_for_state};

const SESSIONS: Kind = Kind::Http(Revision::Nov2025);

const REVIEW: &str = "endpoints:\n  review:\n    upstreams: [t, e]\n    tools: { allow: [greet, slow_compute, \
    'test_trigger_*_update', 'test_trigger_tool*'], deny: [slow_*] }\n    resources: { allow: ['test://watched*'] }\n    \
    prompts: { deny: ['*'] }\n  jobs: { upstreams: [t], prefix: '' }\n";

/// A gateway before two demo servers, `t` with tasks and `e` with everything.
struct Stage {
    tasks: Running,
    everything: Running,
    gateway: Gateway,
}

impl Stage {
    async fn new(more: &str) -> Self {
        let tasks = demo_tasks(ANY_PORT, quick()).await.unwrap();
        let everything = demo_everything(ANY_PORT).await.unwrap();
        let upstreams = format!(
            "t: {{ url: '{}', required: true }}\ne: {{ url: '{}', required: true }}",
            tasks.url, everything.url
        );
        let gateway = Gateway::with(&upstreams, more).await.unwrap();
        Self {
            tasks,
            everything,
            gateway,
        }
    }

    fn url(&self, endpoint: &str) -> String {
        format!("{}/{endpoint}", self.gateway.url)
    }

    fn client(&self, endpoint: &str) -> Client {
        Client::new(self.url(endpoint))
    }

    fn called(&self) -> usize {
        let count = |server: &Running| {
            server.seen().count("tools/call") + server.seen().count("resources/read")
        };
        count(&self.tasks) + count(&self.everything)
    }
}

fn names(list: &[Value]) -> Vec<&str> {
    list.iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect()
}

const SHOWN: [&str; 3] = [
    "t_greet",
    "e_test_trigger_resource_update",
    "e_test_trigger_tool_change",
];

#[tokio::test]
async fn r05_an_endpoint_lists_and_calls_what_it_shows_and_a_denied_call_reaches_nobody() {
    let stage = Stage::new(REVIEW).await;
    let client = stage.client("review");
    assert_eq!(tool_names(&client).await, SHOWN);
    let error = async |method: &str, params: Value| {
        let reply = client.call(method, params).await.unwrap();
        (reply.status, reply.answer["error"].to_string())
    };
    let tool = |name: &str| json!({ "name": name, "arguments": { "seconds": 0 } });
    let never = error("tools/call", tool("never")).await;
    assert_eq!(never.0, 200);
    for name in ["t_slow_compute", "e_test_simple_text", "greet"] {
        let (status, text) = error("tools/call", tool(name)).await;
        assert_eq!((status, text.replace(name, "never")), never, "{name}");
    }
    let read = |uri: &str| json!({ "uri": uri });
    let never = error("resources/read", read("test://never")).await;
    for uri in [
        "test://static-text",
        "e+test://static-text",
        "test://watched/../static-text",
    ] {
        let (status, text) = error("resources/read", read(uri)).await;
        assert_eq!((status, text.replace(uri, "test://never")), never, "{uri}");
    }
    assert_eq!(stage.called(), 0);
    let reply = client
        .tool("t_greet", json!({ "name": "Ada" }))
        .await
        .unwrap();
    assert_eq!(reply.text(), "Hello, Ada!");
    let read = client
        .call("resources/read", read("test://watched-resource"))
        .await
        .unwrap();
    assert_eq!(
        read.result()["contents"][0]["uri"],
        "test://watched-resource"
    );
    // A session client sees the same.
    let peer = Peer::connect(SESSIONS, &Target::Url(stage.url("review")))
        .await
        .unwrap();
    assert_eq!(names(&peer.list("tools").await.unwrap()), SHOWN);
    assert!(peer.list("prompts").await.unwrap().is_empty());
    let called = stage.called();
    let hidden = peer.tool("t_slow_compute", json!({})).await;
    assert_eq!(hidden.unwrap().code(), -32602);
    assert_eq!(stage.called(), called);
    let greeted = peer
        .tool("t_greet", json!({ "name": "Bob" }))
        .await
        .unwrap();
    assert_eq!(greeted.text(), "Hello, Bob!");
    // And its session is of that endpoint alone.
    let id = peer.session_id().unwrap().to_owned();
    for endpoint in ["jobs", "t"] {
        let other = Peer::rejoin(SESSIONS, &stage.url(endpoint), &id, &Manners::default()).unwrap();
        assert!(other.list("tools").await.is_err(), "{endpoint}");
    }
    let jobs = stage.client("jobs");
    assert!(tool_names(&jobs).await.contains(&"slow_compute".to_owned()));
    let reply = jobs.tool("greet", json!({ "name": "Eve" })).await.unwrap();
    assert_eq!(reply.text(), "Hello, Eve!");
}

#[tokio::test]
async fn discovery_of_an_endpoint_is_of_its_upstreams() {
    let stage = Stage::new(REVIEW).await;
    let discover = async |endpoint: &str| {
        let client = stage.client(endpoint);
        let reply = client.call("server/discover", json!({}));
        reply.await.unwrap().result().clone()
    };
    let (both, jobs) = (discover("review").await, discover("jobs").await);
    let said = |result: &Value| result["instructions"].as_str().unwrap().to_owned();
    assert!(
        said(&both).contains("One of everything") && !said(&jobs).contains("One of everything")
    );
    assert!(both["capabilities"]["resources"].is_object());
    assert!(
        jobs["capabilities"]["resources"].is_null() && jobs["capabilities"]["tools"].is_object()
    );
}

#[tokio::test]
async fn r80_a_handle_of_one_endpoint_is_unknown_where_the_tool_is_hidden() {
    let stage = Stage::new(REVIEW).await;
    let jobs = stage.client("jobs").with_tasks();
    let arguments = json!({ "seconds": 600 });
    let handle = created(&jobs.tool("slow_compute", arguments).await.unwrap());
    let review = stage.client("review").with_tasks();
    let polls = stage.tasks.seen().count("tasks/get");
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let with = |id: &str| json!({ "taskId": id, "inputResponses": {} });
        let error = |reply: Reply| reply.answer["error"].clone();
        let hidden = error(review.call(method, with(&handle)).await.unwrap());
        let never = error(review.call(method, with("t~never")).await.unwrap());
        assert_eq!(hidden["code"], -32602, "{method}");
        assert_eq!(hidden, never, "{method}");
    }
    let filter = json!({ "notifications": { "taskIds": [handle] } });
    let listen = review.post("subscriptions/listen", filter);
    let mut stream = review.send(listen).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!(first["params"]["notifications"], json!({}));
    assert_eq!(stage.tasks.seen().count("tasks/get"), polls);
    assert_eq!(stage.tasks.seen().count("tasks/cancel"), 0);
    for own in [&jobs, &Client::new(&stage.gateway.url).with_tasks()] {
        let reply = own
            .call("tasks/get", json!({ "taskId": handle }))
            .await
            .unwrap();
        assert_eq!(reply.result()["status"], "working", "{}", reply.answer);
    }
}

#[tokio::test]
async fn a_listener_at_an_endpoint_hears_its_changes_alone() {
    let stage = Stage::new(
        "endpoints:\n  with: { tools: { allow: ['test_*'] } }\n  \
         without: { tools: { deny: [test_dynamic_tool] } }\n",
    )
    .await;
    let listen = async |endpoint: &str| {
        let client = stage.client(endpoint);
        let filter = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": ["test://watched-resource"] } });
        let mut stream = client
            .send(client.post("subscriptions/listen", filter))
            .await
            .unwrap();
        stream.next().await.unwrap().unwrap();
        stream
    };
    let (mut with, mut without) = (listen("with").await, listen("without").await);
    let everywhere = Client::new(&stage.gateway.url);
    everywhere
        .tool("e_test_trigger_tool_change", json!({}))
        .await
        .unwrap();
    let told = timeout(SOON, with.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    // What it hears first came after what it must not hear.
    everywhere
        .tool("e_test_trigger_resource_update", json!({}))
        .await
        .unwrap();
    let told = timeout(SOON, without.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(told["method"], "notifications/resources/updated");
}

#[tokio::test]
async fn a_key_that_is_bound_to_an_endpoint_sees_nothing_else() {
    const KEY: &str = "wp_ci-0123456789abcdef";
    const FREE: &str = "wp_ada-0123456789abcdef";
    let more = format!(
        "{REVIEW}front: {{ sse: true }}\nauth: {{ keys: [{{ name: ci, hash: '{}', endpoint: review }}, {{ name: ada, hash: '{}' }}] }}\n",
        KeyHash::of(KEY),
        KeyHash::of(FREE)
    );
    let stage = Stage::new(&more).await;
    let list = async |url: &str, key: &str| {
        let client = Client::new(url);
        let post = client.post("tools/list", json!({}));
        client
            .ask(post.header("authorization", &format!("Bearer {key}")))
            .await
            .unwrap()
    };
    let own = list(&stage.gateway.url, KEY).await;
    assert_eq!(names(own.result()["tools"].as_array().unwrap()), SHOWN);
    assert_eq!(
        own.result()["cacheScope"],
        "private",
        "it depends on who asks"
    );
    let unknown = list(&stage.url("never"), KEY).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    for endpoint in ["review", "jobs", "t", "e"] {
        let other = list(&stage.url(endpoint), KEY).await;
        assert_eq!(
            (other.status, &other.raw),
            (unknown.status, &unknown.raw),
            "{endpoint}"
        );
        let free = list(&stage.url(endpoint), FREE).await;
        assert_eq!(free.status, StatusCode::OK, "{endpoint}");
    }
    let all = list(&stage.gateway.url, FREE).await;
    assert!(all.result()["tools"].as_array().unwrap().len() > SHOWN.len());
    assert_eq!(all.result()["cacheScope"], "private");
    // Over the two transports of sessions too.
    let manners = || Manners {
        headers: vec![("authorization".to_owned(), format!("Bearer {KEY}"))],
        ..Manners::default()
    };
    for (kind, url) in [
        (SESSIONS, stage.gateway.url.clone()),
        (Kind::Sse(Revision::Nov2024), stage.gateway.sse_url()),
    ] {
        let peer = Peer::with(kind, &Target::Url(url.clone()), manners())
            .await
            .unwrap();
        assert_eq!(names(&peer.list("tools").await.unwrap()), SHOWN, "{url}");
        let elsewhere = Target::Url(format!("{url}/review"));
        assert!(
            Peer::with(kind, &elsewhere, manners()).await.is_err(),
            "{url}"
        );
    }
}

#[tokio::test]
async fn r13_pages_of_an_upstream_that_changes_between_them_lose_and_double_nothing() {
    const COMES: &str = "e_test_dynamic_tool";
    let stage = Stage::new("").await;
    let known = tool_names(&Client::new(&stage.gateway.url)).await;
    let own = known.iter().filter(|name| name.starts_with("e_"));
    let before = own.filter(|name| name.as_str() < COMES).count();
    let upstreams = format!("e: {{ url: '{}', required: true }}", stage.everything.url);
    // The first page ends one behind the place of what is yet to come.
    let size = before + 1;
    let more = format!("page_size: {size}\nendpoints: {{ e2: {{}}, whole: {{ page_size: 0 }} }}");
    let gateway = Gateway::with(&upstreams, &more).await.unwrap();
    let url = |endpoint: &str| format!("{}{endpoint}", gateway.url);
    let (all, whole) = (Client::new(url("")), Client::new(url("/whole")));
    let there_at_first = tool_names(&whole).await;
    let page = async |endpoint: &str, cursor: Option<&Value>| {
        let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
        let client = Client::new(url(endpoint));
        let reply = client.call("tools/list", params).await.unwrap();
        let found = names(reply.result()["tools"].as_array().unwrap());
        let found: Vec<_> = found.into_iter().map(str::to_owned).collect();
        (found, reply.result()["nextCursor"].clone())
    };
    let mut begun = Vec::new();
    for endpoint in ["", "/e2", "/e"] {
        let (first, cursor) = page(endpoint, None).await;
        assert_eq!(first, there_at_first[..size], "{endpoint}");
        begun.push((endpoint, first, cursor));
    }
    // A session client begins too.
    let target = Target::Url(url(""));
    let peer = Peer::connect(SESSIONS, &target).await.unwrap();
    let first = peer.ask("tools/list", json!({})).await.unwrap();
    all.tool("e_test_trigger_tool_change", json!({}))
        .await
        .unwrap();
    let has_come = async || tool_names(&whole).await.contains(&COMES.to_owned());
    until("the change", has_come).await;
    for (endpoint, mut found, mut cursor) in begun {
        while !cursor.is_null() {
            let (more, next) = page(endpoint, Some(&cursor)).await;
            assert!(more.len() <= size);
            found.extend(more);
            cursor = next;
        }
        assert_eq!(found, there_at_first, "{endpoint}");
    }
    let params = json!({ "cursor": first["nextCursor"] });
    let second = peer.ask("tools/list", params).await.unwrap();
    let second = names(second["tools"].as_array().unwrap());
    assert_eq!(second[0], there_at_first[size]);
    // Who begins now sees what came.
    assert_eq!(page("", None).await.0.last().unwrap(), COMES);
    for cursor in ["never", first["nextCursor"].as_str().unwrap()] {
        let client = Client::new(url("/e2"));
        let wrong = client
            .call("tools/list", json!({ "cursor": cursor }))
            .await
            .unwrap();
        assert_eq!((wrong.status.as_u16(), wrong.code()), (200, -32602));
    }
}

#[tokio::test]
async fn operators_see_what_an_endpoint_shows_and_hides() {
    let stage = Stage::new(REVIEW).await;
    wait_for_state(&stage.gateway.admin, "e", "up").await;
    let reply = get(&format!("{}/api/v1/endpoints", stage.gateway.admin)).await;
    let all = reply.answer["endpoints"].as_array().unwrap();
    assert_eq!(names(all), ["review", "jobs"]);
    assert_eq!(
        (&all[0]["path"], &all[0]["upstreams"]),
        (&json!("/mcp/review"), &json!(["t", "e"]))
    );
    assert_eq!(all[0]["tools"]["shown"], 3);
    assert!(all[0]["tools"]["hidden"].as_u64().unwrap() > 3, "{reply:?}");
    assert_eq!(
        (&all[1]["prefix"], &all[1]["tools"]["hidden"]),
        (&json!(""), &json!(0))
    );
    // `check` prints the same, and the names that only an endpoint has.
    let home = Home::new(&format!(
        "upstreams: {{ t: {{ url: '{}' }}, e: {{ url: '{}' }} }}\n{REVIEW}",
        stage.tasks.url, stage.everything.url
    ));
    let config = home.config();
    let output = run(&["check", "--config", config.to_str().unwrap()], &[]).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    let row = |first: &str| {
        let found = printed.lines().find(|line| line.starts_with(first));
        found
            .unwrap_or_else(|| panic!("{first}: {printed}"))
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(row("review").starts_with("review t, e 3 ("), "{printed}");
    assert!(printed.contains("slow_compute"), "{printed}");
    let own = printed.lines().any(|line| {
        line.split_whitespace().collect::<Vec<_>>() == ["jobs", "tool", "greet", "5", "t", "greet"]
    });
    assert!(own, "{printed}");
}
