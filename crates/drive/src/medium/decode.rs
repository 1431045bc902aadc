//! Verification and decompression of records.

use std::cell::RefCell;

use codec::{CodecId, Dictionary};
use layout::record::decode_record;
use layout::{BLOCK_BYTES, Entry, RecordHeader, RecordKind};

use crate::error::Error;
use crate::medium::load::Fetch;
use crate::medium::record_fault::RecordFault;
use crate::state::dictionaries::Dictionaries;

/// Verifies the record that holds a block and decompresses it. `out` may be a part of its contents, which
/// begins at `skip`.
pub(crate) fn decode_data(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    fetch: &Fetch,
    skip: usize,
    out: &mut [u8],
) -> Result<(), Error> {
    let decoded = try_decode(dictionaries, block, bytes, fetch.entry, fetch.mask, skip, out);
    decoded.map(drop).map_err(|why| {
        let position = fetch.entry.position_bytes();
        Error::Corrupt(format!("record of block {block} at byte {position:#x} of the backing: {why}"))
    })
}

/// Like [`decode_data`]. Returns the record's codec.
fn try_decode(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    entry: Entry,
    mask: u32,
    skip: usize,
    out: &mut [u8],
) -> Result<CodecId, RecordFault> {
    let record = decode_record(bytes, mask)?;
    let (header, blocks) = (&record.header, entry.blocks());
    if header.kind != RecordKind::Data {
        return Err(RecordFault::NotData(header.kind));
    }
    if header.block != entry.first_block(block) || header.blocks() != blocks {
        return Err(RecordFault::OtherBlocks { first: header.block, count: header.blocks() });
    }
    if !header.applies_to(block) {
        return Err(RecordFault::LeavesOut);
    }
    let id = CodecId::try_from(header.codec_number())?;
    let dictionary = dictionaries.of(header.extra)?;
    let dictionary = dictionary.as_ref();
    let whole_bytes = blocks as usize * BLOCK_BYTES;
    assert!(skip + out.len() <= whole_bytes, "a part of a record's contents lies within them");
    let decoded = codec::with_decompressor(|decompressor| {
        if out.len() == whole_bytes {
            return decompressor.decompress(id, record.payload, dictionary, out);
        }
        WHOLE.with_borrow_mut(|whole| {
            whole.resize(whole_bytes.max(whole.len()), 0);
            decompressor.decompress_prefix(
                id,
                record.payload,
                dictionary,
                &mut whole[..whole_bytes],
                skip + out.len(),
            )?;
            out.copy_from_slice(&whole[skip..skip + out.len()]);
            Ok(())
        })
    });
    Ok(decoded.map(|()| id)?)
}

thread_local! {
    /// Contents of a record of which only a part is needed.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Verifies and decodes the record that holds a block. Returns its codec.
pub(crate) fn verify_record(
    dictionaries: &Dictionaries,
    block: u64,
    bytes: &[u8],
    entry: Entry,
    mask: u32,
) -> Result<CodecId, RecordFault> {
    let mut contents = vec![0; entry.blocks() as usize * BLOCK_BYTES];
    try_decode(dictionaries, block, bytes, entry, mask, 0, &mut contents)
}

/// Returns the contents of the blocks of a verified record.
pub(crate) fn decode_verified(
    header: &RecordHeader,
    payload: &[u8],
    dictionary: Option<&Dictionary>,
) -> Result<Vec<u8>, RecordFault> {
    let id = CodecId::try_from(header.codec_number())?;
    let mut contents = vec![0; header.blocks() as usize * BLOCK_BYTES];
    codec::with_decompressor(|decompressor| decompressor.decompress(id, payload, dictionary, &mut contents))?;
    Ok(contents)
}
