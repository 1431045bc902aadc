//! Drives under the names of ScaleFlux: a number, `/dev/sfdv0n1`, `/dev/sfxv0`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attach::bridge::AttachmentState;
use attach::client::{self, Attachment};
use attach::sfx;
use status::{DriveState, StatusReport, shown};

use crate::joined::joined;

/// A drive, served or not.
pub(super) struct Card {
    /// `None` if the directory of numbers cannot be written.
    pub(super) number: Option<u32>,
    pub(super) drive: StatusReport,
    pub(super) attachment: Option<Attachment>,
}

impl Card {
    fn new(drive: StatusReport, attachment: Option<Attachment>) -> Card {
        Card { number: sfx::claim(&drive.path).ok(), drive, attachment }
    }

    /// The name that the listing shows: that of the block device with its number.
    pub(super) fn name(&self) -> String {
        match self.number {
            Some(number) => sfx::node(number).display().to_string(),
            None => shown(&self.drive.path).to_string(),
        }
    }

    /// The block device, if it is attached.
    pub(super) fn device(&self) -> Option<&Path> {
        self.attachment.as_ref()?.record.node.as_deref()
    }

    /// State of a drive of which nothing else is known, because it has no server, or that does not answer.
    pub(super) fn unknown(&self) -> Option<String> {
        (self.drive.state == DriveState::Down).then(|| {
            if self.is_without_answer() {
                return "no answer".to_string();
            }
            let reason = self.drive.state_reason.as_ref().map(|reason| format!(": {reason}"));
            self.device_state().unwrap_or_else(|| format!("down{}", reason.unwrap_or_default()))
        })
    }

    /// Returns whether its block device has a server, which has not reported the drive.
    pub(super) fn is_without_answer(&self) -> bool {
        let is_attached =
            self.attachment.as_ref().is_some_and(|it| it.status.state == AttachmentState::Attached);
        self.drive.state == DriveState::Down && self.drive.server.is_none() && is_attached
    }

    /// State of its block device, with the reason; `None` if it has none, or requests are passed on.
    pub(super) fn device_state(&self) -> Option<String> {
        let status = &self.attachment.as_ref()?.status;
        let state = match status.state {
            AttachmentState::Attached => return None,
            AttachmentState::Waiting => "waiting for the server",
            AttachmentState::Unattended => "waiting for pumice attach",
            AttachmentState::Failed => "failed",
            AttachmentState::Changing => "changing",
        };
        let reason = status.reason.as_ref().map(|reason| format!(": {reason}"));
        Some(format!("{state}{}", reason.unwrap_or_default()))
    }
}

/// Returns all drives that are served or attached on this machine, by number.
pub(super) fn all() -> Vec<Card> {
    let (drives, attachments) = joined(crate::served::drives().0, client::all());
    // Those that are attached have their numbers already.
    let number_of = |attachment: &Attachment| sfx::claim(&attachment.record.path).ok();
    let of_attached: Vec<u32> =
        drives.iter().filter_map(|(_, it)| it.as_ref()).chain(&attachments).filter_map(number_of).collect();
    // A number is that of a path: a drive that was there earlier has none, and what is there now has none
    // while the device of the earlier one has it.
    let own = |drive: &StatusReport| {
        let number = ask::leads_to(&drive.path, drive).then(|| sfx::claim(&drive.path).ok()).flatten();
        number.filter(|number| !of_attached.contains(number))
    };
    let served = |(drive, attachment): (StatusReport, Option<Attachment>)| Card {
        number: attachment.as_ref().map_or_else(|| own(&drive), number_of),
        drive,
        attachment,
    };
    let mut cards: Vec<Card> = drives.into_iter().map(served).collect();
    for attachment in attachments {
        cards.push(Card::new(without_server(&attachment), Some(attachment)));
    }
    cards.sort_by_key(|card| (card.number.is_none(), card.number));
    cards
}

fn without_server(attachment: &Attachment) -> StatusReport {
    StatusReport {
        path: attachment.record.path.clone(),
        state: DriveState::Down,
        state_reason: attachment.status.reason.clone(),
        ..StatusReport::default()
    }
}

/// Returns the drive with a name: a number, `/dev/sfdv0n1` or `/dev/sfxv0` whether or not there is such a
/// link, its block device, or its path.
pub(super) fn find(name: &Path) -> Result<Card> {
    found(name, crate::served::drive)
}

/// As [`find`], for a drive that is to be changed: its server has ten seconds to answer.
pub(super) fn find_patiently(name: &Path) -> Result<Card> {
    found(name, crate::served::drive_to_change)
}

/// A path may lead to another drive than that of the attachment which was made by it.
fn found(name: &Path, served: impl FnOnce(&Path) -> Result<Option<StatusReport>>) -> Result<Card> {
    let path = resolve(name)?;
    let attachment = client::find(&path);
    // Not a number or a link, which are names of its device.
    let is_of_path = attachment.as_ref().is_some_and(|attachment| attachment.is_of(name));
    let path = attachment.as_ref().map_or(path, |attachment| attachment.record.path.clone());
    let served = served(&path)?;
    let is_another = attachment.as_ref().is_some_and(|attachment| match &served {
        Some(report) => attachment.record.matches(report).is_none(),
        None => attachment.record.is_replaced(),
    });
    if is_another && !is_of_path {
        bail!(
            "{}: is the device of another drive than the one at {}; name that by its path",
            shown(name),
            shown(&path)
        );
    }
    let attachment = attachment.filter(|_| !is_another);
    let drive = match (served, &attachment) {
        (Some(report), _) => report,
        (None, Some(attachment)) => without_server(attachment),
        (None, None) => crate::status::idle(&path)?,
    };
    Ok(Card::new(drive, attachment))
}

fn resolve(name: &Path) -> Result<PathBuf> {
    let number = name.to_str().and_then(sfx::number_of);
    let Some(number) = number else { return Ok(name.to_path_buf()) };
    if name.is_absolute() && name.exists() {
        // A link that was left may lead to another drive by now.
        let is_link = name.is_symlink();
        let own = sfx::drive(number).and_then(|path| client::find(&path)).and_then(|found| found.record.node);
        if is_link && own.is_none_or(|node| std::fs::read_link(name).is_ok_and(|target| target != node)) {
            bail!(
                "{}: leads to another device than that of the drive with this number; remove it",
                shown(name)
            );
        }
        return Ok(name.to_path_buf());
    }
    match sfx::drive(number) {
        Some(path) => Ok(path),
        None => bail!("{}: no drive has this number; `sfx-status` shows those that there are", shown(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_of_a_server_that_could_not_open_it_is_down() {
        let server = Some(status::ServerReport::default());
        let drive = StatusReport { state: DriveState::Down, server, ..StatusReport::default() };
        let card = Card { number: None, drive, attachment: None };
        assert!(!card.is_without_answer());
        assert_eq!(card.unknown().as_deref(), Some("down"));
    }
}
