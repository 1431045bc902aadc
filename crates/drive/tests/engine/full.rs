//! A full drive accepts requests that add nothing: overwrites with the same data and TRIM, also of single
//! blocks. This holds just after it was filled, after a crash, and after many openings with little work in
//! between. The drive can still be opened.

use crate::common;
use crate::kinds;

use std::sync::Arc;

use codec::Policy;
use codec::testdata::{random, text_like};
use common::{Erased, assert_sound, create_options, maintain, open, run};
use drive::{CreateOptions, Drive, Error, Zeroes};
use kinds::alike;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
const FRAME: u64 = 8 * BLOCK;
const LEAF: u64 = 512 * BLOCK;
const PHYSICAL: u64 = 16 << 20;
/// Number of lives of a drive that stays full.
const OPENINGS: u64 = 1000;
/// Offset of the data that fills the last gaps.
const ELSEWHERE: u64 = 8 << 30;

/// Kind of data that a drive is filled with.
#[derive(Clone, Copy)]
struct Kind {
    codec: Policy,
    frame: fn(u64) -> Vec<u8>,
    /// True if a block of each frame stays.
    stays: fn(u64) -> bool,
    /// Percentage of the limit that frames fill before their other blocks are trimmed. Incompressible data
    /// fills the rest then.
    holes_at_percent: Option<u64>,
}

const RANDOM: Kind = Kind {
    codec: Policy::Lz4,
    frame: |n| random(n, FRAME as usize),
    stays: |_| true,
    holes_at_percent: None,
};
const TEXT: Kind = Kind { codec: Policy::Auto, frame: |n| text_like(n, FRAME as usize), ..RANDOM };
const TEXT_HOLES: Kind = Kind { stays: |block| block % 3 != 1, ..TEXT };
const ALIKE_HOLES: Kind = Kind { frame: alike, stays: |block| block % 2 == 0, ..RANDOM };
const ALIKE_LATE_HOLES: Kind = Kind { holes_at_percent: Some(60), ..ALIKE_HOLES };

/// A full drive and its expected content.
struct Full {
    media: Arc<MemoryMedia>,
    drive: Drive<Erased>,
    kind: Kind,
    frames: u64,
    /// Bytes of incompressible data at [`ELSEWHERE`].
    rest: u64,
    /// Blocks trimmed since the drive was filled.
    gone: Vec<u64>,
    openings: u64,
}

fn is_refused(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => false,
        Err(Error::NoSpace) => true,
        Err(other) => panic!("{other}"),
    }
}

/// Content of a block at [`ELSEWHERE`].
fn rest(block: u64) -> Vec<u8> {
    random(block ^ 1 << 40, BLOCK as usize)
}

impl Full {
    fn new(kind: Kind) -> Full {
        let media = Arc::new(MemoryMedia::new(PHYSICAL));
        let options = CreateOptions {
            codec: kind.codec,
            segment_bytes: Some(512 << 10),
            ..create_options(PHYSICAL, 16 << 30)
        };
        run(Drive::create(&*media, &options)).expect("create");
        let drive = open(&media, 1);
        let mut full = Full { media, drive, kind, frames: 0, rest: 0, gone: Vec::new(), openings: 1 };
        full.fill();
        full
    }

    /// Writes frames, each with its holes, until one is refused, then smaller pieces down to single blocks.
    fn fill(&mut self) {
        loop {
            let (used, limit) = self.drive.space();
            if self.kind.holes_at_percent.is_some_and(|percent| used * 100 >= limit * percent) {
                break;
            }
            let data = (self.kind.frame)(self.frames);
            if is_refused(run(self.drive.write(self.frames * FRAME, &data, false))) {
                break;
            }
            self.frames += 1;
            if self.kind.holes_at_percent.is_none() {
                self.make_holes(self.frames - 1);
            }
            maintain(&self.drive);
        }
        if self.kind.holes_at_percent.is_some() {
            (0..self.frames).for_each(|frame| self.make_holes(frame));
        }
        self.fill_gaps();
    }

    fn make_holes(&self, frame: u64) {
        for block in (0..8).filter(|block| !(self.kind.stays)(*block)) {
            run(self.drive.trim(frame * FRAME + block * BLOCK, BLOCK, false)).expect("trim");
        }
    }

    /// Writes incompressible data until it is refused, down to single blocks.
    fn fill_gaps(&mut self) {
        for len in [64 << 10, BLOCK] {
            loop {
                let data: Vec<u8> = (0..len / BLOCK).flat_map(|i| rest(self.rest / BLOCK + i)).collect();
                if is_refused(run(self.drive.write(ELSEWHERE + self.rest, &data, false))) {
                    break;
                }
                self.rest += len;
            }
        }
    }

