//! The demo with an ext4 filesystem on a block device.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::disk::Disk;
use super::server::Server;
use super::tools::run;
use super::{Outcome, copy_all, files, human, say, sources, total_bytes};
use crate::progress;

const LIMIT: Duration = Duration::from_secs(60);
/// Duration of writing files before the server is killed.
const WRITING_BEFORE_KILL: Duration = Duration::from_millis(1500);

pub(super) fn write_kill_verify(folder: &Path) -> Result<Outcome> {
    let sources = sources()?;
    let server = Server::start(folder)?;
    let mut disk = Disk::attach(folder, &Server::socket(folder))?;
    say(&format!("Served over NBD, attached as {}; making an ext4 filesystem", disk.device()));
    run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.device()], LIMIT)?;
    let point = folder.join("mount");
    disk.mount(&point)?;

    say(&format!("Writing {} files", sources.len()));
    let since = Instant::now();
    let flushed = point.join("flushed");
    let copied = copy_all(&sources, &flushed)?;
    sync(&point)?;
    let wrote_in = since.elapsed();
    let write_amplification = server.write_amplification()?;
    let bytes = total_bytes(&copied);
    say(&format!("{} written and flushed in {:.1} s", human::bytes(bytes), wrote_in.as_secs_f64()));

    say("kill -9 the server in the middle of further writing");
    let since = Instant::now();
    let more = point.join("more");
    let writer = std::thread::spawn(move || {
        // Expected to end with an error when the drive is gone.
        sources.iter().try_for_each(|source| files::copy(source, &more).map(drop)).and_then(|()| sync(&more))
    });
    while since.elapsed() < WRITING_BEFORE_KILL && !writer.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    // The filesystem has lost its device. It is discarded with the data not yet written.
    drop(writer.join());
    drop(disk);

    let server = Server::restart(folder)?;
    let mut disk = Disk::attach(folder, &Server::socket(folder))?;
    disk.mount(&point)?;
    let bar = progress::bar(bytes, progress::BYTES);
    for one in &copied {
        one.verify(&flushed)?;
        bar.inc(one.bytes());
    }
    bar.finish_and_clear();
    say(&format!("Every one of the {} flushed files is as it was written", copied.len()));
    disk.unmount()?;
    run("e2fsck", &["-f", "-n", disk.device()], LIMIT).context("the filesystem is damaged")?;
    say("e2fsck finds nothing wrong");
    drop(disk);
    Ok(Outcome { files: copied.len(), bytes, wrote_in, write_amplification, server })
}

/// Makes all data of a filesystem durable.
fn sync(inside: &Path) -> Result<()> {
    let dir = File::open(inside).with_context(|| format!("{}: cannot open it", inside.display()))?;
    rustix::fs::syncfs(dir).context("cannot flush the filesystem")
}
