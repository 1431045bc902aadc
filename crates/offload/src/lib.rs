//! Asynchronous compression outside the engine.
//!
//! An [`Offload`] takes a batch of blocks or frames and returns a future of their payloads. A drive that has
//! one gives it what it would have given [`codec::Compressor`]; what comes back is an ordinary payload, which
//! any [`codec::Decompressor`] reads. There is no runtime in here: the future is woken from the thread that
//! finished the batch.
//!
//! [`Workers`] turns a [`Device`] into an offload: threads that own a session each, a queue with a limit, and
//! the CPU for whatever the device cannot take. [`Qat`] is such a device: Intel QAT by QATzip's library,
//! loaded at run time. An engine whose library has completions of its own can be an [`Offload`] directly, by
//! [`Batch::channel`].
//!
//! ```no_run
//! # async fn example() -> Result<(), offload::StartError> {
//! use offload::{Job, Offload, Options};
//!
//! let choice: offload::Choice = "qat".parse().expect("known");
//! if let Some(offload) = choice.start(Options::default())? {
//!     let done = offload.compress(vec![Job { input: vec![0; 4096].into() }]).await;
//!     println!("{} bytes, by {:?}: {}", done[0].payload.len(), done[0].executor, offload.statistics());
//! }
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod batch;
mod choice;
mod device;
#[allow(unsafe_code, reason = "a C library loaded at run time")]
mod qat;
mod simulated;
mod statistics;
mod workers;

pub use batch::{Batch, Completer, Done, Executor, Job, in_software};
pub use choice::{Choice, ParseChoiceError};
pub use device::{Device, DeviceError, OpenError, Session};
pub use qat::Qat;
pub use simulated::Simulated;
pub use statistics::Statistics;
pub use workers::{Options, StartError, Workers};

/// A place where batches are compressed.
pub trait Offload: Send + Sync {
    /// Takes a batch; its results come in the order of the jobs. Never blocks (but [`Simulated`] does) and
    /// never fails: what the device cannot do is done by the CPU, at worst in this call or in the future's
    /// own poll. A batch whose future is dropped may be done in vain, or not at all.
    fn compress(&self, jobs: Vec<Job>) -> Batch;

    /// Returns the work done so far, by the device and by the CPU.
    fn statistics(&self) -> Statistics;
}
