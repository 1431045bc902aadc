//! Memory that this process may still take.

use std::fs;
use std::path::Path;

/// Mount point of control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns how much memory the kernel could give to this process without swapping, in bytes: `MemAvailable`
/// of the machine, or the limit of a control group (version 2) of the process if that is less. `None` if the
/// kernel does not tell.
pub fn available_memory_bytes() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let groups = Path::new(CGROUPS).join(groups);
    let limits = groups.ancestors().take_while(|group| group.starts_with(CGROUPS)).filter_map(of_group);
    Some(limits.fold(machine, u64::min))
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Returns the limit of a control group; `None`: it has none. What the group has taken already is not
/// subtracted: most of that may be page cache, which the kernel drops.
fn of_group(group: &Path) -> Option<u64> {
    fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_between_nothing_and_that_of_the_machine() {
        let meminfo =
            "MemTotal:       24604716 kB\nMemFree:        17000000 kB\nMemAvailable:   22000000 kB\n";
        assert_eq!(of_machine(meminfo), Some(22_000_000 * 1024));
        assert_eq!(of_machine("MemTotal: 1 kB\n"), None);
        assert_eq!(of_machine("MemAvailable: lots\n"), None);
        if let Some(bytes) = available_memory_bytes() {
            assert!(bytes < 1 << 50, "{bytes}");
        }
    }

    #[test]
    fn limits_of_groups() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = |value: &str| fs::write(folder.path().join("memory.max"), value).expect("written");
        assert_eq!(of_group(folder.path()), None);
        set("max\n");
        assert_eq!(of_group(folder.path()), None);
        set("1073741824\n");
        assert_eq!(of_group(folder.path()), Some(1 << 30));
    }
}
