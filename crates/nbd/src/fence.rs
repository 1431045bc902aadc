//! The fence before transmission: no request of a disconnected client is carried out after the next client of
//! the device has begun.
//!
//! A client that loses its connection reconnects and resends its unanswered requests. The first copy of such
//! a request may still be in flight, or unread in the socket. If it were carried out after a later write to
//! the same range was acknowledged, that write would be lost.
//!
//! So a new connection asks all others of the device whether their clients are there, and waits until each
//! has answered or ended:
//!
//! ```text
//! new connection    OPT_GO -> ask n -> wait: each member has answered n, or is over -> reply to OPT_GO -> member
//! other connection            \-> client is there: answer n
//!                              \-> client has left: take no more requests, complete those under way -> over
//! ```
//!
//! A connection asks before it becomes a member. Afterwards it checks its own client, before it takes a
//! request. So a later connection finds it among the members, or it finds that its own client has left.
//! Connections never wait for each other, because only members are waited for. Members wait for nobody:
//! neither for another connection, nor for a client that does not take the reply to OPT_GO.
//!
//! A client that may only read leaves nothing behind that could undo a write, and writes nothing that could
//! be undone. Its connection neither asks nor becomes a member.

pub(crate) mod areas;
pub mod attachment;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::ConnectionError;
use crate::fence::areas::{AreaClaim, Areas};
use crate::fence::attachment::Sharing;
use crate::peers::peer::Peer;
use crate::peers::presence::Presence;
use crate::peers::writer::Writer;

/// Time beyond [`ServerConfig::shutdown_grace`](crate::ServerConfig::shutdown_grace) for the threads of a
/// connection that is over to drop its requests.
pub(crate) const DROP_TIME: Duration = Duration::from_secs(2);

/// Connections in transmission of one device, at all addresses of a server.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    state: Mutex<Membership>,
    /// Areas of the device's FUSE file.
    areas: Arc<Areas>,
}

#[derive(Debug, Default)]
struct Membership {
    /// Number of the last question.
    asked: u64,
    /// By the numbers of their connections.
    members: BTreeMap<u64, MemberEntry>,
    /// Connections of the bridge that has the device attached.
    bridge_connections: usize,
}

/// Kind of connection that a bridge makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BridgeArrival {
    /// Its device is not in use yet.
    New,
    /// It had the device attached before. The device may be mounted: other writers are disconnected.
    Returning,
}

/// A member, as those that ask find it.
#[derive(Debug)]
struct MemberEntry {
    peer: Peer,
    is_bridge: bool,
    asked: Arc<Asked>,
    /// Number of the last question that it has answered. Closed when the member is over.
    answered: watch::Receiver<u64>,
}

/// Last question to a member.
#[derive(Debug)]
struct Asked {
    /// Number of the last question.
    number: AtomicU64,
    /// The device was attached, and the member may no longer write.
    is_expelled: AtomicBool,
    /// Of the task of its connection.
    waker: AtomicWaker,
}

/// A connection in transmission, until the last of its requests has ended.
#[derive(Debug)]
pub(crate) struct Member {
    fence: Arc<Fence>,
    number: u64,
    asked: Arc<Asked>,
    /// Of a connection that has brought an area.
    area: Option<AreaClaim>,
    /// Of a connection of the bridge.
    _attached: Option<Attached>,
    /// Dropped last: a task that waits for the end of the member finds the device detached then.
    answered: watch::Sender<u64>,
}

/// The fences of all devices of a server. An export at another address of the same device has the same fence.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// By the addresses of the devices. An export keeps both its device and its fence, so the address is that
    /// device's for as long as the fence lives.
    fences: Mutex<HashMap<usize, Weak<Fence>>>,
}

impl Fences {
    /// Returns the fence of a device.
    pub(crate) fn of<D>(&self, device: &Arc<D>) -> Arc<Fence> {
        let mut fences = self.fences.lock();
        fences.retain(|_, fence| fence.strong_count() > 0);
        let place = fences.entry(Arc::as_ptr(device) as usize).or_default();
        place.upgrade().unwrap_or_else(|| {
            let fence = Arc::new(Fence::default());
            *place = Arc::downgrade(&fence);
            fence
        })
    }
}

impl Fence {
    /// The areas of the device that are served.
    pub(crate) fn areas(&self) -> &Arc<Areas> {
        &self.areas
    }

