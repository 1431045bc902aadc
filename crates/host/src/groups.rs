//! Limits of the control groups (version 1 and 2) of a process.

use std::path::{Path, PathBuf};

use crate::Root;
use crate::mounts::{Mount, mounts};

/// Returns the smallest memory limit of the groups of a process (a number, or `self`), in bytes; `None` if
/// there is no limit.
pub fn memory_limit_bytes(root: &Root, process: &str) -> Option<u64> {
    // Beyond `memory.high`, processes are slowed down until they hardly run.
    let v2 = directories(root, process, None).into_iter();
    let v2 = v2.flat_map(|group| ["memory.max", "memory.high"].map(|limit| group.join(limit)));
    let v1 = directories(root, process, Some("memory")).into_iter();
    let v1 = v1.map(|group| group.join("memory.limit_in_bytes"));
    // Without a limit, version 1 has a number larger than the memory of any machine, and version 2 has `max`,
    // which is skipped.
    v2.chain(v1).filter_map(|file| root.number(file)).min()
}

/// Returns the smallest CPU limit of the groups of a process, in processors; `None` if there is no limit.
pub fn processors_limit(root: &Root, process: &str) -> Option<f64> {
    // Version 2 has quota and period, `100000 50000`, or `max 100000` without a limit.
    let v2 = directories(root, process, None).into_iter().filter_map(|group| {
        let text = root.text(group.join("cpu.max"))?;
        let (quota, period) = text.split_once(' ')?;
        Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    });
    // Version 1 has -1 for no quota.
    let v1 = directories(root, process, Some("cpu")).into_iter().filter_map(|group| {
        let quota = root.number(group.join("cpu.cfs_quota_us"))?;
        Some(quota as f64 / root.number(group.join("cpu.cfs_period_us"))? as f64)
    });
    v2.chain(v1).filter(|processors| processors.is_finite()).min_by(f64::total_cmp)
}

/// Returns the directories of the group of a process and of its parents, for a version 1 controller or for
/// version 2.
///
/// In a container, the group name may be that of the host, while the mount shows only the container's own
/// group and its children. The topmost directory then has the limit.
fn directories(root: &Root, process: &str, controller: Option<&str>) -> Vec<PathBuf> {
    // Version 1: `9:memory:/system.slice/x.service`. Version 2: `0::/system.slice/x.service`.
    let groups = root.text(format!("proc/{process}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers) = (fields.next()?, fields.next()?);
        let is_it = match controller {
            Some(controller) => controllers.split(',').any(|it| it == controller),
            None => number == "0" && controllers.is_empty(),
        };
        is_it.then(|| fields.next().unwrap_or_default().trim_start_matches('/').to_string())
    });
    let Some(group) = group else { return Vec::new() };
    let is_hierarchy = |mount: &Mount| match controller {
        Some(controller) => mount.kind == "cgroup" && mount.has(controller),
        None => mount.kind == "cgroup2",
    };
    let usual = || match controller {
        Some(controller) => Path::new("sys/fs/cgroup").join(controller),
        None => PathBuf::from("sys/fs/cgroup"),
    };
    let top = mounts(root).into_iter().find(is_hierarchy).map_or_else(usual, |mount| mount.point);
    Path::new(&group).ancestors().map(|group| top.join(group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn the_least_limit_counts_in_both_versions() {
        let (_folder, root) = tree(&[
            ("proc/7/cgroup", "5:cpu,cpuacct:/a/b\n4:memory:/a/b\n0::/x/y\n"),
            (
                "proc/self/mountinfo",
                "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 33 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "4000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/unified/x/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/unified/x/y/cpu.max", "max 100000\n"),
            ("proc/8/cgroup", "0::/\n"),
        ]);
        assert_eq!(memory_limit_bytes(&root, "7"), Some(3000));
        assert_eq!(processors_limit(&root, "7"), Some(1.5));
        assert_eq!((memory_limit_bytes(&root, "8"), processors_limit(&root, "9")), (None, None));
        let (_folder, root) = tree(&[
            // A container in which its own group is the root.
            ("proc/self/cgroup", "4:memory:/docker/0123\n4:cpu:/docker/0123\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "300\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(memory_limit_bytes(&root, "self"), Some(300));
        assert_eq!(processors_limit(&root, "self"), Some(0.5));
    }

    #[test]
    fn the_lesser_of_both_limits_of_version_2_counts() {
        let (_folder, root) = tree(&[
            ("proc/7/cgroup", "0::/x/y\n"),
            ("sys/fs/cgroup/x/memory.max", "5000\n"),
            ("sys/fs/cgroup/x/memory.high", "max\n"),
            ("sys/fs/cgroup/x/y/memory.max", "max\n"),
            ("sys/fs/cgroup/x/y/memory.high", "4000\n"),
        ]);
        assert_eq!(memory_limit_bytes(&root, "7"), Some(4000));
    }
}
