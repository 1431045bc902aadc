//! Workloads of the clients of a seed.

use codec::Policy;
use media::SimRng;

use crate::content::Filler;

/// Workload of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Everything at a few places.
    Mixed,
    /// More data than the drive can hold.
    Fill,
    /// The same data repeatedly, so that the log wraps around and cleaning has to keep up.
    Churn,
    /// Small writes all over a huge drive, which make a large map.
    Sparse,
    /// Incompressible data until the drive refuses it, then all operations on the full drive.
    Full,
    /// Groups of blocks that are written as a whole and die one by one, in segments where everything else
    /// dies too.
    Frames,
    /// The same places in the same order, with the same lengths.
    Rounds,
    /// A drive with many segments, filled and opened repeatedly.
    Large,
}

impl Style {
    /// All styles.
    pub const ALL: [Style; 8] = [
        Style::Mixed,
        Style::Fill,
        Style::Churn,
        Style::Sparse,
        Style::Full,
        Style::Frames,
        Style::Rounds,
        Style::Large,
    ];

    pub(super) fn draw(rng: &mut SimRng) -> Style {
        match rng.below(16) {
            10 => Style::Large,
            11 => Style::Rounds,
            0 => Style::Fill,
            1 | 2 => Style::Sparse,
            3..6 => Style::Churn,
            6 => Style::Full,
            7..10 => Style::Frames,
            _ => Style::Mixed,
        }
    }

    /// Returns whether the style writes large volumes.
    pub(super) fn is_large(self) -> bool {
        matches!(
            self,
            Style::Fill | Style::Churn | Style::Full | Style::Frames | Style::Rounds | Style::Large
        )
    }

    /// Draws the number of operations of a client in a life.
    pub(super) fn draw_operations(self, rng: &mut SimRng) -> u32 {
        let operations = match self {
            Style::Mixed => 4 + rng.below(24),
            Style::Full => 24 + rng.below(40),
            Style::Frames => 40 + rng.below(60),
            Style::Fill | Style::Churn | Style::Sparse | Style::Rounds | Style::Large => 20 + rng.below(30),
        };
        operations as u32
    }

    pub(super) fn draw_codec(self, rng: &mut SimRng) -> Policy {
        let codecs = match self {
            // Mostly the codecs that give the shortest frames.
            Style::Frames => {
                [Policy::Auto, Policy::Auto, Policy::Auto, Policy::Zstd(1), Policy::Zstd(1), Policy::Lz4]
            }
            // LZ4 fills the drive quickly, and with it blocks that are alike do not compress alone at all.
            Style::Large => [Policy::Lz4, Policy::Lz4, Policy::Lz4, Policy::Lz4, Policy::Auto, Policy::Auto],
            _ => [Policy::Auto, Policy::Lz4, Policy::Lz4, Policy::Zstd(1), Policy::Auto, Policy::None],
        };
        if self != Style::Large && rng.chance(1, 16) {
            return Policy::Deflate(1);
        }
        codecs[rng.index(codecs.len())]
    }

    /// Draws the fillers of ordinary writes.
    pub(super) fn draw_fillers(self, rng: &mut SimRng) -> Vec<Filler> {
        match self {
            Style::Full | Style::Frames | Style::Rounds | Style::Large => vec![Filler::Random],
            Style::Fill | Style::Churn => {
                vec![Filler::Random, Filler::Random, Filler::Random, Filler::Mixed, Filler::Zero]
            }
            Style::Mixed | Style::Sparse => Filler::ALL
                .into_iter()
                .chain([Filler::Text, Filler::Mixed, Filler::Random])
                .chain((0..4).map(|_| Filler::draw_for_frames(rng)))
                .collect(),
        }
    }
}

/// Fillers of groups that are written as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    /// Data that compresses to almost nothing.
    Short,
    /// Blocks that compress together and not alone.
    Alike,
    /// Anything.
    All,
}

impl Palette {
    pub(super) fn draw(rng: &mut SimRng) -> Palette {
        [Palette::Short, Palette::Short, Palette::Alike, Palette::All][rng.index(4)]
    }

    pub(super) fn draw_filler(self, rng: &mut SimRng) -> Filler {
        match self {
            Palette::Short => Filler::draw_short(rng),
            Palette::Alike => Filler::draw_alike(rng),
            Palette::All => Filler::draw_for_frames(rng),
        }
    }
}
