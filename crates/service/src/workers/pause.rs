//! Pauses of background work.

use std::time::Duration;

use tokio::sync::watch;

/// Rests for a time. With no time, lets requests that wait for this thread go first.
pub(crate) async fn rest(pause: Duration) {
    match pause {
        Duration::ZERO => tokio::task::yield_now().await,
        pause => tokio::time::sleep(pause).await,
    }
}

/// Rests like [`rest`]. Returns true, at once, if the work is to stop.
pub(crate) async fn rest_unless_stopped(pause: Duration, stopped: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stop| *stop) => true,
        () = rest(pause) => false,
    }
}

/// Returns how long to rest after work that took `took`, so that it takes `share` of the time.
pub(crate) fn rest_after(took: Duration, share: f64) -> Duration {
    took.mul_f64((1.0 / share.clamp(0.001, 1.0)) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_its_share_of_the_time() {
        let took = Duration::from_millis(90);
        assert_eq!(rest_after(took, 1.0), Duration::ZERO);
        assert_eq!(rest_after(took, 0.5), took);
        assert_eq!(rest_after(took, 0.1).as_millis(), 810);
        assert_eq!(rest_after(took, 0.0), rest_after(took, 0.001), "bounded");
    }
}
