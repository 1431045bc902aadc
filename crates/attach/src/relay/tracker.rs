//! Requests of a relay, under its lock: in flight or held.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::journal::{self, Journal, Number};
use super::{FLUSH_AGAIN, IDLE, RelayState};
use nbd::reply::Changed;

use crate::link::Link;
use crate::operation::{Done, Operation, Outcome};

pub(super) enum Phase {
    Connected,
    Waiting { since: Instant, reason: Option<String> },
    Failed(String),
    Ended,
}

impl Phase {
    pub(super) fn shown(&self) -> RelayState {
        match self {
            Phase::Connected => RelayState::Connected,
            Phase::Waiting { since, reason } => RelayState::Waiting { since: *since, reason: reason.clone() },
            Phase::Failed(reason) => RelayState::Failed(reason.clone()),
            Phase::Ended => RelayState::Failed("detached".to_string()),
        }
    }
}

/// A request that is not answered yet.
pub(super) struct Pending {
    pub(super) operation: Arc<Operation>,
    /// `None`: a flush of the relay itself.
    done: Option<Done>,
    /// Of a flush: it makes changes with lower numbers durable.
    covers: Number,
    /// Of a flush of the relay itself: changes in flight that are answered after it.
    settles: Vec<u64>,
    /// Another client has changed a part of its range meanwhile, before or after it. It must not be replayed
    /// after it is answered, so it is answered only once it is durable.
    is_overtaken: bool,
}

impl Pending {
    fn new(operation: Operation, done: Option<Done>) -> Pending {
        Pending { operation: Arc::new(operation), done, covers: 0, settles: Vec::new(), is_overtaken: false }
    }
}

/// A change by another client that is in the journal's range.
struct PendingNotice {
    number: u64,
    /// Older changes have to be durable.
    covers: Number,
}

/// A request to be sent, once the lock is released.
pub(super) struct Send {
    pub(super) link_index: usize,
    links: Arc<[Link]>,
    pub(super) cookie: u64,
    pub(super) operation: Arc<Operation>,
}

impl Send {
    pub(super) fn link(&self) -> &Link {
        &self.links[self.link_index]
    }
}

pub(super) struct RequestTracker {
    pub(super) phase: Phase,
    /// Number of the present connections. Replies over earlier ones are ignored.
    pub(super) epoch: u64,
    pub(super) links: Arc<[Link]>,
    /// The opening of the drive by the server, which has all that was acknowledged.
    pub(super) opening: Option<String>,
    /// Connections over which changes are being replayed.
    pub(super) recovering: Option<Arc<[Link]>>,
    pub(super) journal: Journal,
    /// The last flush of the relay itself failed.
    pub(super) flush_failed: bool,
    flushing: bool,
    flushed_at: Option<Instant>,
    /// The last change was added to the journal.
    changed_at: Option<Instant>,
    /// The relay's own thread waits without a limit.
    pub(super) is_resting: bool,
    /// The server is about to close the drive.
    pub(super) is_leaving: bool,
    /// Changes in flight that the server has made, and that have to be durable before they are answered.
    settling: Vec<u64>,
    /// Notices that wait for a flush.
    pending_notices: Vec<PendingNotice>,
    /// Numbers of notices to acknowledge to the server.
    acknowledgements: Vec<u64>,
    /// In flight, by cookie: in the order of arrival, but for reads that are delivered. Some of those are
    /// done: their notices arrive late.
    flight: BTreeMap<u64, Pending>,
    /// What the changes among them will take in the journal, in bytes.
    flight_bytes: usize,
    /// Not sent yet, in the order of arrival.
    held: VecDeque<(u64, Pending)>,
    next_cookie: u64,
}

