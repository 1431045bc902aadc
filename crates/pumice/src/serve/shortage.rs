//! What the server does for times when memory is short. A file system on one of its drives, by a block device
//! of this machine, writes back then; that must not have to wait for itself.

use std::sync::Once;

use host::{Root, shortage};

/// Tells the kernel that its writes may depend on this server, and gives up the capability for that. Call it
/// before there are threads.
pub(super) fn prepare() {
    shortage::become_io_flusher();
    shortage::lift_lock_limit();
    // It is of no use to this server any more. The kernel does not refuse to give one up.
    let _ = shortage::give_up_resources();
}

/// Keeps the memory of the server out of swap space, from the first drive on that is attached. The log says
/// what is missing.
pub(super) fn lock_memory() {
    static ATTACHED: Once = Once::new();
    ATTACHED.call_once(|| {
        if let Err(error) = shortage::lock_memory() {
            tracing::info!(%error, "memory of the server may be swapped out (pumice doctor)");
        }
        if shortage::is_io_flusher(&Root::machine(), "self") != Some(true) {
            tracing::info!(
                "when memory is short, requests may wait for writes to this drive (pumice doctor)"
            );
        }
    });
}
