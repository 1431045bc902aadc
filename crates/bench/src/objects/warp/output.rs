//! Results of warp, from the JSON of `warp analyze --json`.
//!
//! There are two forms of it. Since 1.1 an operation has its sums, the throughput of the seconds in the
//! middle, and latencies of pieces of ten seconds. Before, it has rates and latencies of all its requests.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::{BenchError, Result};
use crate::fio::Measured;
use crate::objects::ObjectJob;

/// The parts that are used. Others are ignored.
#[derive(Deserialize)]
struct Analysis {
    /// Since 1.1.
    by_op_type: Option<BTreeMap<String, Sums>>,
    /// Before 1.1.
    operations: Option<Vec<Operation>>,
}

#[derive(Deserialize)]
struct Sums {
    total_requests: u64,
    total_errors: u64,
    total_bytes: u64,
    first_errors: Option<Vec<String>>,
    throughput: Throughput,
    requests_by_client: Option<BTreeMap<String, Vec<Piece>>>,
}

#[derive(Deserialize)]
struct Throughput {
    measure_duration_millis: u64,
    /// Since 1.1.
    #[serde(default)]
    bytes: f64,
    /// Before 1.1.
    #[serde(default)]
    average_bps: f64,
}

#[derive(Deserialize)]
struct Piece {
    single_sized_requests: Option<Latencies>,
}

#[derive(Deserialize)]
struct Latencies {
    requests: u64,
    dur_median_millis: f64,
    dur_99_millis: f64,
    /// Pieces of which the times are the sum.
    #[serde(default)]
    merged_entries: u64,
}

#[derive(Deserialize)]
struct Operation {
    #[serde(rename = "type")]
    kind: String,
    n: u64,
    errors: u64,
    first_errors: Option<Vec<String>>,
    throughput: Throughput,
    single_sized_requests: Option<Latencies>,
}

