//! `external_job`: the work is another process, which outlives this one.
//!
//! The two meet only in a directory: the worker counts in `ticks` while it is alive and leaves
//! its text in `result`; a file `cancel`, or the directory's end, makes it stop.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use tokio::process::Command;

/// In its own process group and started from the background of a shell that ends at once, so
/// that neither the end of this process nor a Ctrl-C in its terminal reaches it.
const START: &str = r#"(exec sh -c "$0" worker "$@") </dev/null >/dev/null 2>&1 &"#;
const WORKER: &str = r#"
cd "$1" || exit 1
n=0
while [ "$n" -lt "$2" ]; do
    if [ ! -d "$1" ] || [ -e cancel ]; then exit 0; fi
    sleep 0.1
    n=$((n + 1))
    echo "$n" >ticks.new && mv ticks.new ticks
done
printf 'external_job "%s" finished in its own process' "$3" >result.new && mv result.new result
"#;
const LOOK: Duration = Duration::from_millis(50);
/// A worker that has not counted for so long is dead.
const SILENCE: Duration = Duration::from_secs(10);

/// Starts the worker for `seconds`, in `directory`.
pub(crate) async fn start(directory: &Path, seconds: f64, label: &str) -> Result<()> {
    // Not what it is in: that is gone when the server is.
    if let Err(error) = std::fs::create_dir(directory)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(error);
    }
    std::fs::write(directory.join("ticks"), "0")?;
    let ticks = (seconds * 10.0).ceil().to_string();
    let started = Command::new("sh")
        .args(["-c", START, WORKER])
        .arg(directory)
        .args([&ticks, label])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .status()
        .await?;
    if started.success() {
        Ok(())
    } else {
        Err(Error::other("the worker did not start"))
    }
}

/// Waits for the worker's text, whoever started it.
///
/// # Errors
///
/// When the worker has died, or its directory cannot be read.
pub(crate) async fn wait(directory: &Path) -> Result<String> {
    loop {
        match std::fs::read_to_string(directory.join("result")) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let counted = std::fs::metadata(directory.join("ticks"))?.modified()?;
        if SystemTime::now()
            .duration_since(counted)
            .is_ok_and(|silent| silent > SILENCE)
        {
            return Err(Error::other("the worker died"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Tells the worker to stop.
pub(crate) fn cancel(directory: &Path) -> Result<()> {
    std::fs::write(directory.join("cancel"), "")
}
