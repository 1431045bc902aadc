//! Limits on messages about peers, which could come in floods: one in ten seconds for each peer and reason.

use std::collections::HashMap;
use std::time::Duration;

use log_limit::LogLimit;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::audit::refusal::RefusalReason;
use crate::peers::peer::Peer;

/// Shortest time between two messages about a peer for one reason: that of [`LogLimit`].
const INTERVAL: Duration = Duration::from_secs(10);
/// Most pairs of peer and reason that are limited separately at a time. Bounds the memory, and the log during
/// a flood from many addresses.
const PEERS_MAX: usize = 256;

/// Lets a message about a peer pass at most once in ten seconds for each reason. While more pairs of peer and
/// reason than [`PEERS_MAX`] had a message within ten seconds, further ones share one message in ten seconds
/// for each reason.
#[derive(Debug, Default)]
pub(crate) struct HoldBack {
    peers: Mutex<HashMap<(Peer, RefusalReason), Last>>,
    others: [LogLimit; RefusalReason::ALL.len()],
}

/// The last message of a pair.
#[derive(Debug)]
struct Last {
    at: Instant,
    held_back: u64,
}

impl HoldBack {
    /// Returns the number of messages held back since the last one that passed, or `None` if this one must be
    /// held back too.
    pub(crate) fn pass(&self, peer: Peer, reason: RefusalReason) -> Option<u64> {
        let now = Instant::now();
        let is_recent = |last: &Last| now - last.at < INTERVAL;
        let mut peers = self.peers.lock();
        if let Some(last) = peers.get_mut(&(peer, reason)) {
            if is_recent(last) {
                last.held_back += 1;
                return None;
            }
            last.at = now;
            return Some(std::mem::take(&mut last.held_back));
        }
        if peers.len() >= PEERS_MAX {
            peers.retain(|_, last| is_recent(last));
        }
        if peers.len() >= PEERS_MAX {
            drop(peers);
            return self.others[reason as usize].pass();
        }
        peers.insert((peer, reason), Last { at: now, held_back: 0 });
        debug_assert!(peers.len() <= PEERS_MAX, "memory is bounded");
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::time::advance;

    use super::*;

    fn peer(number: u32) -> Peer {
        Peer::Address(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_one_peer_hides_no_other_peer_and_no_other_reason() {
        let limit = HoldBack::default();
        assert_eq!(limit.pass(peer(1), RefusalReason::Tls), Some(0), "the first at once");
        for _ in 0..99 {
            assert_eq!(limit.pass(peer(1), RefusalReason::Tls), None);
        }
        assert_eq!(limit.pass(peer(2), RefusalReason::Tls), Some(0));
        assert_eq!(limit.pass(peer(1), RefusalReason::NotListed), Some(0));
        assert_eq!(limit.pass(Peer::User(1), RefusalReason::Tls), Some(0));
        assert_eq!(limit.pass(Peer::Unknown, RefusalReason::Tls), Some(0));
        advance(INTERVAL).await;
        assert_eq!(limit.pass(peer(1), RefusalReason::Tls), Some(99));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_many_peers_is_bounded() {
        let limit = HoldBack::default();
        let most = PEERS_MAX as u32;
        let passed =
            |reason| (0..2 * most).filter(|number| limit.pass(peer(*number), reason).is_some()).count();
        assert_eq!(passed(RefusalReason::Tls), PEERS_MAX + 1);
        assert_eq!(passed(RefusalReason::NoTls), 1, "one for all that are not limited separately");
        assert!(limit.peers.lock().len() <= PEERS_MAX);
        advance(INTERVAL).await;
        assert_eq!(limit.pass(peer(most * 4), RefusalReason::NoTls), Some(0), "there is room again");
        assert_eq!(limit.peers.lock().len(), 1);
    }
}
