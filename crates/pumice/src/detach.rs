//! `pumice detach`

mod configured;

use std::fs;
use std::io::IsTerminal;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ask::{AskError, DriveSearch};
use attach::NodeKind;
use attach::bridge::AttachmentState;
use attach::client::{self, Attachment, DETACH_PATIENCE, Settled};
use attach::{hidden_claim, openers};
use host::Root;
use host::file::{is_nfs_deleted, name_of_deleted};
use host::foreign::{self, Hangs};
use host::loops::keeps_file;
use status::{BackingPlace, shown};

use crate::in_use;
use crate::usage::complain;

/// Most links followed from the path of a drive.
const LINKS_MAX: usize = 40;
/// Interval of checks whether a device is in use still.
const POLL: Duration = Duration::from_millis(200);
/// Default time to wait for processes that have a device open.
const OPEN: Duration = Duration::from_secs(10);
/// Time after which a person is told what is waited for.
const TELL: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice detach /dev/loop0\n\
    Flushes the drive, removes its node, and stops the bridge. Stops the server too if `pumice attach` started it. \
    Refused while the device is mounted or otherwise in use, and if the backing of that server was deleted.")]
pub(crate) struct Args {
    /// Device node, or drive
    #[arg(required_unless_present = "configured")]
    path: Option<PathBuf>,
    /// Detach all drives that `pumice attach --configured` has attached
    #[arg(long, conflicts_with = "path")]
    configured: bool,
    /// Detach without a server: unflushed writes are lost. Kill a bridge that does not answer for 10 seconds.
    /// Detach a mounted device that has no bridge: its requests fail (unmount a loop device then). Detach a
    /// drive whose backing was deleted: all its data is lost. By path: detach a drive that lost its device,
    /// even if another file is at the path
    #[arg(long)]
    force: bool,
    /// Wait up to SECONDS, in all, until the device is no longer in use [default: 10 for processes that have
    /// it open; 0 if it is mounted, swap space or part of another device]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    /// Detach only if PID is its bridge; for systemd units, whose main process that is. If empty, the bridge
    /// has ended: do nothing
    #[arg(long, value_name = "PID", conflicts_with = "configured")]
    bridge: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("detaching a drive needs root");
    }
    let patience = Patience::of(args.wait);
    let Some(path) = &args.path else { return configured::detach_all(args.force, patience) };
    if args.bridge.as_deref() == Some("") {
        return Ok(());
    }
    let find = || {
        if let Some(found) = client::find(path) {
            return Ok(found);
        }
        if let Some(lost) = client::find_lost(path) {
            // Nobody else is meant by it.
            if lost.status.state == AttachmentState::Changing
                || lost.has_free_node() && !lost.record.is_replaced()
            {
                return Ok(lost);
            }
            let option = if lost.record.is_replaced() { "--force " } else { "" };
            let (drive, why) = (shown(&lost.record.path), lost.lost.map(|(_, why)| why).unwrap_or_default());
            bail!(
                "{}: was the device of {drive}: {why}; `pumice detach {option}{drive}` removes what is left",
                shown(path)
            );
        }
        bail!("{}: not attached; `pumice list` shows what is", shown(path));
    };
    let is_meant = |found: &Attachment| {
        let pid = found.record.bridge_pid;
        if args.bridge.as_ref().is_some_and(|bridge| *bridge != pid.to_string()) {
            bail!("{}: attached by another process: {pid}", shown(path));
        }
        Ok(())
    };
    let mut found = find()?;
    is_meant(&found)?;
    // By force, a bridge that does not come to an end of it is killed.
    if found.status.state == AttachmentState::Changing && !args.force {
        let patience = args.wait.map_or(DETACH_PATIENCE, Duration::from_secs);
        match found.settled(patience) {
            Settled::Detached(None) => return Ok(()),
            Settled::Detached(Some(lost)) => bail!("{}: detached, but {lost}", shown(path)),
            Settled::Stays => {
                found = find()?;
                is_meant(&found)?;
            }
            Settled::Changes => {
                let (why, pid) = (found.status.reason.unwrap_or_default(), found.record.bridge_pid);
                bail!("{}: {why} by process {pid}, for {} seconds", shown(path), patience.as_secs());
            }
        }
    }
    if !args.force
        && let Some(why) = found.stopped_server()
    {
        bail!("{}: {why}; --force kills it, and what is not flushed is lost", shown(path));
    }
    // A unit that stops ends the server in any case, and has named its process.
    if args.bridge.is_none() {
        refuse_other_file(path, &found, args.force)?;
    }
    if !answers(&found, args.force)? {
        let before = std::mem::replace(&mut found, find()?);
        // Whoever waited ten seconds, and killed its bridge, meant that one.
        if found.record.path != before.record.path {
            bail!(
                "{}: now the device of {}, before that of {}; detach by drive",
                shown(path),
                shown(&found.record.path),
                shown(&before.record.path)
            );
        }
    }
    if !args.force && args.bridge.is_none() {
        refuse_loss(&found)?;
    }
    unused_within(&found, args.force, &patience)?;
    Ok(found.detach(args.force)?)
}

