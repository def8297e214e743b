//! The files under `config/` and `deploy/`, and the Dockerfile: they load, and what they say of
//! each other is true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{Config, Reach};
use crate::node::{Kind, Node, Style};
use crate::sources::Sources;
use crate::{load, yaml};

/// Every YAML file there is, and so every one that a test below looks at.
const FILES: [&str; 7] = [
    "config/laptop.yaml",
    "config/sidecar.yaml",
    "config/team.yaml",
    "config/workbench.yaml",
    "deploy/compose.yaml",
    "deploy/compose/waypost.yaml",
    "deploy/kubernetes/sidecar.yaml",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// A YAML document as JSON.
fn parse(text: &str) -> Value {
    fn value(node: &Node) -> Value {
        match &node.kind {
            Kind::Null | Kind::Refused => Value::Null,
            Kind::List(items) => items.iter().map(value).collect(),
            Kind::Map(entries) => entries
                .iter()
                .map(|entry| (entry.key.clone(), value(&entry.value)))
                .collect(),
            Kind::Scalar(scalar) if scalar.style == Style::Plain => match scalar.text.as_str() {
                "true" | "false" => Value::Bool(scalar.text == "true"),
                text => text
                    .parse::<i64>()
                    .map_or_else(|_| text.into(), Value::from),
            },
            Kind::Scalar(scalar) => scalar.text.as_str().into(),
        }
    }
    value(&yaml::parse("an example", text).0.unwrap())
}

/// Loads a configuration with the given variables and with secret files that it names.
#[track_caller]
fn loads(text: &str, env: &[&str]) -> Config {
    let secrets = tempfile::tempdir().unwrap();
    for name in text.split("/run/secrets/").skip(1) {
        let name: String = name
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
            .collect();
        std::fs::write(secrets.path().join(name), format!("{}\n", "s".repeat(48))).unwrap();
    }
    let text = text.replace("/run/secrets", &secrets.path().display().to_string());
    let value = |(number, name): (usize, &&str)| {
        let value = if name.ends_with("_HASH") {
            format!("sha256:{number:064x}")
        } else {
            "v".repeat(48)
        };
        ((*name).to_owned(), value)
    };
    let sources = Sources {
        env: env.iter().enumerate().map(value).collect(),
        ..Sources::from_text(text)
    };
    match load(&sources) {
        Ok(loaded) => {
            assert_eq!(loaded.warnings, []);
            loaded.config
        }
        Err(problems) => panic!("{problems:#?}"),
    }
}

#[test]
fn every_yaml_file_is_looked_at() {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("config"), PathBuf::from("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|ext| ext == "yaml" || ext == "yml")
            {
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    assert_eq!(found, FILES);
}

#[test]
fn every_example_loads_and_fits_the_schema() {
    let schema = jsonschema::validator_for(&crate::json_schema()).unwrap();
    let env: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("config/laptop.yaml", &["HOME", "CI_TOKEN"][..]),
        (
            "config/sidecar.yaml",
            &["WAYPOST_AGENTS_HASH", "WAYPOST_STATE_KEY"][..],
        ),
        ("config/team.yaml", &["CI_KEY_HASH", "ALICE_KEY_HASH"][..]),
        ("deploy/compose/waypost.yaml", &[][..]),
    ]);
    for (path, env) in env {
        let text = read(path);
        let config = loads(&text, env);
        assert!(!config.upstreams.is_empty(), "{path} shows an upstream");
        let errors: Vec<_> = schema
            .iter_errors(&parse(&text))
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{path}: {errors:?}");
        let line = text.lines().next().unwrap();
        let schema = line
            .strip_prefix("# yaml-language-server: $schema=")
            .unwrap();
        assert!(
            root().join(path).parent().unwrap().join(schema).is_file(),
            "{path}: {line}"
        );
    }
}

#[test]
fn what_the_readme_shows_loads_and_begins_with_what_needs_no_secret() {
    let text = read("README.md");
    let blocks: Vec<_> = text
        .split("```yaml\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```"))
        .map(|(block, _)| block)
        .collect();
    let [first, later @ ..] = blocks.as_slice() else {
        panic!("the quick start has a configuration")
    };
    let config = loads(first, &[]);
    let is_public =
        |reach: &Reach| matches!(reach, Reach::Stdio { command, .. } if command == "npx");
    assert!(config.upstreams.iter().all(|one| is_public(&one.reach)));
    assert_eq!(config.upstreams.len(), 2);
    let shown = later.iter().map(|block| {
        let alone = block.lines().any(|line| line == "upstreams:");
        let text = if alone {
            (*block).to_owned()
        } else {
            format!("{first}{block}")
        };
        loads(&text, &["ALICE_KEY_HASH", "CI_KEY_HASH", "CI_TOKEN"])
    });
    let beyond = shown.filter(|config| !config.listen.ip().is_loopback());
    assert_eq!(beyond.count(), 1, "one shows how others are let in");
}

