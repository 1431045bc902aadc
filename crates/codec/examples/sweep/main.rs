//! Measures frames, zstd blocks within them, levels, parameters and dictionaries on a corpus:
//! `cargo run --release -p codec --example sweep -- DIR [--mib N] [--kinds] [--dictionaries K] [SECTION...]`.
//!
//! DIR holds one file per kind of data (scripts/corpus.sh creates it). From each file, N MiB (default 8) in
//! pieces of 128 KiB, evenly drawn, are compressed in every way and read back at random, block by block.
//! Ratios are of all kinds pooled, each with the same number of bytes. A dictionary is trained for each kind
//! on 4 MiB of blocks that are not among those measured. With `--dictionaries K`, up to K dictionaries are
//! trained for all kinds together, and each frame takes the one that fits, if any. Times are CPU times of
//! this thread.

#![allow(clippy::print_stdout, reason = "a program")]

mod structure;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use codec::{Dictionary, looks_incompressible};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, DParameter, FrameFormat, ResetDirective, Strategy};

const BLOCK: usize = 4096;
const PIECE: usize = 128 << 10;
const UNIT: usize = 16;
/// Bytes that a drive stores in addition to a payload: a header per record, and a map entry per block.
const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 8;
const DICTIONARY_BYTES: usize = 60 << 10;
const TRAINING_BYTES: usize = 4 << 20;

struct Kind {
    name: String,
    pieces: Vec<Vec<u8>>,
    /// One for this kind, or several for all kinds.
    dictionaries: Vec<Dictionary>,
    /// Blocks for training.
    samples: Vec<Vec<u8>>,
}

#[derive(Clone)]
struct Way {
    label: String,
    level: i32,
    frame: usize,
    /// Bytes per zstd block.
    split: usize,
    dictionary: bool,
    parameters: Vec<CParameter>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    logical: usize,
    bare: usize,
    drive: usize,
    sectors: usize,
    compress: Duration,
    decompress: Duration,
    reads: u32,
    read: Duration,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.logical += other.logical;
        self.bare += other.bare;
        self.drive += other.drive;
        self.sectors += other.sectors;
        self.compress += other.compress;
        self.decompress += other.decompress;
        self.reads += other.reads;
        self.read += other.read;
    }

    fn row(&self, label: &str) -> String {
        let ratio = |stored: usize| self.logical as f64 / stored as f64;
        let speed = |time: Duration| self.logical as f64 / 1e6 / time.as_secs_f64();
        format!(
            "| {label} | {:.3} | {:.3} | {:.3} | {:.0} | {:.0} | {:.1} |",
            ratio(self.bare),
            ratio(self.drive),
            ratio(self.sectors),
            speed(self.compress),
            speed(self.decompress),
            self.read.as_secs_f64() * 1e6 / f64::from(self.reads.max(1)),
        )
    }
}

const HEAD: &str = "| way | ratio, bare | with headers | 4 KiB sectors | compress MB/s | decompress MB/s | random 4 \
    KiB read us |\n\
     | --- | --- | --- | --- | --- | --- | --- |";

/// CPU time of this thread since its start.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn load(path: &Path, mib: usize) -> Result<Kind, Box<dyn Error>> {
    let data = std::fs::read(path)?;
    let count = data.len() / PIECE;
    let wanted = (mib << 20) / PIECE;
    let chosen = |number: usize| number * wanted / count != (number + 1) * wanted / count || wanted >= count;
    let pieces = data.chunks_exact(PIECE).enumerate().filter(|(number, _)| chosen(*number));
    let pieces: Vec<Vec<u8>> = pieces.map(|(_, piece)| piece.to_vec()).take(wanted).collect();
    let others =
        data.chunks_exact(PIECE).enumerate().filter(|(number, _)| wanted >= count || !chosen(*number));
    let blocks: Vec<&[u8]> = others.flat_map(|(_, piece)| piece.chunks_exact(BLOCK)).collect();
    let step = (blocks.len() * BLOCK / TRAINING_BYTES).max(1);
    let samples: Vec<&[u8]> =
        blocks.into_iter().step_by(step).filter(|block| !looks_incompressible(block)).collect();
    let start = now();
    let trained = codec::train(&samples, DICTIONARY_BYTES, 3)
        .ok()
        .map(|bytes| Dictionary::new(1, bytes))
        .transpose()?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    eprintln!(
        "{name}: {} MiB, dictionary of {} bytes trained on {} KiB in {:.2} s",
        (pieces.len() * PIECE) >> 20,
        trained.as_ref().map_or(0, |dictionary| dictionary.bytes().len()),
        (samples.len() * BLOCK) >> 10,
        (now() - start).as_secs_f64()
    );
    let samples = samples.into_iter().map(<[u8]>::to_vec).collect();
    Ok(Kind { name, pieces, dictionaries: trained.into_iter().collect(), samples })
}

