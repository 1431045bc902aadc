//! The driver's side of a ublk device, as its keeper has it: passes the device from server to server.
//!
//! ```text
//! first server   open /dev/ublkcN -> queues prepared -> opened -> START_DEV
//! each next one  START_USER_RECOVERY -> open /dev/ublkcN -> queues prepared -> opened -> END_USER_RECOVERY
//! ```
//!
//! The driver lets one process open its device, and lets go of the last server when all its descriptors are
//! closed. The keeper opens the device for each server, and closes its own descriptor once the server has it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nbd::ublk_queue::{OPEN, OPENED, PREPARED, QueueNumber};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use ublk::{INFO_BYTES, Info};

use super::NoteStep;
use super::ublk_takeover::{Beginning, beginning};
use crate::kernel::{UblkCommand, UblkControl};
use crate::line::Driver;
use crate::linux::linux;
use crate::takeover::Takeover;
use crate::upstream::{BoxedError, Opened, Queues, spawn};
use host::block::node;

/// Longest wait for a server to prepare its queues, or for the driver to take their commands.
const QUEUES_READY: Duration = Duration::from_secs(10);
/// Time in which one attempt waits for the kernel to clear up after the last server.
const CLEARS_UP: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);
/// Time for the nodes of a new device to appear, and for the driver to be free of its last server.
const NODE_APPEARS: Duration = Duration::from_secs(5);
/// Attempts of a command that a signal interrupts.
const TRIES: usize = 100;

/// A device, and which server has it.
pub(super) struct UblkDriver {
    pub(super) id: u32,
    pub(super) path: PathBuf,
    /// Mark of the drive, which the driver keeps.
    pub(super) mark: u64,
    queues: u16,
    depth: u16,
    /// The kernel sends no flushes and no FUA.
    uncached: bool,
    control: Mutex<UblkControl>,
    /// Called before each step of a takeover: the next keeper has to know if this one is killed.
    note: NoteStep,
    state: Mutex<State>,
    /// Notified when the device is live, or has failed.
    changed: Condvar,
}

/// Which server has the device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// None had it yet.
    New,
    /// The first one is getting it.
    Starting,
    /// One has it.
    Live,
    /// The last one has ended. A takeover got to this step, if there was one. `is_asked`: the driver has
    /// forgotten the last server, and nothing was sent since.
    Left { last: Option<Takeover>, is_asked: bool },
    /// The first server did not get it.
    Failed(String),
}

/// Why the device is not passed to a server.
#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error("the kernel is clearing up after the last server of {}", .0.display())]
    Busy(PathBuf),
    #[error(
        "{}: its server, or its bridge, was killed while it took the device over, and this Linux may crash if that is \
         tried again; `pumice detach --force` tears the device down, mounted or not",
        .0.display()
    )]
    Refused(PathBuf),
    #[error("its server ended before {} was complete", .0.display())]
    Incomplete(PathBuf),
    #[error("{what}: {source}")]
    Driver { what: String, source: io::Error },
}

