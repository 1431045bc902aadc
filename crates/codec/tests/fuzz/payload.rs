//! Fuzz target: arbitrary bytes as a payload of each codec, with and without a dictionary, whole and in part;
//! and as a dictionary.
//!
//! The first byte is the mode: bits 0 to 2 are the codec, 3 to 4 the dictionary (none, trained, plain bytes,
//! or the bytes that follow), 5 to 7 the binary logarithm of the number of expected blocks. The second byte
//! is the wanted part of them, in 255ths.

use std::sync::LazyLock;

use codec::{CodecId, Compressor, Decompressor, Dictionary, Effort, Policy, testdata, train};

const BLOCK: usize = 4096;
const IDS: [CodecId; 5] = [CodecId::Raw, CodecId::Lz4, CodecId::Zstd, CodecId::Deflate, CodecId::Structured];
/// Binary logarithm of most expected blocks.
const BLOCKS_LOG_MAX: u8 = 4;
/// Guard bytes before and after the output buffer.
const GUARD: u8 = 0xa5;
const GUARD_BYTES: usize = 64;
/// Number of following bytes that form the dictionary.
const GIVEN_BYTES: usize = 512;

static TRAINED: LazyLock<Dictionary> = LazyLock::new(|| {
    let data = testdata::text_like(99, 1 << 20);
    let samples: Vec<&[u8]> = data.chunks(BLOCK).collect();
    Dictionary::new(1, train(&samples, 16 << 10, 1).expect("enough")).expect("sound")
});
static PLAIN: LazyLock<Dictionary> =
    LazyLock::new(|| Dictionary::new(2, testdata::text_like(98, 8 << 10)).expect("any bytes will do"));

/// Encodes a head and a payload of a power of two of blocks in the form that [`run`] expects.
pub(crate) fn encode(id: CodecId, dictionary: u8, blocks: usize, payload: &[u8]) -> Vec<u8> {
    let head = u8::from(id) | dictionary << 3 | (blocks.ilog2() as u8) << 5;
    [&[head, 100], payload].concat()
}

/// Returns the dictionary with this number in [`encode`], if it is a fixed one.
pub(crate) fn dictionary(number: u8) -> Option<&'static Dictionary> {
    [None, Some(&*TRAINED), Some(&*PLAIN), None][usize::from(number & 3)]
}

pub(crate) fn run(data: &[u8]) {
    let Some((&[head, part], mut payload)) = data.split_first_chunk::<2>() else { return };
    let id = IDS[usize::from(head & 7) % IDS.len()];
    let given;
    let dictionary = match head >> 3 & 3 {
        3 => {
            let (bytes, rest) = payload.split_at(payload.len().min(GIVEN_BYTES));
            payload = rest;
            let Ok(made) = Dictionary::new(3, bytes) else { return };
            serves(&made);
            given = made;
            Some(&given)
        }
        number => dictionary(number),
    };
    let expected = BLOCK << (head >> 5).min(BLOCKS_LOG_MAX);
    let wanted = expected * usize::from(part) / 255;
    let mut decompressor = Decompressor::new();
    let whole = guarded(expected, |out| decompressor.decompress(id, payload, dictionary, out).is_ok());
    let prefix =
        guarded(expected, |out| decompressor.decompress_prefix(id, payload, dictionary, out, wanted).is_ok());
    if let Some(whole) = whole {
        let prefix = prefix.expect("what is sound is sound in part");
        assert_eq!(whole[..wanted], prefix[..wanted], "{id}: the first {wanted} bytes of {expected}");
        let again = guarded(expected, |out| decompressor.decompress(id, payload, dictionary, out).is_ok());
        assert!(again.is_some_and(|again| again == whole), "{id}: other bytes the second time");
    }
    let numbers = testdata::bfloat16(3, BLOCK);
    // After any result, the next valid payload must be decompressed correctly.
    for (policy, id) in [
        (Policy::Lz4, CodecId::Lz4),
        (Policy::Zstd(1), CodecId::Zstd),
        (Policy::Deflate(1), CodecId::Deflate),
    ] {
        let block = testdata::fio_like(3, BLOCK, 60);
        let mut payload = Vec::new();
        assert_eq!(
            codec::with_compressor(policy, |compressor, _| compressor.compress(&block, None, &mut payload)),
            id
        );
        let back = guarded(BLOCK, |out| decompressor.decompress(id, &payload, None, out).is_ok());
        assert!(back.is_some_and(|back| back == block), "{id}: a sound payload is refused");
    }
    let mut payload = Vec::new();
    let coded = codec::with_compressor(Policy::Auto, |compressor, _| {
        compressor.compress_structured(&numbers, None, Effort::Foreground, &mut payload)
    });
    assert_eq!(coded.id, CodecId::Structured);
    let back = guarded(BLOCK, |out| decompressor.decompress(coded.id, &payload, None, out).is_ok());
    assert!(back.is_some_and(|back| back == numbers), "structured: a sound payload is refused");
}

/// Runs `work` on a buffer of `bytes` bytes and returns the buffer if it succeeded. Fails if the bytes around
/// the buffer were changed.
fn guarded(bytes: usize, work: impl FnOnce(&mut [u8]) -> bool) -> Option<Vec<u8>> {
    let mut room = vec![GUARD; bytes + 2 * GUARD_BYTES];
    let done = work(&mut room[GUARD_BYTES..GUARD_BYTES + bytes]);
    let (before, rest) = room.split_at(GUARD_BYTES);
    let (out, after) = rest.split_at(bytes);
    assert!(before.iter().chain(after).all(|&byte| byte == GUARD), "wrote beside its room");
    done.then(|| out.to_vec())
}

/// Checks that an accepted dictionary compresses and decompresses.
fn serves(dictionary: &Dictionary) {
    let block = testdata::text_like(5, BLOCK);
    let mut payload = Vec::new();
    let id = Compressor::new(Policy::Zstd(1)).compress(&block, Some(dictionary), &mut payload);
    assert_eq!(id, CodecId::Zstd);
    let mut back = vec![0; BLOCK];
    Decompressor::new().decompress(id, &payload, Some(dictionary), &mut back).expect("its own payload");
    assert_eq!(back, block);
    codec::choose(std::slice::from_ref(dictionary), &block);
}
