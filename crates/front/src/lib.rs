//! NBD in front of served drives.
//!
//! The server of the protocol is generic over the device, and requests run in its futures: for a
//! [`ServedDrive`] that is the whole engine. It is compiled for them here, once, and not in each program that
//! serves drives.

#![forbid(unsafe_code)]

use std::sync::Arc;

use nbd::{Admitted, ConnectionError, Shutdown};
use service::{Answer, ServedDrive};

/// Drives that clients of an address can choose from.
pub type Exports = Arc<nbd::Exports<ServedDrive>>;

/// Serves a client that `exports` admitted, until it leaves or `shutdown`.
///
/// # Errors
///
/// As for [`Admitted::serve`].
pub fn serve(
    client: Admitted,
    exports: Exports,
    shutdown: Shutdown,
) -> Answer<'static, Result<(), ConnectionError>> {
    Box::pin(async move { client.serve(&exports, shutdown).await })
}
