//! What a device that compresses has done, as `--json` prints it.

use offload::Statistics;
use serde::{Deserialize, Serialize};

/// The device that compresses for a server's drives. All of them share it: these are sums over them, since the server was
/// started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are the interface and say it")]
pub struct OffloadReport {
    /// As it was asked for: `qat` or `qat:PATH`.
    pub name: String,
    pub device_jobs_count: u64,
    pub device_input_bytes: u64,
    /// What was stored of these.
    pub device_output_bytes: u64,
    /// Done by the processor because the device could not take them.
    pub software_jobs_count: u64,
    pub software_input_bytes: u64,
    pub incompressible_jobs_count: u64,
    pub busy_count: u64,
    pub failed_count: u64,
    /// Sessions given up after failures.
    pub given_up_count: u64,
    /// Batches that the processor did because too many were waiting.
    pub queue_full_count: u64,
}

impl OffloadReport {
    pub(crate) fn new(name: &str, told: Statistics) -> OffloadReport {
        OffloadReport {
            name: name.to_string(),
            device_jobs_count: told.device_jobs,
            device_input_bytes: told.device_input_bytes,
            device_output_bytes: told.device_output_bytes,
            software_jobs_count: told.software_jobs,
            software_input_bytes: told.software_input_bytes,
            incompressible_jobs_count: told.incompressible_jobs,
            busy_count: told.busy,
            failed_count: told.failed,
            given_up_count: told.given_up,
            queue_full_count: told.queue_full,
        }
    }
}
