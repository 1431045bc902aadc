//! The estimate of what dictionaries can give: not far below what they do give, and next to nothing where
//! nothing is in common.

use codec::{Dictionary, gain_of_several, promise, testdata, train, train_several};

const BLOCK: usize = 4096;

/// Blocks for training and blocks for evaluation.
fn samples(data: &[u8]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let numbered = || data.chunks_exact(BLOCK).enumerate();
    let of =
        |held: bool| numbered().filter(|(at, _)| (at % 4 == 0) == held).map(|(_, block)| block).collect();
    (of(false), of(true))
}

/// Records of few words, and noise between them.
fn records(words: usize, noise: usize) -> Vec<u8> {
    let words: Vec<Vec<u8>> = (0..words).map(|seed| testdata::random(1000 + seed as u64, 40)).collect();
    let random = testdata::random(7, 2 << 20);
    let pieces = random.chunks(noise + 1).enumerate();
    let mut data: Vec<u8> = pieces
        .flat_map(|(at, piece)| {
            let word = &words[usize::from(piece[0]) % words.len()];
            [&piece[..noise.min(piece.len())], word, &[at as u8; 60]].concat()
        })
        .collect();
    data.truncate(2 << 20);
    data
}

/// Blocks of few bytes of which some are frequent, and zeros behind them: without common strings,
/// dictionaries give them tables.
fn sparse(bytes: usize, spread: f64) -> Vec<u8> {
    let random = testdata::random(9, 4 << 20);
    let skewed = random.chunks(2).map(|pair| {
        let uniform = (f64::from(pair[0]) * 256.0 + f64::from(pair[1]) + 0.5) / 65536.0;
        ((-uniform.ln() * spread) as usize * 37 % 256) as u8
    });
    let skewed: Vec<u8> = skewed.collect();
    let block = |bytes: &[u8]| [bytes, &vec![0; BLOCK - bytes.len()]].concat();
    skewed.chunks_exact(bytes).take(1024).flat_map(block).collect()
}

#[test]
fn no_dictionary_gives_much_more_than_its_promise() {
    let texts = [1, 2].map(|seed| testdata::text_like(seed, 2 << 20));
    let records = [(3, 20), (30, 20), (30, 200), (200, 100)].map(|(words, noise)| records(words, noise));
    let mut best = 1.0_f64;
    let sparse = [(250, 32.0), (300, 24.0), (350, 24.0)].map(|(bytes, spread)| sparse(bytes, spread));
    for data in texts.iter().chain(&records).chain(&sparse) {
        let (seen, held) = samples(data);
        let promised = promise(&seen, &held, 1);
        let one = vec![train(&seen, 32 << 10, 1).expect("enough")];
        for trained in [one, train_several(&seen, 6, 32 << 10, 1).expect("enough")] {
            let trained: Vec<Dictionary> =
                (1..).zip(trained).map(|(id, bytes)| Dictionary::new(id, bytes).expect("sound")).collect();
            let gained = gain_of_several(&trained, &held, 1);
            assert!(gained - 1.0 <= 4.0 * (promised - 1.0), "{gained}, {promised}");
            // None that a drive would keep is left untrained.
            assert!(gained < 1.03 || promised > 1.01, "{gained}, {promised}");
            best = best.max(gained);
        }
    }
    assert!(best > 1.2, "{best}: some of them help");
}

#[test]
fn little_is_promised_where_nothing_is_in_common() {
    for percent in [30, 50, 60] {
        let data = testdata::fio_like(3, 4 << 20, percent);
        let (seen, held) = samples(&data);
        let promised = promise(&seen, &held, 1);
        assert!((1.0..1.01).contains(&promised), "{promised} at {percent} %");
    }
}

#[test]
fn samples_may_be_few_or_short_or_of_one_byte() {
    let random = testdata::random(1, BLOCK);
    for (seen, held) in [
        (vec![], vec![]),
        (vec![], vec![&random[..]]),
        (vec![&random[..]], vec![]),
        (vec![&random[..3]; 9], vec![&random[..2]; 9]),
        (vec![&[0; BLOCK][..]; 99], vec![&[0; BLOCK][..]; 99]),
    ] {
        let promised = promise(&seen, &held, 1);
        assert!(promised >= 1.0 && promised.is_finite(), "{promised}");
    }
}
