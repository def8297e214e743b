//! Whether a file is likely to be gone after a restart.

use std::path::Path;

/// Kinds of file systems that do not outlive the machine or the container.
const PASSING: [&str; 4] = ["tmpfs", "ramfs", "overlay", "aufs"];

/// Why the file at `path`, an absolute one, will hardly outlive a restart; `None` if it should.
pub(crate) fn why(path: &Path) -> Option<&'static str> {
    let folders = ["/tmp", "/var/tmp", "/dev/shm", "/run"];
    if folders.iter().any(|folder| path.starts_with(folder)) {
        return Some("it is in a folder for temporary files");
    }
    // Only Linux has this file; elsewhere the folders above have to do.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    on_passing(path, &mounts)
}

/// `mounts` is in the format of fstab(5): device, folder, kind, options.
fn on_passing(path: &Path, mounts: &str) -> Option<&'static str> {
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let (_, kind) = lines
        .filter(|(folder, _)| path.starts_with(folder))
        // Of several on one folder the last is the visible one, and that is what max keeps.
        .max_by_key(|(folder, _)| folder.len())?;
    PASSING
        .contains(&kind)
        .then_some("its file system goes away with the container or machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "overlay / overlay rw 0 0\n\
        tmpfs /scratch tmpfs rw 0 0\n\
        /dev/sda1 /data ext4 rw 0 0\n\
        tmpfs /data/cache tmpfs rw 0 0\n";

    #[track_caller]
    fn check(path: &str, passing: bool) {
        assert_eq!(
            on_passing(Path::new(path), MOUNTS).is_some(),
            passing,
            "{path}"
        );
    }

    #[test]
    fn a_containers_own_layer_and_memory_are_passing_and_a_volume_is_not() {
        check("/app/waypost.db.key", true);
        check("/scratch/waypost.db.key", true);
        check("/data/waypost.db.key", false);
        check("/data/cache/waypost.db.key", true);
        check("/database/waypost.db.key", true);
    }

    #[test]
    fn folders_for_temporary_files_are_passing_wherever_they_are() {
        assert!(why(Path::new("/tmp/x/waypost.db.key")).is_some());
    }
}
