//! Commands of `/dev/ublk-control`: `linux/ublk_cmd.h`, sent by io_uring.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread::sleep;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;
use ublk::{AGAIN, passes};

const PATH: &str = "/dev/ublk-control";
/// Bytes of `struct ublksrv_ctrl_cmd`.
const COMMAND_BYTES: usize = 32;
/// Bytes that a command has in an entry of a ring.
const ENTRY_BYTES: usize = 80;

/// A command: its number in `UBLK_U_CMD_*`, encoded as an ioctl that reads and writes a
/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UblkCommand {
    GetInfo = 0x02,
    Add = 0x04,
    Delete = 0x05,
    Start = 0x06,
    Stop = 0x07,
    SetParameters = 0x08,
    GetParameters = 0x09,
    StartRecovery = 0x10,
    EndRecovery = 0x11,
    /// Does not wait until the last process has closed the device. Older drivers do not know it.
    DeleteLater = 0x14,
    /// Linux 6.16.
    UpdateSize = 0x15,
}

impl UblkCommand {
    /// `_IOR` or `_IOWR('u', NUMBER, struct ublksrv_ctrl_cmd)`.
    const fn code(self) -> u32 {
        let direction = match self {
            UblkCommand::GetInfo | UblkCommand::GetParameters | UblkCommand::DeleteLater => 2,
            _ => 3,
        };
        direction << 30 | (COMMAND_BYTES as u32) << 16 | (b'u' as u32) << 8 | self as u32
    }
}

/// `/dev/ublk-control`.
pub(crate) struct UblkControl {
    file: File,
    ring: IoUring<Entry128, cqueue::Entry>,
    /// The kernel may have a command still whose end was not seen.
    is_lost: bool,
}

impl UblkControl {
    pub(crate) fn open() -> std::io::Result<UblkControl> {
        let named = |what: &'static str| {
            move |error: std::io::Error| std::io::Error::new(error.kind(), format!("{what}: {error}"))
        };
        let file = File::options().read(true).write(true).open(PATH).map_err(named(PATH))?;
        let ring = IoUring::<Entry128, cqueue::Entry>::builder().build(1).map_err(named("io_uring"))?;
        Ok(UblkControl { file, ring, is_lost: false })
    }

    /// Sends a command with a buffer, which the kernel reads and may change, and a number. Waits for its
    /// result.
    pub(crate) fn send(
        &mut self,
        command: UblkCommand,
        id: u32,
        buffer: &mut [u8],
        number: u64,
    ) -> Result<(), Errno> {
        if self.is_lost {
            return Err(Errno::IO);
        }
        // The kernel's as long as it has the command, whatever becomes of the caller's.
        let mut shared = buffer.to_vec();
        let outcome = self.submit(command, id, &mut shared, number);
        if self.is_lost {
            std::mem::forget(shared);
        } else {
            buffer.copy_from_slice(&shared);
        }
        outcome
    }

    fn submit(&mut self, command: UblkCommand, id: u32, buffer: &mut [u8], number: u64) -> Result<(), Errno> {
        const ANY_QUEUE: u16 = u16::MAX;
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&id.to_ne_bytes());
        bytes[4..6].copy_from_slice(&ANY_QUEUE.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(buffer.len() as u16).to_ne_bytes());
        bytes[8..16].copy_from_slice(&(buffer.as_mut_ptr() as u64).to_ne_bytes());
        bytes[16..24].copy_from_slice(&number.to_ne_bytes());
        let entry =
            opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command.code()).cmd(bytes).build();
        // SAFETY: the buffer lives until the command has ended: if that is not seen below, `send` never frees
        // it. The kernel uses no more than its length.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // One command at a time: the ring is empty.
        pushed.map_err(|_| Errno::BUSY)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if passes(&error) => sleep(AGAIN),
                Err(error) => {
                    // It is not known whether the kernel has the command. The ring is not used any more.
                    self.is_lost = true;
                    return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                }
            }
            if let Some(done) = self.ring.completion().next() {
                return match done.result() {
                    code if code < 0 => Err(Errno::from_raw_os_error(-code)),
                    _ => Ok(()),
                };
            }
        }
    }
}
