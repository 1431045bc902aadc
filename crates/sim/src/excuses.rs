//! Which errors a correct drive may answer, given what was done to its backing. No fault excuses more than it can explain.
//!
//! | error | wants |
//! | --- | --- |
//! | corrupt, damaged, no drive | something durable became something else; or a sync failed in this life, which loses what was written |
//! | i/o, to a request that only reads | a read that failed in this life |
//! | i/o | any operation of the backing that failed in this life |
//! | read-only | a sync that failed in this life, or a write that failed in this life, not the first; or segments that are no use: damaged, or not to be read |
//! | backing full | the backing was full in this life |
//!
//! Being out of space is judged elsewhere.

use drive::Error;
use media::{MediaCounts, SimMedia};

use crate::backing::Overwrites;
use crate::wire::LOST;

/// Failed writes after which a drive may give up writing at one more: both copies of something, or many segments, also of earlier lives.
const WRITES_FAILED_MIN: u64 = 2;

/// What was done to a backing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Struck {
    /// Something durable became something else, in this life or before.
    pub(crate) damaged: bool,
    /// There are pages that cannot be read, however often that is tried.
    pub(crate) unreadable: bool,
    /// In this life.
    reads_failed: u64,
    writes_failed: u64,
    writes_ever_failed: u64,
    syncs_failed: u64,
    found_full: u64,
}

impl Struck {
    /// What happened on a backing so far. A write that is refused for want of room is one, whatever it was to be written over.
    pub(crate) fn counts(media: &SimMedia, overwrites: &Overwrites) -> MediaCounts {
        let counts = media.counts();
        MediaCounts { full_errors: counts.full_errors + overwrites.refused(), ..counts }
    }

    /// What was done to this backing, of which these were the counts when its life began.
    pub(crate) fn of(media: &SimMedia, overwrites: &Overwrites, before: &MediaCounts) -> Struck {
        let now = Struck::counts(media, overwrites);
        Struck {
            damaged: now.damage() > 0,
            unreadable: media.unreadable_pages() > 0,
            reads_failed: now.read_errors - before.read_errors,
            writes_failed: now.write_errors + now.bad_page_errors
                - before.write_errors
                - before.bad_page_errors,
            writes_ever_failed: now.write_errors + now.bad_page_errors,
            syncs_failed: now.sync_errors - before.sync_errors,
            found_full: now.full_errors - before.full_errors,
        }
    }

    /// Whether it excuses this error of a drive that was opened, or is being opened.
    pub(crate) fn excuses(&self, doing: &str, error: &Error) -> bool {
        let reads_only = ["read", "extents", "scrub"].contains(&doing);
        match error {
            Error::Io(what) if what == LOST => true,
            Error::Corrupt(_) | Error::Damaged(_) | Error::NotADrive => self.damaged || self.syncs_failed > 0,
            Error::Io(_) if reads_only => self.reads_failed > 0,
            Error::Io(_) => self.reads_failed + self.writes_failed + self.syncs_failed + self.found_full > 0,
            Error::ReadOnly(_) if reads_only => false,
            Error::ReadOnly(_) => self.may_give_up(),
            Error::BackingFull => self.found_full > 0 && !reads_only,
            _ => false,
        }
    }

    /// The same for a drive that was just opened and at which nothing goes wrong any more: what is lost stays so.
    pub(crate) fn excuses_at_rest(&self, error: &Error) -> bool {
        match error {
            Error::Corrupt(_) | Error::Damaged(_) | Error::NotADrive => self.damaged,
            Error::Io(_) => self.unreadable,
            Error::ReadOnly(_) => self.may_give_up(),
            _ => false,
        }
    }

    /// The same for an opening that failed.
    pub(crate) fn excuses_opening(&self, error: &Error) -> bool {
        match error {
            Error::Corrupt(_) | Error::Damaged(_) | Error::NotADrive => self.damaged,
            Error::NoSpace => self.found_full > 0,
            // What is read twice may be damaged between.
            Error::Io(_) if self.damaged => true,
            error => self.excuses("open", error),
        }
    }

    /// Whether it may take no changes any more, in this life.
    fn may_give_up(&self) -> bool {
        let writes_failed = self.writes_failed > 0 && self.writes_ever_failed >= WRITES_FAILED_MIN;
        self.syncs_failed > 0 || writes_failed || self.damaged || self.unreadable
    }
}
