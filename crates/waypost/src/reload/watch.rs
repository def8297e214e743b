//! Notices that something changed which the configuration is read from.
//!
//! What is watched are folders, not files: editors and Kubernetes put another file in the place of
//! the old one. A path leads through links (a mounted config map is one link to a folder that is
//! replaced as a whole), so the folder of each link on the way is watched too. An event is only a
//! reason to read again; whether anything changed is decided by what is read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use waypost_config::Inputs;

use super::aside;

/// So long nothing may happen until what happened is looked at.
pub(super) const QUIET: Duration = Duration::from_millis(120);

/// But it is looked at after so long at the latest.
const MOST: Duration = Duration::from_millis(500);

/// Between two looks where nobody tells of changes.
const POLL: Duration = Duration::from_secs(2);

/// Links on the way to one file.
const LINKS: usize = 40;

/// File systems whose changes are made elsewhere, and not told here.
const REMOTE: &[&str] = &[
    "9p",
    "afs",
    "ceph",
    "cifs",
    "drvfs",
    "glusterfs",
    "lustre",
    "nfs",
    "nfs4",
    "prl_fs",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
];

/// How changes are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum How {
    /// Not at all.
    #[default]
    Off,
    /// The system tells.
    Told,
    /// By looking every few seconds.
    Polling,
}

/// Who watches, and what.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    inputs: Inputs,
    watched: Ways,
    changed: Arc<Notify>,
    how: How,
    /// The log says that it polls.
    told: bool,
}

/// Folders in which names lead to what is read; `None` is every name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ways(BTreeMap<PathBuf, Option<BTreeSet<OsString>>>);

/// Why the system does not tell.
#[derive(Debug, thiserror::Error)]
enum Deaf {
    #[error("`{0}` is on a file system whose changes are made elsewhere")]
    Remote(PathBuf),
    #[error("`{0}` cannot be watched")]
    Folder(PathBuf, #[source] notify::Error),
    #[error("nothing can be watched")]
    Nothing(#[source] notify::Error),
}

// === impl How ===

impl How {
    /// The word in the status.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Told => "on",
            Self::Polling => "polling",
        }
    }
}

// === impl Watch ===

impl Watch {
    /// How changes are noticed now.
    pub(super) fn how(&self) -> How {
        self.how
    }

    /// Watches what leads to this from now on. Whether that is something else than before, so
    /// that a change may have been missed.
    pub(super) async fn look_at(&mut self, inputs: Inputs) -> bool {
        let (inputs, ways) = Ways::found(inputs).await;
        if ways == self.watched {
            return false;
        }
        self.inputs = inputs;
        self.watch(ways).await;
        true
    }

    /// Watches the same anew, before it is read: of a folder that was replaced only the old one
    /// would be watched. What was not told yet is lost.
    pub(super) async fn renew(&mut self) {
        let (_, ways) = Ways::found(self.inputs.clone()).await;
        self.watch(ways).await;
    }

    async fn watch(&mut self, ways: Ways) {
        self.watched = ways.clone();
        self.watcher = None;
        if self.watched.0.is_empty() {
            self.how = How::Off;
            return;
        }
        // Should it meet a bug.
        self.how = How::Polling;
        let changed = Arc::clone(&self.changed);
        match aside(move || ways.watch(&changed)).await {
            Ok(watcher) => {
                self.watcher = Some(watcher);
                self.how = How::Told;
                self.told = false;
            }
            Err(deaf) => {
                if !std::mem::replace(&mut self.told, true) {
                    let source = std::error::Error::source(&deaf).map(ToString::to_string);
                    tracing::warn!(
                        why = %deaf,
                        source,
                        seconds = POLL.as_secs(),
                        "changes of the configuration are looked for from time to time"
                    );
                }
            }
        }
    }

    /// Waits until there is a reason to read again, and nothing more has happened for a moment.
    pub(super) async fn changed(&self) {
        match self.how {
            How::Off | How::Told => self.changed.notified().await,
            How::Polling => return sleep(POLL).await,
        }
        let latest = Instant::now() + MOST;
        while timeout(QUIET, self.changed.notified()).await.is_ok() && Instant::now() < latest {}
    }
}

