//! Erasing a drive under its block device: it is detached, erased and attached again, as the device of a
//! hardware drive stays.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ask::{Change, change_only, drive_id};
use attach::bridge::AttachmentState;
use attach::client::{self, Attachment};
use attach::sfx;
use drive::{WipeOptions, WipeTarget};
use host::process;
use status::shown;
use uuid::Uuid;

use super::card::Card;
use super::units::gigabytes;
use crate::output::report_result;
use crate::wipe::{self, Erasing};
use crate::{in_use, usage};

/// Time for other processes to close a block device, and interval of attempts.
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(50);
/// Subcommand of the process behind a block device.
const BRIDGE: &str = "bridge";

/// Whoever asks for a card to be erased has confirmed it.
const ERASING: Erasing = Erasing { yes: true, discard: true, take_over: false, json: false };

/// Erases a drive, after a confirmation.
pub(super) fn erase(card: &Card, options: WipeOptions, force: bool) -> Result<()> {
    check(card)?;
    // Before the question: another drive may be there after it.
    let id = id_of(card)?;
    if !force {
        confirm(card)?;
    }
    offline(card, id, |path| match is_served_by_others(card) {
        true => erase_in_server(path, id, options, false),
        false => {
            wipe::erase(path, WipeOptions { target: WipeTarget::Id(id.into_bytes()), ..options }, &ERASING)
        }
    })
}

/// Reduces the capacity of a drive that holds nothing.
pub(super) fn shrink(card: &Card, bytes: u64) -> Result<()> {
    check(card)?;
    let refuse_data = |used: u64| match used {
        0 => Ok(()),
        _ => bail!(
            "{}: holds data: a capacity below {} is only possible once it is erased (sfx-nvme sfx set-feature -f 0xdc)",
            card.name(),
            gigabytes(card.drive.logical_capacity_bytes)
        ),
    };
    refuse_data(card.drive.logical_used_bytes)?;
    let id = id_of(card)?;
    offline(card, id, |path| {
        let target = WipeTarget::Id(id.into_bytes());
        let options = WipeOptions { logical_capacity_bytes: Some(bytes), target, ..WipeOptions::any() };
        // Something may have been written since.
        if is_served_by_others(card) {
            return erase_in_server(path, id, options, true);
        }
        refuse_data(crate::status::idle(path)?.logical_used_bytes)?;
        wipe::erase(path, options, &ERASING)
    })
}

/// Returns the id of a card's drive: once its server has ended, another one may be at its path. A server that
/// could not open it reports none; then the superblock has it.
fn id_of(card: &Card) -> Result<Uuid> {
    let path = &card.drive.path;
    let id = Some(card.drive.uuid.clone()).filter(|id| !id.is_empty());
    let id = id.or_else(|| drive_id(path).ok().flatten()).and_then(|id| Uuid::parse_str(&id).ok());
    id.with_context(|| {
        let path = shown(path);
        format!("{}: no id can be read; `pumice wipe {path} --yes` wipes whatever is there", card.name())
    })
}

/// Refuses a drive that is in use.
fn check(card: &Card) -> Result<()> {
    if let Some(device) = card.device() {
        in_use::refuse(device)?;
    }
    if card.is_without_answer() {
        bail!("{}: its server does not answer, so nothing is done; try again, or restart that", card.name());
    }
    Ok(())
}

/// Returns whether a server has the drive that was not started for its block device, and so does not end with
/// it.
fn is_served_by_others(card: &Card) -> bool {
    let own = card.attachment.as_ref().and_then(|attachment| attachment.record.server_pid);
    let server = card.drive.server.as_ref().map(|server| server.pid);
    card.unknown().is_none() && server.is_some() && server != own
}

