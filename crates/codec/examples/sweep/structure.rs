//! Measures the codec for structured data against zstd alone.

use std::error::Error;
use std::time::Duration;

use codec::{CodecId, Compressor, Decompressor, Dictionary, Effort, Policy, looks_incompressible};

use crate::{BLOCK, ENTRY_BYTES, HEADER_BYTES, Kind, UNIT, now};

/// A setting of drives.
struct Setting {
    label: &'static str,
    policy: Policy,
    frame: usize,
    effort: Effort,
    dictionary: bool,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    logical: usize,
    bare: usize,
    drive: usize,
    structured: usize,
    compress: Duration,
    decompress: Duration,
    read: Duration,
    reads: u32,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.logical += other.logical;
        self.bare += other.bare;
        self.drive += other.drive;
        self.structured += other.structured;
        self.compress += other.compress;
        self.decompress += other.decompress;
        self.read += other.read;
        self.reads += other.reads;
    }
}

const HEAD: &str = "| kind | bare | structured | with headers | structured | share of bytes | compress MB/s | \
    structured | decompress MB/s | structured | random 4 KiB read, us | structured |\n| --- | --- | --- | --- | --- | \
    --- | --- | --- | --- | --- | --- | --- |";

fn row(label: &str, [plain, structured]: &[Sums; 2]) -> String {
    let ratio = |sums: &Sums, stored: usize| sums.logical as f64 / stored as f64;
    let speed = |sums: &Sums, time: Duration| sums.logical as f64 / 1e6 / time.as_secs_f64();
    let read = |sums: &Sums| sums.read.as_secs_f64() * 1e6 / f64::from(sums.reads);
    format!(
        "| {label} | {:.3} | {:.3} | {:.3} | {:.3} | {:.0} % | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} |",
        ratio(plain, plain.bare),
        ratio(structured, structured.bare),
        ratio(plain, plain.drive),
        ratio(structured, structured.drive),
        structured.structured as f64 / structured.logical as f64 * 100.0,
        speed(plain, plain.compress),
        speed(structured, structured.compress),
        speed(plain, plain.decompress),
        speed(structured, structured.decompress),
        read(plain),
        read(structured),
    )
}

/// Prints a table for each setting.
pub(crate) fn run(kinds: &[Kind], mib: usize) -> Result<(), Box<dyn Error>> {
    let settings = [
        ("written: zstd 1, 32K", Policy::Zstd(1), 32 << 10, Effort::Foreground, false),
        ("written: zstd 1, 4K", Policy::Zstd(1), BLOCK, Effort::Foreground, false),
        ("written: zstd 1, 32K + dictionary", Policy::Zstd(1), 32 << 10, Effort::Foreground, true),
        ("written: zstd 1, 4K + dictionary", Policy::Zstd(1), BLOCK, Effort::Foreground, true),
        ("settled: zstd 8, 16K by 8K", Policy::Zstd(8), 16 << 10, Effort::Settling, false),
        ("settled: zstd 6, 16K by 8K + dictionary", Policy::Zstd(6), 16 << 10, Effort::Settling, true),
    ];
    for (label, policy, frame, effort, dictionary) in settings {
        let setting = Setting { label, policy, frame, effort, dictionary };
        println!("\nstructure: {}: {} kinds, {mib} MiB each\n\n{HEAD}", setting.label, kinds.len());
        let mut pooled = [Sums::default(); 2];
        for kind in kinds {
            let sums = measure(kind, &setting)?;
            pooled.iter_mut().zip(&sums).for_each(|(pooled, sums)| pooled.add(sums));
            println!("{}", row(&kind.name, &sums));
        }
        println!("{}", row("pooled", &pooled));
    }
    times(kinds);
    Ok(())
}

/// Turns of [`times`]. The fastest counts: others waited for the machine.
const TURNS: usize = 9;