    /// Returns whether a bridge is connected, or has left the device to the server.
    pub(crate) fn is_attached(&self) -> bool {
        self.state.lock().bridge_connections > 0
    }

    /// Attaches the device for a connection of its bridge. For a bridge that returns, members that are not
    /// connections of the bridge are disconnected.
    ///
    /// # Errors
    /// Those members, if there are any and `sharing` forbids them to write.
    pub(crate) fn attach(
        self: &Arc<Fence>,
        arrival: BridgeArrival,
        sharing: &Sharing,
    ) -> Result<Attached, Vec<Writer>> {
        let mut state = self.state.lock();
        let others = || state.members.iter().filter(|(_, entry)| !entry.is_bridge);
        if !sharing.shared_writes && others().next().is_some() {
            if arrival == BridgeArrival::Returning {
                for (_, entry) in others() {
                    entry.asked.is_expelled.store(true, Ordering::Release);
                    entry.asked.waker.wake();
                }
            }
            return Err(others()
                .map(|(number, entry)| Writer { number: *number, peer: entry.peer })
                .collect());
        }
        state.bridge_connections += 1;
        Ok(Attached(Arc::clone(self)))
    }

    /// A connection of the bridge has ended.
    pub(crate) fn detach(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.bridge_connections > 0, "a connection that was attached ends once");
        state.bridge_connections -= 1;
    }

    /// Asks all members whether their clients are there.
    pub(crate) fn ask(self: &Arc<Fence>) -> Question {
        let mut state = self.state.lock();
        state.asked += 1;
        let number = state.asked;
        let ask = |(member, entry): (&u64, &MemberEntry)| {
            entry.asked.number.store(number, Ordering::Release);
            entry.asked.waker.wake();
            (*member, entry.answered.clone())
        };
        Question {
            fence: Arc::clone(self),
            number,
            seen: 0,
            members: state.members.iter().map(ask).collect(),
        }
    }
}

/// A question of a connection that is to become a member.
#[derive(Debug)]
pub(crate) struct Question {
    fence: Arc<Fence>,
    number: u64,
    /// Number of the last question when the client of the connection was certainly there. 0 before.
    seen: u64,
    /// Members that were not waited for yet, and the last questions that they have answered.
    members: Vec<(u64, watch::Receiver<u64>)>,
}

impl Question {
    /// Waits until no request of a disconnected client is in flight or will be taken. Call it again if it was
    /// dropped before.
    pub(crate) async fn answered(&mut self) {
        let number = self.number;
        while let Some((_, answered)) = self.members.last_mut() {
            // An error: the member is over.
            let _ = answered.wait_for(|answered| *answered >= number).await;
            self.members.pop();
        }
    }

    /// Numbers of the members that are waited for.
    pub(crate) fn missing(&self) -> Vec<u64> {
        let is_missing = |answered: &watch::Receiver<u64>| {
            answered.has_changed().is_ok() && *answered.borrow() < self.number
        };
        self.members.iter().filter(|(_, answered)| is_missing(answered)).map(|(member, _)| *member).collect()
    }

    /// Checks whether the client of the connection is there.
    pub(crate) fn check_client(&mut self, presence: impl FnOnce() -> Presence) -> Presence {
        // First: what is asked after the client has left is then asked after this.
        let asked = self.fence.state.lock().asked;
        let found = presence();
        if matches!(found, Presence::Here | Presence::Unread | Presence::SendsNoMore) {
            self.seen = asked;
        }
        found
    }

    /// Returns whether another connection may have asked after the client had left. That one does not wait
    /// for this connection.
    pub(crate) fn is_overtaken(&self) -> bool {
        self.fence.state.lock().asked != self.seen
    }

    /// As [`Question::join`], for a device that nobody attaches.
    #[cfg(test)]
    #[allow(clippy::expect_used, reason = "for tests")]
    pub(crate) fn join_alone(self, number: u64) -> (Arc<Member>, bool) {
        let writer = Writer { number, peer: Peer::Unknown };
        self.join(writer, None, None, &Sharing::default()).expect("not attached")
    }

