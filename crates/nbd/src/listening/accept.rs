//! Handling of failures to accept clients.

use std::io;
use std::time::Duration;

use device::Device;
use log_limit::LogLimit;
use rustix::io::Errno;

use crate::exports::Exports;
use crate::listening::address::Address;

/// Handshakes closed when descriptors run out. Waiting clients are accepted at this rate per pause.
const HANDSHAKES_CLOSED: usize = 16;
/// Pause after closing handshakes.
const PAUSE_CLOSED: Duration = Duration::from_millis(20);
/// Pause if there was no handshake to close.
const PAUSE: Duration = Duration::from_millis(100);

/// Handling of failures in a loop around [`crate::Acceptor::accept`]. Failures are logged, at most one line
/// in ten seconds, and the loop continues. When the process is out of descriptors, handshakes are closed to
/// free some, those of silent clients first. Connections past their handshake are kept.
#[derive(Debug)]
pub struct AcceptFailures {
    address: String,
    log: LogLimit,
}

impl AcceptFailures {
    /// Creates the record of failures at `address`, with none so far.
    pub fn new(address: &Address) -> AcceptFailures {
        AcceptFailures { address: address.to_string(), log: LogLimit::new() }
    }

    /// Handles one failure. Await it after each failure, before the next client is accepted.
    pub async fn recover<D: Device>(&self, error: &io::Error, exports: &Exports<D>) {
        let errno = Errno::from_io_error(error);
        if matches!(errno, Some(Errno::CONNABORTED)) {
            // Only that client is gone; the next one may already be waiting.
            return;
        }
        let out_of_descriptors = matches!(errno, Some(Errno::MFILE | Errno::NFILE));
        let closed = if out_of_descriptors { exports.close_handshakes(HANDSHAKES_CLOSED) } else { 0 };
        if let Some(held_back) = self.log.pass() {
            let advice =
                if out_of_descriptors { "; raise LimitNOFILE of the unit, or ulimit -n" } else { "" };
            let address = &self.address;
            tracing::warn!(%address, held_back, "cannot accept a client: {error}{advice}");
        }
        tokio::time::sleep(if closed > 0 { PAUSE_CLOSED } else { PAUSE }).await;
    }
}
