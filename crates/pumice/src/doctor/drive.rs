//! The drive itself: its state, its parity, and whether the data compresses well enough for its logical
//! capacity.

use attach::bridge::AttachmentState;
use status::{CapacityPlan, DriveState, Fit, StatusReport};

use super::finding::Finding;
use super::{Patient, Target};
use crate::human;

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    let Some(status) = &patient.status else {
        return vec![match (&patient.no_status, patient.target) {
            (Some(why), _) => Finding::fail("drive", why.as_str(), "status not available"),
            (None, Target::New) => Finding::ok("drive", "none yet: it can be made here"),
            (None, _) => Finding::unknown("drive", "not looked at", "try again"),
        }];
    };
    let mut found = vec![state(status, patient.not_served), capacity_plan(status)];
    found.extend(parity(status));
    found
}

/// `not_served`: what its block device does, if it is attached without a server.
fn state(status: &StatusReport, not_served: Option<AttachmentState>) -> Finding {
    let errors = &status.errors;
    let why = status.state_reason.as_deref().unwrap_or("no reason is known");
    match status.state {
        DriveState::Poisoned => Finding::fail(
            "drive",
            format!("poisoned: {why}"),
            "look after the backing, then restart the server",
        ),
        DriveState::Damaged => Finding::fail(
            "drive",
            format!("damaged: {why}"),
            "copy the readable data; run pumice check for details",
        ),
        DriveState::Idle if not_served == Some(AttachmentState::Failed) => Finding::fail(
            "drive",
            format!("attached, and its device failed: {why}"),
            "its requests fail; pumice detach and pumice attach make it again",
        ),
        DriveState::Idle if not_served.is_some() => Finding::fail(
            "drive",
            format!("attached, and not served: {why}"),
            "hosts wait for it; pumice list shows why",
        ),
        _ if status.recovery.start_lost => Finding::warn(
            "drive",
            "the start of the backing was lost; superblock and checkpoints were found far from it",
            "find out what overwrote it; pumice serve writes the start again, pumice check --deep shows what is lost",
        ),
        _ if errors.corrupt_records_count > 0 => Finding::warn(
            "drive",
            format!("met {} corrupt records over its life", errors.corrupt_records_count),
            "pumice check --deep names what is lost",
        ),
        _ if errors.read_errors_count + errors.write_errors_count > 0 => Finding::warn(
            "drive",
            format!(
                "the backing answered {} reads and {} writes with errors over its life",
                errors.read_errors_count, errors.write_errors_count
            ),
            "look into the kernel log",
        ),
        state => Finding::ok("drive", format!("{state}, no errors over its life")),
    }
}

/// Whether parity can do what it is for: everything has it, and what rots is found before a second page does.
fn parity(status: &StatusReport) -> Option<Finding> {
    let parity = &status.parity;
    let check = "parity";
    let (repaired, lost) = (parity.repaired_pages_count, parity.lost_pages_count);
    if parity.backing_failing {
        return Some(Finding::fail(
            check,
            format!("{repaired} pages repaired since it was opened, at more than 256 places within an hour"),
            "the backing is failing: move the drive to another one",
        ));
    }
    if lost > 0 {
        return Some(Finding::fail(
            check,
            format!("{lost} reads met pages that cannot be repaired, {repaired} pages were"),
            "pumice check --deep names what is lost; check the backing",
        ));
    }
    if repaired > 0 {
        return Some(Finding::warn(
            check,
            format!("{repaired} pages repaired since it was opened: the backing loses data"),
            "watch whether it rises; check the backing, plan to replace it",
        ));
    }
    if !parity.is_on() {
        return None;
    }
    if parity.segments_uncovered_count > 0 {
        return Some(Finding::warn(
            check,
            format!("{} segments have no parity yet", parity.segments_uncovered_count),
            match status.server {
                Some(_) => "the server makes it; look again in some minutes",
                None => "pumice serve makes it",
            },
        ));
    }
    let is_served = status.server.is_some();
    if is_served && status.scrubs.every_seconds.is_none() {
        return Some(Finding::warn(
            check,
            format!("{} of each segment, no periodic scrub", parity.form),
            "scrub, so that damage is repaired before there is more: --scrub-every 30d",
        ));
    }
    Some(Finding::ok(check, format!("{} of each segment", parity.form)))
}

