//! Default parallelism.

/// One for each processor, up to `most`.
pub(crate) fn each(most: usize) -> usize {
    count().min(most)
}

/// One for every two processors, up to `most`: for work that keeps a thread busy at both ends.
pub(crate) fn every_second(most: usize) -> usize {
    count().div_ceil(2).min(most)
}

fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
