//! Owner pages: who has a drive open for writing. File locks do not reach from one machine to another, nor
//! from one path of an overlay to the other; a page on the backing does.
//!
//! There are three of them side by side, in two copies. Only the process that has the drive, or takes it,
//! writes the *mark*. A process that wants the drive and finds somebody's mark writes a *challenge*. Who has
//! the drive writes the *answer* to it. Each has one writer at a time, so that nobody has to read before
//! writing: between the two, a process can be stopped.
//!
//! All fields are in the first 512 bytes of the page, the rest is zero: a power cut leaves the old page or
//! the new one.

use crate::bytes::{put, u32_at, u64_at};
use crate::limits::{COUNT_MAX, SUPERBLOCK_COPIES};
use crate::page::PageKind;
use crate::{DecodeError, Geometry, PAGE_BYTES};

/// First bytes of an owner page.
pub const MAGIC: [u8; 8] = *b"PUMOWNER";
const WHAT: &str = "owner page";
const PAGE: PageKind = PageKind { what: WHAT, magic: MAGIC, crc_at: 12 };

/// Longest host name that a page holds, in bytes.
pub const HOST_BYTES_MAX: usize = 64;
/// Bytes from a copy of the superblock to the owner pages behind it.
const DISTANCE_BYTES: u64 = 16 * 1024;

/// Which of the three pages it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Who has the drive, or had it last.
    Mark = 1,
    /// Who asks whether the process in the mark still runs.
    Challenge = 2,
    /// The last challenge that the process in the mark has answered.
    Answer = 3,
}

impl Role {
    /// All of them, in the order of their pages.
    pub const ALL: [Role; 3] = [Role::Mark, Role::Challenge, Role::Answer];
}

/// Id of a machine or of a boot that is unknown.
pub const UNKNOWN_ID: [u8; 16] = [0; 16];

/// Where a process runs. A field of zeros is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// `/etc/machine-id`.
    pub machine_id: [u8; 16],
    /// `/proc/sys/kernel/random/boot_id`: another one after each boot of a kernel.
    pub boot_id: [u8; 16],
    /// Inode of the namespace of its process id.
    pub pid_namespace: u64,
    /// Process id in that namespace.
    pub pid: u32,
    /// When it was started, in the kernel's ticks since the boot: process ids are used again.
    pub started_ticks: u64,
    /// Device and inode under which it opened the backing. Of a block device: its own number, and 0.
    pub backing: [u64; 2],
    /// Name of the host, for people. At most [`HOST_BYTES_MAX`] bytes are kept.
    pub host: String,
}

/// One of the owner pages.
///
/// ```text
///   0  8  magic "PUMOWNER"            8  1  role: 1 mark, 2 challenge, 3 answer
///   9  1  1: in force, 0: closed properly (mark), withdrawn (challenge)
///  10  2  zero                       12  4  CRC32C of the page, this field as zero
///  16 16  drive id (UUID)            32 16  run: a random number of whoever wrote the page
///  48 16  answer: run of the challenge that is answered
///  64  8  sequence of the mark: the valid copy with the higher one counts
///  72  8  when it was written, seconds since 1970
///  80 16  machine id                 96 16  boot id
/// 112  8  pid namespace             120  8  start of the process, ticks
/// 128  4  process id                132  4  bytes of the host name
/// 136 16  device and inode of the backing
/// 152 64  host name
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerPage {
    /// Which page it is.
    pub role: Role,
    /// The mark of a drive that is open; a challenge that waits for an answer.
    pub in_force: bool,
    /// Id of the drive, for people.
    pub uuid: [u8; 16],
    /// Random number of whoever wrote it.
    pub run: [u8; 16],
    /// Run of the challenge that an answer is for.
    pub answered: [u8; 16],
    /// Counts the marks of a backing.
    pub sequence: u64,
    /// When it was written, in seconds since 1970, by the clock of that host.
    pub written_unix_seconds: u64,
    /// Who wrote it.
    pub process: Process,
}

impl Geometry {
    /// Returns the offset of the first of the owner pages of a copy.
    pub fn owner_offset(copy: usize) -> u64 {
        Geometry::superblock_offset(copy) + DISTANCE_BYTES
    }

    /// Returns the offset of an owner page.
    pub fn owner_page_offset(copy: usize, role: Role) -> u64 {
        Geometry::owner_offset(copy) + (role as u64 - 1) * PAGE_BYTES as u64
    }
}

/// Copies of the owner pages.
pub const OWNER_COPIES: usize = SUPERBLOCK_COPIES;
/// Bytes of the owner pages of one copy.
pub const OWNER_BYTES: usize = Role::ALL.len() * PAGE_BYTES;

impl OwnerPage {
    /// One page.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut b = [0; PAGE_BYTES];
        b[8] = self.role as u8;
        b[9] = u8::from(self.in_force);
        put(&mut b, 16, &self.uuid);
        put(&mut b, 32, &self.run);
        put(&mut b, 48, &self.answered);
        put(&mut b, 64, &self.sequence.to_le_bytes());
        put(&mut b, 72, &self.written_unix_seconds.to_le_bytes());
        let process = &self.process;
        put(&mut b, 80, &process.machine_id);
        put(&mut b, 96, &process.boot_id);
        put(&mut b, 112, &process.pid_namespace.to_le_bytes());
        put(&mut b, 120, &process.started_ticks.to_le_bytes());
        put(&mut b, 128, &process.pid.to_le_bytes());
        let host = process.host.as_bytes();
        let host = &host[..host.len().min(HOST_BYTES_MAX)];
        put(&mut b, 132, &(host.len() as u32).to_le_bytes());
        put(&mut b, 136, &process.backing[0].to_le_bytes());
        put(&mut b, 144, &process.backing[1].to_le_bytes());
        put(&mut b, 152, host);
        PAGE.seal(&mut b);
        b
    }

    /// Reads a page written by [`OwnerPage::encode`]. What is no printable ASCII in the host
    /// name is read as `?`: it comes to people's terminals.
    pub fn decode(page: &[u8]) -> Result<OwnerPage, DecodeError> {
        let b = PAGE.verify(page)?;
        let Some(role) = Role::ALL.into_iter().find(|role| *role as u8 == b[8]) else {
            return Err(DecodeError::Field(WHAT, "unknown role"));
        };
        if b[9] > 1 {
            return Err(DecodeError::Field(WHAT, "neither in force nor closed"));
        }
        let sequence = u64_at(b, 64);
        if sequence > COUNT_MAX {
            return Err(DecodeError::Field(WHAT, "a count that no drive comes to"));
        }
        let host_len = u32_at(b, 132) as usize;
        if host_len > HOST_BYTES_MAX {
            return Err(DecodeError::Field(WHAT, "a host name longer than its field"));
        }
        let id = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&b[at..at + 16]);
            id
        };
        Ok(OwnerPage {
            role,
            in_force: b[9] == 1,
            uuid: id(16),
            run: id(32),
            answered: id(48),
            sequence,
            written_unix_seconds: u64_at(b, 72),
            process: Process {
                machine_id: id(80),
                boot_id: id(96),
                pid_namespace: u64_at(b, 112),
                started_ticks: u64_at(b, 120),
                pid: u32_at(b, 128),
                backing: [u64_at(b, 136), u64_at(b, 144)],
                host: b[152..152 + host_len].iter().map(printable).collect(),
            },
        })
    }
}

fn printable(byte: &u8) -> char {
    if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }
}
