//! Contexts kept per thread. They are removed from the thread-local while in use, so a closure may call these
//! functions again.

use std::cell::{Cell, RefCell};

use crate::{Compressor, Decompressor, Policy};

/// Number of policies kept per thread. A drive has one, so this is the number of drives with different
/// policies that one thread serves without rebuilding contexts.
const KEPT_MAX: usize = 4;

struct Kept {
    policy: Policy,
    compressor: Compressor,
    scratch: Vec<u8>,
}

thread_local! {
    static COMPRESSORS: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
    static DECOMPRESSOR: Cell<Option<Box<Decompressor>>> = const { Cell::new(None) };
}

/// Calls `work` with this thread's compressor for `policy` and an empty buffer that keeps its capacity
/// between calls.
pub fn with_compressor<R>(policy: Policy, work: impl FnOnce(&mut Compressor, &mut Vec<u8>) -> R) -> R {
    let policy = policy.resolve();
    // A thread that is ending has no thread-locals any more and uses a fresh context.
    let kept = COMPRESSORS.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let at = kept.iter().rposition(|kept| kept.policy == policy)?;
        Some(kept.swap_remove(at))
    });
    let mut kept = kept.ok().flatten().unwrap_or_else(|| Kept {
        policy,
        compressor: Compressor::new(policy),
        scratch: Vec::new(),
    });
    kept.scratch.clear();
    let result = work(&mut kept.compressor, &mut kept.scratch);
    // It is harmless to lose the context of an ending thread.
    let _ = COMPRESSORS.try_with(|others| {
        let mut others = others.borrow_mut();
        if others.len() >= KEPT_MAX {
            others.remove(0);
        }
        others.push(kept);
    });
    result
}

/// Calls `work` with this thread's decompressor.
pub fn with_decompressor<R>(work: impl FnOnce(&mut Decompressor) -> R) -> R {
    let mut kept = DECOMPRESSOR.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = work(&mut kept);
    let _ = DECOMPRESSOR.try_with(|slot| slot.set(Some(kept)));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodecId, testdata};

    #[test]
    fn contexts_nest_and_change_policy() {
        let block = testdata::text_like(1, 4096);
        for level in -5..10 {
            let sizes = with_compressor(Policy::Zstd(level), |outer, payload| {
                assert!(payload.is_empty());
                assert_eq!(outer.compress(&block, None, payload), CodecId::Zstd);
                let inner = with_compressor(Policy::Zstd(level), |inner, other| {
                    assert_eq!(inner.compress(&block, None, other), CodecId::Zstd);
                    other.len()
                });
                let mut back = vec![0; block.len()];
                with_decompressor(|d| d.decompress(CodecId::Zstd, payload, None, &mut back))
                    .expect("round trip");
                assert_eq!(back, block);
                (payload.len(), inner)
            });
            assert_eq!(sizes.0, sizes.1);
        }
        assert!(COMPRESSORS.with_borrow(Vec::len) <= KEPT_MAX);
    }

    #[test]
    fn auto_shares_the_context_of_what_it_stands_for() {
        with_compressor(Policy::Auto, |_, _| ());
        with_compressor(Policy::Zstd(1), |_, _| ());
        assert_eq!(COMPRESSORS.with_borrow(Vec::len), 1);
    }
}
