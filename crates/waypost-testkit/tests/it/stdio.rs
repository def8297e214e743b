//! The same servers over a pipe.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio_util::sync::CancellationToken;
use waypost_testkit::demo::tasks::{Options, TaskServer};
use waypost_testkit::kit::events::Events;
use waypost_testkit::kit::stdio::serve;

struct Pipe {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

#[expect(clippy::disallowed_methods, reason = "a test has no lifecycle to join")]
fn start() -> Pipe {
    let stop = CancellationToken::new();
    let server = TaskServer::open(Options::default(), Events::default(), stop).unwrap();
    let (input, read) = tokio::io::duplex(4096);
    let (write, output) = tokio::io::duplex(4096);
    let served = tokio::spawn(serve(Arc::new(server), read, write));
    Pipe {
        input,
        output: BufReader::new(output).lines(),
        served,
    }
}

fn request(id: &Value, method: &str, params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {},
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

impl Pipe {
    async fn send(&mut self, message: &Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.output.next_line().await.unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_request_a_line_and_an_answer_a_line() {
    let mut pipe = start();
    pipe.send(&request(&json!("a"), "server/discover", json!({})))
        .await;
    let answer = pipe.next().await;
    assert_eq!(answer["id"], "a");
    assert_eq!(answer["result"]["supportedVersions"], json!(["2026-07-28"]));
    let call = json!({ "name": "greet", "arguments": { "name": "Ada" } });
    pipe.send(&request(&json!(2), "tools/call", call)).await;
    assert_eq!(
        pipe.next().await["result"]["content"][0]["text"],
        "Hello, Ada!"
    );
}

#[tokio::test]
async fn faults_are_told_by_code_alone() {
    let mut pipe = start();
    let mut old = request(
        &json!(1),
        "initialize",
        json!({ "protocolVersion": "2025-11-25" }),
    );
    old["params"].as_object_mut().unwrap().remove("_meta");
    pipe.send(&old).await;
    assert_eq!(pipe.next().await["error"]["code"], -32022);
    pipe.send(&request(&json!(2), "ping", json!({}))).await;
    assert_eq!(pipe.next().await["error"]["code"], -32601);
    pipe.input.write_all(b"{\n").await.unwrap();
    let fault = pipe.next().await;
    assert_eq!(
        (&fault["error"]["code"], &fault["id"]),
        (&json!(-32700), &Value::Null)
    );
}

#[tokio::test]
async fn a_cancelled_request_gets_no_answer() {
    let mut pipe = start();
    let call = json!({ "name": "slow_compute", "arguments": { "seconds": 60 } });
    let mut slow = request(&json!("slow"), "tools/call", call);
    slow["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    pipe.send(&slow).await;
    let cancel = json!({ "requestId": "slow" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel });
    pipe.send(&cancel).await;
    pipe.send(&request(&json!("next"), "server/discover", json!({})))
        .await;
    assert_eq!(pipe.next().await["id"], "next");
}

#[tokio::test]
async fn the_end_of_the_input_ends_subscriptions_and_the_server() {
    let mut pipe = start();
    let listen = json!({ "notifications": { "taskIds": [] } });
    pipe.send(&request(&json!(7), "subscriptions/listen", listen))
        .await;
    let acknowledged = pipe.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    pipe.input.shutdown().await.unwrap();
    let end = pipe.next().await;
    assert_eq!(end["id"], 7);
    assert_eq!(
        end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        7
    );
    pipe.served.await.unwrap().unwrap();
}
