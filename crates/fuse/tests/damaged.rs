//! Memories that are no area, or a damaged one: refused, or harmless. And what an area gives back.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;

use fuse::{Area, AreaError, Left, Operation, Received, Taken};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Bytes of page 0 and of the entries, of which each has 64.
const TABLE_BYTES: usize = 4096 + 3 * 4096;
const ENTRIES: usize = 160;
/// Place of the number of the place that receives.
const LANDING: u64 = 24;

fn file(memory: &OwnedFd) -> File {
    File::from(memory.try_clone().expect("a descriptor"))
}

fn opened(memory: &OwnedFd) -> io::Result<Area> {
    Area::open(memory.try_clone()?)
}

fn refusal(memory: &OwnedFd) -> Option<AreaError> {
    let error = opened(memory).and_then(|mut area| area.left()).err()?;
    error.get_ref().and_then(|error| error.downcast_ref()).copied()
}

fn write(unique: u64, data: &[u8]) -> Vec<u8> {
    let length = (80 + data.len()) as u32;
    let mut message = [length.to_ne_bytes(), 16_u32.to_ne_bytes()].concat();
    message.extend([unique, 2, 0, 0, 0, 0, data.len() as u64, 0, 0].map(u64::to_ne_bytes).concat());
    message.extend(data);
    message
}

