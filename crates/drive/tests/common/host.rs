//! A host that knows what it wrote, and data for drives whose images compress well.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;

use codec::testdata::random;
use drive::{CreateOptions, Drive, Error, OpenOptions, Zeroes};
use media::Media;

use crate::common::{Erased, erased, run, spawner};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A drive in use. Offsets and lengths are in blocks.
pub struct Host<M> {
    pub media: Arc<M>,
    drive: Option<Drive<Erased>>,
    /// Expected logical contents.
    pub contents: Vec<u8>,
    /// See [`OpenOptions::sample_blocks`].
    pub sample_blocks: usize,
    entropy: u64,
}

impl<M: Media> Host<M> {
    pub fn create(media: M, options: &CreateOptions) -> Host<M> {
        let media = Arc::new(media);
        run(Drive::create(&*media, options)).expect("create");
        let contents = vec![0; options.logical_capacity_bytes as usize];
        let mut host = Host { media, drive: None, contents, sample_blocks: 0, entropy: 0 };
        host.reopen();
        host
    }

    /// Opens the drive again, without closing it.
    pub fn reopen(&mut self) {
        self.drive = None;
        self.entropy += 1;
        let options =
            OpenOptions { sample_blocks: self.sample_blocks, ..OpenOptions::new(self.entropy, spawner()) };
        self.drive = Some(run(Drive::open(erased(self.media.clone()), options)).expect("open"));
    }

    pub fn drive(&self) -> &Drive<Erased> {
        self.drive.as_ref().expect("an open drive")
    }

    pub fn do_on<T>(&self, what: impl AsyncFnOnce(&Drive<Erased>) -> Result<T, Error>) -> T {
        run(what(self.drive())).expect("a request")
    }

    fn set(&mut self, block: u64, len: usize) -> &mut [u8] {
        &mut self.contents[(block * BLOCK) as usize..][..len]
    }

    pub fn write(&mut self, block: u64, data: &[u8]) {
        self.do_on(async |drive| drive.write(block * BLOCK, data, false).await);
        self.set(block, data.len()).copy_from_slice(data);
    }

    pub fn trim(&mut self, block: u64, count: u64) {
        self.do_on(async |drive| drive.trim(block * BLOCK, count * BLOCK, false).await);
        self.set(block, (count * BLOCK) as usize).fill(0);
    }

    /// Writes zeroes that stay allocated.
    pub fn zeroes(&mut self, block: u64, count: u64) {
        self.do_on(async |drive| drive.write_zeroes(block * BLOCK, count * BLOCK, Zeroes::default()).await);
        self.set(block, (count * BLOCK) as usize).fill(0);
    }

    /// Writes blocks from `first` on until the drive is full.
    pub fn fill(&mut self, first: u64, data: impl Fn(u64) -> Vec<u8>) {
        for block in first.. {
            let data = data(block);
            match run(self.drive().write(block * BLOCK, &data, false)) {
                Ok(()) => self.set(block, data.len()).copy_from_slice(&data),
                Err(Error::NoSpace) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn flush(&mut self) {
        self.do_on(async |drive| drive.flush().await);
    }

    /// Makes everything durable, including what cleaning moved.
    pub fn sync_moved(&mut self) {
        self.drive().tick();
        self.drive().tick();
        self.flush();
    }

    /// Cleans as much as possible, and discards free segments on the backing.
    pub fn tidy(&mut self) {
        while self.do_on(async |drive| drive.clean().await) {}
        self.do_on(async |drive| drive.checkpoint().await);
        for _ in 0..60 {
            self.drive().tick();
        }
        while self.do_on(async |drive| drive.maintain().await) {}
    }

    pub fn close(&mut self) {
        self.do_on(async |drive| drive.close().await);
        self.drive = None;
    }
}

/// Text that compresses well, different for each block and version.
pub fn lines(block: u64, version: u64) -> Vec<u8> {
    let line = |n| format!("block {block:7}, version {version:3}, line {n:2} of 64, and nothing else\n");
    let mut text: Vec<u8> = (0..64).flat_map(|n| line(n).into_bytes()).collect();
    text.resize(BLOCK as usize, b'.');
    text
}

/// Data that the drive cannot compress. Every other block is almost the same, so that an image of the drive
/// compresses.
pub fn noise(block: u64) -> Vec<u8> {
    let mut bytes = random(block % 2, BLOCK as usize);
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// Zeros except for a number, which give a short record.
pub fn numbered(block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// A block similar to many others and without repetitions of its own: data for dictionaries.
pub fn page(block: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK as usize);
    let mut z = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < BLOCK as usize {
        z = (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let line = format!(
            "{{\"time\":\"2026-03-{:02}T{:02}:00:00Z\",\"level\":\"info\",\"host\":\"web-{}.example.net\",\
             \"request\":\"GET /shop/article/{}\",\"bytes\":{}}}\n",
            z % 28 + 1,
            z >> 8 & 15,
            z % 251,
            z >> 32 & 0xffff,
            z >> 40 & 0xffff
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(BLOCK as usize);
    out
}
