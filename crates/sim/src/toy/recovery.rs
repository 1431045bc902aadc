//! Recovery of the toy drive.

use std::sync::Arc;

use media::{IoBuf, Media, PAGE_BYTES, SimMedia};

use super::log::{Entry, Kind, pages};
use super::{PAGE, State};
use crate::Error;

const READ_BYTES: u64 = 256 << 10;

/// Treatment of entries that are missing although they were durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    Refuse,
    /// Recover the state before it.
    Accept,
}

/// Treatment of checksums of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksums {
    Verify,
    /// For [`PlantedBug::IgnoreTornPack`](drive::PlantedBug::IgnoreTornPack).
    Ignore,
}

/// An entry that is missing although it was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {number} is missing, but entry {durable} was durable")]
struct LostEntry {
    number: u64,
    /// The newest entry that a later one calls durable.
    durable: u64,
}

/// Writes an empty drive.
pub(super) async fn format(media: &SimMedia) -> Result<(), Error> {
    let end =
        Entry { generation: 1, first: 1, number: 1, durable: 0, kind: Kind::SnapshotEnd, offset: 0, len: 0 };
    media.write(0, Arc::new(end.encode(&[]))).await.map_err(io)?;
    media.sync().await.map_err(io)
}

fn io(error: std::io::Error) -> Error {
    Error::Io(error.to_string())
}

/// Recovers the drive from the backing: the newest complete snapshot, and every entry after it up to the
/// first that is missing or torn. If a later entry calls that one durable, this is damage and not a crash.
///
/// Only the newest half can be damaged. The older one may be partly overwritten by a snapshot that was not
/// completed.
pub(super) async fn recover(
    media: &SimMedia,
    on_damage: Damage,
    checksums: Checksums,
) -> Result<State, Error> {
    let half = media.size_bytes() / PAGE / 2 * PAGE;
    let mut best: Option<State> = None;
    let (mut newest_generation, mut next_number) = (0, 0);
    let mut damages = Vec::new();
    for number in 0..2 {
        let bytes = read(media, number * half, half).await?;
        let (found, damage) = walk(&bytes, number, checksums);
        damages.extend(damage.map(|lost| (found.generation, lost)));
        newest_generation = newest_generation.max(found.generation);
        next_number = next_number.max(found.next);
        if found.snapshots > 0 && best.as_ref().is_none_or(|best| best.generation < found.generation) {
            best = Some(found);
        }
    }
    let generation = best.as_ref().map_or(0, |best| best.generation);
    let is_newest = |(of, _): &(u64, LostEntry)| *of >= generation;
    if let Some((_, lost)) = damages.into_iter().find(is_newest).filter(|_| on_damage == Damage::Refuse) {
        return Err(Error::Damaged(lost.to_string()));
    }
    let mut state = best.ok_or_else(|| Error::Damaged("no complete snapshot".into()))?;
    state.generation = newest_generation;
    state.next = next_number;
    state.durable = state.next - 1;
    state.snapshots = 0;
    Ok(state)
}

async fn read(media: &SimMedia, from: u64, len: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::with_capacity(len as usize);
    for at in (from..from + len).step_by(READ_BYTES as usize) {
        let buf = IoBuf::zeroed(READ_BYTES.min(from + len - at) as usize);
        let (buf, result) = media.read(at, buf).await;
        result.map_err(io)?;
        bytes.extend_from_slice(&buf);
    }
    Ok(bytes)
}

/// Reads a half, and finds what is missing in it that was durable. `generation` and `next` also count
/// unusable entries. `snapshots` is 1 if the snapshot is complete.
fn walk(bytes: &[u8], half: u64, checksums: Checksums) -> (State, Option<LostEntry>) {
    let headers: Vec<Entry> =
        bytes.chunks_exact(PAGE_BYTES).filter_map(|page| Some(Entry::decode(page)?.0)).collect();
    let mut state = State { half, ..State::default() };
    state.generation = headers.iter().map(|h| h.generation).max().unwrap_or(0);
    state.next = headers.iter().map(|h| h.number + 1).max().unwrap_or(1);
    let ours = || headers.iter().filter(|h| h.generation == state.generation);
    let vouched = ours().map(|h| h.durable).max().unwrap_or(0);
    let first = ours().map(|h| h.first).max().unwrap_or(0);
    let generation = state.generation;
    let mut number = first;
    let mut at = 0;
    while let Some((entry, crc)) = bytes.get(at..at + PAGE_BYTES).and_then(Entry::decode) {
        let whole = pages(entry.data_len()) as usize * PAGE_BYTES;
        let Some(data) = bytes.get(at + PAGE_BYTES..at + whole) else { break };
        let data = &data[..entry.data_len() as usize];
        let is_next = entry.generation == generation && entry.number == number;
        if !is_next || (crc32c::crc32c(data) != crc && checksums == Checksums::Verify) {
            break;
        }
        match entry.kind {
            Kind::Write => state.apply(entry.offset, Some(data), entry.len),
            Kind::Zero => state.zero(entry.offset, entry.len),
            Kind::SnapshotEnd => state.snapshots = 1,
        }
        number += 1;
        at += whole;
    }
    let is_missing = vouched >= number && vouched >= first && first > 0;
    let damage = is_missing.then_some(LostEntry { number, durable: vouched });
    state.tail = at as u64 / PAGE;
    (state, damage)
}
