//! File systems on the drive, as the checks of its users get them.

use host::mounts::Mount;

/// Advice for a check that cannot see the users of the drive.
pub(super) const NOT_SEEN: &str = "check it on the machine that uses the drive";

/// A file system on the drive: device and mount.
pub(super) type Above = (String, Mount);
