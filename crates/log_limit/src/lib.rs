//! Limit on log messages that clients or other programs could cause in floods.

#![forbid(unsafe_code)]

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets a message pass at most once in ten seconds, and counts those that it holds back.
#[derive(Debug, Default)]
pub struct LogLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl LogLimit {
    /// None has passed yet.
    pub fn new() -> LogLimit {
        LogLimit::default()
    }

    /// Returns the number of messages held back since the last one that passed, or `None` if this one must be
    /// held back too.
    pub fn pass(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.last.is_some_and(|last| now - last < INTERVAL) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_a_line_in_ten_seconds() {
        let limit = LogLimit::new();
        assert_eq!(limit.pass(), Some(0), "the first at once");
        for _ in 0..99 {
            tokio::time::advance(Duration::from_millis(100)).await;
            assert_eq!(limit.pass(), None);
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(limit.pass(), Some(99));
        tokio::time::advance(INTERVAL).await;
        assert_eq!(limit.pass(), Some(0), "counted anew");
    }
}
