//! Stored drives: images in `tests/drives`, the manifest that describes them, and their contents.
#![allow(dead_code, unreachable_pub)]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use drive::{CheckOptions, Drive, Error, OpenOptions};
use media::{IoBuf, Media, MemoryMedia};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use zstd_safe::{CCtx, CParameter};

use crate::common::{Erased, erased, run, spawner};

const BLOCK: u64 = 4096;
const PIECE: u64 = 256 << 10;

/// `manifest.toml`.
#[derive(Deserialize)]
pub struct Manifest {
    #[serde(default)]
    pub drive: Vec<Stored>,
}

/// An entry of the manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stored {
    /// Name of the file: `<name>.img.zst`.
    pub name: String,
    /// Properties of the drive that the others do not have.
    pub holds: String,
    /// Release that wrote it, and the date.
    pub written: String,
    /// SHA-256 of the uncompressed image.
    pub image_sha256: String,
    pub logical_bytes: u64,
    /// SHA-256 of the whole logical contents, with zeros for unreadable blocks.
    pub contents_sha256: String,
    /// Unreadable blocks.
    pub unreadable_blocks: Vec<u64>,
    /// Number of faults that a deep check finds.
    pub faults: u64,
    /// True if new data is refused for lack of space.
    pub full: bool,
}

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/drives")
}

pub fn manifest() -> Manifest {
    let text = fs::read_to_string(directory().join("manifest.toml")).unwrap_or_default();
    toml::from_str(&text).expect("manifest.toml")
}

impl Stored {
    pub fn path(&self) -> PathBuf {
        directory().join(format!("{}.img.zst", self.name))
    }

    /// Reads the stored image.
    pub fn image(&self) -> Vec<u8> {
        let compressed = fs::read(self.path()).expect("a stored drive");
        let len = zstd_safe::get_frame_content_size(&compressed).ok().flatten().expect("a size");
        let mut image = vec![0; len as usize];
        let found = zstd_safe::decompress(&mut image[..], &compressed).expect("a zstd frame");
        assert_eq!(found as u64, len);
        image
    }

    /// Formats the entry for the manifest.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("\n[[drive]]\n");
        let strings = [
            ("name", &self.name),
            ("holds", &self.holds),
            ("written", &self.written),
            ("image_sha256", &self.image_sha256),
            ("contents_sha256", &self.contents_sha256),
        ];
        for (key, value) in strings {
            writeln!(text, "{key} = {value:?}").expect("a string");
        }
        writeln!(text, "logical_bytes = {}", self.logical_bytes).expect("a string");
        writeln!(text, "unreadable_blocks = {:?}", self.unreadable_blocks).expect("a string");
        writeln!(text, "faults = {}", self.faults).expect("a string");
        writeln!(text, "full = {}", self.full).expect("a string");
        text
    }
}

/// Compresses to one zstd frame with size and checksum.
pub fn compress(image: &[u8]) -> Vec<u8> {
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(19),
        CParameter::WindowLog(27),
        CParameter::EnableLongDistanceMatching(true),
        CParameter::ChecksumFlag(true),
    ] {
        context.set_parameter(parameter).expect("a parameter of zstd");
    }
    let mut compressed = vec![0; zstd_safe::compress_bound(image.len())];
    let len = context.compress2(&mut compressed[..], image).expect("compress");
    compressed.truncate(len);
    compressed
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the whole content of a medium.
pub fn image_of<M: Media>(media: &M) -> Vec<u8> {
    let mut image = Vec::with_capacity(media.size_bytes() as usize);
    for at in (0..media.size_bytes()).step_by(PIECE as usize) {
        let len = PIECE.min(media.size_bytes() - at) as usize;
        let (buf, result) = run(media.read(at, IoBuf::zeroed(len)));
        result.expect("read");
        image.extend_from_slice(&buf);
    }
    image
}

/// Creates a medium with the content of an image.
pub fn media_of(image: &[u8]) -> Arc<MemoryMedia> {
    let media = MemoryMedia::new(image.len() as u64);
    for (at, piece) in (0..).step_by(PIECE as usize).zip(image.chunks(PIECE as usize)) {
        if piece.iter().any(|byte| *byte != 0) {
            let mut buf = IoBuf::zeroed(piece.len());
            buf.copy_from_slice(piece);
            run(media.write(at, Arc::new(buf))).expect("write");
        }
    }
    Arc::new(media)
}

pub fn open<M: Media>(media: &Arc<M>, entropy: u64) -> Drive<Erased> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner()))).expect("open")
}

pub fn open_read_only<M: Media>(media: &Arc<M>) -> Drive<Erased> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(0, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("open read-only")
}

/// Reads the whole logical contents. Returns also which blocks are unreadable; they are zeros in the
/// contents.
pub fn contents(drive: &Drive<Erased>) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = vec![0; drive.logical_capacity_bytes() as usize];
    let mut unreadable = Vec::new();
    for (piece, out) in (0..).zip(bytes.chunks_mut(PIECE as usize)) {
        let at = piece * PIECE;
        if run(drive.read(at, out)).is_ok() {
            continue;
        }
        for (block, out) in (at / BLOCK..).zip(out.chunks_mut(BLOCK as usize)) {
            match run(drive.read(block * BLOCK, out)) {
                Ok(()) => {}
                Err(Error::Corrupt(_)) => {
                    out.fill(0);
                    unreadable.push(block);
                }
                Err(error) => panic!("block {block}: {error}"),
            }
        }
    }
    (bytes, unreadable)
}

/// Number of faults that a deep check finds. Those with a place must concern an unreadable block.
pub fn faults(drive: &Drive<Erased>, unreadable: &[u64]) -> u64 {
    let options = CheckOptions { deep: true, ..CheckOptions::default() };
    let report = run(drive.examine(options, |_| {})).expect("check");
    for fault in &report.faults {
        if let Some(at) = fault.logical_offset_bytes {
            assert!(unreadable.contains(&(at / BLOCK)), "{fault}");
        }
    }
    report.faults_count
}
