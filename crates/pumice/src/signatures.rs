//! Detection of existing data on a backing.

use anyhow::{Context, Result};
use media::{IoBuf, Media, PAGE_BYTES};

/// Bytes examined at the beginning. Labels, superblocks and tables of all common formats begin there.
pub(crate) const HEAD_BYTES: u64 = 1 << 20;
/// Bytes examined at the end: backup partition tables, RAID superblocks, ZFS labels.
pub(crate) const TAIL_BYTES: u64 = 64 << 10;

/// Signatures of known formats: offset, bytes, name of the format.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, &layout::superblock::MAGIC, "a Pumice drive"),
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 filesystem"),
    (0, b"XFSB", "an XFS filesystem"),
    (0x1_0040, b"_BHRfS_M", "a btrfs filesystem"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096, b"\xfc\x4e\x2b\xa9", "a RAID member"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (54, b"FAT", "a FAT filesystem"),
    (82, b"FAT32", "a FAT filesystem"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"hsqs", "a squashfs image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (257, b"ustar", "a tar archive"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (510, b"\x55\xaa", "a partition table or boot sector"),
];

/// Returns the likely contents of the backing; `None` if both ends are blank.
pub(crate) async fn find<M: Media>(media: &M) -> Result<Option<&'static str>> {
    let size = media.size_bytes();
    let head = read(media, 0, HEAD_BYTES.min(size)).await?;
    let tail = read(media, size - TAIL_BYTES.min(size), TAIL_BYTES.min(size)).await?;
    Ok(in_bytes(&head, &tail))
}

/// Returns the likely contents of what begins with `head` and ends with `tail`; `None` if both are blank.
pub(crate) fn in_bytes(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    match recognize(head) {
        None if blank(head) && blank(tail) => None,
        known => Some(known.unwrap_or("data")),
    }
}

async fn read<M: Media>(media: &M, offset: u64, len: u64) -> Result<IoBuf> {
    debug_assert!(len.is_multiple_of(PAGE_BYTES as u64));
    let (buf, result) = media.read(offset, IoBuf::zeroed(len as usize)).await;
    result.with_context(|| format!("cannot read {len} bytes at {offset}"))?;
    Ok(buf)
}

fn recognize(head: &[u8]) -> Option<&'static str> {
    let there = |offset: usize, magic: &[u8]| head.get(offset..offset + magic.len()) == Some(magic);
    SIGNATURES.iter().find(|(offset, magic, _)| there(*offset, magic)).map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_formats_are_named() {
        for (offset, magic, name) in SIGNATURES {
            let mut head = vec![0; 128 << 10];
            head[*offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(recognize(&head), Some(*name));
        }
        assert_eq!(recognize(&[0; 4096]), None);
        assert_eq!(recognize(&[]), None);
    }
}
