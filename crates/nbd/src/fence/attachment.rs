//! Attachment: one client, the bridge of `pumice attach`, has a block device on the export, with a file
//! system perhaps.
//!
//! Two writers that do not know of each other destroy a file system. So others may only read, unless the
//! operator [allows](Sharing::shared_writes) them to write.
//!
//! A private extension of the protocol, for clients over Unix sockets, without TLS, of the server's own user
//! or root:
//!
//! 1. The client sends [`OPT_ATTACH`](crate::protocol::OPT_ATTACH) with one byte of flags, and the
//!    [opening](Sharing::opening) that it expects. The server agrees, and no other device is an export to
//!    this client: its name may have passed to another one meanwhile. Every connection of a bridge does this.
//!    A bridge that sends only the byte expects no opening.
//! 2. The export is refused if other clients have write access. A bridge that [returns](RETURNS) is not
//!    refused: they are disconnected.
//!
//! A bridge may hand its connection to a driver of the kernel, which takes nothing but replies, and makes an
//! I/O error of each that reports one. So the server sends nothing else, and closes the connection rather
//! than answer a request that it leaves to the next server: the driver sends that again. Bridges of version
//! 0.3 expect notices, and get none. They send [`CMD_READY`](crate::protocol::CMD_READY) and
//! [`CMD_HEARD`](crate::protocol::CMD_HEARD), which have no reply and do nothing.
//!
//! A bridge that is away, because its connections were lost or the server was restarted, leaves a
//! [mark](Sharing::mark). As long as there is one, it counts as attached.

use std::fmt;
use std::sync::Arc;

/// Flag of [`OPT_ATTACH`](crate::protocol::OPT_ATTACH): the device was there before, and may be in use.
pub const RETURNS: u8 = 1;
/// Flag of [`OPT_ATTACH`](crate::protocol::OPT_ATTACH): a driver of the kernel takes the connection.
pub const FOR_KERNEL: u8 = 2;
/// Flag of [`OPT_ATTACH`](crate::protocol::OPT_ATTACH): the client sends no flushes, and each change is to be
/// durable before its reply.
pub const UNCACHED: u8 = 4;
/// All flags.
pub(crate) const FLAGS: u8 = RETURNS | FOR_KERNEL | UNCACHED;

/// Longest id of an opening.
pub const OPENING_BYTES_MAX: usize = 64;

/// Use of an export by others while it is attached.
#[derive(Clone, Default)]
pub struct Sharing {
    /// Id of the opening of the device, unlike that of any other device, before or after. At most
    /// [`OPENING_BYTES_MAX`] bytes; empty: bridges cannot name it.
    pub opening: String,
    /// Others may write. Nothing coordinates them with what is mounted on the device.
    pub shared_writes: bool,
    /// Returns whether a bridge on this machine has the device attached, connected or not. `None`: bridges
    /// leave no marks.
    pub mark: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Sharing {
    /// Returns whether there is a mark.
    pub(crate) fn is_marked(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark())
    }
}

impl fmt::Debug for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharing").field("shared_writes", &self.shared_writes).finish_non_exhaustive()
    }
}