/// A frame, the index of its dictionary, and its payload unless it is raw.
type Frame<'a> = (&'a [u8], Option<usize>, Option<Vec<u8>>);

/// Compresses one kind in one way and reads it back.
fn run(kind: &Kind, way: &Way) -> Result<Sums, Box<dyn Error>> {
    let zstd = |code| zstd_safe::get_error_name(code);
    let dictionaries = if way.dictionary { &kind.dictionaries[..] } else { &[] };
    let tables: Vec<(CDict<'_>, DDict<'_>)> = dictionaries
        .iter()
        .map(|dictionary| (CDict::create(dictionary.bytes(), way.level), DDict::create(dictionary.bytes())))
        .collect();
    // A single dictionary is used for everything, of several the one that fits.
    let choose = |frame: &[u8]| match dictionaries.len() {
        0 => None,
        1 => Some(0),
        _ => codec::choose(dictionaries, frame).map(|chosen| usize::from(chosen.id()) - 1),
    };
    let mut compressor = CCtx::create();
    let mut decompressor = DCtx::create();
    decompressor.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(zstd)?;
    for parameter in [
        CParameter::CompressionLevel(way.level),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
        CParameter::DictIdFlag(false),
        CParameter::MaxBlockSize(way.split as u32),
    ]
    .iter()
    .chain(&way.parameters)
    {
        compressor.set_parameter(*parameter).map_err(zstd)?;
    }
    let mut sums = Sums::default();
    let mut scratch = vec![0; PIECE + 4096];
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let mut referred = None;
    for piece in &kind.pieces {
        for frame in piece.chunks(way.frame) {
            let start = now();
            let limit = frame.len() - UNIT;
            let mut chosen = None;
            let written = if looks_incompressible(frame) {
                None
            } else {
                chosen = choose(frame);
                if chosen != referred {
                    compressor.reset(ResetDirective::SessionOnly).map_err(zstd)?;
                    match chosen {
                        Some(number) => compressor.ref_cdict(&tables[number].0),
                        None => compressor.disable_dictionary(),
                    }
                    .map_err(zstd)?;
                    referred = chosen;
                }
                compressor.compress2(&mut scratch[..limit], frame).ok()
            };
            sums.compress += now() - start;
            frames.push((frame, chosen, written.map(|bytes| scratch[..bytes].to_vec())));
        }
    }
    let mut back = vec![0; PIECE];
    let mut prefix = Vec::new();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for (frame, chosen, payload) in &frames {
        let bytes = payload.as_ref().map_or(frame.len(), Vec::len);
        sums.logical += frame.len();
        sums.bare += bytes;
        sums.drive += bytes.next_multiple_of(UNIT) + HEADER_BYTES + frame.len() / BLOCK * ENTRY_BYTES;
        sums.sectors += bytes.next_multiple_of(BLOCK).min(frame.len());
        let Some(payload) = payload else {
            sums.reads += 1;
            continue;
        };
        let mut decode = |payload: &[u8], back: &mut [u8]| {
            match chosen {
                None => decompressor.decompress(back, payload),
                Some(number) => decompressor.decompress_using_ddict(back, payload, &tables[*number].1),
            }
            .map_err(zstd)
        };
        let start = now();
        let bytes = decode(payload, &mut back[..frame.len()])?;
        sums.decompress += now() - start;
        if back[..bytes] != **frame {
            return Err(format!("{}: {} does not come back", kind.name, way.label).into());
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = (random >> 33) as usize % (frame.len() / BLOCK);
        let wanted = (number + 1) * BLOCK;
        let start = now();
        let bytes = match cut(payload, wanted.div_ceil(way.split)) {
            Some(last) if wanted < frame.len() => {
                prefix.clear();
                prefix.extend_from_slice(&payload[..last.1]);
                prefix[last.0] |= 1;
                decode(&prefix, &mut back[..frame.len()])?
            }
            _ => decode(payload, &mut back[..frame.len()])?,
        };
        sums.read += now() - start;
        sums.reads += 1;
        if bytes < wanted || back[..wanted] != frame[..wanted] {
            return Err(format!("{}: {}: wrong start of a frame", kind.name, way.label).into());
        }
    }
    Ok(sums)
}

/// Start and end of the zstd block with this number, counted from 1.
fn cut(payload: &[u8], number: usize) -> Option<(usize, usize)> {
    let mut end = 2;
    for counted in 1.. {
        let start = end;
        let header = u32::from_le_bytes([payload[start], payload[start + 1], payload[start + 2], 0]);
        if header & 1 != 0 {
            return None;
        }
        end = start + 3 + if header >> 1 & 3 == 1 { 1 } else { header as usize >> 3 };
        if counted == number {
            return Some((start, end));
        }
    }
    None
}

fn way(level: i32, frame_kib: usize, split_kib: usize, dictionary: bool) -> Way {
    let mut label = format!("zstd {level}, {frame_kib}K");
    if split_kib < frame_kib {
        label += &format!(" by {split_kib}K");
    }
    if dictionary {
        label += " + dictionary";
    }
    Way { label, level, frame: frame_kib << 10, split: split_kib << 10, dictionary, parameters: Vec::new() }
}

/// Levels and sizes, with and without a dictionary.
fn settled() -> Vec<Way> {
    let mut ways = vec![way(1, 128, 128, false), way(3, 128, 128, false), way(9, 128, 128, false)];
    for level in [1, 3, 6, 9] {
        for dictionary in [false, true] {
            for (frame, splits) in
                [(4, &[4][..]), (8, &[8, 4]), (16, &[16, 8, 4]), (32, &[32, 16, 8, 4]), (64, &[64, 16, 8, 4])]
            {
                ways.extend(splits.iter().map(|split| way(level, frame, *split, dictionary)));
            }
        }
    }
    ways
}

/// The most relevant ways: those that drives use, or could use.
fn chosen() -> Vec<Way> {
    let with_dictionary = [(1, 4, 4), (3, 16, 8), (6, 4, 4), (6, 16, 8), (6, 32, 8), (9, 32, 8)];
    let without = [(1, 4, 4), (1, 64, 16), (6, 16, 8), (6, 32, 8), (9, 32, 8)];
    let without = without.map(|(level, frame, split)| way(level, frame, split, false));
    without
        .into_iter()
        .chain(with_dictionary.map(|(level, frame, split)| way(level, frame, split, true)))
        .collect()
}

/// Ways that could improve the foreground's ratio without loss of speed.
fn foreground() -> Vec<Way> {
    use CParameter::{ChainLog, HashLog, MinMatch, Strategy as Use, WindowLog};
    let mut ways = vec![way(1, 32, 32, false)];
    let tries: &[(&str, &[CParameter])] = &[
        ("", &[]),
        ("minimum match 4", &[MinMatch(4)]),
        ("minimum match 5", &[MinMatch(5)]),
        ("minimum match 6", &[MinMatch(6)]),
        ("hash 12", &[HashLog(12)]),
        ("hash 14", &[HashLog(14)]),
        ("hash 15", &[HashLog(15)]),
        ("hash 14, match 4", &[HashLog(14), MinMatch(4)]),
        ("hash 15, match 5", &[HashLog(15), MinMatch(5)]),
        (
            "dfast, hash 13, chain 13, match 5",
            &[Use(Strategy::ZSTD_dfast), HashLog(13), ChainLog(13), MinMatch(5)],
        ),
        (
            "dfast, hash 14, chain 13, match 5",
            &[Use(Strategy::ZSTD_dfast), HashLog(14), ChainLog(13), MinMatch(5)],
        ),
        (
            "dfast, hash 14, chain 14, match 4",
            &[Use(Strategy::ZSTD_dfast), HashLog(14), ChainLog(14), MinMatch(4)],
        ),
        ("window 17", &[WindowLog(17)]),
    ];
    for (frame, splits) in [(32, &[32, 8, 4][..]), (64, &[64, 16, 8, 4])] {
        for split in splits {
            for (label, parameters) in tries {
                let mut way = way(1, frame, *split, false);
                if !label.is_empty() {
                    way.label += &format!(", {label}");
                }
                way.parameters = parameters.to_vec();
                ways.push(way);
            }
            ways.push(way(2, frame, *split, false));
            ways.push(way(1, frame, *split, true));
        }
    }
    ways
}

/// Measures the test for incompressible blocks: the share it gives up, the space lost by that, and its time.
fn detect(kinds: &[Kind]) -> Result<(), Box<dyn Error>> {
    println!(
        "\ndetect\n\n| kind | given up | lost by it | ns a block | ns a block given up | zstd 1 on those, ns |\n\
         | --- | --- | --- | --- | --- | --- |"
    );
    for kind in kinds {
        let blocks: Vec<&[u8]> = kind.pieces.iter().flat_map(|piece| piece.chunks_exact(BLOCK)).collect();
        let (given_up, all) =
            timed(|| blocks.iter().map(|block| looks_incompressible(block)).collect::<Vec<_>>());
        let raw = blocks.iter().zip(&given_up).filter(|(_, up)| **up);
        let raw: Vec<&[u8]> = raw.map(|(block, _)| *block).collect();
        let (_, again) = timed(|| raw.iter().filter(|block| looks_incompressible(block)).count());
        let mut compressor = CCtx::create();
        compressor.set_parameter(CParameter::CompressionLevel(1)).map_err(zstd_safe::get_error_name)?;
        let mut scratch = vec![0; BLOCK];
        let saved = |block: &&[u8]| {
            let bytes = compressor.compress2(&mut scratch[..BLOCK - UNIT], block).unwrap_or(BLOCK);
            BLOCK - bytes.next_multiple_of(UNIT)
        };
        let (lost, vain) = timed(|| raw.iter().map(saved).sum::<usize>());
        let each = |time: Duration, blocks: usize| match blocks {
            0 => "-".to_string(),
            _ => format!("{:.0}", time.as_nanos() as f64 / blocks as f64),
        };
        println!(
            "| {} | {:.2} % | {:.3} % | {} | {} | {} |",
            kind.name,
            raw.len() as f64 / blocks.len() as f64 * 100.0,
            lost as f64 / (blocks.len() * BLOCK) as f64 * 100.0,
            each(all, blocks.len()),
            each(again, raw.len()),
            each(vain, raw.len()),
        );
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = work();
    (result, now() - start)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut dir, mut mib, mut kinds_too, mut several, mut sections) = (None, 8, false, 0, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--mib" => mib = arguments.next().ok_or("--mib wants a number")?.parse()?,
            "--kinds" => kinds_too = true,
            "--dictionaries" => several = arguments.next().ok_or("--dictionaries wants a number")?.parse()?,
            _ if dir.is_none() => dir = Some(argument),
            _ => sections.push(argument),
        }
    }
    let dir = dir.ok_or(
        "usage: sweep DIR [--mib N] [--kinds] [--dictionaries K] [settled|foreground|chosen|detect|structure]...",
    )?;
    let mut paths: Vec<_> =
        std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| {
        path.is_file() && !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.')
    });
    paths.sort();
    let mut kinds: Vec<Kind> = paths.iter().map(|path| load(path, mib)).collect::<Result<_, _>>()?;
    if several > 0 {
        // As many samples for each dictionary as for one kind, drawn from all kinds.
        let step = kinds.len().div_ceil(several);
        let samples = kinds.iter().flat_map(|kind| kind.samples.iter().step_by(step));
        let samples: Vec<&[u8]> = samples.map(Vec::as_slice).collect();
        let start = now();
        let trained = codec::train_several(&samples, several, DICTIONARY_BYTES, 3)?;
        eprintln!("{} dictionaries in {:.1} s", trained.len(), (now() - start).as_secs_f64());
        let dictionaries: Vec<Dictionary> =
            (1..).zip(trained).map(|(id, bytes)| Dictionary::new(id, bytes)).collect::<Result<_, _>>()?;
        kinds.iter_mut().for_each(|kind| kind.dictionaries = dictionaries.clone());
    }
    if sections.is_empty() || sections.iter().any(|section| section == "detect") {
        detect(&kinds)?;
    }
    if sections.is_empty() || sections.iter().any(|section| section == "structure") {
        structure::run(&kinds, mib)?;
    }
    for (name, ways) in [("settled", settled()), ("foreground", foreground()), ("chosen", chosen())] {
        if !sections.is_empty() && !sections.iter().any(|section| section == name) {
            continue;
        }
        println!("\n{name}: {} kinds, {mib} MiB each\n\n{HEAD}", kinds.len());
        for way in &ways {
            let mut pooled = Sums::default();
            let mut rows = Vec::new();
            for kind in &kinds {
                let sums = run(kind, way)?;
                rows.push(sums.row(&format!("{}: {}", kind.name, way.label)));
                pooled.add(sums);
            }
            println!("{}", pooled.row(&way.label));
            if kinds_too {
                println!("{}", rows.join("\n"));
            }
        }
    }
    Ok(())
}
