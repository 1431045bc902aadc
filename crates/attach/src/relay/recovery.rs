//! Recovery after the server was gone.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::error::RecoveryError;
use super::journal::Piece;
use super::tracker::Phase;
use super::{Connected, RelayCore, Server};
use crate::link::{Link, Replies, call};
use crate::operation::{Operation, Outcome};

/// Blocks of drives.
const BLOCK_BYTES: u64 = 4096;
/// Interval between attempts to find a server.
const POLL: Duration = Duration::from_millis(100);

pub(super) fn links(connected: &Connected) -> io::Result<Arc<[Link]>> {
    let Connected { streams, agreed, .. } = connected;
    streams.iter().map(|stream| Ok(Link::new(stream.try_clone()?, *agreed))).collect()
}

/// Runs until the relay ends: whenever the server is gone, waits for it and replays the changes that it has
/// lost.
pub(super) fn keep(core: &Arc<RelayCore>, server: &mut impl Server) {
    loop {
        let since = {
            let mut tracker = core.tracker.lock();
            loop {
                match tracker.phase {
                    Phase::Waiting { since, .. } => break since,
                    Phase::Ended => return,
                    _ => core.changed.wait(&mut tracker),
                }
            }
        };
        let recovered = recover(core, server);
        core.tracker.lock().recovering = None;
        match recovered {
            Ok(()) => tracing::info!(seconds = since.elapsed().as_secs_f64(), "the server is back"),
            Err(error) => wait(core, since, error.to_string()),
        }
    }
}

/// Waits until the next attempt, or gives up.
fn wait(core: &RelayCore, began: Instant, why: String) {
    if !matches!(core.tracker.lock().phase, Phase::Waiting { .. }) {
        return;
    }
    if began.elapsed() >= core.settings.patience {
        tracing::error!(%why, "requests were held until the time limit: all fail from now on");
        core.fail(Phase::Failed(why));
        return;
    }
    let mut tracker = core.tracker.lock();
    if let Phase::Waiting { reason, .. } = &mut tracker.phase {
        if reason.as_ref() != Some(&why) {
            tracing::warn!(%why, "requests are held");
        }
        *reason = Some(why);
        core.changed.wait_for(&mut tracker, POLL);
    }
}

fn recover(core: &Arc<RelayCore>, server: &mut impl Server) -> Result<(), RecoveryError> {
    let connected =
        server.connect(core.device.get()).map_err(|error| RecoveryError::Connect(Box::new(error)))?;
    tracing::info!(delivers = connected.agreed.delivers, "connected to the server");
    let links = links(&connected)?;
    let made_up = make_up(core, &links, connected.opening.as_ref())
        .and_then(|()| Ok(core.install(links.clone(), connected.opening.clone())?));
    // Requests over them must end before they are resent.
    made_up.inspect_err(|_| links.iter().for_each(Link::shut))
}

/// Replays acknowledged changes that the server may not have, and flushes. A server with the same `opening`
/// of the drive as the last connections has all of them: it is only flushed.
fn make_up(core: &RelayCore, links: &Arc<[Link]>, opening: Option<&String>) -> Result<(), RecoveryError> {
    let journal = {
        let mut tracker = core.tracker.lock();
        if !matches!(tracker.phase, Phase::Waiting { .. }) {
            return Err(RecoveryError::GivenUp);
        }
        tracker.recovering = Some(links.clone());
        let lives_on = opening.is_some() && opening == tracker.opening.as_ref();
        if lives_on { Vec::new() } else { tracker.journal.pieces() }
    };
    let first = links.first().ok_or(RecoveryError::NoStream)?;
    let mut replies = first.replies()?;
    let count = journal.len();
    make_again(journal, |change| Ok(call(first, &mut replies, 0, change)?))?;
    let covers = core.tracker.lock().journal.next();
    flush(first, &mut replies).map_err(RecoveryError::Flush)?;
    core.tracker.lock().journal.forget(covers);
    if count > 0 {
        tracing::info!(count, "changes were replayed");
    }
    Ok(())
}

/// Replays changes that do not overlap. Writes only the blocks that lack their data: the server has kept most
/// of them, and rewriting them alone would take more space than they took together. Retries changes that find
/// no space after the others, which may free some.
fn make_again(
    mut left: Vec<Piece>,
    mut ask: impl FnMut(&Operation) -> Result<Outcome, RecoveryError>,
) -> Result<(), RecoveryError> {
    loop {
        let before = left.len();
        let mut without_space = Vec::new();
        for piece in left {
            match make_missing(&piece.operation(), &mut ask)? {
                Ok(()) => {}
                Err(Errno::NOSPC) => without_space.push(piece),
                Err(errno) => return Err(RecoveryError::Refused(errno)),
            }
        }
        left = match without_space.len() {
            0 => return Ok(()),
            count if count < before => without_space,
            count => return Err(RecoveryError::NoSpace(count)),
        };
    }
}