    /// Makes a connection a member. It then finds out whether its own client is still there. Returns
    /// [`Question::is_overtaken`] with it: all that ask later wait for this connection. `attached`: it is one
    /// of the bridge. `area`: that it serves.
    ///
    /// # Errors
    /// [`ConnectionError::Attached`] if the device was attached and is not shared.
    pub(crate) fn join(
        self,
        Writer { number, peer }: Writer,
        attached: Option<Attached>,
        area: Option<AreaClaim>,
        sharing: &Sharing,
    ) -> Result<(Arc<Member>, bool), ConnectionError> {
        let is_bridge = attached.is_some();
        let mut state = self.fence.state.lock();
        if !is_bridge && !sharing.shared_writes && state.bridge_connections > 0 {
            return Err(ConnectionError::Attached);
        }
        let asked = state.asked;
        let answered = watch::Sender::new(asked);
        let to_it = Arc::new(Asked {
            number: AtomicU64::new(asked),
            is_expelled: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let entry =
            MemberEntry { peer, is_bridge, asked: Arc::clone(&to_it), answered: answered.subscribe() };
        let earlier = state.members.insert(number, entry);
        debug_assert!(earlier.is_none(), "a connection is in transmission once");
        drop(state);
        let fence = Arc::clone(&self.fence);
        Ok((
            Arc::new(Member { fence, number, asked: to_it, answered, area, _attached: attached }),
            asked != self.seen,
        ))
    }
}

impl Member {
    /// The claim on the area that it serves.
    pub(crate) fn area(&self) -> Option<&AreaClaim> {
        self.area.as_ref()
    }

    /// Returns whether the device was attached since, and the connection has to end.
    pub(crate) fn is_expelled(&self) -> bool {
        self.asked.is_expelled.load(Ordering::Acquire)
    }

    /// The questions to it that it has not answered, for the task of its connection: for one at a time.
    pub(crate) fn questions(&self) -> Questions {
        Questions { asked: Arc::clone(&self.asked), seen: *self.answered.borrow() }
    }

    /// Answers a question, and those before it: the client is there.
    pub(crate) fn answer(&self, question: u64) {
        self.answered.send_replace(question);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.fence.state.lock().members.remove(&self.number);
    }
}

/// A connection of the bridge. The device is attached as long as there is one.
#[derive(Debug)]
pub(crate) struct Attached(pub(crate) Arc<Fence>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.detach();
    }
}

/// The questions to a member.
pub(crate) struct Questions {
    asked: Arc<Asked>,
    /// Number of the last question that was returned.
    seen: u64,
}

impl Questions {
    /// Returns the number of the last question, if there is one since the last call. Otherwise the next one
    /// wakes the task. A connection asks this whenever anything happens on it, so it takes no lock.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        // First: a question after the look below wakes the task.
        self.asked.waker.register(cx.waker());
        let number = self.asked.number.load(Ordering::Acquire);
        if number == self.seen {
            return Poll::Pending;
        }
        self.seen = number;
        Poll::Ready(number)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures::FutureExt;

    use super::*;

    /// A member, the number of which must be new.
    fn join(fence: &Arc<Fence>, number: u64) -> Arc<Member> {
        fence.ask().join_alone(number).0
    }

    fn has_passed(question: &mut Question) -> bool {
        question.answered().now_or_never().is_some()
    }