/// Reads the figures of a job. Requests that failed are a failure of the job.
pub(super) fn parse(text: &str, job: &ObjectJob, cpu_seconds: f64) -> Result<Measured> {
    let wrong = |problem: String| BenchError::Format { what: "results of warp".to_string(), problem };
    // Messages may come before the JSON, and behind it.
    let start = text.find('{').ok_or_else(|| wrong("no JSON".to_string()))?;
    let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Analysis>();
    let analysis = documents.next().ok_or_else(|| wrong("no JSON".to_string()))?;
    let analysis = analysis.map_err(|error| wrong(error.to_string()))?;
    let name = if job.is_put { "PUT" } else { "GET" };
    let sums = analysis.by_op_type.and_then(|mut all| all.remove(name));
    let sums = match sums {
        Some(sums) => Some(sums),
        None => analysis.operations.into_iter().flatten().find(|it| it.kind == name).map(|it| Sums {
            total_requests: it.n,
            total_errors: it.errors,
            total_bytes: it.n * (u64::from(job.object_kib) << 10),
            first_errors: it.first_errors,
            throughput: it.throughput,
            requests_by_client: it.single_sized_requests.map(|all| {
                BTreeMap::from([(String::new(), vec![Piece { single_sized_requests: Some(all) }])])
            }),
        }),
    };
    let sums = sums.ok_or_else(|| wrong(format!("no figures of {name}")))?;
    if sums.total_errors > 0 {
        let first = sums.first_errors.into_iter().flatten().next().unwrap_or_default();
        let first = first.lines().next().unwrap_or_default().to_string();
        let problem = format!("{} of {} requests failed: {first}", sums.total_errors, sums.total_requests);
        return Err(BenchError::program("warp", problem));
    }
    let seconds = sums.throughput.measure_duration_millis as f64 / 1000.0;
    let rate = match sums.throughput.bytes > 0.0 && seconds > 0.0 {
        true => sums.throughput.bytes / seconds,
        false => sums.throughput.average_bps,
    };
    if rate <= 0.0 || sums.total_bytes == 0 {
        // A job that puts is not made longer: it would fill the gateway's disks.
        let remedy = match job.is_put {
            true => "the gateway is too slow for warp: give --s3-client own",
            false => "give it more time (--minutes)",
        };
        return Err(BenchError::TooFew { program: "warp", requests: sums.total_requests, remedy });
    }
    let pieces = sums.requests_by_client.unwrap_or_default();
    let latencies: Vec<Latencies> =
        pieces.into_values().flatten().filter_map(|piece| piece.single_sized_requests).collect();
    let mean_us = |millis: fn(&Latencies) -> f64| {
        let count: u64 = latencies.iter().map(|it| it.requests).sum();
        let each =
            latencies.iter().map(|it| millis(it) / it.merged_entries.max(1) as f64 * it.requests as f64);
        (count > 0).then(|| each.sum::<f64>() / count as f64 * 1e3)
    };
    let (read_bytes, written_bytes) = if job.is_put { (0, sums.total_bytes) } else { (sums.total_bytes, 0) };
    Ok(Measured {
        read_bytes,
        written_bytes,
        requests: sums.total_requests,
        // All bytes at the rate of the middle: begin and end, when not all clients have a request, are not in
        // it.
        seconds: sums.total_bytes as f64 / rate,
        p50_us: mean_us(|it| it.dur_median_millis),
        p99_us: mean_us(|it| it.dur_99_millis),
        cpu_seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(is_put: bool) -> ObjectJob {
        ObjectJob { is_put, object_kib: 4096, clients: 20, zeros_percent: 25, warp: None }
    }

    fn new(errors: u64, bytes: u64) -> String {
        format!(
            r#"Loading...
            {{"v": 2, "commandline": "warp put", "final": true, "total": {{}}, "by_op_type": {{"PUT": {{
              "total_requests": 100, "total_errors": {errors}, "total_bytes": 419430400,
              "first_errors": ["upload error: denied\nmore"],
              "throughput": {{"measure_duration_millis": 2000, "bytes": {bytes}, "objects": 50, "ops": 50}},
              "requests_by_client": {{"abcd": [
                {{"single_sized_requests": {{"requests": 75, "dur_median_millis": 10.0, "dur_99_millis": 40.0, "merged_entries": 1}}}},
                {{"single_sized_requests": {{"requests": 25, "dur_median_millis": 36.0, "dur_99_millis": 160.0, "merged_entries": 2}}}},
                {{}}]}}}}}}}}
            Cleanup Done."#
        )
    }

    #[test]
    fn figures_of_new_versions() {
        let found = parse(&new(0, 200_000_000), &job(true), 1.5).expect("figures");
        assert_eq!((found.read_bytes, found.written_bytes, found.requests), (0, 419_430_400, 100));
        // 100 MB/s.
        assert!((found.seconds - 4.194_304).abs() < 1e-9, "{found:?}");
        assert_eq!((found.p50_us, found.p99_us), (Some(12_000.0), Some(50_000.0)));
        assert_eq!(found.cpu_seconds, 1.5);
    }

    #[test]
    fn figures_of_old_versions() {
        let text = r#"{"type": "single", "mixed": false, "operations": [
            {"type": "PUT", "n": 3, "errors": 0, "first_errors": null, "skipped": false,
             "throughput": {"measure_duration_millis": 1000, "average_bps": 1, "average_ops": 1, "operations": 3}},
            {"type": "GET", "n": 10, "errors": 0, "first_errors": null, "skipped": false,
             "throughput": {"measure_duration_millis": 5000, "average_bps": 8388608.5, "average_ops": 2, "operations": 9},
             "single_sized_requests": {"requests": 9, "obj_size": 4194304, "dur_median_millis": 480, "dur_99_millis": 700}}]}"#;
        let found = parse(text, &job(false), 0.0).expect("figures");
        assert_eq!((found.read_bytes, found.written_bytes, found.requests), (41_943_040, 0, 10));
        assert!((found.seconds - 5.0).abs() < 1e-6, "{found:?}");
        assert_eq!((found.p50_us, found.p99_us), (Some(480_000.0), Some(700_000.0)));
    }

    #[test]
    fn jobs_of_a_slow_gateway() {
        // As warp 1.0.7 has it, of 62 requests of four seconds each: none was begun and ended in the middle.
        let text = r#"{"type": "single", "operations": [{"type": "PUT", "n": 62, "errors": 0, "skipped": false,
            "throughput": {"errors": 0, "measure_duration_millis": 1339, "average_bps": 27405370.4, "average_ops": 6.53,
                "operations": 0},
            "single_sized_requests": {"requests": 0, "dur_median_millis": 0, "dur_99_millis": 0}}]}"#;
        let found = parse(text, &job(true), 0.0).expect("figures");
        assert_eq!((found.written_bytes, found.requests), (62 << 22, 62));
        assert!((found.seconds - 9.489).abs() < 1e-3, "{found:?}");
        assert_eq!((found.p50_us, found.p99_us), (None, None));
        // Of 40 requests, two of each client, nothing is in the middle.
        let skipped = r#"{"type": "single", "operations": [{"type": "PUT", "n": 40, "errors": 0, "skipped": true,
            "throughput": {"errors": 0, "measure_duration_millis": 0, "average_bps": 0, "average_ops": 0, "operations": 0}}]}"#;
        let problem = parse(skipped, &job(true), 0.0).expect_err("no figures").to_string();
        assert!(problem.starts_with("warp: too few requests for a figure, 40: "), "{problem}");
    }

    #[test]
    fn failures_are_one_line() {
        let fails = |text: &str, is_put| parse(text, &job(is_put), 0.0).expect_err("a failure").to_string();
        assert_eq!(fails(&new(7, 1), true), "warp: 7 of 100 requests failed: upload error: denied");
        let slow = "warp: too few requests for a figure, 100: the gateway is too slow for warp: give --s3-client own";
        assert_eq!(fails(&new(0, 0), true), slow);
        let gets = new(0, 0).replace("PUT", "GET");
        assert!(
            fails(&gets, false)
                .ends_with("too few requests for a figure, 100: give it more time (--minutes)")
        );
        assert!(fails(&new(0, 1), false).ends_with("no figures of GET"));
        for text in ["", "nothing", "{", "{}", r#"{"by_op_type": 3}"#, r#"{"status": "error"}"#] {
            assert!(fails(text, true).starts_with("results of warp: "), "{text}");
        }
    }
}
