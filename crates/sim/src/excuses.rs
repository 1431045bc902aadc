//! Errors that a correct drive may return, given the faults of its backing. A fault excuses only the errors
//! that it can explain.
//!
//! | error | requires one of |
//! | --- | --- |
//! | corrupt, damaged, no drive, for what needs no data of hosts | durable data was changed, and not only that of hosts; or a sync failed in this life |
//! | corrupt, damaged, no drive, for the rest | durable data was changed; or a sync failed in this life, which loses written data |
//! | i/o, for what needs data of hosts | such data was lost beyond the cover of parity |
//! | i/o, for a request that only reads | a read that failed in this life |
//! | i/o | any operation of the backing that failed in this life |
//! | failed or damaged, which is all that a server says | what excuses i/o, or corrupt |
//! | read-only | a sync that failed in this life |
//! | read-only | a write that failed in this life and was not the first one to fail |
//! | read-only | unusable segments: damaged, and not only in data of hosts, or unreadable |
//! | backing full | the backing was full in this life |
//!
//! An opening reads some data twice. So damage to any in this life excuses an i/o error of it, and damage to
//! more than data of hosts always does. So does a page that ceases to show what a failed sync had lost. After
//! the opening that excuses nothing.
//!
//! Pages lost within the cover of parity excuse nothing. Of what was lost beyond it, the simulator knows the
//! blocks: requests that need none of them are judged as if it had not happened.
//!
//! Errors about lack of space on the drive are judged elsewhere.

use media::{MediaCounts, SimMedia};

use crate::Error;
use crate::backing::Overwrites;
use crate::doing::Doing;

/// Number of failed writes after which a drive may stop writing: they may have hit both copies of something,
/// or many segments. Failures of earlier lives count.
const WRITES_FAILED_MIN: u64 = 2;

/// Faults that have struck a backing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Struck {
    /// Durable data was changed, in this life or earlier.
    pub(crate) damaged: bool,
    /// The same, and it is not known to have been only data of hosts.
    pub(crate) damaged_beyond_data: bool,
    /// Durable data was changed in this life.
    damaged_now: bool,
    /// Pages with data of hosts were lost beyond the cover of parity, in this life or earlier.
    lost_data: bool,
    /// Some pages cannot be read, however often that is tried.
    pub(crate) unreadable: bool,
    /// Counts of this life, except `writes_ever_failed`.
    reads_failed: u64,
    writes_failed: u64,
    writes_ever_failed: u64,
    syncs_failed: u64,
    found_full: u64,
    /// What a failed sync had lost was shown at first, and then no more.
    faded: bool,
}

impl Struck {
    /// Counts of events on a backing so far. A write that is refused for lack of space counts as such, also
    /// if it was an overwrite.
    pub(crate) fn counts(media: &SimMedia, overwrites: &Overwrites) -> MediaCounts {
        let counts = media.counts();
        MediaCounts { full_errors: counts.full_errors + overwrites.refused(), ..counts }
    }

    /// Returns the faults that have struck this backing. `before` holds its counts at the beginning of this
    /// life.
    pub(crate) fn of(media: &SimMedia, overwrites: &Overwrites, before: &MediaCounts) -> Struck {
        let now = Struck::counts(media, overwrites);
        Struck {
            damaged: now.damage() > 0,
            damaged_beyond_data: now.damage_beyond_data() > 0,
            lost_data: now.lost_data > 0,
            damaged_now: now.damage() > before.damage(),
            unreadable: media.unreadable_pages() > 0,
            reads_failed: now.read_errors - before.read_errors,
            writes_failed: now.write_errors + now.bad_page_errors
                - before.write_errors
                - before.bad_page_errors,
            writes_ever_failed: now.write_errors + now.bad_page_errors,
            syncs_failed: now.sync_errors - before.sync_errors,
            found_full: now.full_errors - before.full_errors,
            faded: now.faded_pages > before.faded_pages,
        }
    }

    /// The same for a request that needs no block which was lost beyond the cover of parity.
    pub(crate) fn sparing(self, counts: &MediaCounts) -> Struck {
        let damaged = counts.damage() > counts.lost_data;
        Struck { damaged, lost_data: false, ..self }
    }

    /// Returns whether nothing but data of hosts was lost, beyond the cover of parity.
    pub(crate) fn lost_data_only(&self, counts: &MediaCounts) -> bool {
        self.lost_data && counts.damage() == counts.lost_data
    }

    /// Returns whether the faults excuse this error of a drive that is open or being opened.
    pub(crate) fn excuses(&self, doing: Doing, error: &Error) -> bool {
        let reads_only = doing.reads_only();
        match error {
            Error::ConnectionLost => true,
            Error::Damaged(_) => self.may_miss(doing) || self.syncs_failed > 0,
            // Either of them.
            Error::FailedOrDamaged(_) => {
                let [failed, damaged] = [Error::Io, Error::Damaged].map(|of| of(String::new()));
                self.excuses(doing, &failed) || self.excuses(doing, &damaged)
            }
            Error::Io(_) if self.lost_data && doing.needs_data() => true,
            Error::Io(_) if reads_only => self.reads_failed > 0,
            Error::Io(_) => self.reads_failed + self.writes_failed + self.syncs_failed + self.found_full > 0,
            Error::ReadOnly(_) | Error::NotPermitted => !reads_only && self.may_give_up(),
            Error::BackingFull => self.found_full > 0 && !reads_only,
            _ => false,
        }
    }

    /// The same for a drive that was just opened, with no more faults in effect: only lasting damage is an
    /// excuse.
    pub(crate) fn excuses_at_rest(&self, doing: Doing, error: &Error) -> bool {
        match error {
            Error::Damaged(_) => self.may_miss(doing),
            Error::Io(_) => self.unreadable || self.lost_data && doing.needs_data(),
            Error::FailedOrDamaged(_) => self.unreadable || self.may_miss(doing),
            Error::ReadOnly(_) | Error::NotPermitted => self.may_give_up(),
            _ => false,
        }
    }

    /// The same for an opening that failed.
    pub(crate) fn excuses_opening(&self, error: &Error) -> bool {
        match error {
            // It says that trying again may help.
            Error::Damaged(why) if why.ends_with("cannot be read now") => {
                self.reads_failed > 0 || self.may_miss(Doing::Open)
            }
            Error::Damaged(_) => self.may_miss(Doing::Open),
            Error::NoSpace => self.found_full > 0,
            // Data that is read twice may be damaged in between, or be gone.
            Error::Io(_) if self.damaged_beyond_data || self.damaged_now || self.faded => true,
            error => self.excuses(Doing::Open, error),
        }
    }

    /// Returns whether damage explains that this request finds something missing.
    fn may_miss(&self, doing: Doing) -> bool {
        if doing.needs_data() { self.damaged } else { self.damaged_beyond_data }
    }

    /// Returns whether the drive may refuse all changes in this life.
    fn may_give_up(&self) -> bool {
        let writes_failed = self.writes_failed > 0 && self.writes_ever_failed >= WRITES_FAILED_MIN;
        self.syncs_failed > 0 || writes_failed || self.damaged_beyond_data || self.unreadable
    }
}
