//! The streams of session-era servers over HTTP, as a caller meets them.

use std::sync::Arc;

use waypost_hub::upstream::Upstream;
use waypost_testkit::demo::legacy_everything;
use waypost_testkit::kit::legacy::{Endpoint, GetStream, LineEnd, Options, Quirks, Transport};
use waypost_testkit::run::{ANY_PORT, Running};

use crate::kit::{complete, failure, in_time, tool, upstream};

async fn server(transport: Transport, quirks: Quirks) -> Running {
    let options = Options {
        transport,
        quirks,
        ..Options::default()
    };
    legacy_everything(ANY_PORT, options).await.unwrap()
}

fn reach(url: &str, more: &str) -> Arc<dyn Upstream> {
    upstream(&format!("url: '{url}', {more}"))
}

#[tokio::test]
async fn r14_r76_an_old_server_is_reached_however_it_names_its_endpoint() {
    for endpoint in [
        Endpoint::AbsolutePath,
        Endpoint::Relative,
        Endpoint::FullUrl,
    ] {
        let quirks = Quirks {
            endpoint: endpoint.clone(),
            line_end: LineEnd::Cr,
            ..Quirks::default()
        };
        let running = server(Transport::Sse, quirks).await;
        let url = format!("http://{}/p/sse", running.address);
        for era in ["auto", "legacy", "sse"] {
            let upstream = reach(&url, &format!("era: {era}"));
            complete(&*upstream, tool("test_simple_text")).await;
            in_time(upstream.close()).await;
        }
        let over = running.sessions().wait_for(|sessions| sessions.live() == 0);
        assert!(over.await, "{endpoint:?}");
    }
}

#[tokio::test]
async fn r14_an_endpoint_elsewhere_is_refused_in_clear_words() {
    let other = server(Transport::Sse, Quirks::default()).await;
    let quirks = Quirks {
        endpoint: Endpoint::OtherOrigin(format!("http://{}", other.address)),
        ..Quirks::default()
    };
    let running = server(Transport::Sse, quirks).await;
    for era in ["auto", "legacy", "sse"] {
        let upstream = reach(&running.url, &format!("era: {era}"));
        let error = failure(&*upstream).await.to_string();
        let says = ["HTTP+SSE", "another origin", "refused", "hint: "];
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    }
    assert_eq!(other.sessions().opened(), 0);
}

#[tokio::test]
async fn r14_messages_go_where_the_configuration_says() {
    let named = ["/stripped", "http://127.0.0.1:9"];
    for origin in named {
        let quirks = Quirks {
            endpoint: Endpoint::OtherOrigin(origin.to_owned()),
            ..Quirks::default()
        };
        let running = server(Transport::Sse, quirks).await;
        let url = format!("http://{}/p/sse", running.address);
        failure(&*reach(&url, "")).await;
        let whole = format!("http://localhost:{}/p/messages", running.address.port());
        for message_url in ["/p/messages", &*whole] {
            for era in ["auto", "sse"] {
                let more = format!("era: {era}, message_url: '{message_url}'");
                let upstream = reach(&url, &more);
                complete(&*upstream, tool("test_simple_text")).await;
                in_time(upstream.close()).await;
            }
        }
    }
}

#[tokio::test]
async fn a_call_whose_stream_is_closed_meanwhile_is_answered_all_the_same() {
    let running = server(Transport::Http, Quirks::default()).await;
    let upstream = reach(&running.url, "");
    let got = complete(&*upstream, tool("test_reconnection")).await;
    assert!(got.contains("content"), "{got:?}");
    // One for the stream of its own, one for the rest of the call's.
    assert!(running.sessions().gets() >= 2);
}

#[tokio::test]
async fn r58_servers_without_a_stream_of_their_own_are_not_asked_twice() {
    for status in [405, 404, 501] {
        let quirks = Quirks {
            get: GetStream::Refused(status),
            ..Quirks::default()
        };
        let running = server(Transport::Http, quirks).await;
        let upstream = reach(&running.url, "");
        for _ in 0..20 {
            complete(&*upstream, tool("test_simple_text")).await;
        }
        assert_eq!(running.sessions().gets(), 1, "{status}");
        assert_eq!(running.sessions().opened(), 1, "{status}");
    }
}

#[tokio::test]
async fn r58_a_stream_that_closes_at_once_costs_no_call_anything() {
    let quirks = Quirks {
        get: GetStream::Closes,
        ..Quirks::default()
    };
    let running = server(Transport::Http, quirks).await;
    let upstream = reach(&running.url, "");
    for _ in 0..20 {
        complete(&*upstream, tool("test_simple_text")).await;
    }
    let again = running.sessions().wait_for(|sessions| sessions.gets() >= 2);
    assert!(again.await);
    assert!(running.sessions().gets() <= 3);
    assert_eq!(running.sessions().opened(), 1);
}
