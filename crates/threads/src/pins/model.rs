//! A segment is written again only after its readers are done.

use loom::sync::Arc;
use loom::thread;

use super::code::Pins;
use crate::memory::Memory;
use crate::sync::Mutex;

/// The relevant parts of a drive. Chunks consist of two segments in this build.
struct Drive {
    core: Mutex<Core>,
    /// Segments 0 and 1.
    segments: [Memory; 2],
}

struct Core {
    pins: Pins,
    /// True if the segment holds live data, so that readers use it.
    live: [bool; 2],
}

impl Drive {
    fn new() -> Arc<Drive> {
        let mut pins = Pins::default();
        pins.grow(2);
        let core = Mutex::new(Core { pins, live: [true; 2] });
        Arc::new(Drive { core, segments: [Memory::new(), Memory::new()] })
    }

    /// Finds the segment and pins it inside the lock, then reads and unpins it outside.
    fn read(&self, segment: u32) {
        let pin = {
            let mut core = self.core.lock();
            core.live[segment as usize].then(|| core.pins.pin(segment))
        };
        if let Some(pin) = pin {
            self.segments[segment as usize].read();
            drop(pin);
        }
    }

    fn free(&self, segment: u32) {
        self.core.lock().live[segment as usize] = false;
    }

    /// Writes the segment, which was freed, if it is not pinned.
    fn write_again(&self, segment: u32) -> bool {
        let is_pinned = self.core.lock().pins.is_pinned(segment);
        if !is_pinned {
            self.segments[segment as usize].write();
        }
        !is_pinned
    }

    /// Checks that all readers are done: no pin is left, and no count fell below zero.
    fn at_rest(&self) {
        (0..2).for_each(|segment| {
            assert!(!self.core.lock().pins.is_pinned(segment), "segment {segment} has a reader left");
        });
    }
}

fn readers(drive: &Arc<Drive>, segments: &[u32]) -> Vec<thread::JoinHandle<()>> {
    let reader = |&segment: &u32| {
        let drive = drive.clone();
        thread::spawn(move || drive.read(segment))
    };
    segments.iter().map(reader).collect()
}

fn done(drive: &Drive, readers: Vec<thread::JoinHandle<()>>) {
    readers.into_iter().for_each(|reader| reader.join().expect("no reader panics"));
    drive.at_rest();
}

/// Two readers of one segment.
pub(crate) fn a_segment_is_written_after_its_readers() {
    let drive = Drive::new();
    let readers = readers(&drive, &[0, 0]);
    drive.free(0);
    let _ = drive.write_again(0) || drive.write_again(0);
    done(&drive, readers);
}

/// A reader of another segment neither protects this one nor frees it.
pub(crate) fn segments_are_counted_apart() {
    let drive = Drive::new();
    let held = drive.core.lock().pins.pin(1);
    let readers = readers(&drive, &[0, 1]);
    drive.free(0);
    drive.free(1);
    drive.write_again(0);
    assert!(!drive.write_again(1), "a segment was written under its reader");
    drop(held);
    done(&drive, readers);
}

/// The drive grows while a segment is read: the pin of the reader is kept.
pub(crate) fn growth_keeps_readers() {
    let drive = Drive::new();
    let readers = readers(&drive, &[0]);
    drive.core.lock().pins.grow(5);
    drive.free(0);
    drive.write_again(0);
    let late = drive.core.lock().pins.pin(4);
    assert!(drive.core.lock().pins.is_pinned(4));
    drop(late);
    done(&drive, readers);
}