/// Detaches a drive whose node nobody has any more, so that it can be attached again.
///
/// # Errors
/// If another file is at its path by now, something would be lost with it, or its bridge hangs.
pub(crate) fn detach_without_node(path: &Path, found: &Attachment) -> Result<()> {
    refuse_other_file(path, found, false)?;
    answers(found, false)?;
    refuse_loss(found)?;
    let why = found.lost.as_ref().map(|(_, why)| why.as_str()).unwrap_or_default();
    found.detach(false).with_context(|| format!("{}: {why}, and it cannot be detached", shown(path)))
}

/// Refuses a path that leads to another file than that of the attached drive. Not one at which nothing is:
/// that can mean no other drive. Nor by `force` if its device was taken from it: nothing else names it then.
fn refuse_other_file(path: &Path, found: &Attachment, force: bool) -> Result<()> {
    if !found.record.is_of(path) || !path.exists() {
        return Ok(());
    }
    match DriveSearch::new(path).find_exactly_patiently() {
        Err(AskError::OtherFile(error)) => {
            if let Some(node) = &found.record.node {
                bail!("{error}; to detach that drive, name its device, {}", node.display());
            }
            let (path, pid) = (shown(path), found.record.bridge_pid);
            let lost = match loses(found) {
                Some(_) => "all of its data is lost, because its backing was deleted; what",
                None => "what",
            };
            if force {
                let drive = &error.held_drive;
                complain(&format!(
                    "drive {drive}, whose path was {path}, is detached: {lost} is at that path now is not touched"
                ));
                return Ok(());
            }
            bail!(
                "{error}; its device was taken from it: `pumice detach --force {path}` ends its bridge, process {pid}: \
                 {lost} is at that path now is not touched"
            )
        }
        // Its own server may be down, or have opened it by another path.
        Ok(Some(report)) if found.record.matches(&report).is_none() => {
            let Some(node) = &found.record.node else { return Ok(()) };
            bail!(
                "{}: is drive {} now, and another drive is attached as {}; to detach that one, name its device",
                shown(path),
                report.uuid,
                node.display()
            );
        }
        // Without a server, nothing else has the file.
        Err(_) | Ok(_) => Ok(()),
    }
}

/// Refuses a drive whose backing was deleted if its server ends with the attachment: the file is gone then.
fn refuse_loss(found: &Attachment) -> Result<()> {
    if let Some(server) = loses(found) {
        bail!(
            "{}: its backing was deleted, and detaching ends its server (process {server}), with which all data is \
             lost; copy it first (docs/how-to/backing-trouble.md), or use --force",
            shown(&found.record.path)
        );
    }
    Ok(())
}

