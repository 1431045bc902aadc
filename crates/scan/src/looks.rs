//! Looks: points of a scan at which the samples drawn so far are tallied, to decide whether more are needed.

use crate::measure::{BlockTally, CostTally, UnitTally};

/// Tallies of the blocks drawn up to a look.
pub(crate) struct BlocksLook {
    pub(crate) blocks: BlockTally,
    pub(crate) framed: CostTally,
    pub(crate) single: CostTally,
}

/// Tallies at each look, the input of confidence sequences.
#[derive(Default)]
pub(crate) struct Looks {
    pub(crate) blocks: Vec<BlocksLook>,
    pub(crate) units: Vec<UnitTally>,
}
