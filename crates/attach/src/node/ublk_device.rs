//! A device of the kernel's `ublk` driver. The bridge copies data by reading and writing the driver's own
//! device (`UBLK_F_USER_COPY`): once, between the relay's buffers and the kernel's pages.
//!
//! The device survives the bridge. Without a bridge the driver holds requests, and passes them to the next
//! one (`UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`).
//!
//! The bindings are the bridge's own, over `io-uring`: the crate `libublk` brings an executor, fixes the
//! version of `io-uring`, and needs libclang to build, for a dozen commands and three structures.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::ublk_requests::IdleQueue;
use super::ublk_structures::{
    INFO_BYTES, Info, SECTOR_SHIFT, empty_parameters, new_device, parameters, shown,
};
use super::ublk_takeover::{Beginning, beginning, linux};
use super::{Drive, Node};
use crate::error::AttachError;
use crate::kernel::{UblkCommand, UblkControl};
use crate::place::fingerprint;
use crate::processors;
use crate::relay::Relay;
use crate::shape::Shape;
use crate::takeover::Takeover;
use host::block::node;

/// Queues of a device: one for each core, up to this number.
const QUEUES_MAX: usize = 4;
/// Time for the nodes of a new device to appear.
const NODE_APPEARS: Duration = Duration::from_secs(5);
/// Time for a device to be free of its last bridge. If all requests of a queue were in flight, Linux before
/// 6.16 notices its end only when they time out, after 30 seconds.
const QUIESCES: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);
/// Attempts of a command that a signal interrupts.
const TRIES: usize = 100;
/// `ENOTSUPP`, which is not an error number for programs: of the driver before Linux 6.9, for commands that
/// it does not know.
const ENOTSUPP: Errno = Errno::from_raw_os_error(524);

/// See the [module](self).
pub(super) struct UblkNode {
    id: u32,
    path: PathBuf,
    /// See [`mark`].
    mark: u64,
    control: UblkControl,
    /// `None` once the device is removed, and until it is taken over.
    threads: Option<Vec<JoinHandle<()>>>,
    /// The device waits for another bridge if this node is dropped.
    is_kept: bool,
}

impl UblkNode {
    /// `note` is called with the path before a device exists that survives this process.
    pub(super) fn make(
        relay: &Arc<Relay>,
        drive: &Drive,
        note: impl FnOnce(&Path) -> Result<(), AttachError>,
    ) -> Result<UblkNode, AttachError> {
        let mut control = open_control()?;
        let queues = processors::each(QUEUES_MAX) as u16;
        let mark = mark(&drive.identity.uuid);
        let mut info = new_device(queues, mark);
        control.send(UblkCommand::Add, u32::MAX, &mut info, 0).map_err(|error| match error {
            error if is_unknown(error) => AttachError::Missing(
                "the kernel's ublk driver is too old: Linux 6.5 or newer is needed".to_string(),
            ),
            Errno::PERM | Errno::ACCESS => {
                AttachError::Missing("the kernel refuses to add a ublk device (CAP_SYS_ADMIN)".to_string())
            }
            error => AttachError::system("cannot add a ublk device", error.into()),
        })?;
        let info = Info::decode(&info);
        let path = node(&format!("ublkb{}", info.id));
        let threads = Some(Vec::new());
        let mut node = UblkNode { id: info.id, path, mark, control, threads, is_kept: false };
        note(&node.path)?;
        node.command(UblkCommand::SetParameters, &mut parameters(&drive.shape), 0)?;
        let queues = idle_queues(info, drive.shape.write_cache, relay)?;
        node.start(queues, UblkCommand::Start, |_| Ok(()))?;
        let path = node.path.clone();
        appears(&path, || fs::metadata(&path))?;
        Ok(node)
    }