/// Makes a change; a write only in the blocks that lack its data. Data that a server shows after an opening
/// is durable: behind a page cache, it was rewritten. Data that a surviving server shows is durable after the
/// flush that follows. A server with a failed sync refuses that flush.
fn make_missing(
    change: &Operation,
    ask: &mut impl FnMut(&Operation) -> Result<Outcome, RecoveryError>,
) -> Result<Result<(), Errno>, RecoveryError> {
    let Operation::Write { offset, ref data, .. } = *change else { return Ok(ask(change)?.map(drop)) };
    let found = match ask(&Operation::Read { offset, length: data.len() as u32 })? {
        Ok(found) => found,
        // Damaged data can be read once it was rewritten.
        Err(_) => return Ok(ask(change)?.map(drop)),
    };
    let (mut at, end) = (offset, offset + data.len() as u64);
    let mut missing: Vec<(u64, u64)> = Vec::new();
    while at < end {
        let next = (at - at % BLOCK_BYTES + BLOCK_BYTES).min(end);
        let within = (at - offset) as usize..(next - offset) as usize;
        if data[within.clone()] != found[within] {
            match missing.last_mut() {
                Some((_, end)) if *end == at => *end = next,
                _ => missing.push((at, next)),
            }
        }
        at = next;
    }
    for (start, end) in missing {
        if let Err(errno) = ask(&change.part(start, end))? {
            return Ok(Err(errno));
        }
    }
    Ok(Ok(()))
}

fn flush(link: &Link, replies: &mut Replies) -> io::Result<()> {
    call(link, replies, 0, &Operation::Flush)?.map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::super::journal::Journal;
    use super::*;

    fn pieces() -> Vec<Piece> {
        let mut journal = Journal::new(1 << 20);
        for at in 0..4 {
            let change = match at {
                3 => Operation::Trim { offset: 3 * 512, length: 512, fua: false },
                _ => Operation::Write { offset: at * 512, data: vec![1; 512], fua: false },
            };
            journal.add(Arc::new(change));
        }
        journal.pieces()
    }

    #[test]
    fn changes_that_find_no_space_come_after_those_that_free_some() {
        // Room for one of the writes, and for another when the trim was made.
        let (mut room, mut made) = (1, Vec::new());
        let mut ask = |change: &Operation| {
            match change {
                Operation::Read { length, .. } => return Ok(Ok(vec![0; *length as usize])),
                Operation::Trim { .. } => room += 2,
                _ if room == 0 => return Ok(Err(Errno::NOSPC)),
                _ => room -= 1,
            }
            made.push(change.changes().map(|(start, _)| start / 512));
            Ok(Ok(Vec::new()))
        };
        make_again(pieces(), &mut ask).expect("made");
        assert_eq!(made, [Some(0), Some(3), Some(1), Some(2)]);
    }

    #[test]
    fn what_never_finds_space_ends_the_attempt() {
        let mut writes = 0;
        let ask = |change: &Operation| match change {
            Operation::Read { length, .. } => Ok(Ok(vec![0; *length as usize])),
            _ => {
                writes += 1;
                Ok(Err(Errno::NOSPC))
            }
        };
        assert!(make_again(pieces(), ask).expect_err("refused").to_string().contains("4 writes"));
        assert_eq!(writes, 4);
        assert!(make_again(pieces(), |_| Ok(Err(Errno::IO))).is_err());
    }

    #[test]
    fn what_is_there_is_not_made_again() {
        const END: usize = 4 * BLOCK_BYTES as usize;
        let data: Vec<u8> = (0..END - 1000).map(|at| (at / 256) as u8).collect();
        let mut journal = Journal::new(1 << 20);
        journal.add(Arc::new(Operation::Write { offset: 1000, data: data.clone(), fua: false }));
        // The drive has all of it but the second and the third block.
        let mut drive = [vec![0; 1000], data.clone()].concat();
        drive[5000..9000].fill(0);
        let mut written = Vec::new();
        let ask = |change: &Operation| {
            let (start, end) = change.changes().unwrap_or_default();
            match change {
                Operation::Read { offset, length } => {
                    return Ok(Ok(drive[*offset as usize..][..*length as usize].to_vec()));
                }
                Operation::Write { data, .. } => {
                    drive[start as usize..end as usize].copy_from_slice(data);
                    written.push((start, end));
                }
                _ => {}
            }
            Ok(Ok(Vec::new()))
        };
        make_again(journal.pieces(), ask).expect("made");
        assert_eq!(written, [(BLOCK_BYTES, 3 * BLOCK_BYTES)]);
        assert!(drive[1000..] == data);
    }

    #[test]
    fn what_cannot_be_read_is_written() {
        let mut written = 0;
        let ask = |change: &Operation| {
            if let Operation::Read { .. } = change {
                return Ok(Err(Errno::IO));
            }
            written += 1;
            Ok(Ok(Vec::new()))
        };
        make_again(pieces(), ask).expect("made");
        assert_eq!(written, 4);
    }
}
