//! Files of others. Their file system may hang: its server is gone (network), or does not answer (FUSE). A
//! look at such a file must not hang whoever asks about another one.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Time for a look.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks that hang at the same time. Beyond it, nobody looks.
const HANGING_MAX: usize = 8;

/// Looks under way.
static HANGING: AtomicUsize = AtomicUsize::new(0);

/// Runs `look` in a thread of its own. Returns `None` if it takes longer than three seconds: the thread stays
/// until the file system answers, or this process ends. Also returns `None` while eight such threads hang.
pub fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if HANGING.load(Ordering::Relaxed) >= HANGING_MAX {
        return None;
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    HANGING.fetch_add(1, Ordering::Relaxed);
    let run = move || {
        let found = look();
        HANGING.fetch_sub(1, Ordering::Relaxed);
        // Nobody waits any more if it took long.
        let _ = sender.send(found);
    };
    if std::thread::Builder::new().name("look".into()).spawn(run).is_err() {
        HANGING.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    receiver.recv_timeout(PATIENCE).ok()
}

/// Returns the metadata of a file of others. `None` if there is none, or its file system hangs.
pub fn metadata(path: impl Into<PathBuf>) -> Option<Metadata> {
    let path = path.into();
    in_time(move || std::fs::metadata(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn a_look_that_hangs_is_left_alone() {
        assert_eq!(in_time(|| 1), Some(1));
        assert!(metadata("/proc").is_some_and(|found| found.is_dir()));
        assert!(metadata("/nothing").is_none());
        let all = Arc::new(Barrier::new(HANGING_MAX + 1));
        for _ in 0..HANGING_MAX {
            let held = Arc::clone(&all);
            assert_eq!(in_time(move || held.wait().is_leader()), None);
        }
        assert_eq!(in_time(|| 1), None, "enough hang");
        all.wait();
        while HANGING.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(in_time(|| 1), Some(1));
    }
}
