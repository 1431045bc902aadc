//! One measurement of a step.

use serde::{Deserialize, Serialize};

/// One step of one scene on one target, in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Bytes read and written.
    pub bytes: u64,
    /// Time, with the flush at the end.
    pub seconds: f64,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Median latency in microseconds.
    pub p50_us: Option<f64>,
    /// Latency that 99 of 100 requests did not exceed, in microseconds.
    pub p99_us: Option<f64>,
    /// CPU seconds of fio.
    pub client_cpu_seconds: f64,
    /// CPU seconds of the servers.
    pub server_cpu_seconds: Option<f64>,
    /// CPU seconds of a limited backing.
    pub device_cpu_seconds: Option<f64>,
    /// Logical over physical bytes, after the step.
    pub ratio: Option<f64>,
    /// Bytes that the data takes, after the step.
    pub physical_used_bytes: Option<u64>,
    /// Bytes written to the backing for each byte written by the host, during the step.
    pub write_amplification: Option<f64>,
    /// Whether the servers came to rest after the step, so that all their work for it is counted; `None`
    /// where nobody waited.
    #[serde(default)]
    pub came_to_rest: Option<bool>,
    /// How steady it was at its end, where that was asked; the figures are those of the last five rounds.
    #[serde(default)]
    pub steady: Option<Steady>,
}

/// How steady a job was at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Whether it came to a steady state. If not, the time was up, or 25 rounds were over.
    pub is_steady: bool,
    /// Rounds of the job until then.
    pub rounds_count: u32,
    /// Highest less lowest of the last five rounds, over their mean.
    pub range_share: f64,
    /// Rise or fall of the line through them, over their mean.
    pub slope_share: f64,
}
