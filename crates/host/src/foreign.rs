//! Files of others. Their file system may hang: its server is gone (network), or does not answer (FUSE).
//! Access to such a file must not block a caller that asks about another one.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Time for a look.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks that hang at the same time. Beyond it, nobody looks.
const HANGING_MAX: usize = 64;

/// Looks that took longer, and have not ended.
static HANGING: AtomicUsize = AtomicUsize::new(0);

/// It is unknown what a look would find: the file system hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hangs;

/// Drop of it is the end of a look, also by a panic. Holds whether its caller has given up, or it has ended.
struct End(Arc<AtomicBool>);

impl Drop for End {
    fn drop(&mut self) {
        let is_given_up = self.0.swap(true, Ordering::AcqRel);
        if is_given_up {
            HANGING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs `look` in a thread of its own, for three seconds at most. One that hangs keeps its thread until the
/// file system answers, or this process ends.
///
/// # Errors
///
/// [`Hangs`] if it takes longer, if 64 others hang, or if there is no thread for it.
pub fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Result<T, Hangs> {
    within(PATIENCE, look)
}

/// As [`in_time`], with another limit.
///
/// # Errors
///
/// Those of [`in_time`].
pub fn within<T: Send + 'static>(
    patience: Duration,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Hangs> {
    if HANGING.load(Ordering::Relaxed) >= HANGING_MAX {
        return Err(Hangs);
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let end = End(Arc::clone(&is_over));
    let run = move || {
        let found = look();
        drop(end);
        // The caller is gone if it took too long.
        let _ = sender.send(found);
    };
    std::thread::Builder::new().name("look".into()).spawn(run).map_err(|_| Hangs)?;
    receiver.recv_timeout(patience).map_err(|_| {
        // Counted before its end can be.
        HANGING.fetch_add(1, Ordering::Relaxed);
        let has_ended = is_over.swap(true, Ordering::AcqRel);
        if has_ended {
            HANGING.fetch_sub(1, Ordering::Relaxed);
        }
        Hangs
    })
}

/// Returns the metadata of a file of others; `None` if there is none.
///
/// # Errors
///
/// [`Hangs`] if its file system does.
pub fn metadata(path: impl Into<PathBuf>) -> Result<Option<Metadata>, Hangs> {
    let path = path.into();
    in_time(move || std::fs::metadata(path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_hangs_is_left_alone() {
        assert_eq!(in_time(|| 1), Ok(1));
        assert!(metadata("/proc").is_ok_and(|found| found.is_some_and(|found| found.is_dir())));
        assert!(metadata("/nothing").is_ok_and(|found| found.is_none()));
        let (sender, receiver) = mpsc::channel::<()>();
        assert_eq!(in_time(move || receiver.recv().is_ok()), Err(Hangs));
        assert!(HANGING.load(Ordering::Relaxed) > 0);
        assert_eq!(in_time(|| 1), Ok(1), "others do not");
        drop(sender);
        while HANGING.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
