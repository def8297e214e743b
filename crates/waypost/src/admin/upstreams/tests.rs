use bytes::Bytes;
use waypost_config::parse_str;
use waypost_hub::call::Call;
use waypost_hub::catalog::build::Warning;
use waypost_hub::error::{CallError, Kind as ErrorKind};
use waypost_hub::registry::Scope;
use waypost_hub::status::State;
use waypost_hub::upstream::{BoxFuture, CallFuture, Facts, Upstream};

use super::*;

#[derive(Debug)]
struct Nobody;

impl Upstream for Nobody {
    fn discover<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<Facts, CallError>> {
        Box::pin(std::future::pending())
    }

    fn call(&self, _: Call) -> CallFuture<'_> {
        Box::pin(std::future::pending())
    }

    fn parked(&self) -> usize {
        2
    }
}

const YAML: &str = r#"
upstreams:
  builds:
    url: https://ci.example/mcp?api_key=canary-query
    headers: { Authorization: "Bearer canary-header" }
  files: { command: canary-command, args: [canary-argument], env: { TOKEN: canary-variable }, disabled: true }
"#;

fn members() -> Vec<Arc<Member>> {
    let upstreams = parse_str(YAML).unwrap().config.upstreams;
    let members = upstreams
        .into_iter()
        .map(|settings| Member::new(settings, Arc::new(Nobody)));
    members.map(Arc::new).collect()
}

fn learned() -> Learned {
    let capabilities = br#"{"tools":{},"extensions":{"x/y":{ "n":1.0 , "a":[ ]}}}"#;
    Learned {
        upstream: "builds".to_owned(),
        fingerprint: String::new(),
        facts: Facts {
            protocol: "2026-07-28".to_owned(),
            versions: vec!["2026-07-28".to_owned()],
            capabilities: Object::parse(&Bytes::from_static(capabilities)).unwrap(),
            ..Facts::default()
        },
        catalogue: Catalogue {
            tools: Some(Listing {
                items: vec![Raw::empty_object(); 3],
                ttl_ms: 0,
                scope: Scope::Public,
                fetched_at: 0,
            }),
            ..Catalogue::default()
        },
        task_only: std::collections::BTreeSet::new(),
        claims: std::collections::BTreeSet::new(),
        learned_at: 0,
        last_error: None,
    }
}

#[test]
fn r36_no_secret_of_the_file_is_shown() {
    let text = list(&members(), &members(), &Catalog::default())
        .text()
        .to_owned();
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn state_era_counts_and_the_extensions_map_are_shown_as_they_are() {
    let members = members();
    members[0].learn(learned());
    members[0].status.set(State::Up, None);
    let error = CallError::upstream(ErrorKind::Timeout, &members[0].name).source("boom");
    members[0].status.failed(&error.to_string());
    members[0].status.explain(&error);
    let warning = Warning {
        upstream: "files".into(),
        text: "tool name `x` is used by builds too".to_owned(),
    };
    let next = Arc::clone(&self::members()[0]);
    next.status.failed("connection refused");
    let mut catalog = Catalog::default();
    catalog.warnings.push(warning);
    let text = list(&members, &[next], &catalog).text().to_owned();
    assert!(
        text.contains(r#""extensions":{"x/y":{ "n":1.0 , "a":[ ]}}"#),
        "{text}"
    );
    let body: serde_json::Value = serde_json::from_str(&text).unwrap();
    let [builds, files] = body["upstreams"].as_array().unwrap().as_slice() else {
        panic!("{text}")
    };
    assert_eq!(builds["state"], "up");
    assert_eq!(builds["era"], "modern");
    assert_eq!(builds["versions"][0], "2026-07-28");
    assert_eq!(builds["tools"], 3);
    assert_eq!(builds["parked"], 2);
    assert_eq!(builds["prompts"], serde_json::Value::Null);
    assert_eq!(
        builds["lastError"]["message"],
        "upstream `builds`: no answer in time"
    );
    assert_eq!(builds["lastError"]["cause"], "boom");
    assert_eq!(files["state"], "disabled");
    assert_eq!(files["transport"], "stdio");
    assert_eq!(files["lastError"], serde_json::Value::Null);
    assert_eq!(builds["warnings"], serde_json::json!([]));
    let said = serde_json::json!(["tool name `x` is used by builds too"]);
    assert_eq!(files["warnings"], said);
    assert_eq!(files["replacement"], serde_json::Value::Null);
    let replacement = &builds["replacement"];
    assert_eq!(replacement["state"], "starting");
    assert_eq!(replacement["lastError"]["message"], "connection refused");
}
