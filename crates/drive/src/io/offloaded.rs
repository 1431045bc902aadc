//! Compression by an offload: everything that a write would compress is passed to it as one batch and
//! returned as records.

use std::sync::Arc;

use codec::{CodecId, Kind, Policy, frame_blocks};
use layout::record::RECORD_HEADER_BYTES;
use layout::{BLOCK_BYTES, Entry, UNIT_BYTES};
use media::Media;
use offload::{Done, Job, Offload};

use crate::shared::Shared;
use crate::state::batch::Batch;
use crate::state::batch::Seen;

/// Pieces that a write will store, before compression.
pub(crate) struct Plan {
    offload: Arc<dyn Offload>,
    /// Most blocks in a frame.
    frame_blocks: u64,
    pieces: Vec<Piece>,
}

/// A future record, or a fill.
struct Piece {
    /// First block.
    first: u64,
    /// A copy: of frames and blocks to compress, and of data that is not in the host's buffer.
    bytes: Arc<[u8]>,
    /// Place of a block in the host's buffer.
    at: Option<usize>,
    stage: Stage,
}

enum Stage {
    Fill(u32),
    /// Stored uncompressed.
    Raw,
    /// To be compressed.
    Waiting,
    Compressed(CodecId, Vec<u8>),
}

impl<M: Media> Shared<M> {
    /// Returns a plan if there is an offload and anything is compressed at all.
    pub(crate) fn plan_offload(&self) -> Option<Plan> {
        let offload = self.offload.as_ref()?;
        let plan = || Plan { offload: offload.clone(), frame_blocks: self.frame_blocks, pieces: Vec::new() };
        (self.codec() != Policy::None).then(plan)
    }
}

impl Plan {
    /// Like [`Batch::add_run`]: the same pieces, not yet compressed.
    pub(crate) fn add_run(&mut self, block: u64, data: &[u8], source_at: Option<usize>) {
        let kinds: Vec<Kind> = data.chunks_exact(BLOCK_BYTES).map(Kind::of).collect();
        let mut done = 0;
        while done < kinds.len() {
            let first = block + done as u64;
            let blocks = frame_blocks(first, &kinds[done..], self.frame_blocks);
            let at = source_at.map(|at| at + done * BLOCK_BYTES);
            let bytes = &data[done * BLOCK_BYTES..][..blocks * BLOCK_BYTES];
            let (stage, bytes) = match kinds[done] {
                Kind::Fill(word) => (Stage::Fill(word), &[][..]),
                Kind::Incompressible if at.is_some() => (Stage::Raw, &[][..]),
                Kind::Incompressible => (Stage::Raw, bytes),
                Kind::Doubtful | Kind::Other => (Stage::Waiting, bytes),
            };
            self.pieces.push(Piece { first, bytes: bytes.into(), at, stage });
            done += blocks;
        }
    }

    /// Like [`Batch::add_merged`]. The condition to be checked at the end is added to the batch now.
    pub(crate) fn add_merged(&mut self, batch: &mut Batch, data: &[u8], seen: Seen) {
        batch.expected.push(seen);
        self.add_run(seen.block, data, None);
    }

    /// Compresses everything and adds it to the batch. `source` is the host's buffer. If dropped while it
    /// waits, it has changed nothing but the batch.
    pub(crate) async fn execute(self, batch: &mut Batch, source: &[u8]) {
        let Plan { offload, frame_blocks: most, mut pieces } = self;
        loop {
            let waiting = pieces.iter().filter(|piece| matches!(piece.stage, Stage::Waiting));
            let jobs: Vec<Job> = waiting.map(|piece| Job { input: piece.bytes.clone() }).collect();
            if jobs.is_empty() {
                break;
            }
            let asked = jobs.len();
            let mut done = offload.compress(jobs).await;
            if done.len() != asked {
                // Unknown which results are whose.
                done.clear();
            }
            let mut done = done.into_iter();
            let mut next = Vec::with_capacity(pieces.len());
            for piece in pieces {
                match piece.stage {
                    Stage::Waiting => piece.replace_by(done.next(), most, &mut next),
                    _ => next.push(piece),
                }
            }
            // Frames that were not worth it are there again, in parts.
            pieces = next;
        }
        for piece in &pieces {
            piece.add_to(batch, source);
        }
    }
}

impl Piece {
    /// Turns a piece into a record or, if compressing a frame as one saves nothing, into smaller pieces as
    /// [`Batch::add_run`] would make them.
    fn replace_by(mut self, done: Option<Done>, most: u64, next: &mut Vec<Piece>) {
        let blocks = self.bytes.len() / BLOCK_BYTES;
        if let Some(Done { id, payload, .. }) = done
            && id != CodecId::Raw
            && payload.len() + UNIT_BYTES <= self.bytes.len()
            && (blocks == 1 || payload.len() + RECORD_HEADER_BYTES <= Entry::FRAME_MAX_LEN_BYTES)
        {
            self.stage = Stage::Compressed(id, payload);
            return next.push(self);
        }
        if blocks == 1 {
            self.stage = Stage::Raw;
            return next.push(self);
        }
        let kinds = vec![Kind::Other; blocks];
        let mut from = 0;
        while from < blocks {
            let first = self.first + from as u64;
            let len = if from == 0 { 1 } else { frame_blocks(first, &kinds[from..], most) };
            next.push(Piece {
                first,
                bytes: self.bytes[from * BLOCK_BYTES..][..len * BLOCK_BYTES].into(),
                at: self.at.map(|at| at + from * BLOCK_BYTES),
                stage: Stage::Waiting,
            });
            from += len;
        }
    }

    fn add_to(&self, batch: &mut Batch, source: &[u8]) {
        let blocks = (self.first, (self.bytes.len() / BLOCK_BYTES).max(1) as u64);
        match (&self.stage, self.at) {
            (Stage::Fill(word), _) => batch.add_range(self.first, 1, Entry::fill(*word)),
            (Stage::Compressed(id, payload), _) => batch.add_done(blocks, *id, payload, None),
            (_, Some(at)) => {
                let block = &source[at..at + BLOCK_BYTES];
                batch.add_done(blocks, CodecId::Raw, block, Some(at));
            }
            (_, None) => batch.add_done(blocks, CodecId::Raw, &self.bytes, None),
        }
    }
}