// === impl Ways ===

impl Ways {
    async fn found(inputs: Inputs) -> (Inputs, Self) {
        aside(move || {
            let ways = Self::to(&inputs);
            (inputs, ways)
        })
        .await
    }

    fn to(inputs: &Inputs) -> Self {
        let mut ways = Self::default();
        for file in &inputs.files {
            ways.follow(file);
        }
        for folder in &inputs.folders {
            ways.follow(folder);
            ways.0.insert(folder.clone(), None);
        }
        ways
    }

    /// Adds every place on the way to `path` where something else could come to lie.
    fn follow(&mut self, path: &Path) {
        let mut path = path.to_owned();
        for _ in 0..LINKS {
            self.add(&path);
            let Some((link, target, rest)) = first_link(&path) else {
                return;
            };
            self.add(&link);
            let folder = link.parent().unwrap_or(Path::new("/"));
            path = folder.join(target).join(rest);
        }
    }

    fn add(&mut self, path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let names = self
            .0
            .entry(folder.to_owned())
            .or_insert_with(|| Some(BTreeSet::new()));
        if let Some(names) = names {
            names.insert(name.to_owned());
        }
    }

    fn watch(&self, changed: &Arc<Notify>) -> Result<RecommendedWatcher, Deaf> {
        let (ways, changed) = (self.clone(), Arc::clone(changed));
        let tell = move |event: notify::Result<Event>| {
            // An error may be an event that was lost.
            if event.map_or(true, |event| ways.concerns(&event)) {
                changed.notify_one();
            }
        };
        let mut watcher = notify::recommended_watcher(tell).map_err(Deaf::Nothing)?;
        let mounts = Mounts::read();
        for folder in self.0.keys() {
            if mounts.is_remote(folder) {
                return Err(Deaf::Remote(folder.clone()));
            }
            watcher
                .watch(folder, RecursiveMode::NonRecursive)
                .map_err(|error| Deaf::Folder(folder.clone(), error))?;
        }
        Ok(watcher)
    }

    fn concerns(&self, event: &Event) -> bool {
        let reads = matches!(event.kind, EventKind::Access(access)
            if access != AccessKind::Close(AccessMode::Write));
        if reads {
            return false;
        }
        let concerns = |path: &PathBuf| {
            let name = path.file_name().unwrap_or(OsStr::new(""));
            let within = path.parent().and_then(|folder| self.0.get(folder));
            let named = within.is_some_and(|names| names.as_ref().is_none_or(|n| n.contains(name)));
            named || self.0.contains_key(path)
        };
        event.paths.is_empty() || event.need_rescan() || event.paths.iter().any(concerns)
    }
}

/// The first link on the way to `path`, what it says, and what comes after it.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf, PathBuf)> {
    let mut parts = path.components();
    let mut way = PathBuf::new();
    while let Some(part) = parts.next() {
        way.push(part);
        if !matches!(part, Component::Normal(_)) {
            continue;
        }
        if let Ok(target) = std::fs::read_link(&way) {
            return Some((way, target, parts.as_path().to_owned()));
        }
    }
    None
}

/// Which file system lies where.
#[derive(Debug, Default)]
struct Mounts(Vec<(PathBuf, String)>);

