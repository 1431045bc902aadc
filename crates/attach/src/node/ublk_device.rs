//! A device of the kernel's `ublk` driver, whose queues the drive's server has.
//!
//! The device survives its server and its keeper. Without a server the driver holds requests, and issues them
//! to the next one (`UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`).
//!
//! The bindings are the project's own (crate `ublk`, and `kernel/ublk_control.rs`), over `io-uring`: the
//! crate `libublk` brings an executor, fixes the version of `io-uring`, and needs libclang to build, for a
//! dozen commands and three structures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use ublk::{Info, Parameters, SECTOR_SHIFT};

use super::ublk_driver::{UblkDriver, appears, info};
use super::ublk_takeover::{Beginning, beginning};
use super::{Node, Source, claim, load_module, queue};
use crate::drive::Drive;
use crate::error::AttachError;
use crate::kernel::{UblkCommand, UblkControl};
use crate::line::Line;
use crate::linux::linux;
use crate::place::fingerprint;
use crate::processors;
use crate::shape::Shape;
use crate::takeover::Takeover;
use crate::upstream::{NotConnected, Supply, spawn};

/// Queues of a device: one for each core, up to this number.
const QUEUES_MAX: usize = 4;
/// Longest wait for the server to take a new device.
const SERVER_PATIENCE: Duration = Duration::from_secs(30);
/// The same for a device that had another keeper. If that one's program set no timeout for requests (0.3),
/// and all of a queue were in flight, Linux before 6.16 notices the end of that program after 30 to 60
/// seconds.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(90);
/// Timeout of requests. Nothing happens to one that takes longer. But Linux before 6.16 looks only then
/// whether a server has ended that had all requests of a queue.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// `ENOTSUPP`, which is not an error number for programs: of the driver before Linux 6.9, for commands that
/// it does not know.
const ENOTSUPP: Errno = Errno::from_raw_os_error(524);

/// See the [module](self).
pub(super) struct UblkNode {
    path: PathBuf,
    driver: Arc<UblkDriver>,
    line: Arc<Line>,
    /// The device waits for another keeper if this node is dropped.
    is_kept: bool,
    /// The device is removed, or is being removed.
    is_removed: bool,
    /// Removal that takes long: it waits for a server that hangs.
    removing: Option<JoinHandle<()>>,
}

impl UblkNode {
    /// `note` is called with the path before a device exists that survives this process.
    pub(super) fn make(
        source: Source,
        drive: &Drive,
        note: impl FnOnce(&Path) -> Result<(), AttachError>,
    ) -> Result<(UblkNode, Arc<Line>), AttachError> {
        let mut control = open_control()?;
        let queues = processors::each(QUEUES_MAX) as u16;
        let mut info = Info::encode_new(queues, mark(&drive.identity.uuid));
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
        let driver =
            UblkDriver::new(control, &info, !drive.shape.write_cache, None, source.note_step.clone());
        let node = UblkNode::start(driver, source, false)?;
        note(&node.path)?;
        node.command(UblkCommand::SetParameters, &mut parameters(&drive.shape).encode())?;
        node.pass(SERVER_PATIENCE).map_err(AttachError::ServerGone)?;
        let path = node.path.clone();
        appears(|| fs::metadata(&path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let why = format!("the kernel made a device, but there is no {}", path.display());
                AttachError::Missing(why)
            }
            _ => AttachError::system(path.display(), error),
        })?;
        node.settle();
        let line = node.line.clone();
        Ok((node, line))
    }

    /// Takes over the device of a killed keeper, which has ended. Returns the shape of the device. If this
    /// fails, the device keeps waiting.
    pub(super) fn recover(
        source: Source,
        drive: &Drive,
        path: &Path,
        last: Option<Takeover>,
    ) -> Result<(UblkNode, Arc<Line>, Shape), AttachError> {
        let refused = |why: &str| AttachError::Refused(format!("{}: {why}", path.display()));
        let failed = |error: Errno| AttachError::system(path.display(), error.into());
        let id = number(path).ok_or_else(|| refused("no ublk device"))?;
        let mut control = open_control()?;
        let info = info(&mut control, id).map_err(failed)?;
        if info.mark != mark(&drive.identity.uuid) {
            return Err(refused(&unfit("it belongs to a different drive than the one being served now")));
        }
        let mut bytes = Parameters::empty();
        control.send(UblkCommand::GetParameters, id, &mut bytes, 0).map_err(failed)?;
        let shape = shape(&Parameters::decode(&bytes));
        if !drive.shape.fits(&shape) {
            return Err(refused(&unfit(
                "the drive is smaller, or has another sector size or read-only setting, than when it was attached",
            )));
        }
        if beginning(last, info.queues, linux()) == Beginning::Refused {
            return Err(refused(
                "a bridge was killed while it took the device over, and this Linux may crash if that is tried again; \
                 `pumice detach --force` tears the device down, mounted or not",
            ));
        }
        // As the kernel sees the device, whatever the drive has now.
        let note_step = source.note_step.clone();
        let driver = UblkDriver::new(control, &info, !shape.write_cache, Some(last), note_step);
        let node = UblkNode::start(driver, source, true)?;
        node.pass(TAKEOVER_PATIENCE).map_err(AttachError::ServerGone)?;
        node.settle();
        let line = node.line.clone();
        Ok((node, line, shape))
    }

    fn start(driver: UblkDriver, source: Source, is_kept: bool) -> Result<UblkNode, AttachError> {
        let driver = Arc::new(driver);
        let line = source.line()?;
        let path = driver.path.clone();
        Ok(UblkNode { path, driver, line, is_kept, is_removed: false, removing: None })
    }

    /// Passes the device to the server, and to those that follow.
    fn pass(&self, patience: Duration) -> Result<(), NotConnected> {
        let since = Instant::now();
        self.line.bring(Supply::Queues(self.driver.clone()), Box::new(self.driver.clone()), patience)?;
        let left = patience.saturating_sub(since.elapsed());
        self.driver.wait_until_live(left).map_err(|why| NotConnected(Some(why)))
    }

    fn settle(&self) {
        queue::set_timeout(&self.path, REQUEST_TIMEOUT);
    }

    fn command(&self, command: UblkCommand, buffer: &mut [u8]) -> Result<(), AttachError> {
        self.driver
            .command(command, buffer, 0)
            .map_err(|error| AttachError::system(format!("ublk: {command:?}"), error.into()))
    }

    /// Stops and removes the device. The server has it meanwhile: the kernel writes back what is left. One
    /// that hangs is not waited for longer than `patience`; then this goes on when it has ended.
    fn delete(&mut self, claimed: Option<OwnedFd>, patience: Duration) -> Result<(), AttachError> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        let failed = |error: io::Error| AttachError::system(self.path.display(), error);
        let (driver, line) = (self.driver.clone(), self.line.clone());
        let (sender, removed) = mpsc::channel();
        let remove = move || {
            let outcome = if driver.is_taken() {
                Ok(())
            } else {
                UblkControl::open().and_then(|mut control| {
                    // A device that was not started cannot be stopped.
                    let _ = control.send(UblkCommand::Stop, driver.id, &mut [], 0);
                    drop(claimed);
                    line.release();
                    Ok(delete(&mut control, driver.id)?)
                })
            };
            line.release();
            // The receiver is gone if it took too long.
            let _ = sender.send(outcome);
        };
        self.removing = Some(spawn("remove", remove).map_err(failed)?);
        match removed.recv_timeout(patience) {
            Ok(outcome) => outcome.map_err(failed),
            Err(_) => {
                let why = "the kernel waits for requests that its server has";
                Err(AttachError::Refused(format!("{}: {why}", self.path.display())))
            }
        }
    }
}

