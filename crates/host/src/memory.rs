//! Memory of the machine.

use crate::Root;
use crate::groups::memory_limit_bytes;

/// Returns a value of `/proc/meminfo`, such as `MemTotal`, in bytes.
pub fn meminfo_bytes(root: &Root, name: &str) -> Option<u64> {
    let meminfo = root.text("proc/meminfo")?;
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    bytes(value)
}

/// Parses a number of KiB as the kernel shows it: `  22000000 kB`. Returns bytes.
pub fn bytes(value: &str) -> Option<u64> {
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns how much memory the kernel could give to this process without swapping, in bytes: `MemAvailable`
/// of the machine, or the limit of its control groups if that is less. Memory that the groups already use is
/// not subtracted: most of that may be page cache, which the kernel drops. `None` if the kernel does not
/// report it.
pub fn available_bytes(root: &Root) -> Option<u64> {
    let machine = meminfo_bytes(root, "MemAvailable")?;
    Some(memory_limit_bytes(root, "self").map_or(machine, |limit| limit.min(machine)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn available_memory_is_that_of_the_machine_or_of_its_groups() {
        let meminfo =
            "MemTotal:       24604716 kB\nMemFree:        17000000 kB\nMemAvailable:   22000000 kB\n";
        let (folder, root) = tree(&[("proc/meminfo", meminfo), ("proc/self/cgroup", "0::/x\n")]);
        assert_eq!(available_bytes(&root), Some(22_000_000 << 10));
        let group = folder.path().join("sys/fs/cgroup/x");
        std::fs::create_dir_all(&group).expect("made");
        for (limit, expected) in [("max\n", 22_000_000 << 10), ("1073741824\n", 1 << 30)] {
            std::fs::write(group.join("memory.max"), limit).expect("written");
            assert_eq!(available_bytes(&root), Some(expected));
        }
        for meminfo in ["MemTotal: 1 kB\n", "MemAvailable: lots\n"] {
            assert_eq!(available_bytes(&tree(&[("proc/meminfo", meminfo)]).1), None);
        }
    }
}
