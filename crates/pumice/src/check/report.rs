//! Output of `pumice check`.

use status::path_text;
use std::io::{self, Write};
use std::path::Path;

use drive::{CheckReport, CopyFound, CopyState, Fault, OwnerFound, Status, Subject};
use serde_json::{Value, json};

use crate::human;

/// A drive that could be opened, and the report of its check.
pub(super) struct Checked {
    pub(super) status: Status,
    pub(super) report: CheckReport,
    /// The mark on the backing.
    pub(super) owner: Option<OwnerFound>,
}

/// Result of a check.
pub(super) enum CheckOutcome {
    Open(Box<Checked>),
    /// The drive cannot be opened.
    Closed {
        superblocks: Vec<CopyFound>,
        checkpoints: Vec<CopyFound>,
        why: String,
    },
}

impl CheckOutcome {
    pub(super) fn faults_count(&self) -> u64 {
        match self {
            CheckOutcome::Open(checked) => checked.report.faults_count,
            CheckOutcome::Closed { .. } => 1,
        }
    }

    /// Advice on the faults.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            CheckOutcome::Open(checked) if checked.status.recovered.start_lost => START_LOST,
            CheckOutcome::Open(checked) => advice(&checked.report),
            CheckOutcome::Closed { .. } => ANEW,
        }
    }

    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            CheckOutcome::Closed { superblocks, checkpoints, why } => {
                print_copies(out, superblocks, checkpoints)?;
                writeln!(out, "fault: {why}")
            }
            CheckOutcome::Open(checked) => checked.print(out),
        }
    }

    pub(super) fn json(&self, path: &Path) -> Value {
        match self {
            CheckOutcome::Closed { superblocks, checkpoints, why } => json!({
                "path": path,
                "opened": false,
                "superblock_copies": copies(superblocks),
                "checkpoint_copies": copies(checkpoints),
                "faults_count": 1,
                "faults": [{ "message": why }],
            }),
            CheckOutcome::Open(checked) => checked.json(path),
        }
    }
}

/// Advice on damaged data of hosts, as the events of a served drive give it.
const RESTORE: &str = "restore these blocks from a backup: each can be read again once it is written \
                                  (docs/how-to/backing-trouble.md)";
/// Advice on a drive that does not open, or whose structures are damaged.
const ANEW: &str = "copy off what can be read, and make the drive anew";

/// Advice on a drive that is there by its far copies only.
const START_LOST: &str = "the start of the backing was lost, and the copies far from it are used: open the drive for \
                          writing (pumice serve), which writes the others again, then check it with --deep";

fn advice(report: &CheckReport) -> &'static str {
    let is_of_copy = |fault: &Fault| fault.subject == Subject::Copy;
    // Their map has no bytes of hosts.
    let is_of_dictionaries = |fault: &Fault| match fault.subject {
        Subject::Dictionaries => !fault.spare,
        Subject::Map => fault.logical_len_bytes.is_none(),
        _ => false,
    };
    let is_of_data = |fault: &Fault| {
        matches!(fault.subject, Subject::Data | Subject::Log) && fault.logical_len_bytes.is_some()
    };
    let faults = &report.faults;
    match faults.iter().all(|fault| fault.spare) {
        true if faults.iter().any(is_of_copy) => {
            "nothing is lost, but a second fault at the other copy would be the end of the drive: look after \
             the backing"
        }
        true => {
            "nothing is lost, but a second fault at the other copy would cost all data compressed with a \
             dictionary: look after the backing"
        }
        false if !report.deep && faults.iter().any(is_of_dictionaries) => {
            "data compressed with a dictionary is lost, --deep says which: copy off what can be read, and make \
             the drive anew"
        }
        false if faults.iter().filter(|fault| !fault.spare).all(is_of_data) => RESTORE,
        false => ANEW,
    }
}