    /// Original content of a block.
    fn contents(&self, block: u64) -> Vec<u8> {
        let frame = (self.kind.frame)(block / 8);
        frame[(block % 8 * BLOCK) as usize..][..BLOCK as usize].to_vec()
    }

    /// Chooses a block that is still present, by a number.
    fn pick(&self, number: u64) -> u64 {
        let blocks = self.frames * 8;
        let from = number.wrapping_mul(7919) % blocks;
        let is_there = |block: &u64| (self.kind.stays)(block % 8) && !self.gone.contains(block);
        (0..blocks).map(|i| (from + i) % blocks).find(is_there).expect("a block that is there")
    }

    fn overwrite(&self, number: u64, when: &str) {
        let block = self.pick(number);
        let result = run(self.drive.write(block * BLOCK, &self.contents(block), true));
        assert_eq!(result, Ok(()), "{when}: overwrite {number}, {:?}", self.drive.status());
    }

    /// Overwrites one of the blocks at [`ELSEWHERE`] with the same data.
    fn overwrite_rest(&self, number: u64, when: &str) {
        let block = number.wrapping_mul(7919) % (self.rest / BLOCK).max(1);
        if block * BLOCK < self.rest {
            let result = run(self.drive.write(ELSEWHERE + block * BLOCK, &rest(block), true));
            assert_eq!(result, Ok(()), "{when}: overwrite {number} elsewhere, {:?}", self.drive.status());
        }
    }

    fn trim_block(&mut self, number: u64, when: &str) {
        let block = self.pick(number);
        let result = run(self.drive.trim(block * BLOCK, BLOCK, true));
        assert_eq!(result, Ok(()), "{when}: TRIM {number}, {:?}", self.drive.status());
        self.gone.push(block);
    }

    fn trim_leaf(&mut self, leaf: u64, when: &str) {
        let result = run(self.drive.trim(leaf * LEAF, LEAF, true));
        assert_eq!(result, Ok(()), "{when}: TRIM of leaf {leaf}, {:?}", self.drive.status());
        self.gone.extend(leaf * 512..(leaf + 1) * 512);
    }

    /// Drops the drive without closing it, and opens it again.
    fn crash(&mut self) {
        self.openings += 1;
        self.drive = open(&self.media, self.openings);
    }

    fn assert_holds(&self) {
        let mut back = vec![0; FRAME as usize];
        for frame in 0..self.frames {
            run(self.drive.read(frame * FRAME, &mut back)).expect("read");
            let mut expected = (self.kind.frame)(frame);
            for (block, bytes) in (frame * 8..).zip(expected.chunks_mut(BLOCK as usize)) {
                if !(self.kind.stays)(block % 8) || self.gone.contains(&block) {
                    bytes.fill(0);
                }
            }
            assert!(back == expected, "frame {frame}");
        }
        let mut back = vec![0; BLOCK as usize];
        for block in 0..self.rest / BLOCK {
            run(self.drive.read(ELSEWHERE + block * BLOCK, &mut back)).expect("read");
            assert!(back == rest(block), "block {block} elsewhere");
        }
    }

    /// Checks all requests that a full drive must accept.
    fn assert_takes(mut self, when: &str) {
        (0..48).for_each(|number| self.overwrite(number, when));
        (0..48).for_each(|number| self.overwrite_rest(number, when));
        (0..16).for_each(|number| self.trim_block(1000 + number, when));
        (0..48).for_each(|number| self.overwrite(2000 + number, when));
        (0..2).for_each(|leaf| self.trim_leaf(leaf, when));
        self.assert_holds();
        self.crash();
        self.assert_holds();
        assert_sound(&self.drive);
    }

    fn assert_takes_just_filled(self) {
        self.assert_takes("just filled");
    }

    fn assert_takes_after_a_crash(mut self) {
        run(self.drive.flush()).expect("flush");
        self.crash();
        self.assert_takes("after a crash");
    }

    /// Opens the drive many times, with an overwrite and a TRIM in between and no time for maintenance.
    fn assert_takes_after_many_openings(mut self) {
        run(self.drive.flush()).expect("flush");
        for life in 0..OPENINGS {
            self.overwrite(life, "in a short life");
            self.overwrite_rest(life, "in a short life");
            if life % 16 == 0 {
                self.trim_block(10_000 + life, "in a short life");
                self.fill_gaps();
            }
            self.crash();
        }
        self.assert_takes("after many openings");
    }
}