/// Returns the process id of the server of an attachment if that ends with it, and has a backing that was
/// deleted.
fn loses(found: &Attachment) -> Option<u32> {
    let started = found.own_server()?;
    let is_reported = || {
        let report = found.record.search().find_patiently();
        report.is_some_and(|report| {
            let ends = report.server.as_ref().is_some_and(|server| server.pid == started);
            ends && report.backing.place == BackingPlace::Deleted && !is_lasting_loop(&found.record.path)
        })
    };
    let open_files = PathBuf::from(format!("/proc/{started}/fd"));
    let is_deleted =
        is_open_and_deleted(&open_files, &found.record.path, found.record.backing) || is_reported();
    is_deleted.then_some(started)
}

/// Returns whether a process, by its folder of open files, has the backing of a drive that was deleted.
/// `backing`: file system and number of the file, if they are known. The server reports that too, but looks
/// once a second, counts what it has seen three times, and may hang.
fn is_open_and_deleted(open_files: &Path, path: &Path, backing: Option<(u64, u64)>) -> bool {
    let real = real_path(path);
    let is_deleted_backing = |descriptor: &Path| {
        let Ok(name) = fs::read_link(descriptor) else { return false };
        let file = match foreign::metadata(descriptor) {
            Ok(Some(file)) => file,
            Ok(None) => return false,
            // Nothing but its name is known. If in doubt, it is.
            Err(Hangs) => {
                return name_of_deleted(&name).is_some_and(|was| was == real) || is_nfs_deleted(&name);
            }
        };
        // It may have been renamed first, and the numbers may be those of a file that it has replaced.
        let is_backing = backing == Some((file.dev(), file.ino()));
        match name_of_deleted(&name) {
            Some(was) if file.nlink() == 0 => is_backing || was == real,
            _ => is_backing && is_nfs_deleted(&name),
        }
    };
    // None of a process that has ended.
    let Ok(open_files) = fs::read_dir(open_files) else { return false };
    open_files.flatten().any(|descriptor| is_deleted_backing(&descriptor.path()))
}

/// Returns whether a path leads to a loop device, or a partition of one, that keeps its file when nothing has
/// it open any more.
fn is_lasting_loop(path: &Path) -> bool {
    let Ok(device) = fs::metadata(path) else { return false };
    device.file_type().is_block_device() && keeps_file(&Root::machine(), device.rdev())
}

/// Returns where a path leads, also if nothing is there.
fn real_path(path: &Path) -> PathBuf {
    let in_real_folder = |path: &Path| match (path.parent().map(fs::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path.to_path_buf(),
    };
    let mut path = in_real_folder(path);
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else { break };
        path = in_real_folder(&path.parent().unwrap_or(Path::new("/")).join(target));
    }
    path
}

/// Returns whether the bridge of an attachment answers, or has ended. One that hangs is killed if that is
/// `force`d: false then.
///
/// # Errors
/// If it hangs and is not to be killed, or does not end.
pub(crate) fn answers(found: &Attachment, force: bool) -> Result<bool> {
    let Some(why) = found.hangs(force) else { return Ok(true) };
    let node = found.record.node.clone().unwrap_or_default();
    if !force {
        bail!("{}: {why}; --force kills it, and what it has not flushed is lost", shown(&node));
    }
    found.kill_bridge()?;
    complain(&format!(
        "{}: {why}: it was killed, after {} seconds",
        shown(&node),
        client::HANGS_FORCED.as_secs()
    ));
    Ok(false)
}

/// How long to wait for the users of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    since: Instant,
    /// That mount it, or use it for swap space or another device: they stay, if nobody ends them.
    in_use: Duration,
    /// That have it open: udev, LVM and others look at each new device for a moment, a backup for longer.
    open: Duration,
}

impl Patience {
    /// By the option, from now on.
    pub(crate) fn of(wait: Option<u64>) -> Patience {
        let wait = wait.map(Duration::from_secs);
        Patience { since: Instant::now(), in_use: wait.unwrap_or_default(), open: wait.unwrap_or(OPEN) }
    }
}

