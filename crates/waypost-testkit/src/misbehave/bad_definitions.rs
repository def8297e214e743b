//! Lists what no list should hold.

use std::io;

use axum::response::IntoResponse as _;
use http::header::CONTENT_TYPE;
use serde_json::json;

use super::fake::{Rpc, discover, fake_now};
use crate::run::Running;

/// Lists these definitions, byte for byte, each with the method that lists it and its member of
/// the result.
///
/// # Errors
///
/// When no port is free.
pub async fn bad_definitions(
    lists: Vec<(&'static str, &'static str, Vec<String>)>,
) -> io::Result<Running> {
    fake_now(move |rpc| {
        if rpc.method == "server/discover" {
            let mut discovered = discover(false);
            if let Some(known) = discovered.get_mut("capabilities") {
                *known = json!({ "tools": {}, "prompts": {}, "resources": {} });
            }
            return rpc.ok(&discovered);
        }
        let list = lists.iter().find(|(method, ..)| *method == rpc.method);
        match list {
            Some((_, member, definitions)) => list_of(rpc, member, definitions),
            None => rpc.honest(false),
        }
    })
    .await
}

fn list_of(rpc: &Rpc, member: &str, definitions: &[String]) -> axum::response::Response {
    let definitions = definitions.join(",");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"complete","ttlMs":0,"cacheScope":"public","{member}":[{definitions}]}}}}"#,
        rpc.id
    );
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
