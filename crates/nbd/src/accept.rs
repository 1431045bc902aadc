//! When accepting clients fails.

use std::io;
use std::time::Duration;

use device::Device;
use log_limit::LogLimit;
use rustix::io::Errno;

use crate::address::Address;
use crate::export::Shared;

/// Handshakes that are closed when descriptors run out: clients that wait come in at this many a pause.
const HANDSHAKES_CLOSED: usize = 16;
/// Until those are closed.
const PAUSE_CLOSED: Duration = Duration::from_millis(20);
/// Where there was nothing to close.
const PAUSE: Duration = Duration::from_millis(100);

/// What a loop around [`crate::Acceptor::accept`] does about failures: it logs them, not more than a line in ten seconds, and
/// goes on. When the process is out of descriptors, handshakes are closed to get some, those of silent clients first.
/// Connections past their handshake stay.
#[derive(Debug)]
pub struct AcceptFailures {
    address: String,
    log: LogLimit,
}

impl AcceptFailures {
    /// None so far at `address`.
    pub fn new(address: &Address) -> AcceptFailures {
        AcceptFailures { address: address.to_string(), log: LogLimit::new() }
    }

    /// To be awaited after each failure, before the next client is accepted.
    pub async fn recover<D: Device>(&self, error: &io::Error, shared: &Shared<D>) {
        let errno = Errno::from_io_error(error);
        if matches!(errno, Some(Errno::CONNABORTED)) {
            // That client left; the next one may be there.
            return;
        }
        let out_of_descriptors = matches!(errno, Some(Errno::MFILE | Errno::NFILE));
        let closed = if out_of_descriptors { shared.close_handshakes(HANDSHAKES_CLOSED) } else { 0 };
        if let Some(held_back) = self.log.pass() {
            let advice =
                if out_of_descriptors { "; raise LimitNOFILE of the unit, or ulimit -n" } else { "" };
            let address = &self.address;
            tracing::warn!(%address, held_back, "cannot accept a client: {error}{advice}");
        }
        tokio::time::sleep(if closed > 0 { PAUSE_CLOSED } else { PAUSE }).await;
    }
}
