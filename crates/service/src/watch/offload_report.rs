//! Report of a device that compresses.

use offload::Statistics;
use status::OffloadReport;

/// Reports the device that compresses for a server's drives, as named on the command line.
pub(crate) fn offload_report(name: &str, statistics: Statistics) -> OffloadReport {
    OffloadReport {
        name: name.to_string(),
        device_jobs_count: statistics.device_jobs,
        device_input_bytes: statistics.device_input_bytes,
        device_output_bytes: statistics.device_output_bytes,
        software_jobs_count: statistics.software_jobs,
        software_input_bytes: statistics.software_input_bytes,
        incompressible_jobs_count: statistics.incompressible_jobs,
        busy_count: statistics.busy,
        failed_count: statistics.failed,
        given_up_count: statistics.given_up,
        queue_full_count: statistics.queue_full,
    }
}
