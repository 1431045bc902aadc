//! Counts of a run.

use std::fmt;

use crate::disk::LossCounts;

/// Counts over all drives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Drives created.
    pub drives: u64,
    /// Power cuts, including the following three kinds.
    pub cuts: u64,
    /// Power cuts during recovery.
    pub cuts_in_recovery: u64,
    /// Power cuts while the server closed the drive.
    pub cuts_in_close: u64,
    /// Power cuts when the client had the reply to a flush.
    pub cuts_after_flush: u64,
    /// Number of times the server was killed without a power cut.
    pub kills: u64,
    /// Kills after which all that was acknowledged had to be there, flushed or not.
    pub kills_kept: u64,
    /// Number of times a server below a device was stopped, and the next one started, under the same clients.
    pub restarts: u64,
    /// Number of times the keeper of a device was killed, alone or with the server.
    pub keeper_kills: u64,
    /// Number of these that the device survived.
    pub keeper_kills_survived: u64,
    /// Number of times the server was asked to stop, and did.
    pub closes: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Failed syncs after which the server was killed and started again before the power was cut.
    pub failed_sync_restarts: u64,
    /// Number of times the server opened the drive.
    pub recoveries: u64,
    /// Number of times `check --deep` found no fault.
    pub checks: u64,
    /// Number of times it found only that a copy of a checkpoint next to that of a clean close is missing. A
    /// power cut leaves this state, and the check reports it as a fault.
    pub known_faults: u64,
    /// Number of times a drive was scrubbed while it was served, without a fault.
    pub scrubs: u64,
    /// Unsynced writes of the server that a cut or a failed sync kept.
    pub kept_writes: u64,
    /// Unsynced writes of the server that a cut or a failed sync lost.
    pub lost_writes: u64,
    /// Unsynced writes of the server that a cut or a failed sync tore.
    pub torn_writes: u64,
    /// Bytes that the server wrote to the disk.
    pub disk_written_bytes: u64,
    /// Acknowledged requests of clients that change the drive.
    pub changes: u64,
    /// Acknowledged flushes.
    pub flushes: u64,
    /// Bytes that clients wrote.
    pub written_bytes: u64,
    /// Bytes that clients read and verified.
    pub verified_bytes: u64,
    /// Requests refused for lack of space.
    pub refusals: u64,
    /// Requests that failed with an excuse.
    pub errors: u64,
    /// Blocks of a device that were rewritten and read back at once.
    pub rewrites: u64,
    /// Ranges that fio filled and flushed.
    pub fio_filled: u64,
    /// Number of times fio verified such a range after a restart.
    pub fio_verified: u64,
    /// Number of times the power was cut while fio wrote and verified.
    pub fio_interrupted: u64,
    /// Pages that the disk lost within the cover of parity.
    pub losses: LossCounts,
    /// Pages that servers repaired: those that they read.
    pub repaired_pages: u64,
    /// Times that everything was read while the disk lost pages and clients wrote.
    pub sweeps: u64,
    /// Openings that failed while pages were lost, and were repeated without losses.
    pub opened_again: u64,
    /// Pages that the disk lost beyond the cover of parity, at the end of stories.
    pub beyond: LossCounts,
    /// Drives that lost these.
    pub beyond_drives: u64,
    /// Of these, drives that refused to open.
    pub beyond_refused: u64,
    /// Reads that failed on them.
    pub beyond_errors: u64,
    /// Faults that checks found on them.
    pub beyond_faults: u64,
    /// Drives with a violation.
    pub failures: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.drives, other.drives),
            (&mut self.cuts, other.cuts),
            (&mut self.cuts_in_recovery, other.cuts_in_recovery),
            (&mut self.cuts_in_close, other.cuts_in_close),
            (&mut self.cuts_after_flush, other.cuts_after_flush),
            (&mut self.kills, other.kills),
            (&mut self.kills_kept, other.kills_kept),
            (&mut self.restarts, other.restarts),
            (&mut self.keeper_kills, other.keeper_kills),
            (&mut self.keeper_kills_survived, other.keeper_kills_survived),
            (&mut self.closes, other.closes),
            (&mut self.failed_syncs, other.failed_syncs),
            (&mut self.failed_sync_restarts, other.failed_sync_restarts),
            (&mut self.recoveries, other.recoveries),
            (&mut self.checks, other.checks),
            (&mut self.known_faults, other.known_faults),
            (&mut self.scrubs, other.scrubs),
            (&mut self.kept_writes, other.kept_writes),
            (&mut self.lost_writes, other.lost_writes),
            (&mut self.torn_writes, other.torn_writes),
            (&mut self.disk_written_bytes, other.disk_written_bytes),
            (&mut self.changes, other.changes),
            (&mut self.flushes, other.flushes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.verified_bytes, other.verified_bytes),
            (&mut self.refusals, other.refusals),
            (&mut self.errors, other.errors),
            (&mut self.rewrites, other.rewrites),
            (&mut self.fio_filled, other.fio_filled),
            (&mut self.fio_verified, other.fio_verified),
            (&mut self.fio_interrupted, other.fio_interrupted),
            (&mut self.repaired_pages, other.repaired_pages),
            (&mut self.sweeps, other.sweeps),
            (&mut self.opened_again, other.opened_again),
            (&mut self.beyond_drives, other.beyond_drives),
            (&mut self.beyond_refused, other.beyond_refused),
            (&mut self.beyond_errors, other.beyond_errors),
            (&mut self.beyond_faults, other.beyond_faults),
            (&mut self.failures, other.failures),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
        self.losses.add(&other.losses);
        self.beyond.add(&other.beyond);
    }
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "power cuts:   {} on {} drives ({} in recovery, {} in closing, {} just after a flush was answered)",
            self.cuts, self.drives, self.cuts_in_recovery, self.cuts_in_close, self.cuts_after_flush
        )?;
        writeln!(
            out,
            "kills:        {}, after {} of which all that was acknowledged had to be there; closed properly: {}",
            self.kills, self.kills_kept, self.closes
        )?;
        writeln!(
            out,
            "devices:      {} restarts of the server under the same clients; the keeper killed {} times, survived {} \
             times; {} blocks rewritten and read back at once",
            self.restarts, self.keeper_kills, self.keeper_kills_survived, self.rewrites
        )?;
        writeln!(
            out,
            "failed syncs: {}, of which {} with a kill and a restart before the next cut",
            self.failed_syncs, self.failed_sync_restarts
        )?;
        writeln!(
            out,
            "recoveries:   {}; check --deep without a fault: {}, and {} while served",
            self.recoveries, self.checks, self.scrubs
        )?;
        writeln!(out, "known:        {} checks took half a checkpoint for a fault", self.known_faults)?;
        writeln!(
            out,
            "disk:         {} MiB written; at cuts and failed syncs {} writes kept, {} lost, {} torn",
            mib(self.disk_written_bytes),
            self.kept_writes,
            self.lost_writes,
            self.torn_writes
        )?;
        writeln!(
            out,
            "clients:      {} MiB written in {} acknowledged changes, {} flushes, {} MiB verified, {} refused as full, \
             {} errors",
            mib(self.written_bytes),
            self.changes,
            self.flushes,
            mib(self.verified_bytes),
            self.refusals,
            self.errors
        )?;
        writeln!(
            out,
            "fio:          {} ranges filled and flushed, verified {} times after a restart; {} cuts while it wrote and \
             verified",
            self.fio_filled, self.fio_verified, self.fio_interrupted
        )?;
        writeln!(out, "lost pages:   {}", self.losses)?;
        writeln!(
            out,
            "repaired:     {} pages by servers; everything read {} times meanwhile; {} openings repeated",
            self.repaired_pages, self.sweeps, self.opened_again
        )?;
        writeln!(out, "beyond cover: {}", self.beyond)?;
        writeln!(
            out,
            "              on {} drives: {} did not open, {} reads failed, checks found {} faults",
            self.beyond_drives, self.beyond_refused, self.beyond_errors, self.beyond_faults
        )?;
        write!(out, "failures:     {}", self.failures)
    }
}
