//! Receives replies and records them in the oracle.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use nbd::protocol::Errno;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use sim::content::SECTOR_BYTES;
use sim::oracle::{Kind, Reading};

use super::connection::Connection;
use super::verifier::Verifier;
use crate::error::Error;

/// A request that waits for its reply.
pub(super) enum Pending {
    /// A write, TRIM or zeroes.
    Change { kind: Kind, number: u32, bytes: u64, durable: bool, whole_blocks: bool },
    /// A read.
    Read { reading: Reading, bytes: usize },
    /// A flush, and when it began.
    Flush { began: u64 },
}

/// Requests in flight on one connection.
#[derive(Default)]
pub(super) struct InFlight {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Default)]
struct Requests {
    pending: FxHashMap<u64, Pending>,
    closed: bool,
}

impl InFlight {
    /// Records a request, once fewer than `depth` are in flight. Returns false if the connection has ended.
    pub(super) fn enter(&self, depth: usize, cookie: u64, begin: impl FnOnce() -> Pending) -> bool {
        let mut requests = self.requests.lock();
        while requests.pending.len() >= depth && !requests.closed {
            self.changed.wait(&mut requests);
        }
        if requests.closed {
            return false;
        }
        requests.pending.insert(cookie, begin());
        true
    }

    /// Waits until nothing is in flight. Returns false if the connection ended before.
    pub(super) fn drain(&self) -> bool {
        let mut requests = self.requests.lock();
        while !requests.pending.is_empty() && !requests.closed {
            self.changed.wait(&mut requests);
        }
        requests.pending.is_empty()
    }

    fn leave(&self, cookie: u64) -> Option<Pending> {
        let pending = self.requests.lock().pending.remove(&cookie);
        self.changed.notify_all();
        pending
    }

    /// Records that requests in flight now will not be answered. Returns their number.
    fn close(&self) -> usize {
        let mut requests = self.requests.lock();
        requests.closed = true;
        self.changed.notify_all();
        requests.pending.len()
    }
}

/// Receives replies until the connection ends.
pub(super) fn run(mut connection: Connection, in_flight: &Arc<InFlight>, verifier: &Verifier) {
    let error = loop {
        if let Err(error) = take_one(&mut connection, in_flight, verifier) {
            break error;
        }
    };
    let unanswered = in_flight.close();
    let hangs = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    if hangs && unanswered > 0 {
        verifier.fail(Error::server(format!("did not answer {unanswered} requests for a minute")));
    }
    if error.kind() == ErrorKind::InvalidData {
        verifier.fail(Error::System { what: "the connection ended", source: error });
    }
}

fn take_one(connection: &mut Connection, in_flight: &InFlight, verifier: &Verifier) -> io::Result<()> {
    let reply = connection.receive()?;
    let Some(pending) = in_flight.leave(reply.cookie) else {
        return Err(io::Error::new(ErrorKind::InvalidData, "an answer to no request"));
    };
    match pending {
        Pending::Change { kind, number, bytes, durable, whole_blocks } => match reply.error {
            0 => {
                verifier.oracle.lock().acknowledge(number, durable);
                verifier.count(|counts| {
                    counts.changes += 1;
                    counts.written_bytes += if kind == Kind::Write { bytes } else { 0 };
                });
            }
            error if error == Errno::NoSpc.code() => {
                verifier.record(verifier.oracle.lock().refuse(number));
                verifier.count(|counts| counts.refusals += 1);
                if kind == Kind::Trim && whole_blocks {
                    let why = format!("a TRIM of whole blocks was refused for lack of space: #{number}");
                    verifier.fail(Error::Violation(why));
                }
            }
            error => {
                verifier.oracle.lock().fail(number);
                judge(verifier, &format!("{kind:?} #{number}"), error);
            }
        },
        Pending::Read { reading, bytes } => match reply.error {
            0 => {
                let mut data = vec![0; bytes];
                connection.receive_data(&mut data)?;
                verifier.record(verifier.oracle.lock().end_read(&reading, &data));
                verifier.count(|counts| counts.verified_bytes += bytes as u64);
            }
            error => judge(verifier, &format!("a read of {} sectors", bytes / SECTOR_BYTES), error),
        },
        Pending::Flush { began } => match reply.error {
            0 => {
                verifier.oracle.lock().end_flush(began);
                verifier.count(|counts| counts.flushes += 1);
                verifier.disk.flush_was_answered();
            }
            error => judge(verifier, "a flush", error),
        },
    }
    Ok(())
}

fn judge(verifier: &Verifier, what: &str, error: u32) {
    verifier.count(|counts| counts.errors += 1);
    if !verifier.is_excused() {
        verifier.fail(Error::Violation(format!("{what} failed with error {error}, and nothing excuses it")));
    }
}
