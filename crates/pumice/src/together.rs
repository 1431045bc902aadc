//! Work on many drives, several at a time.

use anyhow::{Result, anyhow};

/// Most drives that are attached or detached at a time. Each may wait for its server.
const AT_ONCE: usize = 16;

/// Does the same for all drives, several at a time. Returns the results in order.
pub(crate) fn together<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Vec<Result<R>> {
    let mut results = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            let begun: Vec<_> = some.iter().map(|one| scope.spawn(|| work(one))).collect();
            // A panic ends the process.
            let failed = |_| Err(anyhow!("a thread panicked"));
            results.extend(begun.into_iter().map(|thread| thread.join().unwrap_or_else(failed)));
        });
    }
    results
}
