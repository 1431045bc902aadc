//! Results of fio, from its JSON.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{BenchError, Result};

/// The parts of fio's JSON that are used. Others are ignored.
#[derive(Deserialize)]
struct Output {
    jobs: Vec<OutputJob>,
}

#[derive(Deserialize)]
struct OutputJob {
    error: i32,
    read: Direction,
    write: Direction,
    trim: Direction,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    /// Milliseconds, with the flush at the end.
    runtime: u64,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

/// What a job of fio did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// Time from submission to completion that half of the requests did not exceed, in microseconds; of reads
    /// if there were any.
    pub(crate) p50_us: Option<f64>,
    /// As `p50_us`, for 99 of 100.
    pub(crate) p99_us: Option<f64>,
    /// CPU time of fio.
    pub(crate) cpu_seconds: f64,
}

impl Measured {
    /// Reads the JSON of a run with one job or one group of jobs.
    pub(crate) fn parse(text: &str, cpu_seconds: f64) -> Result<Measured> {
        let wrong = |problem: String| BenchError::Format { what: "results of fio".to_string(), problem };
        // Messages may come before the JSON.
        let start = text.find('{').ok_or_else(|| wrong("no JSON".to_string()))?;
        let output: Output =
            serde_json::from_str(&text[start..]).map_err(|error| wrong(error.to_string()))?;
        let [job] = output.jobs.as_slice() else {
            return Err(wrong(format!("expected one group of jobs, found {}", output.jobs.len())));
        };
        if job.error != 0 {
            let error = std::io::Error::from_raw_os_error(job.error);
            return Err(BenchError::program("fio", error.to_string()));
        }
        let directions = [&job.read, &job.write, &job.trim];
        let requests = directions.iter().map(|direction| direction.total_ios).sum();
        let millis = directions.iter().map(|direction| direction.runtime).max().unwrap_or(0);
        if requests == 0 || millis == 0 {
            return Err(wrong("no request was completed".to_string()));
        }
        let timed = directions.into_iter().find(|direction| direction.total_ios > 0);
        let percentile = |key: &str| timed.and_then(|it| it.clat_ns.percentile.get(key)).map(|ns| ns / 1e3);
        Ok(Measured {
            read_bytes: job.read.io_bytes,
            written_bytes: job.write.io_bytes,
            requests,
            seconds: millis as f64 / 1e3,
            p50_us: percentile("50.000000"),
            p99_us: percentile("99.000000"),
            cpu_seconds,
        })
    }

    /// Bytes read and written.
    pub(crate) fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(error: i32, bytes: u64) -> String {
        let idle = r#"{"io_bytes": 0, "total_ios": 0, "runtime": 0, "clat_ns": {"mean": 0.0}}"#;
        let write = format!(
            r#"{{"io_bytes": {bytes}, "total_ios": {}, "runtime": 2000, "clat_ns": {{"percentile": {{"50.000000": 1500, "99.000000": 9000}}}}}}"#,
            bytes / 4096
        );
        format!(
            r#"fio: connected
            {{"fio version": "fio-3.33", "jobs": [{{"error": {error}, "read": {idle}, "write": {write}, "trim": {idle}}}]}}"#
        )
    }

    #[test]
    fn results_are_read() {
        let measured = Measured::parse(&output(0, 8192), 0.5).expect("results");
        assert_eq!(measured.written_bytes, 8192);
        assert_eq!(measured.requests, 2);
        assert_eq!(measured.seconds, 2.0);
        assert_eq!((measured.p50_us, measured.p99_us), (Some(1.5), Some(9.0)));
        assert_eq!(measured.bytes(), 8192);
    }

    #[test]
    fn failures_are_errors() {
        let error = Measured::parse(&output(28, 8192), 0.0).expect_err("no space");
        assert!(error.to_string().starts_with("fio: No space left"), "{error}");
        for bad in ["", "{}", "{\"jobs\": []}", &output(0, 0)] {
            assert!(Measured::parse(bad, 0.0).is_err(), "{bad}");
        }
    }
}
