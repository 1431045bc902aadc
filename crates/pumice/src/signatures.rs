//! Detection of existing data on a backing.
//!
//! Both ends are read, and common formats are recognized there. `wipefs` (util-linux), where it is installed,
//! names many more formats, also where their signature lies elsewhere. Without it, what it would name at the
//! ends is "data".

mod wipefs;

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use layout::owner::{OWNER_COPIES, Role};
use layout::{Geometry, OwnerPage, Superblock};

/// Bytes examined at the beginning. Labels, superblocks and tables of all common formats begin there.
pub(crate) const HEAD_BYTES: u64 = 1 << 20;
/// Bytes examined at the end: backup partition tables, RAID superblocks, ZFS labels.
pub(crate) const TAIL_BYTES: u64 = 1 << 20;
/// Places of one format that a message lists.
const PLACES_MAX: usize = 4;

const DRIVE: &str = "a Pumice drive";
const DRIVE_WITHOUT_START: &str = "copies of a Pumice drive that lost its start";
const EXT: &str = "an ext2, ext3 or ext4 file system";
const XFS: &str = "an XFS file system";
const BTRFS: &str = "a btrfs file system";
const BCACHE: &str = "a bcachefs file system or bcache device";
const LUKS: &str = "a LUKS volume";
const LVM: &str = "an LVM physical volume";
const SWAP: &str = "swap space";
const RAID: &str = "a RAID member";
const ZFS: &str = "a ZFS pool member";
const NTFS: &str = "an NTFS file system";
const FAT: &str = "a FAT file system";
const SQUASHFS: &str = "a squashfs image";
const ISO: &str = "an ISO 9660 image";
const GPT: &str = "a GPT partition table";
const BOOT: &str = "a partition table or boot sector";

/// Signatures at the beginning: offset, bytes, name of the format.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, &layout::superblock::MAGIC, DRIVE),
    (0x438, b"\x53\xef", EXT),
    (0, b"XFSB", XFS),
    (0x1_0040, b"_BHRfS_M", BTRFS),
    (4096 + 24, b"\xc6\x85\x73\xf6", BCACHE),
    (0, b"LUKS\xba\xbe", LUKS),
    (512, b"LABELONE", LVM),
    (4086, b"SWAPSPACE2", SWAP),
    (0, b"\xfc\x4e\x2b\xa9", RAID),
    (4096, b"\xfc\x4e\x2b\xa9", RAID),
    (3, b"NTFS    ", NTFS),
    (54, b"FAT", FAT),
    (82, b"FAT32", FAT),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"hsqs", SQUASHFS),
    (0x8001, b"CD001", ISO),
    (257, b"ustar", "a tar archive"),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
];
/// The end of a boot sector, which formats above have too.
const BOOT_SIGNATURE: (usize, &[u8]) = (510, b"\x55\xaa");
/// ZFS label: one of 256 KiB, of which the second half is the ring of uberblocks, each 1 KiB or a multiple of
/// it.
const ZFS_LABEL_BYTES: u64 = 256 << 10;
const ZFS_UBERBLOCK_STEP: usize = 1 << 10;
const ZFS_UBERBLOCK: [[u8; 8]; 2] = [0x00ba_b10c_u64.to_le_bytes(), 0x00ba_b10c_u64.to_be_bytes()];

/// A known format, or other data, and the place where it was recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The format, with its article; "data" if it is not known.
    pub(crate) what: String,
    /// Offset of its signature from the beginning, in bytes; of the first byte that is not zero for "data".
    pub(crate) offset: u64,
}

impl Signature {
    fn new(what: &str, offset: u64) -> Signature {
        Signature { what: what.to_string(), offset }
    }
}

/// What a backing holds: `an XFS file system (at byte 0)`.
pub(crate) struct Contents(Vec<Signature>);

impl Contents {
    /// Returns `None` if nothing was found.
    pub(crate) fn new(found: Vec<Signature>) -> Option<Contents> {
        (!found.is_empty()).then_some(Contents(found))
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut formats: Vec<&str> = Vec::new();
        for found in &self.0 {
            if !formats.contains(&found.what.as_str()) {
                formats.push(&found.what);
            }
        }
        for (index, format) in formats.iter().enumerate() {
            let places = self.0.iter().filter(|found| found.what == *format);
            let mut places: Vec<String> = places.map(|found| found.offset.to_string()).collect();
            let more = places.len().saturating_sub(PLACES_MAX);
            places.truncate(PLACES_MAX);
            let separator = if index == 0 { "" } else { ", and " };
            let bytes = if places.len() == 1 { "byte" } else { "bytes" };
            write!(f, "{separator}{format} (at {bytes} {}", places.join(", "))?;
            match more {
                0 => f.write_str(")")?,
                more => write!(f, " and {more} more)")?,
            }
        }
        Ok(())
    }
}

