//! Generated data of the same kinds as the data sets of the Canonical document ("How to utilize CPU offloads
//! to increase storage efficiency", table of compression ratios). Data that compresses there compresses here,
//! and the rest does not.
//!
//! | data set there | ratio there (zlib) |
//! | --- | --- |
//! | MinIO Warp, synthetic CSV | 1.33 |
//! | 5000 JPEGs | 1.01 |
//! | JSON, CSV, text | 1.33 |
//! | raw YUV video | 3.13 |
//! | H.264 video | 1.00 |

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use codec::testdata;
use jpeg_encoder::{ColorType, Encoder};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scan::{Options, Population, Report, WalkOptions};

const WIDTH: usize = 320;
const HEIGHT: usize = 240;

/// Fields of random letters, digits and two more characters: six bits of entropy per byte, as in Warp's data.
fn csv(seed: u64, len: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut rng = StdRng::seed_from_u64(seed);
    let mut text = String::with_capacity(len + 100);
    while text.len() < len {
        for field in 0..8 {
            (0..15).for_each(|_| text.push(LETTERS[rng.random_range(0..64)].into()));
            text.push(if field == 7 { '\n' } else { ',' });
        }
    }
    text
}

/// Records of papers with abstracts.
fn json(seed: u64, len: usize) -> String {
    let words = String::from_utf8_lossy(&testdata::text_like(seed, len))
        .replace(|c: char| !c.is_ascii_alphanumeric(), " ");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut text = String::new();
    for abstract_text in words.as_bytes().chunks(600) {
        let id: u128 = rng.random();
        let said = String::from_utf8_lossy(abstract_text);
        let _ =
            writeln!(text, "{{\"id\":\"{id:032x}\",\"year\":{},\"abstract\":\"{said}\"}}", 2000 + id % 20);
    }
    text
}

/// A frame of a scene with a moving light and camera noise: luma, then two chroma planes at half size.
fn frame(rng: &mut StdRng, number: usize, noise: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WIDTH * HEIGHT * 3 / 2);
    let (cx, cy) = (80 + number % 160, 120);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let far = x.abs_diff(cx) + y.abs_diff(cy);
            let light = 16 + (200_usize.saturating_sub(far)) as u8 / 2;
            bytes.push(light + rng.random_range(0..=noise));
        }
    }
    for plane in 0..2 {
        for y in 0..HEIGHT / 2 {
            bytes.extend((0..WIDTH / 2).map(|x| 100 + plane * 20 + (x / 40 + y / 40) as u8));
        }
    }
    bytes
}

fn jpeg(seed: u64) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut pixels = Vec::new();
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let base = ((x * y / 50) % 200) as u8;
            pixels.extend([0, 20, 40].map(|more| base + more / 4 + rng.random_range(0..16)));
        }
    }
    let mut bytes = Vec::new();
    let encoder = Encoder::new(&mut bytes, 90);
    encoder.encode(&pixels, WIDTH as u16, HEIGHT as u16, ColorType::Rgb).expect("encoded");
    bytes
}

/// Encodes raw video with x264. Returns false if x264 is not installed or fails.
fn h264(yuv: &Path, to: &Path) -> bool {
    let size = format!("{WIDTH}x{HEIGHT}");
    let run = Command::new("x264")
        .args(["--quiet", "--muxer", "raw", "--input-res", &size, "--crf", "18", "-o"])
        .arg(to)
        .arg(yuv)
        .output();
    run.is_ok_and(|output| output.status.success())
}

fn scanned(path: &Path) -> Report {
    let mut all = Population::new();
    all.add_path(path, WalkOptions::default(), &|_| ()).expect("listed");
    let options = Options {
        compare: vec!["deflate:6".parse().expect("a codec")],
        unit_precision: None,
        ..Options::default()
    };
    scan::scan(&all, &options, &|_| ()).expect("scanned")
}

#[test]
fn each_compresses_as_its_like() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("warp.csv"), csv(1, 4 << 20)).expect("written");
    for i in 0..40 {
        std::fs::write(at(&format!("{i}.jpg")), jpeg(i)).expect("written");
    }
    std::fs::write(at("papers.json"), json(2, 3 << 20)).expect("written");
    std::fs::write(at("papers.txt"), testdata::text_like(3, 2 << 20)).expect("written");
    let mut rng = StdRng::seed_from_u64(4);
    let video: Vec<u8> = (0..60).flat_map(|number| frame(&mut rng, number, 1)).collect();
    std::fs::write(at("clip.yuv"), &video).expect("written");
    // More noise, so that the encoder has data to encode.
    let noisy: Vec<u8> = (0..60).flat_map(|number| frame(&mut rng, number, 24)).collect();
    let temporary = tempfile::NamedTempFile::with_suffix(".yuv").expect("a file");
    std::fs::write(temporary.path(), &noisy).expect("written");
    let encoded = h264(temporary.path(), &at("clip.h264"));
    if !encoded {
        eprintln!("skipped: x264 is not installed: no H.264 video is made");
    }
    let report = scanned(folder.path());
    let ratio = |kind: &str| {
        let part = report.by_type.iter().find(|part| part.name == kind).expect(kind);
        eprintln!("{kind}: {:.2}:1 of {} bytes", part.ratio.estimate, part.data_bytes);
        part.ratio.estimate
    };
    assert!((1.25..1.40).contains(&ratio("csv")), "six bits of eight, less headers");
    assert!((0.98..1.08).contains(&ratio("jpg")));
    assert!(ratio("json") > 1.33 && ratio("txt") > 1.33);
    assert!((2.5..5.0).contains(&ratio("yuv")));
    if encoded {
        assert!((0.98..1.05).contains(&ratio("h264")));
    }
    // A file scanned alone has the same ratio as its row.
    let alone = scanned(&at("warp.csv"));
    assert!((1.25..1.40).contains(&alone.codecs[0].ratio.estimate));
    assert!((1.25..1.40).contains(&alone.codecs[1].ratio.estimate), "DEFLATE, as there");
}
