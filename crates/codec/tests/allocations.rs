//! The hot path allocates nothing: contexts and buffers are created once and kept.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use codec::{CodecId, Dictionary, Effort, Policy, testdata, train, with_compressor, with_decompressor};

struct Counting;

thread_local! {
    /// Number of allocations of this thread. Const, so that reading it allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes all calls to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of Rust code in `work`. Those inside the C libraries are not counted.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn compressing_and_decompressing_allocates_nothing() {
    let data = testdata::text_like(1, 1 << 20);
    let samples: Vec<&[u8]> = data.chunks(4096).collect();
    let dictionary = Dictionary::new(1, train(&samples, 16 << 10, 1).expect("enough")).expect("sound");
    let random = testdata::random(1, 65536);
    let policies = [Policy::Auto, Policy::Lz4, Policy::Zstd(6), Policy::Deflate(1)];
    let mut back = vec![0; 65536];
    let mut round = |policy: Policy| {
        for len in [4096, 16384, 65536, 4096, 512] {
            for input in [&data[..len], &random[..len]] {
                for dictionary in [None, Some(&dictionary)] {
                    with_compressor(policy, |compressor, payload| {
                        let id = compressor.compress(input, dictionary, payload);
                        let payload = if id == CodecId::Raw { input } else { &payload[..] };
                        let back = &mut back[..len];
                        with_decompressor(|decompressor| {
                            decompressor.decompress(id, payload, dictionary, back).expect("sound");
                            let wanted = len / 2;
                            decompressor
                                .decompress_prefix(id, payload, dictionary, back, wanted)
                                .expect("sound");
                        });
                    });
                }
            }
        }
    };
    // The first round creates contexts, tables and buffers.
    policies.into_iter().for_each(&mut round);
    for policy in policies {
        assert_eq!(allocations(|| (0..3).for_each(|_| round(policy))), 0, "{policy}");
    }
    // Checks that the counter works.
    assert!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))) > 0);
}

#[test]
fn structured_data_allocates_nothing() {
    let len = 65536;
    let code = testdata::x86_code(1, len);
    let samples: Vec<&[u8]> = code.chunks(4096).collect();
    let dictionary =
        Dictionary::new(1, train(&samples.repeat(8), 16 << 10, 1).expect("enough")).expect("sound");
    let inputs = [
        testdata::bfloat16(1, len),
        testdata::samples16(1, len),
        testdata::smooth(1, len),
        testdata::records(1, len),
        code.clone(),
        testdata::text_like(1, len),
    ];
    let mut back = vec![0; len];
    let mut structured = 0;
    let mut round = |policy: Policy, effort: Effort| {
        for len in [4096, 16384, 65536, 4096, 513] {
            for input in inputs.iter().map(|input| &input[..len]) {
                for dictionary in [None, Some(&dictionary)] {
                    with_compressor(policy, |compressor, payload| {
                        let coded = compressor.compress_structured(input, dictionary, effort, payload);
                        let payload = if coded.id == CodecId::Raw { input } else { &payload[..] };
                        structured += usize::from(coded.id == CodecId::Structured);
                        let dictionary = dictionary.filter(|_| coded.dictionary);
                        let back = &mut back[..len];
                        with_decompressor(|decompressor| {
                            decompressor.decompress(coded.id, payload, dictionary, back).expect("sound");
                            decompressor
                                .decompress_prefix(coded.id, payload, dictionary, back, len / 2)
                                .expect("sound");
                        });
                    });
                }
            }
        }
    };
    let settings = [(Policy::Auto, Effort::Foreground), (Policy::Zstd(6), Effort::Settling)];
    settings.into_iter().for_each(|(policy, effort)| round(policy, effort));
    for (policy, effort) in settings {
        assert_eq!(allocations(|| round(policy, effort)), 0, "{policy} {effort:?}");
    }
    assert!(structured > 100, "{structured} payloads");
}
