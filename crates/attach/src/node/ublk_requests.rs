//! Requests of a ublk device. Each queue has a thread that fetches requests from the driver, passes them to
//! the relay, and commits the results.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::ublk_structures::SECTOR_SHIFT;
use crate::WAITS_EXIT_CODE;
use crate::kernel::{UblkEvent, UblkQueue, UblkRequest, UblkRing};
use crate::operation::{Done, Operation, Outcome};
use crate::relay::Relay;

/// `UBLK_IO_F_FUA`, `UBLK_IO_F_NOUNMAP` without their shift by 8: durable before it is answered; keep it
/// allocated.
const FUA: u32 = 1 << 5;
const NO_UNMAP: u32 = 1 << 7;
/// Data of requests that are passed on together: the server begins with these while the next are copied.
const TOGETHER_BYTES_MAX: usize = 256 << 10;

/// A queue that waits for its device. It has allocated all its resources, so that little can fail in the
/// middle of a takeover.
pub(super) struct IdleQueue {
    device: SyncSender<Arc<File>>,
    /// Steps of the thread: ready, then its commands are sent.
    steps: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

impl IdleQueue {
    /// Starts the thread of a queue. Without a `write_cache`, the kernel sends no flushes and no FUA.
    pub(super) fn start(
        number: u16,
        depth: u16,
        write_cache: bool,
        relay: Arc<Relay>,
    ) -> io::Result<IdleQueue> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let answers = Arc::new(Answers { ready: Mutex::default(), event: event.try_clone()? });
        let (device, opened) = sync_channel::<Arc<File>>(1);
        let (step, steps) = sync_channel(1);
        let run = move || {
            let (ring, made) = match UblkRing::new(event, depth) {
                Ok(ring) => (Some(ring), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // This and the next fail only if nobody waits any more.
            let _ = step.send(made);
            let (Some(ring), Ok(device)) = (ring, opened.recv()) else { return };
            // Commands of a queue come from one thread.
            match ring.open(device.clone(), number) {
                Ok(commands) => {
                    let _ = step.send(Ok(()));
                    let queue = Queue { device, number, depth, write_cache };
                    if let Err(error) = queue.serve(commands, &relay, &answers) {
                        lost(number, &error);
                    }
                }
                Err(error) => _ = step.send(Err(error)),
            }
        };
        let thread = std::thread::Builder::new().name(format!("ublk-{number}")).spawn(run)?;
        let queue = IdleQueue { device, steps, thread };
        queue.step()?;
        Ok(queue)
    }

    /// Lets the queue send its commands.
    pub(super) fn open(&self, device: Arc<File>) {
        // Fails if the thread has ended. The next step reports that.
        let _ = self.device.send(device);
    }

    /// Waits until the driver has all it needs from the queue. Returns its thread.
    pub(super) fn opened(self) -> io::Result<JoinHandle<()>> {
        self.step()?;
        Ok(self.thread)
    }

    fn step(&self) -> io::Result<()> {
        self.steps.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

/// A queue of a device.
struct Queue {
    /// The driver's own device, where the data of requests is read and written.
    device: Arc<File>,
    number: u16,
    depth: u16,
    write_cache: bool,
}

impl Queue {
    /// Serves the queue until the device is stopped.
    fn serve(&self, mut queue: UblkQueue, relay: &Relay, answers: &Arc<Answers>) -> io::Result<()> {
        let (mut events, mut left) = (Vec::new(), self.depth);
        while left > 0 {
            queue.wait(&mut events)?;
            let (mut together, mut bytes) = (Vec::new(), 0);
            for event in events.drain(..) {
                match event {
                    UblkEvent::Ended(_) => left -= 1,
                    UblkEvent::Woken => {}
                    UblkEvent::Request(tag, request) => match self.take(tag, request, answers) {
                        Ok((operation, done)) => {
                            bytes += operation.data().len();
                            together.push((operation, done));
                        }
                        Err(errno) => answers.send(tag, -errno.raw_os_error()),
                    },
                }
                if bytes >= TOGETHER_BYTES_MAX {
                    relay.submit_all(std::mem::take(&mut together));
                    bytes = 0;
                }
            }
            if !together.is_empty() {
                relay.submit_all(together);
            }
            for (tag, result) in answers.take() {
                queue.answer(tag, result);
            }
        }
        Ok(())
    }

    /// Returns a request, with its data, and what to do with its result.
    fn take(
        &self,
        tag: u16,
        request: UblkRequest,
        answers: &Arc<Answers>,
    ) -> Result<(Operation, Done), Errno> {
        let place = place(self.number, tag);
        let (operation, bytes) = operation(request, |data| self.device.read_exact_at(data, place))?;
        let operation = if self.write_cache { operation } else { operation.durable() };
        let (answers, device) = (answers.clone(), self.device.clone());
        let done: Done = Box::new(move |outcome: Outcome| {
            // Only a read has data.
            let copied =
                outcome.and_then(|data| device.write_all_at(&data, place).map_err(|error| errno(&error)));
            // The device is closed before its queue ends.
            drop(device);
            answers.send(tag, copied.map_or_else(|errno| -errno.raw_os_error(), |()| bytes));
        });
        Ok((operation, done))
    }
}

/// Ends the process because a queue has failed. Its requests would wait for ever here. Another bridge can
/// take over the device with all of them.
fn lost(queue: u16, error: &io::Error) -> ! {
    // Directly: nothing may keep the process from ending.
    let _ = writeln!(io::stderr(), "pumice: ublk: queue {queue} has failed: {error}; attach the drive again");
    std::process::exit(WAITS_EXIT_CODE.into())
}

/// Channel for results to the thread of a queue.
struct Answers {
    ready: Mutex<Vec<(u16, i32)>>,
    /// Written to when the first result arrives.
    event: OwnedFd,
}

impl Answers {
    fn send(&self, tag: u16, result: i32) {
        let is_first = {
            let mut ready = self.ready.lock();
            ready.push((tag, result));
            ready.len() == 1
        };
        if is_first {
            // Fails only if the queue has ended.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    fn take(&self) -> Vec<(u16, i32)> {
        std::mem::take(&mut *self.ready.lock())
    }
}

/// Translates a request of the driver. Returns its result as well: bytes that are done. `fill` reads the data
/// of a write.
fn operation(
    request: UblkRequest,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> Result<(Operation, i32), Errno> {
    let UblkRequest { operation, flags, sectors, start_sector } = request;
    let (offset, length) = (start_sector << SECTOR_SHIFT, sectors << SECTOR_SHIFT);
    let fua = flags & FUA != 0;
    // `UBLK_IO_OP_*`.
    let operation = match operation {
        0 => Operation::Read { offset, length },
        1 => {
            let mut data = vec![0; length as usize];
            fill(&mut data).map_err(|error| errno(&error))?;
            Operation::Write { offset, data, fua }
        }
        2 => return Ok((Operation::Flush, 0)),
        3 => Operation::Trim { offset, length, fua },
        5 => Operation::WriteZeroes { offset, length, no_hole: flags & NO_UNMAP != 0, fua },
        _ => return Err(Errno::OPNOTSUPP),
    };
    Ok((operation, length as i32))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Place of the data of a request in the driver's device: `UBLKSRV_IO_BUF_OFFSET`, `UBLK_QID_OFF`,
/// `UBLK_TAG_OFF`.
fn place(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(operation: u8, flags: u32) -> Result<(Operation, i32), Errno> {
        let request = UblkRequest { operation, flags, sectors: 8, start_sector: 1 << 33 };
        super::operation(request, |data| {
            data.fill(7);
            Ok(())
        })
    }

    #[test]
    fn requests_are_translated() {
        let (offset, length) = (1 << 42, 4096);
        let with_fua = |fua| {
            [
                (1, Operation::Write { offset, data: vec![7; 4096], fua }),
                (3, Operation::Trim { offset, length, fua }),
                (5, Operation::WriteZeroes { offset, length, no_hole: false, fua }),
            ]
        };
        for (flags, expected) in [(0, with_fua(false)), (FUA, with_fua(true))] {
            for (operation, expected) in expected {
                assert_eq!(translated(operation, flags), Ok((expected, 4096)));
            }
        }
        assert_eq!(translated(0, 0), Ok((Operation::Read { offset, length }, 4096)));
        assert_eq!(translated(2, 0), Ok((Operation::Flush, 0)));
        let kept = Operation::WriteZeroes { offset, length, no_hole: true, fua: false };
        assert_eq!(translated(5, NO_UNMAP), Ok((kept, 4096)));
    }

    #[test]
    fn requests_that_are_not_known_fail() {
        // Of zones.
        assert_eq!(translated(10, 0), Err(Errno::OPNOTSUPP));
        let write = UblkRequest { operation: 1, flags: 0, sectors: 8, start_sector: 0 };
        let gone = |_: &mut [u8]| Err(io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error()));
        assert_eq!(super::operation(write, gone), Err(Errno::ACCESS));
    }

    #[test]
    fn data_of_requests_is_apart() {
        assert_eq!(place(0, 0), 0x8000_0000);
        assert_eq!(place(0, 1) - place(0, 0), 32 << 20);
        assert_eq!(place(1, 0) - place(0, 0), 1 << 41);
    }
}
