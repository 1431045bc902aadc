//! The drives of servers, each with its block device. Several servers may have opened a drive by one path: a
//! device belongs to the drive that it was made of.

use std::cmp::Reverse;

use attach::client::{Attachment, Match};
use status::StatusReport;

/// Joins drives with their attachments, in the order of the drives. Returns the attachments whose drives are
/// not among them as well.
pub(crate) fn joined(
    drives: Vec<StatusReport>,
    attachments: Vec<Attachment>,
) -> (Vec<(StatusReport, Option<Attachment>)>, Vec<Attachment>) {
    let matched = |(at, attachment): (usize, &Attachment)| {
        let of_drive = |(drive, report)| Some((attachment.record.matches(report)?, drive, at));
        drives.iter().enumerate().filter_map(of_drive).collect::<Vec<(Match, usize, usize)>>()
    };
    let mut matches: Vec<_> = attachments.iter().enumerate().flat_map(matched).collect();
    // The surest first. The sort is stable.
    matches.sort_by_key(|(sure, ..)| Reverse(*sure));
    let mut attachments: Vec<_> = attachments.into_iter().map(Some).collect();
    let mut of_drives: Vec<Option<Attachment>> = vec![None; drives.len()];
    for (_, drive, at) in matches {
        if of_drives[drive].is_none() {
            of_drives[drive] = attachments[at].take();
        }
    }
    (drives.into_iter().zip(of_drives).collect(), attachments.into_iter().flatten().collect())
}