#[test]
fn just_filled_with_random_data() {
    Full::new(RANDOM).assert_takes_just_filled();
}

#[test]
fn just_filled_with_text() {
    Full::new(TEXT).assert_takes_just_filled();
}

#[test]
fn just_filled_with_frames_of_text_with_holes() {
    Full::new(TEXT_HOLES).assert_takes_just_filled();
}

#[test]
fn just_filled_with_frames_of_equal_blocks_with_holes() {
    Full::new(ALIKE_HOLES).assert_takes_just_filled();
}

#[test]
fn just_filled_with_frames_that_got_holes_and_random_data() {
    Full::new(ALIKE_LATE_HOLES).assert_takes_just_filled();
}

#[test]
fn filled_with_random_data_after_a_crash() {
    Full::new(RANDOM).assert_takes_after_a_crash();
}

#[test]
fn filled_with_text_after_a_crash() {
    Full::new(TEXT).assert_takes_after_a_crash();
}

#[test]
fn filled_with_frames_of_text_with_holes_after_a_crash() {
    Full::new(TEXT_HOLES).assert_takes_after_a_crash();
}

#[test]
fn filled_with_frames_of_equal_blocks_with_holes_after_a_crash() {
    Full::new(ALIKE_HOLES).assert_takes_after_a_crash();
}

#[test]
fn filled_with_frames_that_got_holes_and_random_data_after_a_crash() {
    Full::new(ALIKE_LATE_HOLES).assert_takes_after_a_crash();
}

#[test]
fn filled_with_random_data_after_many_openings() {
    Full::new(RANDOM).assert_takes_after_many_openings();
}

#[test]
fn filled_with_text_after_many_openings() {
    Full::new(TEXT).assert_takes_after_many_openings();
}

#[test]
fn filled_with_frames_of_text_with_holes_after_many_openings() {
    Full::new(TEXT_HOLES).assert_takes_after_many_openings();
}

#[test]
fn filled_with_frames_of_equal_blocks_with_holes_after_many_openings() {
    Full::new(ALIKE_HOLES).assert_takes_after_many_openings();
}

#[test]
fn filled_with_frames_that_got_holes_and_random_data_after_many_openings() {
    Full::new(ALIKE_LATE_HOLES).assert_takes_after_many_openings();
}

/// Each write is flushed, so that each is in a separate pack with unused space after it. That space counts as
/// used, however many segments there are: at the end there is nothing to clean, and the drive must have
/// segments left.
#[test]
fn a_drive_full_of_flushed_writes_is_overwritten_in_place() {
    for (segments, blocks) in [(40, 16), (90, 16), (90, 15), (180, 16), (300, 16), (90, 13)] {
        let physical = (segments + 2) * (512 << 10);
        let media = Arc::new(MemoryMedia::new(physical));
        let options = CreateOptions {
            codec: Policy::None,
            segment_bytes: Some(512 << 10),
            ..create_options(physical, 16 << 30)
        };
        run(Drive::create(&*media, &options)).expect("create");
        let drive = open(&media, 1);
        let data = |n: u64, blocks: u64| random(n, (blocks * BLOCK) as usize);
        let mut written = Vec::new();
        let mut at = 0;
        let mut len = blocks;
        while len > 0 {
            match is_refused(run(drive.write(at * BLOCK, &data(at, len), true))) {
                true => len /= 2,
                false => {
                    written.push((at, len));
                    at += len;
                }
            }
        }
        for (at, len) in &written {
            let result = run(drive.write(at * BLOCK, &data(at + 1, *len), true));
            assert_eq!(result, Ok(()), "{len} blocks at {at} of {segments} segments: {:#?}", drive.status());
        }
        assert_sound(&drive);
    }
}

/// Zeroes that stay allocated take some space of the map, and free far more than that.
#[test]
fn zeroes_over_data_are_taken_by_a_full_drive() {
    let mut full = Full::new(RANDOM);
    run(full.drive.flush()).expect("flush");
    // The map is not in memory after this, so it is not known what the zeroes replace.
    full.crash();
    let result = run(full.drive.write_zeroes(0, ELSEWHERE, Zeroes { unmap: false, fua: true }));
    assert_eq!(result, Ok(()), "{:?}", full.drive.status());
    let mut back = vec![1; BLOCK as usize];
    for block in [0, 8, 511, 513, ELSEWHERE / BLOCK - 1] {
        run(full.drive.read(block * BLOCK, &mut back)).expect("read");
        assert!(back.iter().all(|byte| *byte == 0), "block {block}");
    }
    assert_sound(&full.drive);
}