/// Returns what the file or device at `path`, open as `file`, probably holds. Nothing if both ends are blank
/// and `wipefs` finds nothing elsewhere.
///
/// # Errors
/// Both ends must be readable.
pub(crate) fn find(mut file: &File, path: &Path) -> io::Result<Vec<Signature>> {
    let size = file.seek(SeekFrom::End(0))?;
    let read = |offset: u64, length: u64| {
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset).map(|()| bytes)
    };
    let mut head = read(0, HEAD_BYTES.min(size))?;
    blank_owner_pages(&mut head);
    let tail = read(size - TAIL_BYTES.min(size), TAIL_BYTES.min(size))?;
    let here = in_ends(size, &head, &tail);
    if here.iter().any(|found| found.what == DRIVE) {
        return Ok(here);
    }
    let mut all = wipefs::find(path);
    // What `wipefs` names is no unknown data, and a boot sector is part of it.
    let is_known = !all.is_empty();
    let adds = |found: &Signature| !is_known || !(found.what == "data" || found.what == BOOT);
    let here: Vec<Signature> = here.into_iter().filter(adds).collect();
    for found in here {
        if !all.iter().any(|other| other.offset == found.offset || other.what == found.what) {
            all.push(found);
        }
    }
    // A drive that lost its start can still be opened.
    for far in Geometry::far_candidates(size) {
        let place = Geometry::far_superblock_offset(far);
        if read(place, layout::PAGE_BYTES as u64).is_ok_and(|page| Superblock::is_far(&page, far)) {
            all.push(Signature::new(DRIVE_WITHOUT_START, place));
        }
    }
    all.sort_by_key(|found| found.offset);
    Ok(all)
}

/// Clears owner pages: by themselves they are no contents. A claim looks at them.
fn blank_owner_pages(head: &mut [u8]) {
    for copy in 0..OWNER_COPIES {
        for role in Role::ALL {
            let at = Geometry::owner_page_offset(copy, role) as usize;
            let page = head.get_mut(at..at + layout::PAGE_BYTES);
            if let Some(page) = page.filter(|page| OwnerPage::decode(page).is_ok()) {
                page.fill(0);
            }
        }
    }
}

/// Returns what is recognized in something of `size` bytes that begins with `head` and ends with `tail`.
/// Nothing if both are blank.
pub(crate) fn in_ends(size: u64, head: &[u8], tail: &[u8]) -> Vec<Signature> {
    let tail_offset = size.saturating_sub(tail.len() as u64);
    let mut found = in_head(head);
    if found.first().is_some_and(|found| found.what == DRIVE) {
        found.truncate(1);
        return found;
    }
    for at_end in in_tail(size, tail_offset, tail) {
        if !found.iter().any(|other| other.offset == at_end.offset) {
            found.push(at_end);
        }
    }
    if found.is_empty() {
        let first = |bytes: &[u8], offset: u64| {
            bytes.iter().position(|byte| *byte != 0).map(|at| Signature::new("data", offset + at as u64))
        };
        found.extend(first(head, 0).or_else(|| first(tail, tail_offset)));
    }
    found
}

fn holds(bytes: &[u8], offset: usize, magic: &[u8]) -> bool {
    bytes.get(offset..).is_some_and(|bytes| bytes.starts_with(magic))
}

fn in_head(head: &[u8]) -> Vec<Signature> {
    let known = SIGNATURES.iter().filter(|(offset, magic, _)| holds(head, *offset, magic));
    let mut found: Vec<Signature> =
        known.map(|(offset, _, name)| Signature::new(name, *offset as u64)).collect();
    found.extend([0, ZFS_LABEL_BYTES].into_iter().filter_map(|label| uberblock(head, 0, label)));
    let (offset, magic) = BOOT_SIGNATURE;
    if found.is_empty() && holds(head, offset, magic) {
        found.push(Signature::new(BOOT, offset as u64));
    }
    found
}

/// Returns the first uberblock of the ZFS label at `label`, if `bytes`, which begin at `offset`, hold it.
fn uberblock(bytes: &[u8], offset: u64, label: u64) -> Option<Signature> {
    let ring = label.checked_add(ZFS_LABEL_BYTES / 2)?.checked_sub(offset)? as usize;
    let places = (ring..ring + ZFS_LABEL_BYTES as usize / 2).step_by(ZFS_UBERBLOCK_STEP);
    let mut places = places.filter(|at| ZFS_UBERBLOCK.iter().any(|magic| holds(bytes, *at, magic)));
    places.next().map(|at| Signature::new(ZFS, offset + at as u64))
}

