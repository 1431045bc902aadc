//! When the driver may be asked to give a device to another bridge, after a takeover that was interrupted.
//!
//! `START_USER_RECOVERY` makes the driver forget the threads of the last bridge, one a queue. Linux before 6.16 expects that each
//! queue has one: a second call before all queues have one again refers to a thread that is not there, and may crash the kernel.
//! A bridge notes how far it has got, for the one that follows if it is killed.

use std::fs;

use serde::{Deserialize, Serialize};

/// First Linux whose driver forgets the threads of a bridge when that ends, and not when another one begins.
const FORGETS_BY_ITSELF: (u32, u32) = (6, 16);

/// How far a takeover has got that has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Takeover {
    /// The driver may have forgotten the last bridge. Not all queues need have a thread.
    Begun,
    /// All queues have a thread.
    Ready,
}

/// Returns whether a takeover may begin after another one has got so far.
pub(super) fn may_begin(last: Option<Takeover>, queues: u16, linux: Option<(u32, u32)>) -> bool {
    match last {
        None | Some(Takeover::Ready) => true,
        // Without any thread the driver refuses.
        Some(Takeover::Begun) => queues == 1 || linux.is_some_and(|linux| linux >= FORGETS_BY_ITSELF),
    }
}

/// Version of the running kernel.
pub(super) fn linux() -> Option<(u32, u32)> {
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
    fn a_queue_without_a_thread_is_not_forgotten_again() {
        let (old, new) = (Some((6, 12)), Some((6, 16)));
        for (last, queues, linux, may) in [
            (None, 4, old, true),
            (Some(Takeover::Ready), 4, old, true),
            (Some(Takeover::Begun), 1, old, true),
            (Some(Takeover::Begun), 4, new, true),
            (Some(Takeover::Begun), 2, old, false),
            (Some(Takeover::Begun), 2, None, false),
        ] {
            assert_eq!(may_begin(last, queues, linux), may, "{last:?} {queues} {linux:?}");
        }
    }

    #[test]
    fn kernels_have_versions() {
        assert_eq!(parse("6.12.57+deb13-amd64\n"), Some((6, 12)));
        assert_eq!(parse("7.2-rc1"), Some((7, 2)));
        assert_eq!(parse("linux"), None);
        assert!(linux().is_some());
    }
}