/// Lets the server of a drive erase it, which refuses while it has clients.
fn erase_in_server(path: &Path, id: Uuid, options: WipeOptions, only_if_empty: bool) -> Result<()> {
    let WipeOptions { sector_bytes, logical_capacity_bytes, .. } = options;
    let erase = Change::Erase { sector_bytes, logical_capacity_bytes, only_if_empty };
    if change_only(path, &id.to_string(), &erase)?.is_none() {
        bail!("{}: its server is gone; nothing was erased, try again", shown(path));
    }
    report_result(&format!("{}: wiped", shown(path)), || {
        Ok(writeln!(crate::output::stdout(), "{}: wiped", shown(path))?)
    });
    Ok(())
}

/// Asks on the terminal, or whoever writes to standard input.
fn confirm(card: &Card) -> Result<()> {
    let name = card.name();
    if std::io::stdin().is_terminal() {
        let path = shown(&card.drive.path);
        write!(std::io::stderr(), "{name} ({path}): everything on it will be lost. Type yes to go on: ")?;
    }
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !["yes", "y"].contains(&answer.trim()) {
        bail!("{name}: unchanged: this erases all data; confirm with yes, or with --force");
    }
    Ok(())
}

/// Does something with a drive that nobody serves meanwhile.
fn offline(card: &Card, id: Uuid, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let path = &card.drive.path;
    let Some(attachment) = &card.attachment else { return work(path) };
    let command = bridge(attachment)?;
    let device = attachment.record.node.as_deref();
    let was_linked = card.number.zip(device).is_some_and(|(number, device)| sfx::linked(number, device));
    detach(attachment)?;
    let done = work(path);
    if drive_id(path).ok().flatten().is_some_and(|now| now != id.to_string()) {
        // It would get the number of this one.
        usage::complain(&format!("{}: not attached again: another drive is at its path now", card.name()));
        return done;
    }
    let attached = attach(&attachment.record.path, command, was_linked);
    match (done, attached) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(error), Ok(())) => Err(error),
        (Ok(()), Err(error)) => {
            Err(error.context(format!("{}: done, but it cannot be attached again", card.name())))
        }
        (Err(error), Err(attaching)) => {
            usage::complain(&format!(
                "{}: cannot be attached again: {}",
                card.name(),
                usage::one_line(&attaching)
            ));
            Err(error)
        }
    }
}

/// Detaches a drive. Processes that look at all loop devices, as some commands of this program do, have it
/// open for a moment.
fn detach(attachment: &Attachment) -> Result<()> {
    let since = Instant::now();
    loop {
        match attachment.detach(false) {
            Ok(()) => return Ok(()),
            Err(_) if since.elapsed() < PATIENCE && client::find(&attachment.record.path).is_some() => {
                std::thread::sleep(POLL);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the command that attaches a drive as it is attached now: that of its bridge.
fn bridge(attachment: &Attachment) -> Result<Command> {
    let pid = attachment.record.bridge_pid;
    let failed = || format!("{}: its bridge process {pid} is unknown", shown(&attachment.record.path));
    let arguments = process::arguments(pid).with_context(failed)?;
    let [_, arguments @ ..] = arguments.as_slice() else { bail!("{}", failed()) };
    let [command, path, ..] = arguments else { bail!("{}", failed()) };
    if command != BRIDGE || path != attachment.record.path.as_os_str() {
        bail!("{}", failed());
    }
    let mut command = Command::new(crate::attach::program()?);
    command.args(arguments);
    Ok(command)
}

fn attach(path: &Path, command: Command, linked: bool) -> Result<()> {
    let bridge = match client::start(path, command) {
        Ok(bridge) => bridge,
        // Its unit was faster.
        Err(error) => {
            match client::find(path).filter(|found| found.status.state == AttachmentState::Attached) {
                Some(found) => {
                    let device = found.record.node.unwrap_or_default();
                    if linked {
                        sfx::link(path, &device)?;
                    }
                    usage::complain(&format!(
                        "{} attached again as {}, by another process",
                        shown(path),
                        device.display()
                    ));
                    return Ok(());
                }
                None => return Err(error.into()),
            }
        }
    };
    let device = bridge.record.node.clone().unwrap_or_default();
    if linked {
        sfx::link(path, &device)?;
    }
    bridge.keep()?;
    usage::complain(&format!("{} attached again as {}", shown(path), device.display()));
    Ok(())
}
