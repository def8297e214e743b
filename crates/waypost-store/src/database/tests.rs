use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use tempfile::TempDir;
use waypost_hub::registry::{Catalogue, Listing, Scope};
use waypost_hub::upstream::Facts;
use waypost_wire::object::Object;

use super::*;

/// What a lossy store would change: number spelling, key order, white space, escapes.
const CAPABILITIES: &str = r#"{"zeta":{"n":1.0,"big":12345678901234567890123},"tools":{},"extensions":{"com.example/x":{ "b" : 1,  "a" : [ 1e2 , "\u00e9" ] },"io.modelcontextprotocol/tasks":{}}}"#;
const TOOL: &str = r#"{"name":"odd","inputSchema":{"z":1.50,"a":{ "b":-0 }},"x-new":[ ]}"#;

fn raw(text: &str) -> Raw {
    Raw::parse(&Bytes::from(text.to_owned())).unwrap()
}

fn learned(upstream: &str) -> Learned {
    let listing = |items: &[&str]| Listing {
        items: items.iter().map(|item| raw(item)).collect(),
        ttl_ms: 60_000,
        scope: Scope::Private,
        fetched_at: 1_790_000_000_123,
    };
    Learned {
        upstream: upstream.to_owned(),
        fingerprint: "f".repeat(64),
        facts: Facts {
            protocol: "2026-07-28".to_owned(),
            versions: vec!["2026-07-28".to_owned()],
            capabilities: Object::parse(&Bytes::from_static(CAPABILITIES.as_bytes())).unwrap(),
            server_info: Some(raw(r#"{"version":"1.0" ,"name":"ü"}"#)),
            instructions: Some("line\nline 'quoted' \u{1f980}".to_owned()),
        },
        catalogue: Catalogue {
            tools: Some(listing(&[TOOL, TOOL])),
            prompts: Some(listing(&[])),
            resources: None,
            templates: Some(Listing {
                scope: Scope::Public,
                ..listing(&[r#"{"uriTemplate":"x:{y}"}"#])
            }),
        },
        task_only: ["b".to_owned(), "a".to_owned()].into(),
        claims: ["tools search".to_owned()].into(),
        learned_at: 1_790_000_000_456,
        last_error: None,
    }
}

async fn fresh() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(&folder.path().join("waypost.db"))
        .await
        .unwrap();
    (folder, database)
}

async fn sql(database: &Database, statement: &'static str) {
    sqlx::query(statement)
        .execute(&database.pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn everything_learned_comes_back_byte_for_byte() {
    let (_folder, database) = fresh().await;
    database.save(learned("builds")).await.unwrap();
    let all = database.load().await.unwrap();
    assert_eq!(all, [learned("builds")]);
    let extensions = Raw::from(&all[0].facts.capabilities);
    assert_eq!(extensions.text(), CAPABILITIES);
}

#[tokio::test]
async fn a_dropped_database_is_whole_when_opened_again() {
    let (_folder, database) = fresh().await;
    database.save(learned("builds")).await.unwrap();
    // As after SIGKILL: nothing was closed, the log file is still there.
    let path = database.path().to_owned();
    drop(database);
    let again = Database::open(&path).await.unwrap();
    assert_eq!(again.load().await.unwrap(), [learned("builds")]);
}

#[tokio::test]
async fn saving_replaces_and_forgetting_removes_the_lists_too() {
    let (_folder, database) = fresh().await;
    database.save(learned("builds")).await.unwrap();
    let mut newer = learned("builds");
    newer.catalogue = Catalogue::default();
    newer.last_error = Some("connection refused".to_owned());
    newer.facts = Facts {
        protocol: "2025-11-25".to_owned(),
        ..Facts::default()
    };
    newer.task_only.clear();
    newer.learned_at = u64::MAX;
    database.save(newer.clone()).await.unwrap();
    newer.learned_at = i64::MAX.unsigned_abs();
    database.save(learned("files")).await.unwrap();
    assert_eq!(database.load().await.unwrap(), [newer, learned("files")]);
    database.forget("files").await.unwrap();
    database.forget("never known").await.unwrap();
    assert_eq!(database.load().await.unwrap().len(), 1);
    let rows = sqlx::query("SELECT * FROM listings").fetch_all(&database.pool);
    assert!(rows.await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saves_at_once_from_two_processes_all_arrive() {
    let (_folder, database) = fresh().await;
    let other = Database::open(database.path()).await.unwrap();
    let saves: Vec<_> = (0..20)
        .map(|number| {
            let database = if number % 2 == 0 { &database } else { &other };
            let database = database.clone();
            #[expect(clippy::disallowed_methods, reason = "a test waits for what it spawns")]
            tokio::spawn(async move { database.save(learned(&format!("u{number:02}"))).await })
        })
        .collect();
    for save in saves {
        save.await.unwrap().unwrap();
    }
    let names: Vec<_> = database.load().await.unwrap();
    assert_eq!(names.len(), 20);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_no_other() {
    let (_folder, database) = fresh().await;
    for name in ["a", "b", "c", "d", "good"] {
        database.save(learned(name)).await.unwrap();
    }
    sql(
        &database,
        "UPDATE upstreams SET learned_at = -1 WHERE name = 'a'",
    )
    .await;
    sql(
        &database,
        "UPDATE upstreams SET capabilities = '{' WHERE name = 'b'",
    )
    .await;
    sql(
        &database,
        "UPDATE listings SET items = x'ff00' WHERE upstream = 'c'",
    )
    .await;
    sql(
        &database,
        "UPDATE upstreams SET learned_at = 'then' WHERE name = 'd'",
    )
    .await;
    assert_eq!(database.load().await.unwrap(), [learned("good")]);
}

#[tokio::test]
async fn the_files_are_for_their_owner_only() {
    let (folder, database) = fresh().await;
    database.save(learned("builds")).await.unwrap();
    let files: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(files.len(), 3, "database, log and its index");
    for file in files {
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.path().display());
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    fs::write(
        &path,
        "not a database at all, but long enough to have a header".repeat(40),
    )
    .unwrap();
    let error = Database::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("the state file `{}` is damaged", path.display())
    );
}

#[tokio::test]
async fn broken_pages_are_found_when_it_is_opened() {
    let (_folder, database) = fresh().await;
    for number in 0..20 {
        let mut learned = learned(&format!("u{number}"));
        let tools = learned.catalogue.tools.as_mut().unwrap();
        tools.items = vec![raw(TOOL); 100];
        database.save(learned).await.unwrap();
    }
    let path = database.path().to_owned();
    database.close().await;
    let mut bytes = fs::read(&path).unwrap();
    assert!(bytes.len() > 16 * 4096);
    bytes[4 * 4096..16 * 4096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let error = Database::open(&path).await.unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_folder_in_the_files_place_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Database::open(folder.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::File { .. }), "{error:?}");
    assert!(error.hint().contains("state.path"));
}

#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date() {
    let (_folder, database) = fresh().await;
    let mut old = learned("builds");
    database.save(old.clone()).await.unwrap();
    database.save(learned("sessions")).await.unwrap();
    for statement in [
        "DROP TABLE pins",
        "DROP TABLE client_sessions",
        "DROP TABLE used_states",
        "ALTER TABLE upstreams DROP COLUMN claims",
        "ALTER TABLE upstreams DROP COLUMN protocol",
        "ALTER TABLE upstreams ADD COLUMN era TEXT NOT NULL DEFAULT 'modern'",
        "UPDATE upstreams SET era = 'legacy' WHERE name = 'sessions'",
    ] {
        sql(&database, statement).await;
    }
    sql(&database, "UPDATE schema_version SET version = 1").await;
    let database = Database::open(database.path()).await.unwrap();
    old.claims.clear();
    assert_eq!(database.load().await.unwrap(), [old]);
}

#[tokio::test]
async fn a_later_version_is_left_alone() {
    let (_folder, database) = fresh().await;
    sql(&database, "UPDATE schema_version SET version = 99").await;
    let error = Database::open(database.path()).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Newer { found: 99, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_path_with_odd_characters_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my state/ä?#%41.db");
    let database = Database::open(&path).await.unwrap();
    database.save(learned("builds")).await.unwrap();
    assert!(path.is_file());
}

fn pin(upstream: &str, tool: &str, definition: &str) -> PinnedTool {
    PinnedTool {
        upstream: upstream.to_owned(),
        tool: tool.to_owned(),
        definition: raw(definition),
    }
}

#[tokio::test]
async fn pins_outlive_a_restart_and_what_is_forgotten_of_their_upstream() {
    let (folder, database) = fresh().await;
    assert_eq!(database.pins().await.unwrap(), []);
    let (a, b) = (pin("a", "x", TOOL), pin("b", "x", "{}"));
    let old = vec![pin("a", "old", "{}"), pin("a", "x", "{}")];
    database.save_pins("a", old).await.unwrap();
    database.save_pins("b", vec![b.clone()]).await.unwrap();
    database.save_pins("a", vec![a.clone()]).await.unwrap();
    database.forget("a").await.unwrap();
    assert_eq!(database.pins().await.unwrap(), [a.clone(), b.clone()]);

    let path = folder.path().join("waypost.db");
    let read = pins::read(&path).await.unwrap();
    assert_eq!(read, [a.clone(), b.clone()], "while it is in use");
    database.close().await;
    assert_eq!(pins::read(&path).await.unwrap(), [a, b]);
    let nothing = pins::read(&folder.path().join("none.db")).await;
    assert_eq!(nothing.unwrap(), []);
    assert!(!folder.path().join("none.db").exists());
}

#[tokio::test]
async fn a_pin_that_cannot_be_read_is_not_taken_for_none() {
    let (_folder, database) = fresh().await;
    database
        .save_pins("a", vec![pin("a", "x", "{}")])
        .await
        .unwrap();
    sql(&database, "UPDATE pins SET definition = '{'").await;
    assert!(database.pins().await.is_err());
}

fn record(level: Option<&str>, resources: &[&str], ended: bool) -> SessionRecord {
    SessionRecord {
        log_level: level.map(str::to_owned),
        resources: resources.iter().map(|uri| (*uri).to_owned()).collect(),
        ended,
    }
}

#[tokio::test]
async fn what_a_session_set_outlives_a_restart() {
    let (folder, database) = fresh().await;
    assert_eq!(database.session("a").await.unwrap(), None);
    let first = record(Some("debug"), &["file:///ü", "x:\"y\""], false);
    database.save_session("a", first.clone()).await.unwrap();
    assert_eq!(database.session("a").await.unwrap(), Some(first));
    let second = record(None, &[], false);
    database.save_session("a", second.clone()).await.unwrap();
    database.close().await;

    let path = folder.path().join("waypost.db");
    let database = Database::open(&path).await.unwrap();
    assert_eq!(database.session("a").await.unwrap(), Some(second));
    assert_eq!(database.session("b").await.unwrap(), None);
}

#[tokio::test]
async fn a_session_that_was_ended_stays_ended() {
    let (_folder, database) = fresh().await;
    database
        .save_session("a", record(None, &[], true))
        .await
        .unwrap();
    // Somebody on another replica did not know yet.
    database
        .save_session("a", record(Some("info"), &["x:y"], false))
        .await
        .unwrap();
    let kept = database.session("a").await.unwrap().unwrap();
    assert!(kept.ended);
}

#[tokio::test]
async fn sessions_whose_ids_do_not_open_any_more_go_while_it_runs() {
    let (_folder, database) = fresh().await;
    for key in ["old", "new"] {
        let record = SessionRecord::default();
        database.save_session(key, record).await.unwrap();
    }
    let old = "UPDATE client_sessions SET saved_at = 1 WHERE key = 'old'";
    sql(&database, old).await;
    database.tidy().await.unwrap();
    assert!(database.session("old").await.unwrap().is_none());
    assert!(database.session("new").await.unwrap().is_some());
}

#[tokio::test]
async fn a_state_is_used_once_also_over_restarts_until_it_does_not_open() {
    let (folder, database) = fresh().await;
    assert!(database.use_state("a", u64::MAX).await.unwrap());
    assert!(!database.use_state("a", 1).await.unwrap());
    assert!(database.use_state("old", 1).await.unwrap());
    database.close().await;
    let path = folder.path().join("waypost.db");
    let database = Database::open(&path).await.unwrap();
    assert!(!database.use_state("a", u64::MAX).await.unwrap());
    assert!(database.use_state("old", 1).await.unwrap(), "forgotten");
    database.tidy().await.unwrap();
    let names = sqlx::query_scalar::<_, String>("SELECT name FROM used_states");
    assert_eq!(names.fetch_all(&database.pool).await.unwrap(), ["a"]);
    let pool = &database.pool;
    let both = tokio::join!(states::mark(pool, "b", 9), states::mark(pool, "b", 9));
    assert_ne!(both.0.unwrap(), both.1.unwrap());
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_given_up() {
    let (_folder, database) = fresh().await;
    // Its one connection.
    let held = database.pool.acquire().await.unwrap();
    let store: &dyn Store = &database;
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let errors = [
        store.load().await.map(drop),
        store.save(learned("a")).await,
        store.forget("a").await,
        store.pins().await.map(drop),
        store.save_pins("a", Vec::new()).await,
        store.session("a").await.map(drop),
        store.save_session("a", SessionRecord::default()).await,
        store.use_state("a", 1).await.map(drop),
    ];
    let late = |error: &Result<(), StoreError>| error.as_ref().is_err_and(StoreError::is_late);
    assert!(errors.iter().all(late), "{errors:?}");
    assert!(started.elapsed() <= WITHIN * 9, "{:?}", started.elapsed());
    tokio::time::resume();
    drop(held);
    store.save(learned("a")).await.unwrap();
}