impl Mounts {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::parse(&text)
    }

    /// `36 35 98:0 / /mnt rw shared:1 - ext4 /dev/root rw`
    fn parse(text: &str) -> Self {
        let one = |line: &str| {
            let (place, kind) = line.split_once(" - ")?;
            let place = place.split(' ').nth(4)?.replace("\\040", " ");
            Some((PathBuf::from(place), kind.split(' ').next()?.to_owned()))
        };
        Self(text.lines().filter_map(one).collect())
    }

    fn is_remote(&self, folder: &Path) -> bool {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let around = self.0.iter().filter(|(place, _)| folder.starts_with(place));
        // The one mounted last lies above the others of one place.
        let nearest = around.max_by_key(|(place, _)| place.components().count());
        nearest
            .is_some_and(|(_, kind)| REMOTE.contains(&kind.as_str()) || kind.starts_with("fuse."))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn inputs(files: &[&Path], folders: &[&Path]) -> Inputs {
        let mut inputs = Inputs::default();
        inputs
            .files
            .extend(files.iter().map(|path| path.to_path_buf()));
        inputs
            .folders
            .extend(folders.iter().map(|path| path.to_path_buf()));
        inputs
    }

    /// Whether the event of a file being written there is a reason to read again.
    #[track_caller]
    fn check(ways: &Ways, path: &Path, expected: bool) {
        let event = Event::new(EventKind::Modify(notify::event::ModifyKind::Any));
        let event = event.add_path(path.to_owned());
        assert_eq!(ways.concerns(&event), expected, "{}", path.display());
    }

    #[test]
    fn only_what_leads_to_the_configuration_is_a_reason_to_read_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (file, more) = (folder.join("waypost.yaml"), folder.join("waypost.d"));
        fs::create_dir(&more).unwrap();
        fs::write(&file, "").unwrap();
        let ways = Ways::to(&inputs(&[&file], &[&more]));
        check(&ways, &file, true);
        check(&ways, &folder.join("waypost.db-wal"), false);
        check(&ways, &more, true);
        check(&ways, &more.join("new.yaml"), true);
        let opened = Event::new(EventKind::Access(AccessKind::Open(AccessMode::Any)));
        assert!(
            !ways.concerns(&opened.add_path(file)),
            "reading is no change"
        );
    }

    #[test]
    fn every_link_on_the_way_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (data, mount) = (folder.join("..one"), folder.join("..data"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("waypost.yaml"), "").unwrap();
        symlink("..one", &mount).unwrap();
        let file = folder.join("waypost.yaml");
        symlink("..data/waypost.yaml", &file).unwrap();
        let ways = Ways::to(&inputs(&[&file], &[]));
        check(&ways, &file, true);
        check(&ways, &mount, true);
        check(&ways, &data.join("waypost.yaml"), true);
        check(&ways, &folder.join("other"), false);
        symlink("loop", folder.join("loop")).unwrap();
        Ways::to(&inputs(&[&folder.join("loop")], &[]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_watched_is_looked_at_from_time_to_time() {
        let folder = tempfile::tempdir().unwrap();
        let (here, missing) = (folder.path().join("here"), folder.path().join("no/such"));
        let mut watch = Watch::default();
        assert!(watch.look_at(inputs(&[&here, &missing], &[])).await);
        assert_eq!(watch.how(), How::Polling);
        let before = Instant::now();
        watch.changed().await;
        assert_eq!(before.elapsed(), POLL);
        fs::create_dir(folder.path().join("no")).unwrap();
        watch.renew().await;
        assert_eq!(watch.how(), How::Told);
        assert!(!watch.look_at(inputs(&[&here, &missing], &[])).await);
        watch.look_at(Inputs::default()).await;
        assert_eq!(watch.how(), How::Off);
    }

    #[test]
    fn a_network_file_system_is_known_by_where_it_is_mounted() {
        let text = "1 0 8:1 / / rw - ext4 /dev/root rw\n\
            2 1 0:50 / /mnt/a\\040b rw shared:2 - nfs4 server:/x rw\n\
            3 2 0:51 / /mnt/a\\040b/local rw - tmpfs tmpfs rw\n\
            4 1 0:52 / /mnt/ssh rw - fuse.sshfs me@host: rw\n";
        let mounts = Mounts::parse(text);
        for (path, expected) in [
            ("/etc/waypost", false),
            ("/mnt/a b/waypost", true),
            ("/mnt/a b/local/waypost", false),
            ("/mnt/ssh", true),
        ] {
            assert_eq!(mounts.is_remote(Path::new(path)), expected, "{path}");
        }
    }
}