impl RequestTracker {
    pub(super) fn new(journal_bytes_max: usize) -> RequestTracker {
        RequestTracker {
            phase: Phase::Waiting { since: Instant::now(), reason: None },
            epoch: 0,
            links: Arc::new([]),
            recovering: None,
            journal: Journal::new(journal_bytes_max),
            flush_failed: false,
            flushing: false,
            flushed_at: None,
            changed_at: None,
            is_resting: false,
            is_leaving: false,
            settling: Vec::new(),
            pending_notices: Vec::new(),
            acknowledgements: Vec::new(),
            opening: None,
            flight: BTreeMap::new(),
            flight_bytes: 0,
            held: VecDeque::new(),
            next_cookie: 1,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Length of the data that a request in flight reads.
    pub(super) fn length(&self, cookie: u64) -> Option<u32> {
        self.flight.get(&cookie).map(|pending| match *pending.operation {
            Operation::Read { length, .. } => length,
            _ => 0,
        })
    }

    /// Takes a new request, with a cookie if that is not to be the next one. Returns it if it can be sent at
    /// once.
    pub(super) fn admit(
        &mut self,
        cookie: Option<u64>,
        operation: Operation,
        done: Option<Done>,
    ) -> Option<Send> {
        let cookie = cookie.unwrap_or(self.next_cookie);
        self.next_cookie += 1;
        let pending = Pending::new(operation, done);
        if self.may_go(&pending.operation, self.held.len()) {
            return Some(self.start(cookie, pending));
        }
        self.held.push_back((cookie, pending));
        None
    }

    /// Returns whether a request behind the first `before` held ones can be sent.
    fn may_go(&self, operation: &Operation, before: usize) -> bool {
        if !matches!(self.phase, Phase::Connected) || self.is_leaving {
            return false;
        }
        let Some(range) = operation.changes() else { return true };
        let is_full = match self.flush_failed {
            true => self.journal.is_overfull(self.flight_bytes),
            false => self.journal.is_full(self.flight_bytes),
        };
        let held = self.held.iter().take(before).map(|(_, pending)| pending);
        !is_full && !self.flight.values().chain(held).any(|other| overlaps(&other.operation, range))
    }

    fn start(&mut self, cookie: u64, mut pending: Pending) -> Send {
        if *pending.operation == Operation::Flush {
            pending.covers = self.journal.next();
        }
        let send = self.sending(cookie, &pending);
        if pending.operation.changes().is_some() {
            self.flight_bytes += journal::size(&pending.operation);
        }
        self.flight.insert(cookie, pending);
        send
    }

    fn sending(&self, cookie: u64, pending: &Pending) -> Send {
        // Cookies of reads that are delivered have gaps.
        let turn = cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let link_index = (turn % self.links.len() as u64) as usize;
        Send { link_index, links: self.links.clone(), cookie, operation: pending.operation.clone() }
    }

    /// Returns whether the pump may have something to do.
    pub(super) fn has_work(&self) -> bool {
        !self.held.is_empty()
            || !self.acknowledgements.is_empty()
            || (self.wants_flush() && !self.flushing)
            || (self.is_resting && !self.journal.is_empty())
            || self.has_left()
    }

    /// Returns whether the relay has reason to flush.
    fn wants_flush(&self) -> bool {
        self.journal.is_half_full()
            || !self.pending_notices.is_empty()
            || !self.settling.is_empty()
            || (self.is_leaving && self.is_quiet() && !self.journal.is_empty())
            || self.idle_in() == Some(Duration::ZERO)
    }

    /// Time until the journal is flushed because nothing was changed for a while. `None` if there is nothing
    /// to flush.
    pub(super) fn idle_in(&self) -> Option<Duration> {
        if self.journal.is_empty() || self.flushing || !matches!(self.phase, Phase::Connected) {
            return None;
        }
        Some(self.changed_at.map_or(Duration::ZERO, |at| IDLE.saturating_sub(at.elapsed())))
    }

    /// Returns whether nothing is in flight that the server has to finish before it closes the drive.
    fn is_quiet(&self) -> bool {
        self.flight.values().all(|pending| matches!(*pending.operation, Operation::Read { .. }))
    }

    /// Returns whether the relay can leave a server that is closing: everything is durable, or cannot be made
    /// durable.
    pub(super) fn has_left(&self) -> bool {
        let is_flushed = self.journal.is_empty() || self.flush_failed;
        self.is_leaving && self.is_quiet() && is_flushed && matches!(self.phase, Phase::Connected)
    }

    /// Returns the next request to send: one that was held, or an own flush.
    pub(super) fn release(&mut self) -> Option<Send> {
        if !matches!(self.phase, Phase::Connected) {
            return None;
        }
        let is_due = !self.flush_failed || self.flushed_at.is_none_or(|at| at.elapsed() >= FLUSH_AGAIN);
        if self.wants_flush() && !self.flushing && is_due {
            self.flushing = true;
            self.flushed_at = Some(Instant::now());
            let settles = std::mem::take(&mut self.settling);
            let cookie = self.next_cookie;
            self.next_cookie += 1;
            return Some(self.start(cookie, Pending { settles, ..Pending::new(Operation::Flush, None) }));
        }
        let at = (0..self.held.len()).find(|at| self.may_go(&self.held[*at].1.operation, *at))?;
        let (cookie, pending) = self.held.remove(at)?;
        Some(self.start(cookie, pending))
    }

    /// Returns the next notice that was taken care of, and the connections.
    pub(super) fn next_acknowledgement(&mut self) -> Option<(Arc<[Link]>, u64)> {
        Some((self.links.clone(), self.acknowledgements.pop()?))
    }

    /// Takes a reply to a request in flight. Returns the callbacks to call, with their results.
    pub(super) fn finish(&mut self, cookie: u64, outcome: Outcome) -> Vec<(Done, Outcome)> {
        let mut answers = Vec::new();
        if outcome.is_ok() && self.flight.get(&cookie).is_some_and(|pending| pending.is_overtaken) {
            if !self.settling.contains(&cookie) {
                self.settling.push(cookie);
            }
            return answers;
        }
        let Some(Pending { operation, done, covers, settles, .. }) = self.take_flying(cookie) else {
            return answers;
        };
        let is_change = operation.changes().is_some();
        match (&outcome, &done) {
            (Ok(_), _) if is_change => {
                self.journal.add(operation);
                self.changed_at = Some(Instant::now());
            }
            (Ok(_), _) if *operation == Operation::Flush => {
                self.journal.forget(covers);
                self.flush_failed = false;
                let durable = self.pending_notices.extract_if(.., |notice| notice.covers <= covers);
                self.acknowledgements.extend(durable.map(|notice| notice.number));
                for settled in settles {
                    // It is durable: not for the journal.
                    let done = self.take_flying(settled).and_then(|pending| pending.done);
                    answers.extend(done.map(|done| (done, Ok(Vec::new()))));
                }
            }
            (Err(_), None) => {
                self.flush_failed = true;
                self.settling.extend(settles);
            }
            _ => {}
        }
        match done {
            Some(done) => answers.push((done, outcome)),
            None => self.flushing = false,
        }
        answers
    }

    fn take_flying(&mut self, cookie: u64) -> Option<Pending> {
        let pending = self.flight.remove(&cookie)?;
        if pending.operation.changes().is_some() {
            self.flight_bytes -= journal::size(&pending.operation);
        }
        Some(pending)
    }

    /// Takes the notice that another client has changed a range. Acknowledged changes there have to be
    /// durable before that client gets its answer: its change must not be undone.
    pub(super) fn take_notice(&mut self, Changed { number, offset, length }: Changed) {
        let (start, end) = (offset, offset.saturating_add(length));
        for pending in self.flight.values_mut().filter(|it| overlaps(&it.operation, (start, end))) {
            pending.is_overtaken = true;
        }
        if self.journal.overlaps(start, end) {
            self.pending_notices.push(PendingNotice { number, covers: self.journal.next() });
        } else {
            self.acknowledgements.push(number);
        }
    }

    /// Forgets the state of closed connections. Everything in flight is resent.
    pub(super) fn forget_connections(&mut self) {
        self.is_leaving = false;
        self.pending_notices.clear();
        self.acknowledgements.clear();
        self.settling.clear();
        for pending in self.flight.values_mut() {
            pending.is_overtaken = false;
            pending.settles.clear();
        }
    }

    /// Uses new connections. Returns their number, and the requests in flight, to be resent.
    pub(super) fn connect(&mut self, links: Arc<[Link]>) -> (u64, Vec<Send>) {
        self.links = links;
        self.epoch += 1;
        self.phase = Phase::Connected;
        let again = self.flight.iter().map(|(cookie, pending)| self.sending(*cookie, pending)).collect();
        (self.epoch, again)
    }

    /// Removes all requests. Returns their callbacks.
    pub(super) fn take_all(&mut self) -> Vec<Done> {
        self.flight_bytes = 0;
        let flight = std::mem::take(&mut self.flight).into_values();
        let held = std::mem::take(&mut self.held).into_iter().map(|(_, pending)| pending);
        flight.chain(held).filter_map(|pending| pending.done).collect()
    }
}

fn overlaps(operation: &Operation, (start, end): (u64, u64)) -> bool {
    operation.changes().is_some_and(|(other_start, other_end)| other_start < end && start < other_end)
}
