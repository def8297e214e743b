//! How soon a changed list reaches those who want to hear of it, and how often.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use waypost_testkit::client::Client;
use waypost_testkit::demo::{demo_everything, legacy_everything};
use waypost_testkit::kit::legacy::{Options, Revision};
use waypost_testkit::peer::{Kind, Peer, Target};
use waypost_testkit::run::ANY_PORT;
use waypost_tests::gateway::Gateway;

use crate::process::program;
use crate::support::tool_names;

const CHANGED: &str = "notifications/tools/list_changed";
const SECOND: Duration = Duration::from_secs(1);

/// Clients of both eras, over HTTP and pipes, that hear of changed lists.
async fn clients(gateway: &Gateway) -> Vec<Peer> {
    let url = Target::Url(gateway.url.clone());
    let program = program().display().to_string();
    let bridge = [program.as_str(), "stdio", "--connect", &gateway.url];
    let bridge = Target::Command(bridge.map(str::to_owned).to_vec());
    let kinds = [
        (Kind::Modern, &url),
        (Kind::Http(Revision::Nov2025), &url),
        (Kind::ModernPipe, &bridge),
        (Kind::LegacyPipe(Revision::Nov2025), &bridge),
    ];
    let mut clients = Vec::new();
    for (kind, target) in kinds {
        let client = Peer::connect(kind, target).await.unwrap();
        client.watch(&[]).await.unwrap();
        clients.push(client);
    }
    clients
}

async fn change(client: &Client, upstream: &str) {
    let tool = format!("{upstream}_test_trigger_tool_change");
    client.tool(&tool, json!({})).await.unwrap();
}

async fn has_dynamic_tool(client: &Client, upstream: &str) -> bool {
    let name = format!("{upstream}_test_dynamic_tool");
    tool_names(client).await.contains(&name)
}

/// Changes a list; how long it takes until the last client is told, and that the list is another.
async fn longest_way(caller: &Client, clients: &[Peer], upstream: &str) -> Duration {
    let had = has_dynamic_tool(caller, upstream).await;
    let begun = Instant::now();
    change(caller, upstream).await;
    for client in clients {
        let told: Option<Value> = client.told(CHANGED).await;
        assert!(told.is_some(), "{upstream} {:?}", client.kind());
    }
    let took = begun.elapsed();
    assert_ne!(has_dynamic_tool(caller, upstream).await, had, "{upstream}");
    took
}

#[tokio::test]
async fn r09_a_change_at_any_server_reaches_clients_of_every_kind_within_a_second_and_a_burst_few_times()
 {
    let modern = demo_everything(ANY_PORT).await.unwrap();
    let old = legacy_everything(ANY_PORT, Options::default());
    let old = old.await.unwrap();
    // One child for all: what changes in a client's own is not what is listed.
    let child = format!("command: '{}', isolation: shared", program().display());
    let upstreams = format!(
        "modern: {{ url: '{}', required: true }}\n\
         old: {{ url: '{}', required: true }}\n\
         pipe: {{ {child}, required: true, \
         args: [demo-server, everything, --stdio, --era, legacy] }}",
        modern.url, old.url
    );
    let gateway = Gateway::start(&upstreams).await.unwrap();
    let clients = clients(&gateway).await;
    let caller = Client::new(&gateway.url);
    for upstream in ["modern", "old", "pipe"] {
        // A machine that is busy with other tests can lose a second anywhere, so one of three counts.
        let mut took = Vec::new();
        while took.len() < 3 && !took.iter().any(|took| *took < SECOND) {
            took.push(longest_way(&caller, &clients, upstream).await);
        }
        assert!(
            took.iter().any(|took| *took < SECOND),
            "{upstream} {took:?}"
        );
    }

    let had = has_dynamic_tool(&caller, "modern").await;
    // After an odd number of changes the list is another one.
    for _ in 0..51 {
        change(&caller, "modern").await;
    }
    for client in &clients {
        let mut times = 0;
        while timeout(2 * SECOND, client.told(CHANGED))
            .await
            .is_ok_and(|told| told.is_some())
        {
            times += 1;
        }
        assert!((1..=5).contains(&times), "{:?}: {times}", client.kind());
    }
    assert_ne!(has_dynamic_tool(&caller, "modern").await, had);
}
