//! Statistics of an offload.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Done, Executor};

/// Work of an offload since it was started. Jobs are counted when they are finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Jobs done by the device.
    pub device_jobs: u64,
    /// Bytes of input of those.
    pub device_input_bytes: u64,
    /// Bytes stored for those.
    pub device_output_bytes: u64,
    /// Jobs done by the CPU because the device could not take them.
    pub software_jobs: u64,
    /// Bytes of input of those.
    pub software_input_bytes: u64,
    /// Jobs stored uncompressed because they looked incompressible.
    pub incompressible_jobs: u64,
    /// Times that the device reported to be busy.
    pub busy: u64,
    /// Times that the device failed, or returned something that does not decompress to the input.
    pub failed: u64,
    /// Times that a session was closed after failures, to be opened again later.
    pub given_up: u64,
    /// Batches done by the CPU at once because the queue was full.
    pub queue_full: u64,
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} done by device, {} in software, {} incompressible ({} busy, {} failed, {} queue full)",
            self.device_jobs,
            self.software_jobs,
            self.incompressible_jobs,
            self.busy,
            self.failed,
            self.queue_full
        )
    }
}

/// Statistics counted by several threads.
#[derive(Default)]
pub(crate) struct Counters {
    device_jobs: AtomicU64,
    device_input_bytes: AtomicU64,
    device_output_bytes: AtomicU64,
    software_jobs: AtomicU64,
    software_input_bytes: AtomicU64,
    incompressible_jobs: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) queue_full: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn job(&self, input_bytes: usize, done: &Done) {
        match done.executor {
            Executor::Device => {
                let output_bytes = if done.payload.is_empty() { input_bytes } else { done.payload.len() };
                count(&self.device_jobs, 1);
                count(&self.device_input_bytes, input_bytes);
                count(&self.device_output_bytes, output_bytes);
            }
            Executor::Software => {
                count(&self.software_jobs, 1);
                count(&self.software_input_bytes, input_bytes);
            }
            Executor::Skipped => count(&self.incompressible_jobs, 1),
        }
    }

    pub(crate) fn read(&self) -> Statistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            device_jobs: read(&self.device_jobs),
            device_input_bytes: read(&self.device_input_bytes),
            device_output_bytes: read(&self.device_output_bytes),
            software_jobs: read(&self.software_jobs),
            software_input_bytes: read(&self.software_input_bytes),
            incompressible_jobs: read(&self.incompressible_jobs),
            busy: read(&self.busy),
            failed: read(&self.failed),
            given_up: read(&self.given_up),
            queue_full: read(&self.queue_full),
        }
    }
}
