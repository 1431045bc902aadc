//! Answers of a connection in transmission to the questions of the [fence](crate::fence).
//!
//! The end of a TCP connection does not reach the server while data before it finds no room. A client of
//! which the socket holds unread data is therefore taken to be there only when its data was read, or when it
//! has sent so much since it was asked for that it cannot have left before. That takes at most the grace
//! period: a client that is there, and sends more than the device takes, must not keep others out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::fence::{Member, Questions};
use crate::peers::presence::Presence;

/// More than a client that has left can have left behind: the system's largest receive buffer here and its
/// largest send buffer there (6 MiB and 4 MiB in Linux, unless configured otherwise).
const LEFT_BEHIND_BYTES_MAX: u64 = 64 << 20;

/// A question that has no answer yet.
struct Due {
    question: u64,
    /// Bytes received from the client when it was asked for.
    received_bytes: u64,
    until: Instant,
}

/// The answers of a connection.
pub(crate) struct Answers {
    member: Arc<Member>,
    questions: Questions,
    grace: Duration,
    /// In order, at most two: those after the first are answered together.
    due: VecDeque<Due>,
}

impl Answers {
    /// Answers for a connection which may take `grace` to find out whether its client is there.
    pub(crate) fn new(member: &Arc<Member>, grace: Duration) -> Answers {
        Answers { member: Arc::clone(member), questions: member.questions(), grace, due: VecDeque::new() }
    }

    /// Returns whether a question has no answer. Poll again when data was read, and every second.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Answers questions if the client is there. Returns what was found of it, or `None` if there was no
    /// question.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        received_bytes: u64,
        presence: impl FnOnce() -> Presence,
    ) -> Option<Presence> {
        while let Poll::Ready(question) = self.questions.poll(cx) {
            if self.member.is_expelled() {
                // The answer is the end of the connection.
                continue;
            }
            self.due.truncate(1);
            self.due.push_back(Due { question, received_bytes, until: Instant::now() + self.grace });
        }
        let last = self.due.back()?.question;
        let found = presence();
        match found {
            Presence::Here => self.answer(last),
            Presence::Unread => {
                let now = Instant::now();
                let is_there = |due: &&Due| {
                    now >= due.until || received_bytes - due.received_bytes >= LEFT_BEHIND_BYTES_MAX
                };
                if let Some(Due { question, .. }) = self.due.iter().rev().find(is_there) {
                    self.answer(*question);
                }
            }
            // The answer is the end of the connection.
            Presence::SendsNoMore | Presence::MayHaveLeft | Presence::Left => self.due.clear(),
        }
        Some(found)
    }

    fn answer(&mut self, question: u64) {
        self.member.answer(question);
        self.due.retain(|due| due.question > question);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures::FutureExt;

    use super::*;
    use crate::fence::Fence;

    const GRACE: Duration = Duration::from_secs(10);

    /// Polls with this finding of the client.
    fn poll(answers: &mut Answers, received_bytes: u64, found: Presence) -> Option<Presence> {
        answers.poll(&mut Context::from_waker(Waker::noop()), received_bytes, || found)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_unread_data_is_there_once_it_was_read_or_has_sent_more_or_the_time_is_over() {
        let fence = Arc::new(Fence::default());
        let (member, _) = fence.ask().join_alone(1);
        let mut answers = Answers::new(&member, GRACE);
        assert_eq!(poll(&mut answers, 0, Presence::Left), None, "nobody has asked");
        let mut question = fence.ask();
        let mut is_answered = |answers: &mut Answers, received_bytes, found| {
            assert_eq!(poll(answers, received_bytes, found), Some(found));
            let is_answered = question.answered().now_or_never().is_some();
            assert_eq!(answers.is_due(), !is_answered);
            if is_answered {
                question = fence.ask();
            }
            is_answered
        };
        assert!(!is_answered(&mut answers, 5, Presence::Unread));
        assert!(!is_answered(&mut answers, LEFT_BEHIND_BYTES_MAX + 4, Presence::Unread));
        assert!(is_answered(&mut answers, LEFT_BEHIND_BYTES_MAX + 5, Presence::Unread));
        let received_bytes = LEFT_BEHIND_BYTES_MAX + 5;
        assert!(!is_answered(&mut answers, received_bytes, Presence::Unread));
        tokio::time::advance(GRACE).await;
        assert!(is_answered(&mut answers, received_bytes, Presence::Unread));
        assert!(!is_answered(&mut answers, received_bytes, Presence::Unread));
        assert!(is_answered(&mut answers, received_bytes, Presence::Here));
    }

    #[tokio::test(start_paused = true)]
    async fn later_questions_do_not_delay_earlier_answers() {
        let fence = Arc::new(Fence::default());
        let (member, _) = fence.ask().join_alone(1);
        let mut answers = Answers::new(&member, GRACE);
        let mut questions = Vec::new();
        for _ in 0..4 {
            questions.push(fence.ask());
            poll(&mut answers, 0, Presence::Unread);
            assert!(answers.due.len() <= 2);
            tokio::time::advance(GRACE / 4).await;
        }
        poll(&mut answers, 0, Presence::Unread);
        let mut answered = questions.iter_mut().map(|question| question.answered().now_or_never().is_some());
        assert_eq!(answered.next(), Some(true));
        assert!(answered.all(|answered| !answered), "the others have not waited as long");
        tokio::time::advance(GRACE).await;
        poll(&mut answers, 0, Presence::Unread);
        assert!(questions.iter_mut().all(|question| question.answered().now_or_never().is_some()));
    }

    #[test]
    fn a_client_that_has_left_is_not_answered_for() {
        let fence = Arc::new(Fence::default());
        let (member, _) = fence.ask().join_alone(1);
        let mut answers = Answers::new(&member, GRACE);
        for found in [Presence::SendsNoMore, Presence::MayHaveLeft, Presence::Left] {
            let mut question = fence.ask();
            assert_eq!(poll(&mut answers, 0, found), Some(found));
            assert_eq!(poll(&mut answers, 0, found), None, "looked once");
            assert!(question.answered().now_or_never().is_none());
        }
    }
}
