//! How many of a kind work side by side.

/// One for each processor, up to `most`.
pub(crate) fn each(most: usize) -> usize {
    count().min(most)
}

/// One for every two processors, up to `most`: for what keeps a thread busy on either side.
pub(crate) fn every_second(most: usize) -> usize {
    count().div_ceil(2).min(most)
}

fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