/// Returns formats that keep a signature or a copy of it at the end.
fn in_tail(size: u64, offset: u64, tail: &[u8]) -> Vec<Signature> {
    let sector = size / 512;
    // The superblocks of md: version 0.90 in the last whole 64 KiB but for less than that, 1.0 from 8 KiB
    // before the end (`super0.c` and `super1.c` of mdadm). Those of Intel's firmware RAID and of DDF are in
    // the last sectors.
    let md: [&[u8]; 2] = [b"\xfc\x4e\x2b\xa9", b"\xa9\x2b\x4e\xfc"];
    let places: [(Option<u64>, &[u8], &str); 9] = [
        ((size & !0xffff).checked_sub(0x1_0000), md[0], RAID),
        ((size & !0xffff).checked_sub(0x1_0000), md[1], RAID),
        (sector.checked_sub(16).map(|sector| (sector & !7) * 512), md[0], RAID),
        (size.checked_sub(1024), b"Intel Raid ISM Cfg Sig. ", RAID),
        (size.checked_sub(8192), b"Intel Raid ISM Cfg Sig. ", RAID),
        (size.checked_sub(512), b"\xde\x11\xde\x11", RAID),
        (size.checked_sub(257 * 512), b"\xde\x11\xde\x11", RAID),
        (sector.checked_sub(1).map(|sector| sector * 512), b"EFI PART", GPT),
        (size.checked_sub(4096), b"EFI PART", GPT),
    ];
    let is_there = |at: u64, magic: &[u8]| {
        at.checked_sub(offset).is_some_and(|within| holds(tail, within as usize, magic))
    };
    let there = places.into_iter().filter_map(|(at, magic, name)| {
        let at = at.filter(|at| is_there(*at, magic))?;
        Some(Signature::new(name, at))
    });
    let end = size / ZFS_LABEL_BYTES * ZFS_LABEL_BYTES;
    let labels = [2, 1].into_iter().filter_map(|labels| end.checked_sub(labels * ZFS_LABEL_BYTES));
    there.chain(labels.filter_map(|label| uberblock(tail, offset, label))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 64 << 20;

    fn head_with(offset: usize, magic: &[u8]) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES as usize];
        head[offset..offset + magic.len()].copy_from_slice(magic);
        head
    }

    fn tail_with(size: u64, offset: u64, magic: &[u8]) -> Vec<u8> {
        let mut tail = vec![0; TAIL_BYTES as usize];
        let at = (offset - (size - TAIL_BYTES)) as usize;
        tail[at..at + magic.len()].copy_from_slice(magic);
        tail
    }

    #[test]
    fn known_formats_are_named() {
        let blank = vec![0; TAIL_BYTES as usize];
        for (offset, magic, name) in SIGNATURES {
            let found = in_ends(SIZE, &head_with(*offset, magic), &blank);
            assert_eq!(found, [Signature::new(name, *offset as u64)]);
        }
        assert_eq!(in_ends(SIZE, &head_with(510, b"\x55\xaa"), &blank), [Signature::new(BOOT, 510)]);
        assert_eq!(in_ends(SIZE, &head_with(700_000, b"\x01"), &blank), [Signature::new("data", 700_000)]);
        assert_eq!(
            in_ends(SIZE, &blank, &tail_with(SIZE, SIZE - 1, b"\x01")),
            [Signature::new("data", SIZE - 1)]
        );
        assert_eq!(in_ends(SIZE, &blank, &blank), []);
        assert_eq!(in_ends(0, &[], &[]), []);
        assert_eq!(in_ends(2, b"XF", b"XF"), [Signature::new("data", 0)]);
    }

    #[test]
    fn formats_are_found_at_the_end() {
        let blank = vec![0; HEAD_BYTES as usize];
        // Sizes that end between the multiples that formats are aligned to.
        for size in [SIZE, SIZE + 4096 + 512, SIZE + (63 << 10), SIZE + (255 << 10)] {
            for (offset, magic, name) in [
                ((size & !0xffff) - 0x1_0000, &b"\xfc\x4e\x2b\xa9"[..], RAID),
                ((size / 512 - 16) / 8 * 8 * 512, b"\xfc\x4e\x2b\xa9", RAID),
                (size - 1024, b"Intel Raid ISM Cfg Sig. ", RAID),
                (size - 512, b"\xde\x11\xde\x11", RAID),
                (size - 512, b"EFI PART", GPT),
                ((size & !0x3ffff) - 0x4_0000 + 0x2_0000 + 0x1_0000, &ZFS_UBERBLOCK[0], ZFS),
                ((size & !0x3ffff) - 0x8_0000 + 0x2_0000, &ZFS_UBERBLOCK[1], ZFS),
            ] {
                let found = in_ends(size, &blank, &tail_with(size, offset, magic));
                assert_eq!(found, [Signature::new(name, offset)], "{size}");
            }
        }
    }

    #[test]
    fn contents_are_named_with_their_places() {
        let shown = |found: &[(&str, u64)]| {
            let found = found.iter().map(|(what, offset)| Signature::new(what, *offset)).collect();
            Contents::new(found).map(|contents| contents.to_string()).unwrap_or_default()
        };
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[(XFS, 0)]), "an XFS file system (at byte 0)");
        assert_eq!(
            shown(&[(GPT, 512), (RAID, 4096), (GPT, 9728)]),
            "a GPT partition table (at bytes 512, 9728), and a RAID member (at byte 4096)"
        );
        let many: Vec<(&str, u64)> = (1..=6).map(|at| (ZFS, at)).collect();
        assert_eq!(shown(&many), "a ZFS pool member (at bytes 1, 2, 3, 4 and 2 more)");
    }
}
