//! What Waypost does not route on passes as it came, byte for byte.

use serde_json::{Value, json};
use waypost_testkit::client::{Client, Reply};
use waypost_testkit::demo::demo_everything;
use waypost_testkit::misbehave::echo::{echo, raw_result};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::stage::Way;

/// Numbers, key order, escapes and spellings that a decoded value would lose.
const ARGUMENTS: &str = r#"{"z":1.0,"a":12345678901234567890123,"m":{"y":1e5,"b":-0,"a":[1.50]},"s":"\u00e9\/\ud83d\ude00","k\u0065y":null}"#;
const UNKNOWN: &str = r#"{"deep":[{"n":2.00}],"a":1}"#;
const META: &str = r#"{"n":3.0,"b":1,"a":2}"#;
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const CONTENT: &str = r#"[{"type":"text","text":"\u00e9","annotations":{"priority":1.0},"_meta":{"k":1e5}},{"type":"new-kind","z":1,"a":98765432109876543210987}]"#;
const RESULT_META: &str = r#"{"z":1.0,"a":{"deep":[1.50]}}"#;

fn request(client: &Client) -> waypost_testkit::client::Post {
    let post = client.post("tools/call", json!({ "name": "e_work" }));
    let own = post.message["params"]["_meta"].to_string();
    let own = own.trim_start_matches('{').trim_end_matches('}');
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"e_work","x-unknown":{UNKNOWN},"arguments":{ARGUMENTS},"_meta":{{"x.example/y":{META},"traceparent":"{TRACE}",{own}}}}}}}"#
    );
    post.raw(body)
}

fn result() -> String {
    format!(
        r#"{{"resultType":"complete","content":{CONTENT},"zz":{UNKNOWN},"structuredContent":{ARGUMENTS},"_meta":{{"x.example/y":{RESULT_META}}}}}"#
    )
}

fn has(text: &str, part: &str) {
    assert!(text.contains(part), "`{part}` is not in\n{text}");
}

/// What the server was sent.
fn check_request(text: &str) {
    has(text, &format!(r#""arguments":{ARGUMENTS}"#));
    has(text, &format!(r#""x-unknown":{UNKNOWN}"#));
    has(text, &format!(r#""x.example/y":{META}"#));
    has(text, &format!(r#""traceparent":"{TRACE}""#));
    // Its own name for the tool.
    has(text, r#""name":"work""#);
}

/// What the client got.
fn check_result(reply: &Reply) {
    let text = String::from_utf8(reply.raw.to_vec()).unwrap();
    has(&text, &format!(r#""content":{CONTENT}"#));
    has(&text, &format!(r#""zz":{UNKNOWN}"#));
    has(&text, &format!(r#""structuredContent":{ARGUMENTS}"#));
    has(&text, &format!(r#""x.example/y":{RESULT_META}"#));
    assert_eq!(reply.result()["_meta"]["dev.waypost/upstream"], "e");
}

async fn stdio() -> Gateway {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/echo.py");
    let env = json!({ "FIXED": result() });
    let upstream =
        format!("e: {{ command: python3, args: ['{script}'], env: {env}, required: true }}");
    Gateway::start(&upstream).await.unwrap()
}

#[tokio::test]
async fn r50_a_request_reaches_a_server_over_http_unchanged() {
    let server = echo().await.unwrap();
    let gateway = Gateway::start(&format!("e: {{ url: '{}' }}", server.url))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    let reply = client.ask(request(&client)).await.unwrap();
    check_request(
        reply.result()["structuredContent"]["body"]
            .as_str()
            .unwrap(),
    );
}

#[tokio::test]
async fn r50_a_result_of_a_server_over_http_arrives_unchanged() {
    let server = raw_result(result()).await.unwrap();
    let gateway = Gateway::start(&format!("e: {{ url: '{}' }}", server.url))
        .await
        .unwrap();
    let client = Client::new(&gateway.url);
    check_result(&client.tool("e_work", json!({})).await.unwrap());
}

#[tokio::test]
async fn r50_requests_and_results_pass_a_pipe_unchanged() {
    let gateway = stdio().await;
    let client = Client::new(&gateway.url);
    check_request(client.ask(request(&client)).await.unwrap().text());
    check_result(&client.tool("e_fixed", json!({})).await.unwrap());
}

#[tokio::test]
async fn what_the_hop_is_about_is_rebuilt_and_the_callers_name_is_passed_on() {
    let server = echo().await.unwrap();
    let gateway = Gateway::start(&format!("e: {{ url: '{}' }}", server.url))
        .await
        .unwrap();
    let info = json!({ "name": "the-caller", "version": "1" });
    let meta = json!({ "io.modelcontextprotocol/clientInfo": info });
    let client =
        Client::new(&gateway.url).with_capabilities(json!({ "elicitation": {}, "x": { "y": 1 } }));
    let post = client.post("tools/call", json!({ "name": "e_work", "_meta": meta }));
    let reply = client.ask(post).await.unwrap();
    let sent: Value = serde_json::from_str(reply.text()).unwrap();
    let meta = &sent["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"], info);
    assert_eq!(
        meta["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
    let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(declared["elicitation"], json!({}));
    // Without a name of its own the caller goes by Waypost's.
    let reply = client.tool("e_work", json!({})).await.unwrap();
    let sent: Value = serde_json::from_str(reply.text()).unwrap();
    let name = &sent["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"];
    assert_eq!(*name, "waypost");
}

#[tokio::test]
async fn r28_schemas_are_listed_as_the_server_wrote_them() {
    let demo = demo_everything(ANY_PORT).await.unwrap();
    let gateway = Gateway::start(&format!("e: {{ url: '{}' }}", demo.url))
        .await
        .unwrap();
    let list = |url: &str| {
        let client = Client::new(url);
        async move { client.call("tools/list", json!({})).await.unwrap() }
    };
    let (theirs, ours) = (list(&demo.url).await, list(&gateway.url).await);
    let find = |reply: &Reply, name: &str| {
        let tools = reply.result()["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["inputSchema"].to_string()
    };
    let schema = find(&theirs, "json_schema_2020_12_tool");
    assert_eq!(find(&ours, "e_json_schema_2020_12_tool"), schema);
    // Not only equal: the same bytes.
    has(std::str::from_utf8(&ours.raw).unwrap(), &schema);
}

#[tokio::test]
async fn r60_arguments_in_headers_are_checked_and_sent_on() {
    for way in [Way::Http, Way::Stdio] {
        let stage = crate::stage::Stage::new(way).await;
        let client = stage.client();
        let arguments = json!({ "region": "eu/é", "priority": 2, "dry_run": true });
        let post = || {
            client.post(
                "tools/call",
                json!({ "name": "d_test_mirrored_headers", "arguments": arguments }),
            )
        };
        let post = || {
            post()
                .header("mcp-param-region", "=?base64?ZXUvw6k=?=")
                .header("mcp-param-priority", "2.0")
                .header("mcp-param-dry-run", "true")
        };
        let reply = client.ask(post()).await.unwrap();
        assert_eq!(
            reply.result()["structuredContent"],
            arguments,
            "{way:?} {}",
            reply.answer
        );
        let wrong = post().header("mcp-param-priority", "3");
        let wrong = client.ask(wrong).await.unwrap();
        assert_eq!((wrong.status.as_u16(), wrong.code()), (400, -32020));
        let absent = client
            .ask(post().without("mcp-param-region"))
            .await
            .unwrap();
        assert_eq!((absent.status.as_u16(), absent.code()), (400, -32020));
        assert_eq!(stage.sent("tools/call").len(), 1, "{way:?}");
    }
}
