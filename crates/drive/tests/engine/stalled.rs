//! Reads that wait for the medium hold back freed segments. Such a segment is not free: the drive cleans
//! others, waits if there are none, and continues when the reads are done.

use crate::common;
use crate::faulty;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive, Error, State};
use faulty::{Faulty, Tasks, poll};

const BLOCK: u64 = 4096;
const PIECE: u64 = 64 * BLOCK;
/// Two pieces, with their headers, take little more than a segment of 512 KiB.
const SEGMENT: u64 = 512 << 10;

fn new_drive(physical: u64) -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks) = (Arc::new(Faulty::new(physical)), Tasks::default());
    let options =
        CreateOptions { segment_bytes: Some(SEGMENT as u32), ..create_options(physical, 2 * physical) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let drive = tasks.open(&media, |_| {});
    (media, tasks, drive)
}

fn contents(piece: u64, version: u64) -> Vec<u8> {
    random(piece * 1000 + version, PIECE as usize)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, piece: u64, version: u64) -> Result<(), Error> {
    tasks.run(drive.write(piece * PIECE, &contents(piece, version), false))
}

type Read<'a> = Pin<Box<dyn Future<Output = (u64, Result<Vec<u8>, Error>)> + 'a>>;

/// Starts a read of a block in each of these pieces. The reads wait for the medium.
fn stalled<'a>(media: &Faulty, drive: &'a Drive<Erased>, pieces: impl Iterator<Item = u64>) -> Vec<Read<'a>> {
    media.hold_reads.store(true, SeqCst);
    let reads = pieces.map(|piece| -> Read<'a> {
        Box::pin(async move {
            let mut bytes = vec![0; BLOCK as usize];
            let result = drive.read(piece * PIECE, &mut bytes).await;
            (piece, result.map(|()| bytes))
        })
    });
    let mut reads: Vec<Read<'a>> = reads.collect();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut()).is_none()), "they wait");
    // Other reads are completed. These are not polled again yet.
    media.hold_reads.store(false, SeqCst);
    reads
}

/// Ends the reads. They must return what was written when they began.
fn end(tasks: &Tasks, reads: Vec<Read<'_>>, version: u64) {
    for read in reads {
        let (piece, bytes) = tasks.run(read);
        assert!(bytes.expect("a read") == contents(piece, version)[..BLOCK as usize], "piece {piece}");
    }
}

/// Polls a future and the tasks, and lets time pass, at most `polls` times. Returns the result of the future
/// if it was ready.
fn run_for<T>(
    tasks: &Tasks,
    drive: &Drive<Erased>,
    mut future: Pin<&mut impl Future<Output = T>>,
    polls: usize,
) -> Option<T> {
    for _ in 0..polls {
        if let Some(answer) = poll(future.as_mut()) {
            return Some(answer);
        }
        drive.tick();
        tasks.turn();
    }
    None
}

fn assert_sound(tasks: &Tasks, drive: &Drive<Erased>, pieces: u64, version: u64) {
    assert_eq!(drive.status().state, State::Online);
    for piece in 0..pieces {
        let mut bytes = vec![0; PIECE as usize];
        tasks.run(drive.read(piece * PIECE, &mut bytes)).expect("read");
        assert!(bytes == contents(piece, version), "piece {piece}");
    }
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
}

#[test]
fn segments_that_are_read_are_not_free_and_others_are_cleaned() {
    const PIECES: u64 = 40;
    let (media, tasks, drive) = new_drive(32 << 20);
    for piece in 0..PIECES {
        write(&tasks, &drive, piece, 0).expect("write");
    }
    tasks.run(drive.checkpoint()).expect("checkpoint");
    let reads = stalled(&media, &drive, 0..PIECES);
    let mut waiting = 0;
    for version in 1..12 {
        for piece in 0..PIECES {
            write(&tasks, &drive, piece, version).expect("there is room, without what is read");
            if piece % 8 == 0 {
                while tasks.run(drive.maintain()).expect("maintain") {}
            }
        }
        let status = drive.status();
        waiting = status.segments_waiting_count;
        // Each segment is counted only once as used, free or waiting.
        let live = (status.physical_used_bytes / SEGMENT) as u32;
        assert!(status.segments_free_count + waiting + live <= status.segments_count, "{status:?}");
    }
    assert!(waiting >= 18, "{waiting} segments are waiting");
    end(&tasks, reads, 0);
    // This is noticed when the next segment is taken.
    for piece in 0..4 {
        write(&tasks, &drive, piece, 11).expect("write");
    }
    assert_eq!(drive.status().segments_waiting_count, 0);
    assert_sound(&tasks, &drive, PIECES, 11);
}

#[test]
fn where_all_that_is_free_is_read_writes_and_checkpoints_wait_and_go_on_afterwards() {
    const PIECES: u64 = 16;
    let (media, tasks, drive) = new_drive(13 << 20);
    for piece in 0..PIECES {
        write(&tasks, &drive, piece, 0).expect("write");
    }
    tasks.run(drive.checkpoint()).expect("checkpoint");
    let mut reads = vec![(0, stalled(&media, &drive, 0..PIECES))];
    // Until a write waits. The replaced data is read as well.
    let mut version = 0;
    let waits = 'waits: loop {
        version += 1;
        for piece in 0..PIECES {
            let data = contents(piece, version);
            let write = pin!(drive.write(piece * PIECE, &data, false));
            match run_for(&tasks, &drive, write, 500) {
                Some(result) => result.expect("no write is refused because of readers"),
                None => break 'waits piece,
            }
        }
        assert!(version < 10, "nothing ever waits");
        tasks.run(drive.flush()).expect("flush");
        reads.push((version, stalled(&media, &drive, 0..PIECES)));
    };
    assert_eq!(drive.status().state, State::Online);
    assert!(drive.status().segments_waiting_count > 0);
    // The map uses its reserved segments, and then waits too.
    let mut rounds = 0;
    while run_for(&tasks, &drive, pin!(drive.checkpoint()), 500).is_some_and(|result| {
        result.expect("a checkpoint");
        rounds += 1;
        // Changes the map.
        tasks.run(drive.trim((100 + rounds) * BLOCK + 16 * PIECE, 1 << 20, false)).expect("TRIM");
        rounds < 300
    }) {}
    assert_eq!(drive.status().state, State::Online, "after {rounds} checkpoints");
    for (version, reads) in reads {
        end(&tasks, reads, version);
    }
    drive.tick();
    for piece in waits..PIECES {
        write(&tasks, &drive, piece, version).expect("write");
    }
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert_sound(&tasks, &drive, PIECES, version);
    tasks.run(drive.close()).expect("close");
    drop(drive);
    assert_sound(&tasks, &tasks.open(&media, |_| {}), PIECES, version);
}