impl UblkDriver {
    /// `last`: how far the takeover of a device that another keeper has left got; a new device is not left.
    pub(super) fn new(
        control: UblkControl,
        info: &Info,
        uncached: bool,
        left: Option<Option<Takeover>>,
        note: NoteStep,
    ) -> UblkDriver {
        let state = left.map_or(State::New, |last| State::Left { last, is_asked: false });
        UblkDriver {
            id: info.id,
            path: node(&format!("ublkb{}", info.id)),
            mark: info.mark,
            queues: info.queues,
            depth: info.depth,
            uncached,
            control: Mutex::new(control),
            note,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Waits until a server has the device.
    ///
    /// # Errors
    /// The reason why the first one did not get it, or if none has it within `patience`.
    pub(super) fn wait_until_live(&self, patience: Duration) -> Result<(), String> {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            match &*state {
                State::Live => return Ok(()),
                State::Failed(why) => return Err(why.clone()),
                State::New | State::Starting | State::Left { .. } => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        return Err("its server does not take the device in time".to_string());
                    }
                }
            }
        }
    }

    /// Returns whether another program has removed the device. The number may be another one's by now.
    pub(super) fn is_taken(&self) -> bool {
        match info(&mut self.control.lock(), self.id) {
            Ok(info) => info.mark != self.mark,
            Err(error) => error == Errno::NODEV,
        }
    }

    pub(super) fn command(&self, command: UblkCommand, buffer: &mut [u8], number: u64) -> Result<(), Errno> {
        for _ in 0..TRIES {
            match self.control.lock().send(command, self.id, buffer, number) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::INTR)
    }

    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Makes the driver forget the last server.
    fn ask(&self, last: Option<Takeover>) -> Result<(), PassError> {
        let beginning = beginning(last, self.queues, linux());
        if beginning == Beginning::Refused {
            return Err(PassError::Refused(self.path.clone()));
        }
        let noted = |step| {
            (self.note)(step).map_err(|source| PassError::Driver {
                what: "cannot record the takeover".to_string(),
                source,
            })
        };
        let since = Instant::now();
        loop {
            // The kernel refuses until it has cleared up. Nothing is noted meanwhile.
            let mut outcome = info(&mut self.control.lock(), self.id)
                .and_then(|info| if info.is_waiting { Ok(()) } else { Err(Errno::BUSY) });
            if outcome.is_ok() {
                noted(Some(Takeover::Asked))?;
                outcome = self.command(UblkCommand::StartRecovery, &mut [], 0);
                if outcome == Err(Errno::INVAL) && beginning == Beginning::AskUnlessDone {
                    tracing::info!("continuing an interrupted takeover");
                    outcome = Ok(());
                }
                if outcome.is_err() {
                    noted(last)?;
                }
            }
            match outcome {
                Ok(()) => {
                    self.set(State::Left { last: Some(Takeover::Asked), is_asked: true });
                    return Ok(());
                }
                Err(Errno::BUSY) if since.elapsed() < CLEARS_UP => sleep(POLL),
                Err(Errno::BUSY) => return Err(PassError::Busy(self.path.clone())),
                Err(error) => {
                    let what = format!("{}: cannot take it over", self.path.display());
                    return Err(PassError::Driver { what, source: error.into() });
                }
            }
        }
    }

    fn open_character(&self) -> Result<File, PassError> {
        let path = node(&format!("ublkc{}", self.id));
        let opened = appears(|| File::options().read(true).write(true).open(&path));
        opened.map_err(|error| match Errno::from_io_error(&error) {
            // The last server still has it.
            Some(Errno::BUSY) => PassError::Busy(self.path.clone()),
            _ => PassError::Driver { what: path.display().to_string(), source: error },
        })
    }

    fn pass(&self) -> Result<Opened, PassError> {
        if self.is_taken() {
            // There is nothing to serve.
            return Ok(Opened { character: None, queues: Vec::new(), uncached: self.uncached });
        }
        let state = self.state.lock().clone();
        match state {
            State::New | State::Left { is_asked: true, .. } => {}
            State::Left { last, is_asked: false } => self.ask(last)?,
            State::Live => self.ask(None)?,
            State::Starting => {
                let error = PassError::Incomplete(self.path.clone());
                self.set(State::Failed(error.to_string()));
                return Err(error);
            }
            State::Failed(_) => return Err(PassError::Incomplete(self.path.clone())),
        }
        let character = Some(self.open_character()?);
        let queue = |number| QueueNumber { number, depth: self.depth };
        Ok(Opened { character, queues: (0..self.queues).map(queue).collect(), uncached: self.uncached })
    }

    /// Lets a server open its queues, and starts the device, or ends its recovery.
    fn start(&self, streams: &[UnixStream]) -> Result<(), BoxedError> {
        let is_new = *self.state.lock() == State::New;
        for stream in streams {
            stream.set_read_timeout(Some(QUEUES_READY))?;
            expect(stream, PREPARED)?;
        }
        let step = |step| -> Result<(), BoxedError> {
            if is_new {
                return Ok(());
            }
            (self.note)(Some(step))?;
            self.set(State::Left { last: Some(step), is_asked: false });
            Ok(())
        };
        if is_new {
            self.set(State::Starting);
        }
        // From here to the end of the recovery, the end of a server may make the device unusable: nothing
        // waits.
        step(Takeover::Begun)?;
        for mut stream in streams {
            stream.write_all(&[OPEN])?;
        }
        for stream in streams {
            expect(stream, OPENED)?;
        }
        if let Err(error) = step(Takeover::Ready) {
            // The recovery is almost complete, and giving up helps nobody.
            tracing::warn!("{error}");
        }
        let command = if is_new { UblkCommand::Start } else { UblkCommand::EndRecovery };
        self.command(command, &mut [], std::process::id().into())?;
        self.set(State::Live);
        if !is_new && let Err(error) = (self.note)(None) {
            // The device works. The keeper's record is written again at its next look.
            tracing::warn!(%error, "cannot record that the takeover is complete");
        }
        Ok(())
    }
}

pub(super) fn info(control: &mut UblkControl, id: u32) -> Result<Info, Errno> {
    let mut bytes = [0; INFO_BYTES];
    control.send(UblkCommand::GetInfo, id, &mut bytes, 0)?;
    Ok(Info::decode(&bytes))
}

/// Tries until a node is there, and free.
pub(super) fn appears<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(_) if since.elapsed() < NODE_APPEARS => sleep(POLL),
            outcome => return outcome,
        }
    }
}

/// Waits until a server says this.
fn expect(mut stream: &UnixStream, word: u8) -> io::Result<()> {
    let mut said = [0];
    stream.read_exact(&mut said)?;
    if said == [word] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

impl Queues for UblkDriver {
    fn open(&self) -> Result<Opened, BoxedError> {
        Ok(self.pass()?)
    }
}

impl Driver for Arc<UblkDriver> {
    fn lost(&self) {
        let mut state = self.state.lock();
        if *state == State::Live {
            *state = State::Left { last: None, is_asked: false };
        }
    }

    fn take(&self, streams: &[UnixStream]) -> bool {
        if streams.is_empty() || *self.state.lock() == State::Live {
            return false;
        }
        if let Err(error) = self.start(streams) {
            tracing::error!(%error, "its server does not get the device");
            if *self.state.lock() == State::Starting {
                self.set(State::Failed(error.to_string()));
            }
            // The line sees their ends.
            for stream in streams {
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        }
        false
    }

    fn abort(&self) {
        // It waits for a server that hangs, until that ends.
        let driver = self.clone();
        let stopping = spawn("stop", move || {
            if driver.is_taken() {
                return;
            }
            let stopped =
                UblkControl::open().map(|mut control| control.send(UblkCommand::Stop, driver.id, &mut [], 0));
            if let Ok(Err(error)) = stopped {
                tracing::error!(%error, "the device is not stopped");
            }
        });
        if let Err(error) = stopping {
            tracing::error!(%error, "the device is not stopped");
        }
    }
}
