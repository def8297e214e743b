//! What it takes to look for URIs in a result of 1 MB: `cargo bench -p waypost-wire`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program to run by hand"
)]

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use waypost_wire::links::{Answer, replace};
use waypost_wire::object::Object;

const ROUNDS: u32 = 200;

fn main() {
    let line = "All work and no play makes a gateway a dull process. \\n";
    let plain = line.repeat(1_000_000 / line.len());
    let escaped = "caf\\u00e9 \\\"au lait\\\" ".repeat(1_000_000 / 26);
    let text = |text: &str| format!(r#"{{"type":"text","text":"{text}"}}"#);
    let links: Vec<String> = (0..1_000)
        .map(|n| format!(r#"{{"type":"resource_link","uri":"file:///{n}","name":"n"}}"#))
        .collect();
    for (name, content) in [
        ("text", text(&plain)),
        ("text with escapes", text(&escaped)),
        (
            "text and one link",
            format!("{},{}", text(&plain), links.first().unwrap()),
        ),
        ("1,000 links", links.join(",")),
    ] {
        let bytes = Bytes::from(format!(r#"{{"content":[{content}],"isError":false}}"#));
        let result = Object::parse(&bytes).unwrap();
        let parsed = time(|| drop(black_box(Object::parse(&bytes))));
        let looked = time(|| {
            let mut result = result.clone();
            replace(&mut result, Answer::Call, &mut |uri| {
                Some(format!("b+{uri}"))
            });
            drop(black_box(result));
        });
        println!("{name}: read {parsed:.0} us, URIs {looked:.0} us");
    }
}

/// Microseconds.
fn time(run: impl Fn()) -> f64 {
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| run());
    began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}