#[test]
fn the_schema_refuses_what_loading_refuses() {
    let schema = jsonschema::validator_for(&crate::json_schema()).unwrap();
    for (text, fits) in [
        ("{}", true),
        ("upstreams: {a: {url: 'http://h'}}", true),
        ("admin: '127.0.0.1:1'", true),
        ("front: {keep_alive: 0, strict_headers: '${X}'}", true),
        (
            "mcpServers: {a: {command: x, type: stdio, timeout: 1000, env: {A: 1}}}",
            true,
        ),
        ("upstreams: {a: {}}", false),
        ("upstreams: {A: {url: 'http://h'}}", false),
        ("upstreams: {a: {url: 'http://h', command: x}}", false),
        ("upstreams: {a: {url: 'http://h', tasks: maybe}}", false),
        ("front: {keep_alive: 15}", false),
        ("limits: {request_body: 4MB}", false),
        ("isolation: session", false),
    ] {
        assert_eq!(schema.is_valid(&parse(text)), fits, "{text}");
    }
}

/// The objects of a Kubernetes file by kind.
fn kubernetes(path: &str) -> BTreeMap<String, Value> {
    let text = read(path);
    let objects = text.split("\n---\n").map(parse);
    objects
        .map(|object| (object["kind"].as_str().unwrap().to_owned(), object))
        .collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|item| item.as_str().unwrap())
        .collect()
}

#[test]
fn the_pod_runs_the_configuration_of_its_config_map() {
    let objects = kubernetes("deploy/kubernetes/sidecar.yaml");
    let text = objects["ConfigMap"]["data"]["waypost.yaml"]
        .as_str()
        .unwrap();
    assert_eq!(text.trim_end(), read("config/sidecar.yaml").trim_end());

    let pod = &objects["Deployment"]["spec"]["template"]["spec"];
    let waypost = &pod["containers"][0];
    let names = waypost["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|env| env["name"].as_str().unwrap());
    let config = loads(text, &names.collect::<Vec<_>>());

    assert_eq!(
        texts(&waypost["args"]),
        ["serve", "--config", "/etc/waypost/waypost.yaml"]
    );
    let mounts = waypost["volumeMounts"].as_array().unwrap();
    let mount = |path: &Path| {
        mounts
            .iter()
            .find(|mount| path.starts_with(mount["mountPath"].as_str().unwrap()))
            .unwrap()
    };
    assert_eq!(
        mount(Path::new("/etc/waypost/waypost.yaml"))["name"],
        "config"
    );
    let state = mount(&config.state.path);
    assert_eq!(
        (&state["name"], &state["readOnly"]),
        (&json!("state"), &Value::Null)
    );
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &str| {
        volumes
            .iter()
            .find(|volume| volume["name"] == name)
            .unwrap()
    };
    assert_eq!(
        volume("config")["configMap"]["name"],
        objects["ConfigMap"]["metadata"]["name"]
    );
    assert!(volume("state")["emptyDir"].is_object());

    assert_eq!(
        waypost["ports"],
        json!([
            { "name": "mcp", "containerPort": config.listen.port() },
            { "name": "admin", "containerPort": config.admin.port() },
        ])
    );
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(
            waypost[probe]["httpGet"],
            json!({ "path": path, "port": "admin" })
        );
    }
    let pre_stop = waypost["lifecycle"]["preStop"]["sleep"]["seconds"]
        .as_u64()
        .unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > pre_stop + config.drain_grace.as_secs());
}