fn receive(area: &mut Area, message: &[u8]) -> Taken {
    let read = |bytes: &mut [u8]| {
        bytes[..message.len()].copy_from_slice(message);
        Ok(message.len())
    };
    match area.receive(read).expect("room") {
        Received::Request(taken) => taken,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_area_is_refused() {
    let memory = Area::create().expect("a memory");
    assert_eq!(refusal(&memory), None);
    assert!(ftruncate(&memory, 4096).is_err(), "sealed");
    let on_disk = OwnedFd::from(tempfile::tempfile().expect("a file"));
    assert_eq!(refusal(&on_disk), Some(AreaError::NotSealed));
    let other = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory");
    let mut head = [0; 32];
    file(&memory).read_exact_at(&mut head, 0).expect("a head");
    file(&other).write_all_at(&head, 0).expect("written");
    assert_eq!(refusal(&other), Some(AreaError::NotSealed), "it could be truncated");
    fcntl_add_seals(&other, SealFlags::SHRINK | SealFlags::GROW).expect("sealed");
    assert_eq!(refusal(&other), Some(AreaError::NotAnArea), "it is shorter");
    file(&other).write_all_at(&[9], 8).expect("written");
    assert_eq!(refusal(&other), Some(AreaError::OtherVersion));
    file(&other).write_all_at(&[9], 0).expect("written");
    assert_eq!(refusal(&other), Some(AreaError::NotAnArea));
}

#[test]
fn a_damaged_area_is_refused_or_harmless() {
    let memory = Area::create().expect("a memory");
    let mut whole = vec![0; TABLE_BYTES];
    {
        let mut area = opened(&memory).expect("an area");
        area.left().expect("nothing");
        for unique in 1..=40 {
            let data = vec![unique as u8; if unique % 2 == 0 { 512 } else { 100_000 }];
            let taken = receive(&mut area, &write(unique, &data));
            if unique % 3 == 0 {
                area.done(&taken.entry, Err(28));
            }
        }
        file(&memory).read_exact_at(&mut whole, 0).expect("a table");
    }
    let mut random = StdRng::seed_from_u64(1);
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..2_000 {
        let mut table = whole.clone();
        for _ in 0..random.random_range(1..6) {
            // Not magic, version and shape, which are looked at before.
            let at = match random.random_range(0..4) {
                0 => random.random_range(LANDING as usize..LANDING as usize + 8),
                _ => 4096 + random.random_range(0..ENTRIES * 64),
            };
            table[at] = if random.random() { random.random_range(0..4) } else { random.random() };
        }
        file(&memory).write_all_at(&table, 0).expect("written");
        let mut area = opened(&memory).expect("an area");
        let Ok(left) = area.left() else {
            refused += 1;
            continue;
        };
        harmless += 1;
        for left in left {
            match left {
                Left::Request(taken) => {
                    if let Operation::Write { length, .. } = taken.operation {
                        let payload = taken.payload.as_ref().expect("data");
                        assert_eq!(payload.as_slice().len(), length as usize);
                    }
                    area.free(taken.entry);
                }
                Left::Answer { entry, .. } => area.free(entry),
                Left::Question { .. } => {}
            }
        }
        assert!(area.has_room());
        let taken = receive(&mut area, &write(99, &[1; 512]));
        assert_eq!(taken.payload.expect("data").as_slice(), [1; 512]);
    }
    assert!(refused > 100 && harmless > 100, "{refused} refused, {harmless} harmless");
    for at in [0, 2, 8, 16, 17, 18, 19, 20, 21] {
        let mut table = whole.clone();
        table[at] ^= 0x41;
        file(&memory).write_all_at(&table, 0).expect("written");
        assert!(refusal(&memory).is_some(), "byte {at}");
    }
}

#[test]
fn an_area_is_full_until_requests_are_free() {
    let memory = Area::create().expect("a memory");
    let mut area = opened(&memory).expect("an area");
    assert!(!area.has_room(), "it is not known what was left");
    area.left().expect("nothing");
    let data = vec![5; 20_000];
    let mut taken: Vec<Taken> =
        (1..=ENTRIES as u64).map(|unique| receive(&mut area, &write(unique, &data))).collect();
    assert!(!area.has_room());
    let full = area.receive(|_| panic!("nothing is read")).expect_err("full");
    assert_eq!(full.kind(), io::ErrorKind::OutOfMemory);
    let first = taken.swap_remove(0);
    area.free(first.entry);
    assert!(!area.has_room(), "its data is still in use");
    let payload = first.payload.expect("data");
    thread::spawn(move || assert!(payload.as_slice() == vec![5; 20_000])).join().expect("the same data");
    assert!(area.has_room());
    let again = receive(&mut area, &write(1_000, &data));
    drop(area);
    assert!(again.payload.expect("data").as_slice() == data, "the mapping lives as long as its data");
}

#[test]
fn looking_at_an_area_changes_nothing() {
    let memory = Area::create().expect("a memory");
    let allocated = || file(&memory).metadata().expect("a file").blocks();
    let few = allocated();
    Area::check(&memory).expect("an area");
    assert_eq!(allocated(), few, "another process may be using it");
    drop(opened(&memory).expect("an area"));
    assert!(allocated() > few, "the entries");
}

#[test]
fn an_idle_area_gives_memory_back() {
    let memory = Area::create().expect("a memory");
    let allocated = || file(&memory).metadata().expect("a file").blocks() * 512;
    let mut area = opened(&memory).expect("an area");
    area.left().expect("nothing");
    assert!(allocated() < 64 << 10);
    let taken: Vec<Taken> = (1..=40).map(|unique| receive(&mut area, &write(unique, &[1; 9000]))).collect();
    let most = allocated();
    assert!(most > 40 * (256 << 10), "{most}");
    area.trim();
    assert_eq!(allocated(), most, "all are in use");
    let mut taken = taken.into_iter();
    let kept = taken.next_back().expect("the last");
    taken.for_each(|taken| area.free(taken.entry));
    area.trim();
    let few = allocated();
    assert!(few < 6 * (260 << 10) + (64 << 10), "{few}");
    assert_eq!(kept.payload.as_ref().expect("data").as_slice(), [1; 9000]);
    // A next server does not know which pages there are.
    area.free(kept.entry);
    drop((kept.payload, area));
    let mut area = opened(&memory).expect("an area");
    assert!(area.left().expect("whole").is_empty());
    area.trim();
    assert!(allocated() < few);
}
