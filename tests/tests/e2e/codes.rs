//! Error codes of upstreams: each is its server's own but those that the eras write differently.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::response::Response;
use serde_json::{Value, json};
use waypost_testkit::kit::legacy::Revision;
use waypost_testkit::peer::{Answers, Kind, Peer, Target};
use waypost_tests::gateway::Gateway;

use crate::fake::{Fake, Rpc, plain, tool, tools};

const SESSIONS: Kind = Kind::Http(Revision::Nov2025);
const CODES: [i64; 7] = [-32002, -32602, -32003, -32600, -32020, -32022, 7];

fn capabilities() -> Value {
    json!({ "tools": {}, "prompts": {}, "resources": {} })
}

/// A server that fails with whatever code it is asked for.
fn answer(rpc: &Rpc, modern: bool) -> Option<Response> {
    let fail = |code: i64| {
        let data = json!({ "uri": "x:y", "n": 1 });
        rpc.error(
            200,
            &json!({ "code": code, "message": "mine", "data": data }),
        )
    };
    let whole = |mut result: Value| {
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("public");
        Some(rpc.ok(&result))
    };
    match rpc.method.as_str() {
        "server/discover" if modern => {
            let versions = ["2026-07-28"];
            whole(json!({ "supportedVersions": versions, "capabilities": capabilities() }))
        }
        "initialize" if !modern => Some(rpc.ok(&json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities(),
            "serverInfo": { "name": "s", "version": "1" },
        }))),
        "notifications/initialized" => Some(plain(202, "")),
        "" => Some(plain(405, "")),
        "tools/list" => Some(rpc.ok(&tools(&json!([tool("fail")])))),
        "prompts/list" => whole(json!({ "prompts": [{ "name": "fail" }] })),
        "resources/list" => {
            let all = CODES.map(|code| json!({ "name": "r", "uri": format!("x:{code}") }));
            whole(json!({ "resources": all }))
        }
        "resources/templates/list" => whole(json!({ "resourceTemplates": [] })),
        "tools/call" => Some(fail(rpc.params["arguments"]["code"].as_i64()?)),
        "prompts/get" => {
            let code = rpc.params["arguments"]["code"].as_str()?;
            Some(fail(code.parse().ok()?))
        }
        "resources/read" => {
            let uri = rpc.params["uri"].as_str()?;
            Some(fail(uri.strip_prefix("x:")?.parse().ok()?))
        }
        _ => Some(rpc.error(200, &json!({ "code": -32601, "message": "no such method" }))),
    }
}

/// What a client is to get.
fn expected(client: Kind, modern: bool, method: &str, code: i64) -> i64 {
    let new = client == Kind::Modern;
    match (method, code) {
        ("resources/read", -32002) if new => -32602,
        ("resources/read", -32602) if modern && !new => -32002,
        // Of a tool; today's clients would take it for one about their own headers.
        (_, -32020 | -32022) if new => -32603,
        _ => code,
    }
}

#[tokio::test]
async fn r72_codes_are_their_servers_own_but_that_of_a_missing_resource() {
    for modern in [true, false] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let server = Fake::start(move |rpc| {
            if ["tools/call", "prompts/get", "resources/read"].contains(&&*rpc.method) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            answer(rpc, modern)
        });
        let server = server.await;
        let upstream = format!("u: {{ url: '{}', required: true }}", server.url);
        let gateway = Gateway::start(&upstream).await.unwrap();
        for client in [Kind::Modern, SESSIONS] {
            let target = Target::Url(gateway.url.clone());
            let peer = Peer::connect(client, &target).await.unwrap();
            for code in CODES {
                for (method, params) in [
                    (
                        "tools/call",
                        json!({ "name": "u_fail", "arguments": { "code": code } }),
                    ),
                    (
                        "prompts/get",
                        json!({ "name": "u_fail", "arguments": { "code": code.to_string() } }),
                    ),
                    ("resources/read", json!({ "uri": format!("x:{code}") })),
                ] {
                    let what = format!("{client:?}, server modern: {modern}, {method} {code}");
                    let before = asked.load(Ordering::SeqCst);
                    let got = peer.request(method, params, &Answers::usual()).await;
                    let got = got.unwrap();
                    let expected = expected(client, modern, method, code);
                    assert_eq!(got.code(), expected, "{what}: {got:?}");
                    let error = &got.answer["error"];
                    assert_eq!(error["message"], "mine", "{what}");
                    assert_eq!(error["data"], json!({ "uri": "x:y", "n": 1 }), "{what}");
                    assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{what}");
                }
            }
        }
    }
}
