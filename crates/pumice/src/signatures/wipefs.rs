//! Signatures that `wipefs` of util-linux lists. It asks libblkid, which knows some hundred formats.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{
    BCACHE, BOOT, BTRFS, EXT, FAT, GPT, ISO, LUKS, LVM, NTFS, RAID, SQUASHFS, SWAP, Signature, XFS, ZFS,
};

/// Directories that may hold it in addition to `PATH`, which often lacks them for users other than root.
const DIRS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

#[derive(Deserialize)]
struct Answer {
    signatures: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    /// In hexadecimal: `0x438`.
    offset: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Returns the signatures in a file or device. None if `wipefs` is missing, too old or fails.
pub(super) fn find(path: &Path) -> Vec<Signature> {
    let Some(program) = program() else { return Vec::new() };
    let run = Command::new(program)
        .args(["--no-act", "--json", "--output", "OFFSET,TYPE", "--"])
        .arg(path)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(run) if run.status.success() => parse(&run.stdout),
        _ => Vec::new(),
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).filter(|dir| dir.is_absolute());
    let mut programs = dirs.chain(DIRS.map(PathBuf::from)).map(|dir| dir.join("wipefs"));
    programs.find(|program| program.is_file())
}

/// Without signatures, the output is empty.
fn parse(output: &[u8]) -> Vec<Signature> {
    let answer = serde_json::from_slice::<Answer>(output);
    let signatures = answer.map(|answer| answer.signatures).unwrap_or_default();
    let found = signatures.into_iter().filter_map(|Entry { offset, kind }| {
        let offset = u64::from_str_radix(offset.strip_prefix("0x")?, 16).ok()?;
        Some(Signature { what: name(&kind), offset })
    });
    found.collect()
}

/// Returns the name for one of libblkid's types.
fn name(kind: &str) -> String {
    let known = match kind {
        "ext2" | "ext3" | "ext4" | "ext4dev" | "jbd" => EXT,
        "xfs" => XFS,
        "btrfs" => BTRFS,
        "bcache" | "bcachefs" => BCACHE,
        "crypto_LUKS" => LUKS,
        "LVM1_member" | "LVM2_member" => LVM,
        "swap" | "swsuspend" => SWAP,
        "zfs_member" => ZFS,
        "ntfs" => NTFS,
        "vfat" => FAT,
        "squashfs" => SQUASHFS,
        "iso9660" => ISO,
        "gpt" => GPT,
        "dos" | "PMBR" => BOOT,
        kind if kind.ends_with("raid_member") => RAID,
        kind => return format!("a signature of {}", kind.escape_default()),
    };
    known.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        let output = br#"{"signatures": [
            {"offset": "0x218", "type": "LVM2_member", "uuid": null},
            {"offset": "0x1fffe000", "type": "linux_raid_member"},
            {"offset": "0x100000", "type": "VMFS_volume_member"},
            {"offset": "nonsense", "type": "xfs"}]}"#;
        let found: Vec<(String, u64)> =
            parse(output).into_iter().map(|found| (found.what, found.offset)).collect();
        let expected = [(LVM, 0x218), (RAID, 0x1fff_e000), ("a signature of VMFS_volume_member", 0x10_0000)];
        assert_eq!(found, expected.map(|(what, offset)| (what.to_string(), offset)));
        for output in [&b""[..], b"{}", b"[1]", b"\xff", br#"{"signatures": null}"#] {
            assert_eq!(parse(output), []);
        }
    }
}