/// Prints the time of compression in the foreground, compared with zstd alone.
fn times(kinds: &[Kind]) {
    println!(
        "\nstructure: time of zstd 1 with it, compared with zstd 1 alone\n\n| kind | 32K | 4K |\n| --- | --- | --- |"
    );
    let mut pooled = [[0.0; 2]; 2];
    for kind in kinds {
        let mut cells = String::new();
        for (frame_bytes, pooled) in [32 << 10, BLOCK].into_iter().zip(&mut pooled) {
            let frames = kind.pieces.iter().flat_map(|piece| piece.chunks(frame_bytes));
            let frames: Vec<&[u8]> = frames.filter(|frame| !looks_incompressible(frame)).collect();
            let mut compressors = [Compressor::new(Policy::Auto), Compressor::new(Policy::Auto)];
            let mut best = [f64::MAX; 2];
            let mut payload = Vec::new();
            for _ in 0..TURNS {
                for (way, compressor) in compressors.iter_mut().enumerate() {
                    let start = now();
                    for frame in &frames {
                        payload.clear();
                        match way {
                            0 => drop(compressor.compress(frame, None, &mut payload)),
                            _ if looks_incompressible(frame) => {}
                            _ => {
                                compressor.compress_structured(frame, None, Effort::Foreground, &mut payload);
                            }
                        }
                    }
                    best[way] = best[way].min((now() - start).as_secs_f64());
                }
            }
            pooled.iter_mut().zip(best).for_each(|(sum, best)| *sum += best);
            cells += &format!(" {:+.0} % |", (best[1] / best[0] - 1.0) * 100.0);
        }
        println!("| {} |{cells}", kind.name);
    }
    let cells = pooled.map(|[alone, with]| format!(" {:+.0} % |", (with / alone - 1.0) * 100.0)).concat();
    println!("| pooled |{cells}");
}

/// Compresses and reads one kind without and with the codec, piece by piece in turn, because the machine is
/// shared.
fn measure(kind: &Kind, setting: &Setting) -> Result<[Sums; 2], Box<dyn Error>> {
    let dictionaries = if setting.dictionary { &kind.dictionaries[..] } else { &[] };
    let mut compressors = [Compressor::new(setting.policy), Compressor::new(setting.policy)];
    let mut decompressor = Decompressor::new();
    let mut sums = [Sums::default(); 2];
    let (mut payload, mut back) = (Vec::new(), vec![0; setting.frame]);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for piece in &kind.pieces {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The second way finds the data in the caches, so they take turns.
        for way in if random >> 63 == 0 { [0, 1] } else { [1, 0] } {
            let sums = &mut sums[way];
            for (number, frame) in piece.chunks(setting.frame).enumerate() {
                payload.clear();
                let start = now();
                let dictionary = match dictionaries {
                    [one] => Some(one),
                    several => codec::choose(several, frame),
                };
                let (id, with) = if looks_incompressible(frame) {
                    (CodecId::Raw, false)
                } else if way == 0 {
                    let id = compressors[way].compress_tested(frame, dictionary, &mut payload);
                    (id, dictionary.is_some())
                } else {
                    let coded =
                        compressors[way].compress_structured(frame, dictionary, setting.effort, &mut payload);
                    (coded.id, coded.dictionary)
                };
                sums.compress += now() - start;
                let bytes = if id == CodecId::Raw { frame.len() } else { payload.len() };
                sums.logical += frame.len();
                sums.bare += bytes;
                sums.drive += bytes.next_multiple_of(UNIT) + HEADER_BYTES + frame.len() / BLOCK * ENTRY_BYTES;
                sums.reads += 1;
                if id == CodecId::Raw {
                    continue;
                }
                if id == CodecId::Structured {
                    sums.structured += frame.len();
                }
                let dictionary: Option<&Dictionary> = dictionary.filter(|_| with);
                let start = now();
                decompressor.decompress(id, &payload, dictionary, &mut back)?;
                sums.decompress += now() - start;
                if back != frame {
                    return Err(format!("{}: {} does not come back", kind.name, setting.label).into());
                }
                let wanted = ((random >> 33) as usize + number) % (frame.len() / BLOCK) * BLOCK + BLOCK;
                let start = now();
                decompressor.decompress_prefix(id, &payload, dictionary, &mut back, wanted)?;
                sums.read += now() - start;
                if back[..wanted] != frame[..wanted] {
                    return Err(format!("{}: {}: wrong start of a frame", kind.name, setting.label).into());
                }
            }
        }
    }
    Ok(sums)
}