    /// Takes over the device of a killed bridge. The bridge has ended: its server has no requests of it left.
    /// Returns the shape of the device. If this fails, the device keeps waiting.
    pub(super) fn recover(
        relay: &Arc<Relay>,
        drive: &Drive,
        path: &Path,
        last: Option<Takeover>,
        mut note: impl FnMut(Option<Takeover>) -> Result<(), AttachError>,
    ) -> Result<(UblkNode, Shape), AttachError> {
        let refused = |why: &str| AttachError::Refused(format!("{}: {why}", path.display()));
        let id = number(path).ok_or_else(|| refused("no ublk device"))?;
        let (path_owned, control) = (path.to_path_buf(), open_control()?);
        let mark = mark(&drive.identity.uuid);
        let mut node = UblkNode { id, path: path_owned, mark, control, threads: None, is_kept: true };
        let info =
            info(&mut node.control, id).map_err(|error| AttachError::system(path.display(), error.into()))?;
        if info.mark != mark {
            return Err(refused(&unfit("it belongs to a different drive than the one being served now")));
        }
        let mut bytes = empty_parameters();
        node.command(UblkCommand::GetParameters, &mut bytes, 0)?;
        let shape = shown(&bytes);
        if drive.shape.size_bytes < shape.size_bytes
            || (drive.shape.sector_bytes, drive.shape.read_only) != (shape.sector_bytes, shape.read_only)
        {
            return Err(refused(&unfit(
                "the drive is smaller, or has another sector size or read-only setting, than when it was attached",
            )));
        }
        let beginning = beginning(last, info.queues, linux());
        if beginning == Beginning::Refused {
            return Err(refused(
                "a bridge was killed while it took the device over, and this Linux may crash if that is tried again; \
                 `pumice detach --force` tears the device down, mounted or not",
            ));
        }
        // As the kernel sees the device, whatever the drive has now.
        let queues = idle_queues(info, shape.write_cache, relay)?;
        node.begin_recovery(beginning, last, &mut note)?;
        // From here to the end of the recovery, killing this process may make the device unusable: do not
        // wait.
        node.start(queues, UblkCommand::EndRecovery, |step| note(Some(step)))?;
        Ok((node, shape))
    }

    fn begin_recovery(
        &mut self,
        beginning: Beginning,
        last: Option<Takeover>,
        note: &mut impl FnMut(Option<Takeover>) -> Result<(), AttachError>,
    ) -> Result<(), AttachError> {
        let since = Instant::now();
        loop {
            // The kernel refuses until it has cleaned up after the last bridge. Nothing is noted meanwhile.
            let mut outcome = info(&mut self.control, self.id)
                .and_then(|info| if info.is_waiting { Ok(()) } else { Err(Errno::BUSY) });
            if outcome.is_ok() {
                note(Some(Takeover::Asked))?;
                outcome = self.control.send(UblkCommand::StartRecovery, self.id, &mut [], 0);
                if outcome == Err(Errno::INVAL) && beginning == Beginning::AskUnlessDone {
                    tracing::info!("continuing an interrupted takeover");
                    outcome = Ok(());
                }
                if outcome.is_err() {
                    note(last)?;
                }
            }
            match outcome {
                Ok(()) => return Ok(()),
                Err(Errno::BUSY) if since.elapsed() < QUIESCES => sleep(POLL),
                Err(error) => {
                    let what = format!("{}: cannot take it over", self.path.display());
                    return Err(AttachError::system(what, error.into()));
                }
            }
        }
    }