/// Returns who has the node of an attachment open, or has it to itself unseen.
fn holders(found: &Attachment, node: &Path) -> Option<String> {
    let own = format!("{} ", found.record.bridge_pid);
    let openers: Vec<String> = openers(node).into_iter().filter(|user| !user.starts_with(&own)).collect();
    if !openers.is_empty() {
        return Some(format!("in use by process {}", openers.join(", ")));
    }
    // Opening it could wait for its server.
    if found.status.state == AttachmentState::Attached { hidden_claim(node) } else { None }
}

/// Waits until the device of a drive is not in use. At shutdown, what is mounted there may be unmounted at
/// the same time. A device without a bridge is not waited for if it is to be detached by force: it may be
/// that nobody can unmount it.
///
/// # Errors
/// If it is in use then. By force, processes that have it open are not waited for.
pub(crate) fn unused_within(found: &Attachment, force: bool, patience: &Patience) -> Result<()> {
    let is_torn_down = force && found.status.state == AttachmentState::Unattended;
    if is_torn_down && found.record.way != Some(NodeKind::Loop) {
        return Ok(());
    }
    let Some(node) = found.record.node.as_deref() else { return Ok(()) };
    // The kernel keeps a loop device as long as it is in use.
    if is_torn_down && let Err(why) = in_use::refuse(node) {
        found.abort_requests();
        bail!("{why}; its requests fail from now on: unmount it, then detach it again");
    }
    let mut is_told = false;
    loop {
        let (why, patience_for_it) = match in_use::refuse(node) {
            Err(why) => (why, patience.in_use),
            Ok(()) if force => return Ok(()),
            Ok(()) => match holders(found, node) {
                Some(why) => (anyhow!("{}: {why}", shown(node)), patience.open),
                None => return Ok(()),
            },
        };
        // By another process, which was faster. Its bridge looks again if that one is refused.
        if !force && found.is_ending() {
            return Ok(());
        }
        let waited = patience.since.elapsed();
        if waited >= patience_for_it {
            return Err(why);
        }
        if !is_told && waited >= TELL && std::io::stderr().is_terminal() {
            complain(&format!("waiting: {why}"));
            is_told = true;
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn is_deleted((path, backing): &(PathBuf, Option<(u64, u64)>)) -> bool {
        is_open_and_deleted(Path::new("/proc/self/fd"), path, *backing)
    }

    #[test]
    fn a_backing_is_deleted_at_once_whatever_led_to_it() -> Outcome {
        let folder = tempfile::tempdir()?;
        let (path, link) = (folder.path().join("drive"), folder.path().join("link"));
        fs::write(&path, "a drive")?;
        symlink("drive", &link)?;
        let file = File::open(&path)?;
        let id = file.metadata().map(|it| (it.dev(), it.ino()))?;
        let all = [(path.clone(), Some(id)), (path.clone(), None), (link, None), ("/moved".into(), Some(id))];
        assert!(!all.iter().any(is_deleted));
        fs::remove_file(&path)?;
        assert!(all.iter().all(is_deleted));
        // Another one takes its path.
        fs::write(&path, "another")?;
        assert!(all.iter().all(is_deleted));
        assert!(!is_deleted(&(folder.path().join("other"), Some((id.0, id.1 + 1)))));
        assert!(!is_open_and_deleted(Path::new("/proc/0/fd"), &path, Some(id)), "its server has ended");
        drop(file);
        assert!(!all.iter().any(is_deleted));
        Ok(())
    }

    #[test]
    fn a_file_that_an_nfs_client_keeps_until_it_is_closed_is_deleted() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        fs::write(&path, "a drive")?;
        let file = File::open(&path)?;
        let backing = file.metadata().map(|it| Some((it.dev(), it.ino())))?;
        fs::rename(&path, folder.path().join("moved"))?;
        assert!(!is_deleted(&(path.clone(), backing)), "it can be renamed back");
        fs::rename(folder.path().join("moved"), folder.path().join(".nfs0000000a"))?;
        assert!(is_deleted(&(path, backing)));
        Ok(())
    }
}