    fn asked(questions: &mut Questions) -> Option<u64> {
        match questions.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => Some(number),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_waits_for_the_bridge_to_leave_finds_the_device_detached() {
        struct Waiter(Arc<Fence>, AtomicBool);
        impl std::task::Wake for Waiter {
            fn wake(self: Arc<Self>) {
                self.1.store(!self.0.is_attached(), Ordering::Relaxed);
            }
        }
        let fence = Arc::new(Fence::default());
        let attached = fence.attach(BridgeArrival::New, &Sharing::default()).expect("nobody else");
        let writer = Writer { number: 1, peer: Peer::Unknown };
        let joined = fence.ask().join(writer, Some(attached), None, &Sharing::default());
        let (bridge, _) = joined.expect("it is the bridge");
        let waiter = Arc::new(Waiter(Arc::clone(&fence), AtomicBool::new(false)));
        let mut question = fence.ask();
        let mut waiting = std::pin::pin!(question.answered());
        let waker = Waker::from(Arc::clone(&waiter));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(bridge);
        assert!(waiter.1.load(Ordering::Relaxed), "it was woken while the device was attached");
    }

    #[tokio::test]
    async fn members_whose_clients_are_there_are_not_waited_for() {
        let fence = Arc::new(Fence::default());
        assert!(has_passed(&mut fence.ask()), "there is no member");
        let members = [join(&fence, 1), join(&fence, 2)];
        let mut questions = members.each_ref().map(|member| member.questions());
        // The first was asked when the second came, by the third question.
        assert_eq!(questions.each_mut().map(asked), [Some(3), None]);
        let mut passing = fence.ask();
        assert_eq!(passing.missing(), [1, 2]);
        for (member, questions) in members.iter().zip(&mut questions) {
            assert!(!has_passed(&mut passing));
            let question = asked(questions).expect("asked");
            member.answer(question);
            assert_eq!(asked(questions), None, "asked once");
        }
        assert_eq!(passing.missing(), [0; 0]);
        assert!(has_passed(&mut passing));
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_is_waited_for_until_its_last_request_has_ended() {
        let fence = Arc::new(Fence::default());
        let member = join(&fence, 1);
        let request_of_a_helper = Arc::clone(&member);
        let mut passing = fence.ask();
        assert!(!has_passed(&mut passing));
        drop(member);
        assert!(!has_passed(&mut passing));
        assert_eq!(passing.missing(), [1]);
        drop(request_of_a_helper);
        assert_eq!(passing.missing(), [0; 0]);
        assert!(has_passed(&mut passing));
    }

    #[tokio::test]
    async fn two_that_ask_wait_for_the_same_and_not_for_each_other() {
        let fence = Arc::new(Fence::default());
        let left = join(&fence, 1);
        let (mut one, mut other) = (fence.ask(), fence.ask());
        assert!(!has_passed(&mut one) && !has_passed(&mut other));
        drop(left);
        assert!(has_passed(&mut other));
        let (joined, _) = other.join_alone(2);
        // It asked before that one joined.
        assert!(has_passed(&mut one));
        assert_eq!(asked(&mut joined.questions()), None);
    }

    #[tokio::test]
    async fn a_client_is_overtaken_by_questions_since_it_was_there() {
        let fence = Arc::new(Fence::default());
        let mut question = fence.ask();
        assert_eq!(question.check_client(|| Presence::MayHaveLeft), Presence::MayHaveLeft);
        assert!(question.is_overtaken(), "it may have left before");
        for found in [Presence::Here, Presence::Unread, Presence::SendsNoMore] {
            assert_eq!(question.check_client(|| found), found);
            assert!(!question.is_overtaken());
            question.check_client(|| Presence::MayHaveLeft);
            assert!(!question.is_overtaken(), "nobody has asked since");
            let _other = fence.ask();
            assert!(question.is_overtaken());
        }
        // It was there, and left while another one asked.
        question.check_client(|| {
            let _other = fence.ask();
            Presence::Here
        });
        assert!(question.join_alone(1).1);
    }

    #[tokio::test]
    async fn a_question_wakes_the_members_task_wherever_it_has_moved() {
        let fence = Arc::new(Fence::default());
        let member = join(&fence, 1);
        let mut questions = member.questions();
        for number in 2..5 {
            let (waker, count) = counting_waker();
            assert!(questions.poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(questions.poll(&mut Context::from_waker(&waker)).is_pending());
            let _question = fence.ask();
            assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 1);
            assert_eq!(questions.poll(&mut Context::from_waker(&waker)), Poll::Ready(number));
        }
    }

    #[test]
    fn no_question_is_missed_by_a_member_that_sleeps() {
        const EACH: u64 = 2000;
        let fence = Arc::new(Fence::default());
        let member = join(&fence, 1);
        let last = 1 + 2 * EACH;
        let (done, ends) = std::sync::mpsc::channel();
        let mut questions = member.questions();
        std::thread::spawn(move || {
            futures::executor::block_on(std::future::poll_fn(|cx| {
                while let Poll::Ready(number) = questions.poll(cx) {
                    member.answer(number);
                    if number == last {
                        return Poll::Ready(());
                    }
                }
                Poll::Pending
            }));
        });
        for _ in 0..2 {
            let (fence, done) = (Arc::clone(&fence), done.clone());
            std::thread::spawn(move || {
                (0..EACH).for_each(|_| futures::executor::block_on(fence.ask().answered()));
                let _ = done.send(());
            });
        }
        for _ in 0..2 {
            ends.recv_timeout(Duration::from_secs(60)).expect("answers");
        }
    }

    /// A waker, and how often it was used.
    fn counting_waker() -> (Waker, Arc<std::sync::atomic::AtomicUsize>) {
        struct Counting(Arc<std::sync::atomic::AtomicUsize>);
        impl std::task::Wake for Counting {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let count = Arc::default();
        (Waker::from(Arc::new(Counting(Arc::clone(&count)))), count)
    }
}
