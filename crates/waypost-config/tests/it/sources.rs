//! Files, includes, the environment and flags over each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use waypost_config::{Config, Reach, Severity, Sources, load};

use crate::{expect_problems, joined};

/// Writes files into a fresh folder and names the first as the configuration.
fn files(files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let file = Some(folder.path().join(files[0].0));
    (
        folder,
        Sources {
            file,
            ..Sources::default()
        },
    )
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[track_caller]
fn config(sources: &Sources) -> Config {
    match load(sources) {
        Ok(loaded) => loaded.config,
        Err(problems) => panic!("{problems:#?}"),
    }
}

#[test]
fn later_sources_win_key_by_key() {
    let (_folder, mut sources) = files(&[
        (
            "waypost.yaml",
            "include: [more/*.yaml]\nlisten: 127.0.0.1:1\nadmin: 127.0.0.1:5\ntasks: {max_wait: 1m, input_wait: 1m}",
        ),
        (
            "more/b.yaml",
            "listen: 127.0.0.1:3\nupstreams: {b: {command: b}}",
        ),
        (
            "more/a.yaml",
            "listen: 127.0.0.1:2\ntasks: {max_wait: 2m}\nfront:\nupstreams: {a: {command: a}}",
        ),
        ("more/ignored.txt", "nonsense: 1"),
        ("more/..data.yaml", "nonsense: 1"),
    ]);
    let read = config(&sources);
    assert_eq!(
        (
            read.listen.port(),
            read.tasks.max_wait.as_secs(),
            read.tasks.input_wait.as_secs()
        ),
        (3, 120, 60)
    );
    assert_eq!(
        read.upstreams
            .iter()
            .map(|u| u.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );

    sources.env = env(&[
        ("WAYPOST_LISTEN", "127.0.0.1:4"),
        ("WAYPOST_ADMIN__TOKEN", "0123456789abcdef"),
        ("WAYPOST_FRONT__STRICT_HEADERS", "true"),
        ("WAYPOST_FRONT__ALLOWED_HOSTS", "[a.example, b.example]"),
        ("WAYPOST_LIMITS__IN_FLIGHT", "7"),
        ("WAYPOST_UPSTREAMS__A__TIMEOUT", "7s"),
        ("WAYPOST_UPSTREAMS__NEW_ONE__COMMAND", "c"),
        ("WAYPOST_UPSTREAMS__NEW_ONE__ENV__API_KEY", "[not yaml"),
    ]);
    let read = config(&sources);
    assert_eq!(
        (read.listen.port(), read.admin.port(), read.limits.in_flight),
        (4, 5, 7)
    );
    assert_eq!(read.admin_token.unwrap().expose(), "0123456789abcdef");
    assert!(read.front.strict_headers);
    assert_eq!(read.front.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(read.upstreams[0].timeout, Duration::from_secs(7));
    assert_eq!(read.upstreams[2].name, "new-one");
    let Reach::Stdio { env, .. } = &read.upstreams[2].reach else {
        panic!("local")
    };
    assert_eq!(
        (env[0].0.as_str(), env[0].1.expose()),
        ("API_KEY", "[not yaml")
    );

    let sources = sources
        .with_flag("listen", "127.0.0.1:6")
        .with_flag("log.level", "debug");
    let read = config(&sources);
    assert_eq!((read.listen.port(), read.log.level.as_str()), (6, "debug"));
}

#[test]
fn paths_start_from_the_file() {
    let (folder, sources) = files(&[(
        "conf/waypost.yaml",
        "upstreams: {a: {command: x, cwd: ../srv}}",
    )]);
    let read = config(&sources);
    assert_eq!(read.state.path, folder.path().join("conf/waypost.db"));
    let Reach::Stdio { cwd, .. } = &read.upstreams[0].reach else {
        panic!("local")
    };
    assert_eq!(cwd.as_deref(), Some(&*folder.path().join("conf/../srv")));
}

#[test]
fn r39_values_from_outside_reach_every_kind_of_key() {
    let yaml = "listen: ${LISTEN}\nfront: {strict_headers: '${STRICT}', keep_alive: \"${env:KEEP:-1s}\"}\nlimits: {parked: \"${N}\"}\n\
        upstreams:\n  a: {url: \"${URL}/mcp\", headers: {Authorization: \"Bearer ${file:secret}\"}}\n  \
        b: {command: x, args: [\"--cost=$$5\", \"$HOME\"], env: {T: \"${env:TRICKY}\"}}\n";
    let (_folder, mut sources) = files(&[("waypost.yaml", yaml), ("secret", "s3cret\n")]);
    sources.env = env(&[
        ("LISTEN", "127.0.0.1:9"),
        ("STRICT", "true"),
        ("N", "3"),
        ("URL", "https://h.example"),
        ("TRICKY", "${N}: {x}"),
    ]);
    let read = config(&sources);
    assert_eq!(
        (
            read.listen.port(),
            read.front.strict_headers,
            read.limits.parked
        ),
        (9, true, 3)
    );
    let Reach::Http { url, headers, .. } = &read.upstreams[0].reach else {
        panic!("remote")
    };
    assert_eq!(
        (url.to_string().as_str(), headers[0].1.expose()),
        ("https://h.example/mcp", "Bearer s3cret")
    );
    let Reach::Stdio { args, env, .. } = &read.upstreams[1].reach else {
        panic!("local")
    };
    assert_eq!(
        (joined(args).as_str(), env[0].1.expose()),
        ("--cost=$5 $HOME", "${N}: {x}")
    );
}

#[test]
fn r36_what_is_put_into_an_upstream_is_known_as_secret() {
    let mut sources = Sources::from_text(
        "upstreams:\n  a:\n    command: \"${HOME}/bin/${FLAVOUR}\"\n    \
         args: [--token, \"x-${env:TOKEN}\", \"${MODE:-fast}\", \"${PATH:-/bin}\"]\n  \
         b: {url: \"https://h.example/${KEY:-none}\"}\n",
    );
    sources.env = env(&[
        ("HOME", "/home/ada"),
        ("FLAVOUR", "sweet"),
        ("TOKEN", "s3cret"),
        ("PATH", "/usr/bin"),
        ("KEY", "k3y"),
    ]);
    let read = config(&sources);
    let secrets = |index: usize| {
        let secrets = read.upstreams[index].secrets.iter();
        secrets
            .map(waypost_config::Secret::expose)
            .collect::<Vec<_>>()
    };
    assert_eq!(secrets(0), ["sweet", "s3cret"]);
    assert_eq!(secrets(1), ["k3y"]);
}

#[test]
fn r39_a_missing_variable_names_key_and_variable_and_is_the_only_complaint() {
    let sources = Sources::from_text(
        "listen: \"${LISTEN}\"\nupstreams:\n  a: {url: \"${URL}\"}\n  b: {url: 'http://h', headers: {A: \"Bearer ${input:token}\"}}\n\
         auth: {keys: [{name: x, hash: \"${HASH}\"}]}\n",
    );
    expect_problems(
        load(&sources),
        &[
            "1:9 error listen: the environment variable `LISTEN` is not set (set it, or give a default: `${env:LISTEN:-...}`)",
            "3:12 error upstreams.a.url: the environment variable `URL` is not set (set it, or give a default: `${env:URL:-...}`)",
            "4:37 error upstreams.b.headers.A: `${input:...}` asks a person, and a daemon has none to ask \
             (use `${env:NAME}` or `${file:path}`)",
            "5:31 error auth.keys[0].hash: the environment variable `HASH` is not set (set it, or give a default: `${env:HASH:-...}`)",
        ],
    );
}

#[test]
fn problems_outside_the_file_name_their_variable_or_flag() {
    let mut sources = Sources::default()
        .with_flag("listen", "nowhere")
        .with_flag("log.format", "xml");
    sources.env = env(&[
        ("WAYPOST_FRONT__KEEP_ALIVE", "15"),
        ("WAYPOST_FRONT__ALLOWED_HOSTS", "a"),
        ("WAYPOST_FRONT__STRICT", "true"),
        ("WAYPOST_TOKEN", "x"),
        ("WAYPOST_WAYPOST_LISTEN", "127.0.0.1:4"),
        // The program's own.
        ("WAYPOST_KEY", "x"),
    ]);
    let problems = load(&sources).unwrap_err();
    let mut found: Vec<_> = problems
        .iter()
        .map(|p| format!("{}: {}: {}", p.file.clone().unwrap(), p.at, p.what))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "environment variable `WAYPOST_FRONT__ALLOWED_HOSTS`: front.allowed_hosts: must be a list",
            "environment variable `WAYPOST_FRONT__KEEP_ALIVE`: front.keep_alive: a duration needs a unit: `15`",
            "environment variable `WAYPOST_FRONT__STRICT`: front.strict: unknown key",
            "environment variable `WAYPOST_TOKEN`: : this variable names no setting and is ignored",
            "environment variable `WAYPOST_WAYPOST_LISTEN`: : this variable names no setting and is ignored",
            "flag `--listen`: listen: not an address to listen on: `nowhere`",
            "flag `--log-format`: log.format: must be one of `text`, `json`",
        ]
    );
}

#[test]
fn a_flag_of_a_key_without_secrets_is_shown_and_what_is_put_in_is_not() {
    let open = |sources: &Sources| {
        let problems = load(sources).unwrap_err();
        problems
            .into_iter()
            .find(|p| p.at == "listen")
            .unwrap()
            .what
    };
    let sources = Sources::default().with_flag("listen", "0.0.0.0:7500");
    assert!(open(&sources).starts_with("`0.0.0.0:7500` can be reached"));
    let mut sources = Sources::from_text("listen: '${WHERE}'");
    sources.env = env(&[("WHERE", "0.0.0.0:7500")]);
    assert!(open(&sources).starts_with("`***` can be reached"));
    // The token beside it is one, also where both are given at once.
    let sources = Sources {
        env: env(&[("WAYPOST_ADMIN", "{listen: '127.0.0.1:9', token: short}")]),
        ..Sources::default()
    };
    let said = format!("{:?}", load(&sources).unwrap_err());
    assert!(
        said.contains("shorter than 16") && !said.contains("`short`"),
        "{said}"
    );
    let sources = Sources::default().with_flag("admin.token", "short");
    assert!(!format!("{:?}", load(&sources)).contains("`short`"));
}

#[test]
fn a_misspelt_variable_is_told_what_it_may_mean() {
    let hint = |name: &str| {
        let sources = Sources {
            env: env(&[(name, "x")]),
            ..Sources::default()
        };
        let warnings = load(&sources).unwrap().warnings;
        warnings[0].hint.clone().unwrap()
    };
    assert_eq!(hint("WAYPOST_LISTN"), "did you mean `WAYPOST_LISTEN`?");
    assert_eq!(
        hint("WAYPOST_FRONT_KEEP_ALIVE"),
        "did you mean `WAYPOST_FRONT__KEEP_ALIVE`?"
    );
    assert!(hint("WAYPOST_SOMETHING_ELSE").starts_with("parts of a key"));
}

#[test]
fn a_variable_that_the_file_asks_for_is_no_unknown_setting() {
    let mut sources =
        Sources::from_text("upstreams: {a: {url: 'http://h', headers: {A: '${WAYPOST_TOKEN}'}}}");
    sources.env = env(&[
        ("WAYPOST_TOKEN", "x"),
        ("WAYPOST_CONFIG", "y"),
        ("WAYPOST_PORT", "tcp://10.0.0.1:80"),
    ]);
    assert_eq!(load(&sources).unwrap().warnings, []);
}

#[test]
fn includes_are_found_and_checked_with_their_own_positions() {
    let (folder, sources) = files(&[
        (
            "waypost.yaml",
            "include: [a.yaml, none.yaml, 'none/*.yaml', 'x-*.yaml', '*/a.yaml']\nupstreams: {s: {command: x}}",
        ),
        (
            "a.yaml",
            "include: [b.yaml]\nupstreams:\n  s: {command: y}\n  t: {command: z, bad: 1}\n",
        ),
    ]);
    let problems = load(&sources).unwrap_err();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let found: Vec<_> = problems
        .iter()
        .map(|p| {
            let file = Path::new(p.file.as_ref().unwrap())
                .file_name()
                .unwrap()
                .to_str()
                .unwrap();
            format!(
                "{file}:{}:{} {} {}: {}",
                p.line.unwrap(),
                p.column.unwrap(),
                p.severity,
                p.at,
                p.what
            )
        })
        .collect();
    let main = path("waypost.yaml");
    let mut expected = vec![
        "a.yaml:1:1 error include: an included file may not include others".to_owned(),
        format!(
            "waypost.yaml:1:19 error include[1]: cannot read `{}`: there is no such file",
            path("none.yaml")
        ),
        format!(
            "waypost.yaml:1:30 error include[2]: cannot list `{}`: there is no such file",
            path("none")
        ),
        "waypost.yaml:1:45 warning include[3]: no file matches".to_owned(),
        "waypost.yaml:1:57 error include[4]: only the last part of the path may be a pattern"
            .to_owned(),
        format!("a.yaml:3:3 error upstreams.s: `{main}` has an upstream of this name too"),
        "a.yaml:4:19 error upstreams.t.bad: unknown key".to_owned(),
    ];
    let mut found = found;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_is_not_there_or_not_text_is_one_problem() {
    let (folder, mut sources) = files(&[("waypost.yaml", "")]);
    std::fs::write(folder.path().join("waypost.yaml"), [0xff, 0xfe]).unwrap();
    let problems = load(&sources).unwrap_err();
    assert!(
        problems.len() == 1 && problems[0].what.ends_with("it is not UTF-8 text"),
        "{problems:?}"
    );
    sources.file = Some(folder.path().join("none.yaml"));
    let problems = load(&sources).unwrap_err();
    assert!(
        problems[0].to_string().ends_with("there is no such file"),
        "{problems:?}"
    );
    assert_eq!(problems[0].severity, Severity::Error);
}

#[test]
fn a_problem_prints_as_one_line_and_its_hint() {
    let (folder, sources) = files(&[("waypost.yaml", "front:\n  keep_alive: 15\n")]);
    let text = load(&sources).unwrap_err()[0].to_string();
    let file = folder.path().join("waypost.yaml").display().to_string();
    assert_eq!(
        text,
        format!(
            "{file}:2:15: error: `front.keep_alive`: a duration needs a unit: `15`\n  hint: write `15s` or `15ms`"
        )
    );
}

#[test]
fn short_and_long_forms_of_the_environment_go_together() {
    let sources = Sources {
        env: env(&[
            ("WAYPOST_ADMIN", "127.0.0.1:9"),
            ("WAYPOST_ADMIN__TOKEN", "0123456789abcdef"),
        ]),
        ..Sources::default()
    };
    let sources = sources.with_flag("admin", "127.0.0.1:10");
    let read = config(&sources);
    assert_eq!((read.admin.port(), read.admin_token.is_some()), (10, true));
}

#[test]
fn an_include_can_be_put_in_from_outside_but_not_be_a_variable_of_its_own() {
    let (_folder, mut sources) = files(&[
        ("waypost.yaml", "include: [\"${WHICH}.yaml\"]"),
        ("a.yaml", "instructions: false"),
    ]);
    sources.env = env(&[("WHICH", "a"), ("WAYPOST_INCLUDE", "[b.yaml]")]);
    let loaded = load(&sources).unwrap();
    assert!(!loaded.config.instructions);
    assert_eq!(
        loaded.warnings[0].what,
        "this variable names no setting and is ignored"
    );
}

#[test]
fn it_is_told_what_a_configuration_was_read_from_also_when_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    std::fs::create_dir(at("more.d")).unwrap();
    write("more.d/one.yaml", "admin: { token: '${file:token}' }");
    write("token", "letmein");
    let main = "include: [more.d/*.yaml, other.yaml]\n\
        upstreams: { a: { url: 'http://h', headers: { x: '${file:missing}' } } }\n";
    write("waypost.yaml", main);
    let sources = Sources {
        file: Some(at("waypost.yaml")),
        ..Sources::default()
    };
    let (loaded, inputs) = waypost_config::read(&sources);
    assert!(loaded.is_err());
    let files = [
        "missing",
        "more.d/one.yaml",
        "other.yaml",
        "token",
        "waypost.yaml",
    ];
    let files: Vec<_> = files.iter().map(|name| at(name)).collect();
    assert_eq!(inputs.files.into_iter().collect::<Vec<_>>(), files);
    assert_eq!(
        inputs.folders.into_iter().collect::<Vec<_>>(),
        [at("more.d")]
    );
}

#[test]
fn a_file_that_is_cut_to_nothing_is_no_configuration() {
    for text in ["", " \n"] {
        let (_folder, sources) = files(&[("waypost.yaml", text)]);
        let problems = load(&sources).unwrap_err();
        assert!(problems[0].what.ends_with("is empty"), "{problems:?}");
    }
    let (_folder, sources) = files(&[("waypost.yaml", "include: [a.yaml]"), ("a.yaml", "")]);
    let problems = load(&sources).unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (Some(1), Some(11)));
    let (_folder, sources) = files(&[("waypost.yaml", "{}")]);
    load(&sources).unwrap();
}

#[test]
fn r18_a_pipe_or_a_device_is_refused_and_not_waited_for() {
    let main = "include: [d/*.yaml]\nlisten: \"${file:secret}\"\n";
    let (folder, sources) = files(&[("waypost.yaml", main), ("d/a.yaml", "{}")]);
    let path = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .args([path("d/pipe.yaml"), path("secret")])
        .status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", path("d/zero.yaml")).unwrap();
    std::fs::create_dir(path("d/folder.yaml")).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(load(&sources).unwrap_err()));
    let problems = receiver.recv_timeout(Duration::from_secs(20));
    let problems = problems.expect("nothing is waited for").into_iter();
    let problems: String = problems.map(|problem| format!("{problem}\n")).collect();
    for name in ["d/pipe.yaml", "d/zero.yaml"] {
        let what = format!("{}`: it is no regular file", path(name).display());
        assert!(problems.contains(&what), "{problems}");
    }
    for what in [
        "`secret`: it is no regular file",
        "d/folder.yaml`: it is a folder",
    ] {
        assert!(problems.contains(what), "{problems}");
    }
}
