//! File systems and devices on the drive, as the checks of its users get them.

use std::path::Path;

use host::Root;
use host::mounts::Mount;

/// Largest number of stacked devices followed.
const DEPTH_MAX: usize = 8;

/// Advice for a check that cannot see the users of the drive.
pub(super) const NOT_SEEN: &str = "check it on the machine that uses the drive";

/// A file system on the drive: device and mount.
pub(super) type Above = (String, Mount);

/// Returns the names of a device, its partitions and the devices stacked on them.
pub(super) fn stack(root: &Root, device: &str) -> Vec<String> {
    let mut names = Vec::new();
    collect(root, device, 0, &mut names);
    names
}

fn collect(root: &Root, device: &str, depth: usize, names: &mut Vec<String>) {
    names.push(device.to_string());
    if depth < DEPTH_MAX {
        let directory = Path::new("sys/class/block").join(device);
        let partitions = root.names(&directory, |name| name.starts_with(device));
        let holders = root.names(directory.join("holders"), |_| true);
        for above in partitions.iter().chain(&holders) {
            collect(root, above, depth + 1, names);
        }
    }
}
