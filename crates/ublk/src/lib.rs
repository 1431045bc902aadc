//! The server's side of a device of the kernel's `ublk` driver: queues of requests, executed on anything with
//! the [`Device`](device::Device) trait.
//!
//! ```text
//! file system -- /dev/ublkbN -- driver -- queue (io_uring on /dev/ublkcN) -- Device
//!                                  \----- data (reads and writes of /dev/ublkcN)
//! ```
//!
//! * [`Info`] and [`Parameters`] are the driver's structures, for whoever makes the device: that is not done
//!   here.
//! * [`Ring`] and [`Queue`] fetch requests and answer them; [`Data`] copies what they read and write.
//! * [`IdleQueue`] and [`serve()`] execute the requests of a queue on a device.
//!
//! The device is made so that it survives its server (`UBLK_F_USER_RECOVERY`,
//! `UBLK_F_USER_RECOVERY_REISSUE`): the driver issues what a server has not answered to the next one again.
//! Tags are the driver's, and the same request has another one then.
//!
//! # Threads
//!
//! The thread that fetches a queue's first requests sends all its commands, or the driver refuses them. Linux
//! before 6.16 also takes the end of this thread, not that of the ring, for the end of a server: it warns
//! about a takeover from a thread that lives, and a queue whose requests are all with the server waits for
//! the end of the thread for ever. So a queue has a thread of its own, which ends with it. The futures of the
//! device run there, too. What wakes them wakes the thread's runtime, as do completions of the ring, by its
//! eventfd. The ring is closed [after](IdleQueue::hold) the end of the thread.
//!
//! # Data
//!
//! Data is copied by reads and writes of the driver's own device (`UBLK_F_USER_COPY`), only by the thread of
//! the queue: if a server ends in the middle of a copy by another thread, Linux before 6.16 fails that
//! request. Zero copy (`UBLK_F_SUPPORT_ZERO_COPY`, `UBLK_F_AUTO_BUF_REG`) gives io_uring the pages of a
//! request, not the server: it fits a server that passes data on, not one that compresses it.

#![deny(unsafe_code)]

mod buffers;
mod data;
mod driver;
mod execute;
mod request;
mod ring;
mod serve;
mod structures;

pub use data::Data;
pub use driver::{IdleQueue, OpenQueue};
pub use execute::{Assign, Assignment};
pub use request::{Operation, Request, Unknown};
pub use ring::{AGAIN, Event, Queue, Ring, passes};
pub use serve::{Options, serve};
pub use structures::{INFO_BYTES, Info, PARAMETERS_BYTES, Parameters, SECTOR_SHIFT};