    fn command(&mut self, command: UblkCommand, buffer: &mut [u8], number: u64) -> Result<(), AttachError> {
        let failed = |error: Errno| AttachError::system(format!("ublk: {command:?}"), error.into());
        for _ in 0..TRIES {
            match self.control.send(command, self.id, buffer, number) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map_err(failed),
            }
        }
        Err(failed(Errno::INTR))
    }

    /// Passes the device to the queues, then starts it. `note` is called with each step.
    fn start(
        &mut self,
        queues: Vec<IdleQueue>,
        command: UblkCommand,
        mut note: impl FnMut(Takeover) -> Result<(), AttachError>,
    ) -> Result<(), AttachError> {
        let data = node(&format!("ublkc{}", self.id));
        let opened = Arc::new(appears(&data, || File::options().read(true).write(true).open(&data))?);
        note(Takeover::Begun)?;
        // All at once: being killed when only some have sent their commands is the worst case.
        for queue in &queues {
            queue.open(opened.clone());
        }
        let threads: io::Result<Vec<_>> = queues.into_iter().map(IdleQueue::opened).collect();
        let threads = threads.map_err(no_queue)?;
        if let Err(error) = note(Takeover::Ready) {
            // Keeps trying: the recovery is almost complete, and ending this process helps nobody.
            tracing::warn!("{error}");
        }
        self.command(command, &mut [], std::process::id().into())?;
        self.threads = Some(threads);
        Ok(())
    }

    /// Returns whether another program has removed the device. The number may be another one's by now; not
    /// before the queues have closed it.
    fn is_taken(&mut self) -> bool {
        match info(&mut self.control, self.id) {
            Ok(info) => info.mark != self.mark,
            Err(error) => error == Errno::NODEV,
        }
    }

    fn delete(&mut self, claimed: Option<OwnedFd>) -> Result<(), AttachError> {
        let Some(threads) = self.threads.take() else { return Ok(()) };
        let is_taken = self.is_taken();
        if !is_taken {
            // A device that was not started cannot be stopped.
            let _ = self.control.send(UblkCommand::Stop, self.id, &mut [], 0);
        }
        drop(claimed);
        for thread in threads {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
        if is_taken {
            return Ok(());
        }
        delete(&mut self.control, self.id)
            .map_err(|error| AttachError::system(self.path.display(), error.into()))
    }
}

