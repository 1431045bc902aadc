//! Version of the running kernel: what its drivers can do depends on it.

use std::fs;

/// Major and minor version; `None` if it cannot be read.
pub(crate) fn linux() -> Option<(u32, u32)> {
    parse(&fs::read_to_string("/proc/sys/kernel/osrelease").ok()?)
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_versions() {
        assert_eq!(parse("6.12.57+deb13-amd64\n"), Some((6, 12)));
        assert_eq!(parse("7.2-rc1"), Some((7, 2)));
        assert_eq!(parse("linux"), None);
        assert!(linux().is_some());
    }
}