#[test]
fn the_pod_is_locked_down_and_its_parts_meet() {
    let objects = kubernetes("deploy/kubernetes/sidecar.yaml");
    let deployment = &objects["Deployment"]["spec"];
    let pod = &deployment["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    for container in [&pod["containers"][0], &pod["initContainers"][0]] {
        assert_eq!(
            container["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] },
            })
        );
    }
    // The configured upstream is where the server listens, on loopback.
    let config = parse(&read("config/sidecar.yaml"));
    let server = texts(&pod["initContainers"][0]["args"]);
    assert_eq!(server[..3], ["demo-server", "tasks", "--listen"]);
    assert_eq!(
        config["upstreams"]["server"]["url"],
        format!("http://{}/mcp", server[3])
    );
    assert!(server[3].starts_with("127.0.0.1:"));
    assert_eq!(pod["initContainers"][0]["restartPolicy"], "Always");

    let labels = &deployment["template"]["metadata"]["labels"];
    let service = &objects["Service"];
    assert_eq!(
        (
            &deployment["selector"]["matchLabels"],
            &service["spec"]["selector"]
        ),
        (labels, labels)
    );
    assert_eq!(
        service["spec"]["ports"][0]["targetPort"],
        pod["containers"][0]["ports"][0]["name"]
    );
    // Callers name the service in `Host`.
    let hosts = texts(&config["front"]["allowed_hosts"]).into_iter();
    assert!(
        hosts
            .into_iter()
            .any(|host| host == service["metadata"]["name"])
    );
    // What the comment has people create is what the pod asks for.
    let text = read("deploy/kubernetes/sidecar.yaml");
    for env in pod["containers"][0]["env"].as_array().unwrap() {
        let secret = &env["valueFrom"]["secretKeyRef"];
        assert!(text.contains(&format!(
            "create secret generic {}",
            secret["name"].as_str().unwrap()
        )));
        assert!(text.contains(&format!(
            "--from-literal={}=",
            secret["key"].as_str().unwrap()
        )));
    }
}

#[test]
fn compose_starts_waypost_with_its_file_and_a_server_behind() {
    let compose = parse(&read("deploy/compose.yaml"));
    let config = loads(&read("deploy/compose/waypost.yaml"), &[]);
    let waypost = &compose["services"]["waypost"];
    assert_eq!(
        texts(&waypost["command"]),
        ["serve", "--config", "/etc/waypost/waypost.yaml"]
    );
    let volumes = texts(&waypost["volumes"]);
    assert_eq!(volumes[0], "./compose:/etc/waypost:ro");
    let (volume, target) = volumes[1].split_once(':').unwrap();
    assert!(compose["volumes"][volume].is_object() && config.state.path.starts_with(target));
    // Without keys it may be published on loopback only.
    assert!(config.auth.keys.is_empty() && !config.listen.ip().is_loopback());
    let port = |port: u16| format!("127.0.0.1:{port}:{port}");
    assert_eq!(
        texts(&waypost["ports"]),
        [port(config.listen.port()), port(config.admin.port())]
    );
    let grace = waypost["stop_grace_period"].as_str().unwrap();
    assert!(crate::units::duration(grace).unwrap() > config.drain_grace);
    assert_eq!(
        (&waypost["read_only"], &waypost["cap_drop"]),
        (&json!(true), &json!(["ALL"]))
    );

    let Reach::Http { url, .. } = &config.upstreams[0].reach else {
        panic!("a remote server")
    };
    let (host, port) = (url.uri().host().unwrap(), url.uri().port_u16().unwrap());
    let server = texts(&compose["services"][host]["command"]);
    assert_eq!(
        server[..4],
        [
            "demo-server",
            "tasks",
            "--listen",
            &format!("0.0.0.0:{port}")
        ]
    );
    assert!(texts(&waypost["depends_on"]).contains(&host));
    let context = waypost["build"]["context"].as_str().unwrap();
    assert!(
        root()
            .join("deploy")
            .join(context)
            .join("Dockerfile")
            .is_file()
    );
}

#[test]
fn the_image_is_small_and_not_root() {
    let text = read("Dockerfile");
    let lines: Vec<_> = text.lines().collect();
    let last = |word: &str| {
        let line = lines
            .iter()
            .rev()
            .find(|line| line.starts_with(word))
            .unwrap();
        line.trim_start_matches(word).trim()
    };
    let stages = lines
        .iter()
        .filter(|line| line.starts_with("FROM "))
        .count();
    assert_eq!(
        (stages, last("FROM")),
        (2, "gcr.io/distroless/cc-debian12:nonroot")
    );
    assert_eq!(last("USER"), "65532:65532");
    assert_eq!(last("ENTRYPOINT"), r#"["/usr/local/bin/waypost"]"#);
    assert_eq!(
        last("CMD"),
        r#"["serve", "--config", "/etc/waypost/waypost.yaml"]"#
    );
    let config = loads(
        &read("config/team.yaml"),
        &["CI_KEY_HASH", "ALICE_KEY_HASH"],
    );
    assert_eq!(
        last("EXPOSE"),
        format!("{} {}", config.listen.port(), config.admin.port())
    );
    assert!(config.state.path.starts_with(last("VOLUME")));
    // The compiler of the image is the one the workspace asks for.
    let cargo = read("Cargo.toml");
    let version = cargo
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with(&format!("FROM rust:{}-", version.trim_matches('"'))))
    );
    let ignored = read(".dockerignore");
    assert!(
        ["/target", "/.git"]
            .iter()
            .all(|path| ignored.lines().any(|line| line == *path))
    );
}