impl Node for UblkNode {
    fn path(&self) -> &Path {
        &self.path
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError> {
        if self.is_taken() {
            return Err(AttachError::Refused(format!("{} was taken from the drive", self.path.display())));
        }
        let resized =
            self.control.send(UblkCommand::UpdateSize, self.id, &mut [], size_bytes >> SECTOR_SHIFT);
        resized.map_err(|error| match error {
            error if is_unknown(error) => AttachError::Missing(
                "a ublk device cannot grow before Linux 6.16: detach the drive and attach it again"
                    .to_string(),
            ),
            error => AttachError::system("ublk: UpdateSize", error.into()),
        })
    }

    fn keep(&mut self) {
        self.is_kept = true;
    }

    fn remove(&mut self, _patience: Duration, force: bool) -> Result<(), AttachError> {
        if self.is_taken() {
            return self.delete(None);
        }
        let failed = |error: Errno| AttachError::system(self.path.display(), error.into());
        let claimed = claim(&self.path).map_err(failed)?;
        // Requests fail, because the server was given up.
        rustix::fs::fsync(&claimed).or_else(|error| if force { Ok(()) } else { Err(failed(error)) })?;
        self.delete(Some(claimed))
    }
}

impl Drop for UblkNode {
    fn drop(&mut self) {
        if !self.is_kept {
            // An error cannot be reported here.
            let _ = self.delete(None);
        }
    }
}

/// Message for a device that waits for another drive than the one that is served, with advice.
fn unfit(why: &str) -> String {
    format!("{why}; `pumice detach --force` tears the device down, mounted or not")
}

/// Starts the queues of a device, without it.
fn idle_queues(info: Info, write_cache: bool, relay: &Arc<Relay>) -> Result<Vec<IdleQueue>, AttachError> {
    (0..info.queues)
        .map(|number| IdleQueue::start(number, info.depth, write_cache, relay.clone()).map_err(no_queue))
        .collect()
}

fn no_queue(source: io::Error) -> AttachError {
    AttachError::system("cannot start a queue of ublk", source)
}

/// Returns whether the device of a killed bridge waits for another one.
pub(super) fn waits(path: &Path, uuid: &str) -> Result<bool, AttachError> {
    Ok(own(path, uuid)?.is_some_and(|(_, info)| info.is_started))
}

/// Removes the device of a killed bridge, unless something uses it; with `force`, also then: what waits there
/// fails.
pub(super) fn clear(path: &Path, uuid: &str, force: bool) -> Result<(), AttachError> {
    let Some((mut control, info)) = own(path, uuid)? else { return Ok(()) };
    let failed = |error: Errno| AttachError::system(path.display(), error.into());
    let claimed = (!force && path.exists()).then(|| claim(path)).transpose().map_err(failed)?;
    let _ = control.send(UblkCommand::Stop, info.id, &mut [], 0);
    drop(claimed);
    delete(&mut control, info.id).map_err(failed)
}

/// The device at this path, if it belongs to this drive. A driver that cannot be asked is an error: the
/// device may exist.
fn own(path: &Path, uuid: &str) -> Result<Option<(UblkControl, Info)>, AttachError> {
    let Some(id) = number(path) else { return Ok(None) };
    // Also of a device that was added and not started: it has no node.
    if !Path::new("/sys/class/ublk-char").join(format!("ublkc{id}")).exists() {
        return Ok(None);
    }
    let failed =
        |error: io::Error| AttachError::system(format!("{}: ublk cannot be asked", path.display()), error);
    let mut control = UblkControl::open().map_err(failed)?;
    match info(&mut control, id) {
        Ok(info) => Ok((info.mark == mark(uuid)).then_some((control, info))),
        Err(Errno::NODEV | Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}

/// Returns whether a device is that of a drive. If the driver cannot be asked, it is not.
pub(super) fn is_of(path: &Path, uuid: &str) -> bool {
    own(path, uuid).is_ok_and(|own| own.is_some())
}

/// Mark that the driver keeps with a device. It identifies the drive: device numbers are reused.
fn mark(uuid: &str) -> u64 {
    fingerprint(uuid.as_bytes())
}

fn info(control: &mut UblkControl, id: u32) -> Result<Info, Errno> {
    let mut bytes = [0; INFO_BYTES];
    control.send(UblkCommand::GetInfo, id, &mut bytes, 0)?;
    Ok(Info::decode(&bytes))
}

/// Removes a device that is stopped. If a process has it open still, it goes when that closes it.
fn delete(control: &mut UblkControl, id: u32) -> Result<(), Errno> {
    match control.send(UblkCommand::DeleteLater, id, &mut [], 0) {
        // It has removed the device, and was interrupted while it waited for the last user.
        Err(error) if is_unknown(error) => match control.send(UblkCommand::Delete, id, &mut [], 0) {
            Err(Errno::INTR) => Ok(()),
            deleted => deleted,
        },
        deleted => deleted,
    }
}

/// Returns whether a driver answers so to a command that it does not know.
fn is_unknown(error: Errno) -> bool {
    [Errno::OPNOTSUPP, ENOTSUPP, Errno::INVAL].contains(&error)
}

/// Claims a node: a file system cannot be mounted from now on.
fn claim(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the driver, loading its module if necessary.
fn open_control() -> Result<UblkControl, AttachError> {
    let open = UblkControl::open;
    let opened = open().or_else(|_| {
        let quiet = Stdio::null;
        let _ =
            Command::new("modprobe").arg("ublk_drv").stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        open()
    });
    opened.map_err(|error| {
        AttachError::Missing(match error.kind() {
            io::ErrorKind::NotFound => "the kernel has no ublk driver (`modprobe ublk_drv`)".to_string(),
            _ => error.to_string(),
        })
    })
}

/// Tries until a node is there.
fn appears<T>(path: &Path, attempt: impl Fn() -> io::Result<T>) -> Result<T, AttachError> {
    let since = Instant::now();
    loop {
        match attempt() {
            Ok(opened) => return Ok(opened),
            Err(_) if since.elapsed() < NODE_APPEARS => sleep(POLL),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!("the kernel made a device, but there is no {}", path.display());
                return Err(AttachError::Missing(why));
            }
            Err(error) => return Err(AttachError::system(path.display(), error)),
        }
    }
}

/// Number of a device.
fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("ublkb")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_numbers() {
        assert_eq!(number(Path::new("/dev/ublkb12")), Some(12));
        for other in ["/dev/ublkc12", "/dev/ublkb", "/dev/ublkb1p1", "/dev/nbd1"] {
            assert_eq!(number(Path::new(other)), None, "{other}");
        }
    }
}