/// Compares the ratio that the logical capacity requires with the ratio of the data, without fills.
fn capacity_plan(status: &StatusReport) -> Finding {
    let check = "capacity-plan";
    if status.backing_full {
        return Finding::fail(
            check,
            "the file system or volume under the drive is full: changes are refused",
            "make room there; the drive resumes by itself (docs/how-to/full-drive.md)",
        );
    }
    if status.out_of_space {
        return Finding::fail(
            check,
            "physical space is full: writes are refused",
            "trim, delete what is above, or grow it (pumice set-size)",
        );
    }
    let CapacityPlan { needed_ratio, room_bytes, fit } = status.capacity_plan();
    if room_bytes == 0 {
        return Finding::unknown(check, "space for data not available", "see pumice status");
    }
    let capacity = human::bytes(status.logical_capacity_bytes);
    let plan = format!("the capacity of {capacity} needs {needed_ratio:.2}:1");
    let shows = || status.ratios_text(human::duration).unwrap_or_default();
    match fit {
        Fit::Any => Finding::ok(check, format!("{plan}: any data fits")),
        Fit::Enough { .. } => Finding::ok(check, format!("{plan}, its data shows {}", shows())),
        Fit::TooMuch { reach_bytes, .. } => Finding::warn(
            check,
            format!("{plan}, its data shows {}: full at {}", shows(), human::bytes(reach_bytes)),
            "watch physical_used_ratio, keep file systems above smaller, or grow it (pumice set-size)",
        ),
        Fit::Unknown => Finding::unknown(
            check,
            format!("{plan}; too little data other than zeros to estimate the ratio"),
            "measure yours with pumice scan",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn zeros_do_not_make_a_capacity_good() {
        const MIB: u64 = 1 << 20;
        let of = |data_mib: u64, ratio: u64| {
            let mut report = StatusReport {
                logical_capacity_bytes: 9 << 30,
                logical_used_bytes: (2 << 30) + data_mib * MIB,
                logical_fill_bytes: 2 << 30,
                physical_limit_bytes: 420 * MIB,
                physical_used_bytes: data_mib * MIB / ratio + MIB / 2,
                compression_ratio: 34.91,
                ..StatusReport::default()
            };
            report.estimate();
            let finding = capacity_plan(&report);
            (finding.verdict, finding.cells().concat())
        };
        let (verdict, text) = of(60, 1);
        assert!(verdict == Verdict::Warn && text.contains("0.99:1 without zeros"), "{text}");
        let (verdict, text) = of(20, 1);
        assert!(verdict == Verdict::Unknown && text.contains("too little data"), "{text}");
        let (verdict, text) = of(3000, 30);
        assert!(verdict == Verdict::Ok, "{text}");
    }

    #[test]
    fn what_threatens_parity_is_named() {
        let of = |parity: status::ParityReport, every_seconds| {
            let scrubs = status::ScrubsReport { every_seconds, ..Default::default() };
            let server = Some(status::ServerReport::default());
            let report = StatusReport { parity, scrubs, server, ..StatusReport::default() };
            super::parity(&report).map(|finding| (finding.verdict, finding.cells().concat()))
        };
        let none = status::ParityReport { form: "none".into(), ..Default::default() };
        let some = || status::ParityReport { form: "1/32".into(), ..Default::default() };
        assert_eq!(of(none, None), None);
        assert_eq!(of(some(), Some(1.0)).expect("a finding").0, Verdict::Ok);
        let repaired = || status::ParityReport { repaired_pages_count: 3, ..some() };
        for (parity, verdict, says) in [
            (some(), Verdict::Warn, "--scrub-every"),
            (
                status::ParityReport { segments_uncovered_count: 2, ..some() },
                Verdict::Warn,
                "2 segments have no parity",
            ),
            (repaired(), Verdict::Warn, "3 pages repaired"),
            (status::ParityReport { lost_pages_count: 1, ..repaired() }, Verdict::Fail, "cannot be repaired"),
            (
                status::ParityReport { backing_failing: true, ..repaired() },
                Verdict::Fail,
                "backing is failing",
            ),
        ] {
            let (found, text) = of(parity, None).expect("a finding");
            assert!(found == verdict && text.contains(says), "{text}");
        }
    }

    #[test]
    fn a_lost_start_is_a_warning() {
        let recovery = status::RecoveryReport { start_lost: true, ..Default::default() };
        let finding = state(&StatusReport { recovery, ..StatusReport::default() }, None);
        assert!(
            finding.verdict == Verdict::Warn
                && finding.cells().concat().contains("start of the backing was lost")
        );
    }

    #[test]
    fn an_attached_drive_without_a_server_fails() {
        let idle = |reason: Option<&str>, not_served| {
            let state_reason = reason.map(str::to_string);
            let report = StatusReport { state: DriveState::Idle, state_reason, ..StatusReport::default() };
            let finding = state(&report, not_served);
            (finding.verdict, finding.cells().concat())
        };
        assert_eq!(idle(None, None).0, Verdict::Ok);
        let (verdict, text) = idle(Some("no space"), Some(AttachmentState::Waiting));
        assert!(verdict == Verdict::Fail && text.contains("not served: no space"), "{text}");
        let (verdict, text) = idle(Some("gone"), Some(AttachmentState::Failed));
        assert!(verdict == Verdict::Fail && text.contains("device failed: gone"), "{text}");
        assert!(text.contains("requests fail") && !text.contains("hosts wait"), "{text}");
    }
}
