//! A drive in memory, with all futures polled in place.
#![allow(dead_code, unreachable_pub)]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use drive::{CreateOptions, Drive, OpenOptions, Spawner};
use media::MemoryMedia;

mod erased;
pub use erased::{Erased, erased};

/// Polls a future that never has to wait for another thread.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..10_000_000 {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
    }
    panic!("the future waits for something that never comes");
}

/// Runs spawned tasks at once, because operations on memory media never wait.
pub fn spawner() -> Spawner {
    Arc::new(run)
}

pub fn create_options(physical: u64, logical: u64) -> CreateOptions {
    CreateOptions {
        physical_size_bytes: physical,
        logical_capacity_bytes: logical,
        sector_bytes: 512,
        segment_bytes: None,
        codec: codec::Policy::Lz4,
        uuid: [7; 16],
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies: None,
        parity: layout::ParityForm::None,
    }
}

/// A medium of 64 MiB with a new drive that uses this codec.
pub fn new_media(codec: codec::Policy) -> Arc<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(64 << 20));
    let create = CreateOptions { codec, ..create_options(64 << 20, 64 << 20) };
    run(Drive::create(&*media, &create)).expect("create");
    media
}

pub fn new_drive(physical: u64, logical: u64) -> (Arc<MemoryMedia>, Drive<Erased>) {
    let media = Arc::new(MemoryMedia::new(physical));
    run(Drive::create(&*media, &create_options(physical, logical))).expect("create");
    let drive = open(&media, 1);
    (media, drive)
}

pub fn open(media: &Arc<MemoryMedia>, entropy: u64) -> Drive<Erased> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner()))).expect("open")
}

/// Does maintenance until there is nothing to do.
pub fn maintain(drive: &Drive<Erased>) {
    const ROUNDS_MAX: u32 = 10_000;
    for _ in 0..ROUNDS_MAX {
        if !run(drive.maintain()).expect("maintain") {
            return;
        }
    }
    panic!("maintenance goes on for ever");
}

/// Checks that there is no structural fault, and that every record is readable.
pub fn assert_sound(drive: &Drive<Erased>) {
    assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new());
}
