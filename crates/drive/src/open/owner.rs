//! One owner: of all processes that reach a backing, by whatever path and from whatever machine, one writes
//! to it.
//!
//! File locks do not reach that far. So who opens a drive for writing leaves its *mark* on the backing, and
//! looks at it about once a second for as long as the drive is open. It writes nothing meanwhile: the mark
//! wears out no disk.
//!
//! ```text
//!              at once: nobody has it            it may run: ask                  it has another
//!              (closed, or provably gone)        (challenge, wait)                machine: refuse
//!
//!   contender  read mark ─ write mark ─ wait ─ read mark: mine? ─ open
//!   contender  read mark ─ write challenge ─ wait ── read: no answer ─ write mark ─ wait ─ read mark: mine? ─ open
//!   owner             look ───── look ───── look: a challenge: write answer ─ look ...      (the contender gives up)
//! ```
//!
//! **The lease.** Looking at its own mark gives the owner the right to write and to answer hosts for a while
//! ([`Pace::lease_ns`] from the moment at which it began to look), and not longer ([`media::Lease`]). A
//! contender waits longer than that. So an owner that was stopped, or whose disk stalled, for long enough to
//! lose its drive does nothing before it has looked again. The rule of renewal: *a look extends the lease if
//! it shows the own mark, and no challenge that was not answered a while before ([`Pace::settle_ns`])*.
//!
//! **Why that holds.** Let a contender write its challenge at c, read at r >= c + wait that there is no
//! answer, and write its mark at m. It takes m <= r + prompt for granted only if it measured that; else it
//! waits once more as long, which outlasts every lease. An owner's look at t that shows its own mark has t <
//! m.
//!
//! - t < c: the lease ends before c + wait <= r.
//! - t >= c: the look shows the challenge. It extends the lease only if the answer was written at a <= t -
//!   settle. If a < r, the contender reads it and gives up. If a >= r, then t >= r + settle > r + prompt >=
//!   m, and the look shows the new mark.
//!
//! Of contenders that claim at the same time one is left: two that find a drive without an owner both write a
//! mark, within `prompt` of reading, and both read again after `settle`, when both have written. Of two that
//! challenge, the later one overwrites the challenge of the earlier one, which gives up; unless the earlier
//! one has seen its own challenge stand to the end, and then its mark is there before the later one's wait is
//! over.
//!
//! Whatever a process has given to the kernel before it is stopped can still reach the backing later. No page
//! on the backing prevents that.

mod claim;
mod keep;
mod pages;
mod texts;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use layout::OwnerPage;
use layout::owner::Process;
use media::{Lease, LeaseClock};

use crate::planted::Planted;

pub use pages::{OwnerFound, find_owner};

/// Times of the protocol, in nanoseconds. `prompt < settle`, `prompt < wait`, `lease < wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Interval at which an owner looks at its mark.
    pub look_ns: u64,
    /// How long a look gives the right to write.
    pub lease_ns: u64,
    /// How long a contender waits for an answer.
    pub wait_ns: u64,
    /// How long a claim may take from reading to the written mark. One that takes longer waits longer.
    pub prompt_ns: u64,
    /// How long after writing its mark a contender reads it again.
    pub settle_ns: u64,
}

const MILLISECOND: u64 = 1_000_000;

impl Default for Pace {
    /// Four looks fit into a lease. Clocks of two machines may differ in speed by a fifth.
    fn default() -> Pace {
        Pace {
            look_ns: 1000 * MILLISECOND,
            lease_ns: 4000 * MILLISECOND,
            wait_ns: 5000 * MILLISECOND,
            prompt_ns: 150 * MILLISECOND,
            settle_ns: 200 * MILLISECOND,
        }
    }
}

/// What is known of the process that wrote an owner page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not run any more.
    Gone,
    /// It runs on this machine.
    Runs,
    /// It ran on this machine. Whether it still does cannot be seen from here.
    Unseen,
    /// It runs, or ran, on another machine.
    Elsewhere,
}

/// A wait.
pub type Sleep<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What claims need to know of the machine. The engine has no clock of its own.
pub trait Surroundings: Send + Sync {
    /// Waits for so many nanoseconds, or longer.
    fn sleep(&self, nanoseconds: u64) -> Sleep<'_>;
    /// Returns what is known of a process.
    fn fate(&self, process: &Process) -> Fate;
    /// Seconds since 1970, for people; 0 if unknown.
    fn unix_seconds(&self) -> u64;
}

/// A claim to a drive.
#[derive(Clone)]
pub struct Claim {
    /// A random number.
    pub run: [u8; 16],
    /// This process.
    pub process: Process,
    /// The clock of the lease: it goes on while the machine is suspended.
    pub clock: LeaseClock,
    /// The owner, if there is one, is on another machine that is known to be down, or has a copy of this
    /// drive. If it answers nevertheless, the claim is refused.
    pub take_over: bool,
    /// Times of the protocol.
    pub pace: Pace,
    /// A deliberate mistake, to test the simulator.
    pub planted: Planted,
}

/// The right to write to a backing.
pub struct Owner {
    mark: OwnerPage,
    pace: Pace,
    planted: Planted,
    lease: Arc<Lease>,
    left_open: bool,
}

impl Owner {
    /// Returns whether the owner before has not given the drive back, for
    /// [`OpenOptions::left_open`](crate::OpenOptions).
    pub fn left_open(&self) -> bool {
        self.left_open
    }

    /// The lease, which whatever writes to the backing observes.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }
}