impl Checked {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Checked { status, report, owner } = self;
        print_copies(out, &report.superblocks, &report.checkpoints)?;
        if let Some(owner) = owner {
            let how = if owner.open { "has not closed the drive" } else { "closed the drive" };
            writeln!(out, "owner: {}, which {how}", owner.who())?;
        }
        match (status.recovered.clean, status.recovered.packs_count) {
            (true, _) => writeln!(out, "log: the drive was closed properly")?,
            (false, packs) => writeln!(
                out,
                "log: not closed properly; {packs} packs ({}) behind the checkpoint, rolled forward in memory",
                human::bytes(status.recovered.log_bytes)
            )?,
        }
        let (damaged, bad) = (status.segments_damaged_count, status.segments_bad_count);
        let used = report.segments_count - report.segments_free_count - damaged - bad;
        writeln!(
            out,
            "segments: {} ({used} used, {} free, {damaged} set aside as damaged, {bad} as bad), usage held against the \
             map",
            report.segments_count, report.segments_free_count
        )?;
        let [leaves, one, two, root] = report.nodes_counts;
        writeln!(
            out,
            "map: {leaves} leaves, {one} + {two} + {root} nodes above them, {}",
            human::bytes(report.nodes_bytes)
        )?;
        let read = match report.deep {
            true => format!("{} read, verified and decompressed", report.records_verified_count),
            false => "not read (--deep does)".to_string(),
        };
        writeln!(
            out,
            "records: {}, {}; places held against each other; {read}",
            report.records_count,
            human::bytes(report.records_bytes)
        )?;
        if report.protected_pages_count > 0 {
            let state = match report.protected_pages_bad_count {
                0 => "all as they were written".to_string(),
                bad => format!(
                    "{bad} not as they were written: a scrub while it is served (--deep) makes them again"
                ),
            };
            writeln!(out, "parity: {} pages read by place, {state}", report.protected_pages_count)?;
        }
        writeln!(out, "fills: {} blocks of zeros or one repeated word", report.fills_count)?;
        for fault in &report.faults {
            writeln!(out, "fault: {fault}")?;
        }
        let more = report.faults_count - report.faults.len() as u64;
        if more > 0 {
            writeln!(out, "fault: {more} more")?;
        }
        Ok(())
    }

    fn json(&self, path: &Path) -> Value {
        let Checked { status, report, owner } = self;
        json!({
            "path": path_text(path),
            "opened": true,
            "deep": report.deep,
            "closed_properly": status.recovered.clean,
            "owner": owner.as_ref().map(|owner| json!({ "open": owner.open, "process": owner.who() })),
            "log_packs_count": status.recovered.packs_count,
            "log_bytes": status.recovered.log_bytes,
            "superblock_copies": copies(&report.superblocks),
            "checkpoint_copies": copies(&report.checkpoints),
            "segments_count": report.segments_count,
            "segments_free_count": report.segments_free_count,
            "segments_damaged_count": status.segments_damaged_count,
            "segments_bad_count": status.segments_bad_count,
            "map_nodes_counts": report.nodes_counts,
            "map_bytes": report.nodes_bytes,
            "records_count": report.records_count,
            "records_bytes": report.records_bytes,
            "records_verified_count": report.records_verified_count,
            "protected_pages_count": report.protected_pages_count,
            "protected_pages_bad_count": report.protected_pages_bad_count,
            "fills_count": report.fills_count,
            "faults_count": report.faults_count,
            "faults": report.faults.iter().map(fault).collect::<Vec<_>>(),
        })
    }
}

fn fault(fault: &Fault) -> Value {
    json!({
        "message": fault.to_string(),
        "logical_offset_bytes": fault.logical_offset_bytes,
        "logical_len_bytes": fault.logical_len_bytes,
        "segment": fault.segment,
        "position_bytes": fault.position_bytes,
        "only_a_spare_copy": fault.spare,
    })
}

fn copies(found: &[CopyFound]) -> Vec<Value> {
    let one = |found: &CopyFound| {
        let (state, number, why) = match &found.state {
            CopyState::Whole { number, .. } => ("whole", Some(*number), None),
            CopyState::Obsolete => ("obsolete", None, None),
            CopyState::Blank => ("blank", None, None),
            CopyState::Foreign => ("foreign", None, None),
            CopyState::Damaged(why) => ("damaged", None, Some(why)),
        };
        json!({
            "slot": found.slot,
            "copy": found.copy,
            "position_bytes": found.position_bytes,
            "state": state,
            "number": number,
            "reason": why,
        })
    };
    found.iter().map(one).collect()
}

fn print_copies(
    out: &mut impl Write,
    superblocks: &[CopyFound],
    checkpoints: &[CopyFound],
) -> io::Result<()> {
    let state = |found: &CopyFound| match &found.state {
        CopyState::Whole { number, .. } => format!("number {number}"),
        CopyState::Obsolete => "of another drive, or from before or during a wipe".to_string(),
        CopyState::Blank => "blank".to_string(),
        CopyState::Foreign => "something else".to_string(),
        CopyState::Damaged(why) => format!("damaged ({why})"),
    };
    let list = |found: &[CopyFound]| found.iter().map(state).collect::<Vec<_>>().join(", ");
    writeln!(out, "superblock: {}", list(superblocks))?;
    for slot in checkpoints.chunk_by(|one, next| one.slot == next.slot) {
        writeln!(out, "checkpoint slot {}: {}", slot[0].slot, list(slot))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice_on(deep: bool, faults: &[(Subject, bool)]) -> &'static str {
        let mut report = CheckReport { deep, ..CheckReport::default() };
        faults.iter().for_each(|_| report.add_fault("it is damaged".to_string()));
        for (fault, (subject, spare)) in report.faults.iter_mut().zip(faults) {
            (fault.subject, fault.spare) = (*subject, *spare);
            fault.logical_len_bytes = (*subject == Subject::Data).then_some(4096);
        }
        advice(&report)
    }

    #[test]
    fn the_advice_fits_what_is_damaged() {
        let (copy, dictionary) = ((Subject::Copy, true), (Subject::Dictionaries, true));
        assert!(advice_on(false, &[copy]).contains("the end of the drive"));
        assert!(advice_on(false, &[dictionary, copy]).contains("the end of the drive"));
        assert!(advice_on(true, &[dictionary]).contains("compressed with a dictionary: look after"));
        for lost in [Subject::Dictionaries, Subject::Map] {
            assert!(advice_on(false, &[(lost, false), copy]).contains("--deep says which"));
            assert!(advice_on(true, &[(lost, false)]).starts_with("copy off"));
        }
        assert_eq!(advice_on(false, &[(Subject::Data, false), dictionary]), RESTORE);
        assert!(advice_on(true, &[(Subject::Data, false), (Subject::Map, false)]).starts_with("copy off"));
    }
}
