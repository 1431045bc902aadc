//! Runs fuzz targets without a fuzzer, for all crates that have some.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

#[path = "mutate.rs"]
mod mutate;

/// A target's share of every `cargo test`.
const SECONDS: f64 = 0.4;
/// However fast the machine is.
const CASES_MAX: u64 = 1 << 40;

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Says how to repeat a case that panicked.
struct Case {
    target: &'static str,
    seed: u64,
    number: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { target, seed, number } = self;
            eprintln!(
                "repeat with PUMICE_FUZZ_SEED={seed} PUMICE_FUZZ_CASE={number} cargo test -p {} {target}",
                env!("CARGO_PKG_NAME")
            );
        }
    }
}

/// Runs a target on valid structures and on damaged copies of them, the same ones every time.
pub(crate) fn fuzz(target: &'static str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    for seed in seeds {
        run(seed);
    }
    let seed = setting("PUMICE_FUZZ_SEED").unwrap_or(1);
    let (cases, limit) = match setting("PUMICE_FUZZ_CASE") {
        Some(number) => (number..number + 1, Duration::MAX),
        None => (0..CASES_MAX, Duration::from_secs_f64(setting("PUMICE_FUZZ_SECONDS").unwrap_or(SECONDS))),
    };
    let start = Instant::now();
    let mut count = 0;
    for number in cases {
        // A generator for each case: a case can be repeated without those before it.
        let mut rng = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let case = Case { target, seed, number };
        run(&mutate::mutate(seeds, &mut rng));
        drop(case);
        count += 1;
        if start.elapsed() >= limit {
            break;
        }
    }
    if setting::<f64>("PUMICE_FUZZ_SECONDS").is_some() {
        eprintln!("{target}: {count} cases in {:.0} s, seed {seed}", start.elapsed().as_secs_f64());
    }
}

/// Writes valid structures to where the fuzzer looks for a corpus: `fuzz/corpus/<target>/`.
pub(crate) fn write_corpus(target: &str, seeds: &[Vec<u8>]) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let folder = root.join(target);
    std::fs::create_dir_all(&folder).expect("a folder for the corpus");
    for (i, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("valid-{i}")), seed).expect("a file of the corpus");
    }
}