impl Node for UblkNode {
    fn path(&self) -> &Path {
        &self.path
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError> {
        if self.driver.is_taken() {
            return Err(AttachError::Refused(format!("{} was taken from the drive", self.path.display())));
        }
        let resized = self.driver.command(UblkCommand::UpdateSize, &mut [], size_bytes >> SECTOR_SHIFT);
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

    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError> {
        let failed = |error: Errno| AttachError::system(self.path.display(), error.into());
        let claimed = match claim(&self.path) {
            Ok(claimed) => Some(claimed),
            // It was given up, and the kernel has stopped it.
            Err(Errno::NOENT | Errno::NXIO | Errno::NODEV) => None,
            Err(_) if self.driver.is_taken() => None,
            // The kernel is stopping it.
            Err(Errno::BUSY) if force => None,
            Err(error) => return Err(failed(error)),
        };
        if let Some(claimed) = &claimed {
            // Requests fail if the server was given up.
            rustix::fs::fsync(claimed).or_else(|error| if force { Ok(()) } else { Err(failed(error)) })?;
        }
        match self.delete(claimed, patience) {
            // Its server is ended next.
            Err(AttachError::Refused(why)) if force => {
                tracing::warn!("{why}");
                Ok(())
            }
            deleted => deleted,
        }
    }
}

impl Drop for UblkNode {
    fn drop(&mut self) {
        if self.is_kept {
            // The end of its connections ends the server's queues. Nothing is to be aborted.
            self.line.release();
        } else {
            // An error cannot be reported here.
            let _ = self.delete(None, SERVER_PATIENCE);
        }
        if let Some(removing) = self.removing.take() {
            // A panic was reported by the thread.
            let _ = removing.join();
        }
    }
}

/// Message for a device that waits for another drive than the one that is served, with advice.
fn unfit(why: &str) -> String {
    format!("{why}; `pumice detach --force` tears the device down, mounted or not")
}

/// What a device of this shape shows.
fn parameters(shape: &Shape) -> Parameters {
    let Shape { size_bytes, sector_bytes, read_only, write_cache } = *shape;
    Parameters { size_bytes, sector_bytes, read_only, write_cache }
}

/// The shape of a device that shows this.
fn shape(shown: &Parameters) -> Shape {
    let Parameters { size_bytes, sector_bytes, read_only, write_cache } = *shown;
    Shape { size_bytes, sector_bytes, read_only, write_cache }
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

/// Opens the driver, loading its module if necessary.
fn open_control() -> Result<UblkControl, AttachError> {
    let open = UblkControl::open;
    let opened = open().or_else(|_| {
        load_module("ublk_drv");
        open()
    });
    opened.map_err(|error| {
        AttachError::Missing(match error.kind() {
            io::ErrorKind::NotFound => "the kernel has no ublk driver (`modprobe ublk_drv`)".to_string(),
            _ => error.to_string(),
        })
    })
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
