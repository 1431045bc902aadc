/// Effort that [`Compressor::compress_structured`](crate::Compressor::compress_structured) spends on the choice
/// of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A look at samples: a few per cent of the time of zstd 1 on frames without structure, and up to 5 us on
    /// a block.
    Foreground,
    /// The transforms that could gain are tried, which takes several times as long as compression without
    /// one. Text is recognised and costs nothing.
    Settling,
}
