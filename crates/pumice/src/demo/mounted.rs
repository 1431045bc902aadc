//! The demo with an ext4 file system on a block device, which continues when the server is killed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::disk::Disk;
use super::files::Copied;
use super::server::{say_recovered, write_amplification};
use super::tools::run;
use super::{Outcome, copy_all, files, human, say, sources, total_bytes};
use crate::progress;

/// Time limit of the check.
const LIMIT: Duration = Duration::from_secs(60);
/// Duration of writing files before the server is killed.
const WRITING_BEFORE_KILL: Duration = Duration::from_millis(300);
/// Bytes of files that are written while it is killed. The drive has room for all of them, however badly they
/// compress.
const MORE_BYTES: u64 = 128 << 20;

pub(super) fn write_kill_verify(folder: &Path) -> Result<Outcome> {
    let sources = sources()?;
    let mut disk = Disk::make(folder)?;
    say(&format!("Attached as {} (by {}), with an ext4 file system", disk.device(), disk.way()));
    let point = folder.join("mount");
    disk.mount(&point)?;

    say(&format!("Writing {} files", sources.len()));
    let since = Instant::now();
    let flushed = point.join("flushed");
    let copied = copy_all(&sources, &flushed)?;
    sync(&point)?;
    let wrote_in = since.elapsed();
    let write_amplification = write_amplification(&disk.status()?);
    let bytes = total_bytes(&copied);
    say(&format!("{} written and flushed in {:.1} s", human::bytes(bytes), wrote_in.as_secs_f64()));

    say("kill -9 the server in the middle of further writing");
    let more = point.join("more");
    let writer = std::thread::spawn({
        let more = more.clone();
        move || write_and_flush(sources, &more)
    });
    std::thread::sleep(WRITING_BEFORE_KILL);
    let (status, ready_after) = disk.kill_server()?;
    say_recovered(&status, ready_after);
    let further = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
    let further = further.context("the file system did not continue after the kill")?;
    say(&format!("The file system continued without an error, and has {} more files", further.len()));

    // From the drive, not from the memory of the kernel.
    disk.unmount()?;
    disk.mount(&point)?;
    let bar = progress::bar(bytes + total_bytes(&further), progress::BYTES);
    for (one, dir) in copied.iter().map(|one| (one, &flushed)).chain(further.iter().map(|one| (one, &more))) {
        one.verify(dir)?;
        bar.inc(one.bytes());
    }
    bar.finish_and_clear();
    say(&format!("Every one of the {} files is as it was written", copied.len() + further.len()));
    disk.unmount()?;
    run("e2fsck", &["-f", "-n", disk.device()], LIMIT).context("the file system is damaged")?;
    say("e2fsck finds nothing wrong");
    let status = disk.status()?;
    disk.detach()?;
    Ok(Outcome { files: copied.len(), bytes, wrote_in, write_amplification, status, ready_after })
}

/// Copies the first of these files.
fn write_and_flush(sources: Vec<PathBuf>, to: &Path) -> Result<Vec<Copied>> {
    let mut copied = Vec::new();
    let mut bytes = 0;
    for source in sources {
        if bytes >= MORE_BYTES {
            break;
        }
        let one = files::copy(&source, to)?;
        bytes += one.bytes();
        copied.push(one);
    }
    sync(to)?;
    Ok(copied)
}

/// Makes all data of a file system durable.
fn sync(inside: &Path) -> Result<()> {
    let dir = File::open(inside).with_context(|| format!("{}: cannot open it", inside.display()))?;
    rustix::fs::syncfs(dir).context("cannot flush the file system")
}
