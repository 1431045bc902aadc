//! The fence before transmission: no request of a client that has left is carried out after the next client of the
//! device has begun.
//!
//! A client that loses its connection connects again and makes its unanswered requests again. The first copy of such a
//! request may still be under way, or unread in the socket. If it were carried out after a later write to the same place
//! was acknowledged, that write would be lost.
//!
//! So a connection asks all others of the device whether their clients are there, and waits until each has answered or is
//! over:
//!
//! ```text
//! new connection    OPT_GO -> ask n -> wait: each member has answered n, or is over -> member n -> reply to OPT_GO
//! other connection            \-> client is there: answer n
//!                              \-> client has left: take no more requests, complete those under way -> over
//! ```
//!
//! A connection asks before it becomes a member, and looks for its own client after that. So whoever asks later either finds
//! it among the members, or it finds that its client has left. Connections never wait for each other, because only members
//! are waited for, and those wait for nobody.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Time beyond [`ServerConfig::shutdown_grace`](crate::ServerConfig::shutdown_grace) for the threads of a connection that is
/// over to drop its requests.
pub(crate) const DROP_TIME: Duration = Duration::from_secs(2);

/// Connections in transmission of one device, at all addresses of a server.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Number of the last question.
    asked: watch::Sender<u64>,
    /// Questions that the members have answered, by the numbers of their connections.
    members: watch::Sender<HashMap<u64, u64>>,
}

/// A connection in transmission, until the last of its requests has ended.
#[derive(Debug)]
pub(crate) struct Member {
    fence: Arc<Fence>,
    number: u64,
}

/// The fences of all devices of a server. An export at another address of the same device has the same fence.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// By the addresses of the devices. An export keeps both its device and its fence, so the address is that device's for
    /// as long as the fence lives.
    fences: Mutex<HashMap<usize, Weak<Fence>>>,
}

impl Fences {
    /// Returns the fence of a device.
    pub(crate) fn of<D>(&self, device: &Arc<D>) -> Arc<Fence> {
        let mut fences = self.fences.lock();
        fences.retain(|_, fence| fence.strong_count() > 0);
        let place = fences.entry(Arc::as_ptr(device) as usize).or_default();
        place.upgrade().unwrap_or_else(|| {
            let fence = Arc::new(Fence::new());
            *place = Arc::downgrade(&fence);
            fence
        })
    }
}

impl Fence {
    pub(crate) fn new() -> Fence {
        Fence { asked: watch::Sender::new(0), members: watch::Sender::new(HashMap::new()) }
    }

    /// Waits until no request of a client that has left is under way or will be taken.
    pub(crate) async fn pass(&self) {
        let mut members = self.members.subscribe();
        // Under the lock of the members, so that each has answered this question or an earlier one when it joins.
        let question = {
            let _members = self.members.borrow();
            self.asked.send_modify(|asked| *asked += 1);
            *self.asked.borrow()
        };
        // Cannot fail: `self` holds the sender.
        let _ = members.wait_for(|members| members.values().all(|answered| *answered >= question)).await;
    }

    /// Makes a connection a member. It then finds out whether its own client is still there.
    pub(crate) fn join(self: &Arc<Fence>, number: u64) -> Arc<Member> {
        self.members.send_modify(|members| {
            let earlier = members.insert(number, *self.asked.borrow());
            debug_assert!(earlier.is_none(), "a connection is in transmission once");
        });
        Arc::new(Member { fence: Arc::clone(self), number })
    }
}

impl Member {
    /// Waits for a question after `answered`. Returns its number.
    pub(crate) fn question(&self, answered: u64) -> impl Future<Output = u64> + use<> {
        let mut asked = self.fence.asked.subscribe();
        async move {
            if asked.wait_for(|asked| *asked > answered).await.is_err() {
                // Nobody is left to ask.
                std::future::pending::<()>().await;
            }
            *asked.borrow()
        }
    }

    /// Number of the last question that this member has answered.
    pub(crate) fn answered(&self) -> u64 {
        self.fence.members.borrow().get(&self.number).copied().unwrap_or(0)
    }

    /// Answers a question: the client is there.
    pub(crate) fn answer(&self, question: u64) {
        self.fence.members.send_modify(|members| _ = members.insert(self.number, question));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.fence.members.send_modify(|members| _ = members.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn members_whose_clients_are_there_are_not_waited_for() {
        let fence = Arc::new(Fence::new());
        assert!(fence.pass().now_or_never().is_some(), "there is no member");
        let members = [fence.join(1), fence.join(2)];
        let mut passing = std::pin::pin!(fence.pass());
        assert!(passing.as_mut().now_or_never().is_none(), "nobody has answered");
        for member in &members {
            assert!(passing.as_mut().now_or_never().is_none());
            let question = member.question(member.answered()).now_or_never().expect("asked");
            member.answer(question);
            assert!(member.question(question).now_or_never().is_none(), "asked once");
        }
        assert!(passing.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_is_waited_for_until_its_last_request_has_ended() {
        let fence = Arc::new(Fence::new());
        let member = fence.join(1);
        let request_of_a_helper = Arc::clone(&member);
        let mut passing = std::pin::pin!(fence.pass());
        assert!(passing.as_mut().now_or_never().is_none());
        drop(member);
        assert!(passing.as_mut().now_or_never().is_none());
        drop(request_of_a_helper);
        assert!(passing.now_or_never().is_some());
    }

    #[tokio::test]
    async fn two_that_ask_wait_for_the_same_and_not_for_each_other() {
        let fence = Arc::new(Fence::new());
        let left = fence.join(1);
        let (mut one, mut other) = (std::pin::pin!(fence.pass()), std::pin::pin!(fence.pass()));
        assert!(one.as_mut().now_or_never().is_none() && other.as_mut().now_or_never().is_none());
        drop(left);
        assert!(other.now_or_never().is_some());
        // It asked before this one joined.
        let joined = fence.join(2);
        assert!(one.now_or_never().is_some());
        assert!(joined.question(joined.answered()).now_or_never().is_none());
    }
}
