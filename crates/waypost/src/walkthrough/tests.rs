use std::path::Path;

use super::{guide, normalise, play};
use crate::demo::Gateway;

const LOOPBACK: std::net::SocketAddr = waypost_testkit::run::ANY_PORT;

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/walkthrough")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == text,
        "the transcript differs from {}; with UPDATE_GOLDEN=1 it is written anew:\n{text}",
        path.display()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_tour_shows_what_it_always_shows() {
    let gateway = Gateway::start(LOOPBACK).await.unwrap();
    let url = gateway.daemon.url();
    let mut text = String::new();
    let shown = play(&url, |part| {
        text.push_str(part);
        text.push('\n');
    });
    shown.await.unwrap();
    gateway.stop().await;
    golden("transcript.txt", &normalise(&text, &url));
}

/// Every command of the guide, run in turn by a client that reads them as a shell and `curl` do.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_commands_of_the_guide_give_the_answers_it_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/walkthrough.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let gateway = Gateway::start(LOOPBACK).await.unwrap();
    let ran = guide::run(&text, &gateway.daemon.url()).await;
    gateway.stop().await;
    assert!(ran >= 15, "only {ran} commands in {}", path.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_first_call_that_the_demo_prints_works_as_printed() {
    let gateway = Gateway::start(LOOPBACK).await.unwrap();
    let call = crate::demo::first_call(&gateway.daemon.url());
    let text = format!(
        "```sh\n{call}\n```\n```json\n{{\"result\": {{\"content\": [{{\"text\": \"Hello, Ada!\"}}]}}}}\n```\n"
    );
    let ran = guide::run(&text, &gateway.daemon.url()).await;
    gateway.stop().await;
    assert_eq!(ran, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_port_in_use_is_a_clear_error() {
    let taken = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let address = taken.local_addr().unwrap();
    let error = Gateway::start(address).await.unwrap_err();
    let crate::exit::Fatal::Run { error, hint } = error else {
        panic!("{error:?}")
    };
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(hint.unwrap().contains("--listen"));
}
