//! The result of a run: the document behind `pumice bench --json`.

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use crate::failed_scene::FailedScene;
use crate::finding::Finding;
use crate::machine::Machine;
use crate::sample::Sample;
use crate::stats::Figure;
use crate::value::Value;

/// Version of the document. It changes when a reader of an older one would misread it.
pub(crate) const VERSION: u32 = 1;

/// Share of the processors that others may use on a quiet machine. Kernel threads of disks are among them.
const QUIET: f64 = 0.15;

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of this document.
    pub version: u32,
    /// The suite.
    pub suite: String,
    /// When it began, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Version of Pumice.
    pub program_version: String,
    /// Version of fio.
    pub fio_version: String,
    /// Processors that fio was confined to (`--fio-cpus`); `None`: all.
    #[serde(default)]
    pub fio_processors: Option<String>,
    /// Client that put and got objects, such as `own` or `warp 1.3.1`; `None` where there are no objects.
    #[serde(default)]
    pub s3_client: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// Size of stores that were made.
    pub size_bytes: u64,
    /// Time that was given.
    pub budget_seconds: f64,
    /// Time that it took.
    pub seconds: f64,
    /// Time of each timed job.
    pub job_seconds: u32,
    /// Rounds that were begun.
    pub rounds_count: u32,
    /// Share of the processors that other programs used meanwhile, kernel threads among them.
    pub others_cpu_share: Option<f64>,
    /// False if it was interrupted, if a scene failed, or if something was left out for want of time.
    pub complete: bool,
    /// Scenes that failed: not for want of a program or of time.
    #[serde(default)]
    pub failed: Vec<FailedScene>,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
    /// What is to be known of the figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Data sets that were written, and how much of them.
    #[serde(default)]
    pub data: Vec<RunData>,
    /// Targets with their headline figures, in the form that `pumice tco --from-bench` reads.
    pub targets: Vec<RunTarget>,
    /// Everything measured.
    pub series: Vec<Series>,
    /// What models of this program predicted.
    pub predictions: Vec<Prediction>,
    /// What the run says about statements of documents.
    pub findings: Vec<Finding>,
}

/// A data set, and how much of it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunData {
    /// Its name; that of its scene too.
    pub name: String,
    /// Folder or file.
    pub path: String,
    /// Bytes that were written, each file from the next block on.
    pub taken_bytes: u64,
    /// Bytes of all files that were found.
    pub all_bytes: u64,
}

impl RunData {
    /// How much was written, if not all: `230 of 1900 MB`.
    pub(crate) fn part(&self) -> Option<String> {
        let mb = |bytes: u64| (bytes as f64 / 1e6).max(1.0);
        let is_part = self.taken_bytes < self.all_bytes;
        is_part.then(|| format!("{:.0} of {:.0} MB", mb(self.taken_bytes), mb(self.all_bytes)))
    }
}

/// A target with its headline figures: medians of one step of the suite, sequential writes of compressible
/// data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTarget {
    /// Its name.
    pub name: String,
    /// Scene and step of these figures; `None` if it was not measured.
    pub measured_in: Option<String>,
    /// Throughput in MB/s of 10^6 bytes.
    pub mb_per_s: Option<f64>,
    /// Logical over physical bytes; of the same writes.
    pub ratio: Option<f64>,
    /// CPU time of the servers for each GB of 10^9 bytes.
    pub cpu_seconds_per_gb: Option<f64>,
    /// CPU time of fio for each GB.
    pub client_cpu_seconds_per_gb: Option<f64>,
}

/// One step of a scene on a target, in all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The scene.
    pub scene: String,
    /// The step.
    pub step: String,
    /// The job in words.
    pub job: String,
    /// The target.
    pub target: String,
    /// Throughput in MB/s of 10^6 bytes, reads and writes together.
    pub mb_per_s: Option<Figure>,
    /// Requests per second.
    pub requests_per_second: Option<Figure>,
    /// Median latency in microseconds.
    pub p50_us: Option<Figure>,
    /// Latency that 99 of 100 requests did not exceed, in microseconds.
    pub p99_us: Option<Figure>,
    /// CPU seconds of fio for each GB of 10^9 bytes.
    pub client_cpu_seconds_per_gb: Option<Figure>,
    /// CPU seconds of the servers of the target, for each GB.
    pub server_cpu_seconds_per_gb: Option<Figure>,
    /// CPU seconds of a limited backing, for each GB.
    pub device_cpu_seconds_per_gb: Option<Figure>,
    /// Logical over physical bytes, after the step.
    pub ratio: Option<Figure>,
    /// Bytes written to the backing for each byte written by the host, during the step.
    pub write_amplification: Option<Figure>,
    /// The rounds.
    pub samples: Vec<Sample>,
}

/// What a model of this program predicted, and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// What was predicted, with its unit.
    pub subject: String,
    /// The model.
    pub model: String,
    /// Predicted value.
    pub predicted: f64,
    /// Measured value; `None` if it was not.
    pub measured: Option<f64>,
}

impl Series {
    /// Computes the figures from the samples.
    pub(crate) fn summarize(&mut self) {
        let samples = &self.samples;
        let of = |value: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = samples.iter().map(value).collect();
            values.and_then(Figure::of)
        };
        let gb = |sample: &Sample| sample.bytes as f64 / 1e9;
        let per_gb = |sample: &Sample, seconds: Option<f64>| {
            seconds.filter(|_| sample.bytes > 0).map(|seconds| seconds / gb(sample))
        };
        // Discarding moves no bytes.
        self.mb_per_s = of(&|it| (it.bytes > 0).then(|| gb(it) * 1e3 / it.seconds));
        self.requests_per_second = of(&|it| (it.requests_per_second > 0.0).then_some(it.requests_per_second));
        self.p50_us = of(&|it| it.p50_us);
        self.p99_us = of(&|it| it.p99_us);
        self.client_cpu_seconds_per_gb = of(&|it| per_gb(it, Some(it.client_cpu_seconds)));
        self.server_cpu_seconds_per_gb = of(&|it| per_gb(it, it.server_cpu_seconds));
        self.device_cpu_seconds_per_gb = of(&|it| per_gb(it, it.device_cpu_seconds));
        self.ratio = of(&|it| it.ratio);
        self.write_amplification = of(&|it| it.write_amplification);
    }
}

impl Run {
    /// Reads the JSON of a run.
    ///
    /// # Errors
    /// Fails if it is something else, or of another version.
    pub fn parse(file: &str, text: &str) -> Result<Run> {
        let wrong = |problem: String| BenchError::Format { what: file.to_string(), problem };
        let run: Run = serde_json::from_str(text)
            .map_err(|error| wrong(format!("not what `pumice bench --json` writes: {error}")))?;
        if run.version != VERSION {
            return Err(wrong(format!("version {}, expected {VERSION}", run.version)));
        }
        Ok(run)
    }

    /// Whether jobs that write for a time were repeated until they were steady (`--steady-state`); `None` if
    /// there were none.
    pub(crate) fn is_to_steady(&self) -> Option<bool> {
        let samples = || self.series.iter().flat_map(|series| &series.samples);
        samples().next()?;
        Some(samples().any(|sample| sample.steady.is_some()))
    }

    /// Returns the share of the processors that others used, if it was more than on a quiet machine.
    pub(crate) fn busy_share(&self) -> Option<f64> {
        self.others_cpu_share.filter(|share| *share > QUIET)
    }

    /// Returns the series of a step on a target.
    pub(crate) fn series(&self, scene: &str, step: &str, target: &str) -> Option<&Series> {
        self.series.iter().find(|it| it.scene == scene && it.step == step && it.target == target)
    }

    /// Returns the throughput of a step on a target, in MB/s.
    pub(crate) fn speed(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        self.series(scene, step, target)?.mb_per_s.map(Value::speed)
    }

    /// Returns the requests per second of a step.
    pub(crate) fn requests(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        self.series(scene, step, target)?.requests_per_second.map(Value::speed)
    }

    /// Returns written bytes over those they take, of a step that wrote each byte once. Zeros are no data, so
    /// there is no ratio of them.
    pub(crate) fn written_over_used(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        let series = self.series(scene, step, target)?;
        let one = |it: &Sample| Some(it.bytes as f64 / it.physical_used_bytes?.max(1) as f64);
        let values: Option<Vec<f64>> = series.samples.iter().map(one).collect();
        values.and_then(Figure::of).map(Value::space)
    }

    /// Returns the ratio after a step.
    pub(crate) fn ratio(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        self.series(scene, step, target)?.ratio.map(Value::space)
    }

    /// Returns the write amplification of a step.
    pub(crate) fn write_amplification(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        self.series(scene, step, target)?.write_amplification.map(Value::space)
    }

    /// Returns the CPU seconds of client and servers for each GB of a step.
    pub(crate) fn cpu_per_gb(&self, scene: &str, step: &str, target: &str) -> Option<Value> {
        let series = self.series(scene, step, target)?;
        let (client, server) = (series.client_cpu_seconds_per_gb?, series.server_cpu_seconds_per_gb?);
        Some(Value::speed(client).with(Value::speed(server), |client, server| client + server))
    }

    /// Notes something once.
    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Sets the headline figures of the targets from a step.
    pub(crate) fn set_headlines(&mut self, scene: &str, step: &str) {
        let median = |figure: Option<Figure>| figure.map(|figure| figure.median);
        for at in 0..self.targets.len() {
            let Some(series) = self.series(scene, step, &self.targets[at].name) else { continue };
            let found = RunTarget {
                name: self.targets[at].name.clone(),
                measured_in: Some(format!("{scene}: {step}, {}", series.job)),
                mb_per_s: median(series.mb_per_s),
                ratio: median(series.ratio),
                cpu_seconds_per_gb: median(series.server_cpu_seconds_per_gb),
                client_cpu_seconds_per_gb: median(series.client_cpu_seconds_per_gb),
            };
            self.targets[at] = found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_from_samples() {
        let sample = |seconds| Sample {
            bytes: 1_000_000_000,
            seconds,
            client_cpu_seconds: 0.5,
            ratio: Some(2.0),
            ..Sample::default()
        };
        let mut series = Series { samples: [2.0, 4.0, 5.0].map(sample).to_vec(), ..Series::default() };
        series.summarize();
        let speed = series.mb_per_s.expect("a speed");
        assert_eq!((speed.median, speed.low, speed.high, speed.count), (250.0, 200.0, 500.0, 3));
        assert_eq!(series.client_cpu_seconds_per_gb.expect("a time").median, 0.5);
        assert_eq!(series.server_cpu_seconds_per_gb, None);
        assert_eq!(series.ratio.expect("a ratio").median, 2.0);
    }

    #[test]
    fn zeros_have_no_ratio_and_take_little() {
        let sample = |used| Sample { bytes: 1 << 20, physical_used_bytes: used, ..Sample::default() };
        let run = |samples: Vec<Sample>| {
            let series = Series {
                scene: "100 %".to_string(),
                step: "write".to_string(),
                samples,
                ..Series::default()
            };
            Run { series: vec![series], ..Run::default() }
        };
        let taken = |run: Run| run.written_over_used("100 %", "write", "").map(|value| value.median());
        assert_eq!(taken(run(vec![sample(Some(1 << 10)), sample(Some(1 << 10))])), Some(1024.0));
        // Not even a header.
        assert_eq!(taken(run(vec![sample(Some(0))])), Some((1 << 20) as f64));
        assert_eq!(taken(run(vec![sample(None)])), None);
        assert_eq!(taken(run(vec![])), None);
    }

    #[test]
    fn runs_are_read_again() {
        let run = Run { version: VERSION, suite: "quick".to_string(), ..Run::default() };
        let text = serde_json::to_string(&run).expect("JSON");
        assert_eq!(Run::parse("a.json", &text).expect("a run"), run);
        let error = Run::parse("a.json", "{}").expect_err("no run").to_string();
        assert!(error.starts_with("a.json: not what `pumice bench --json` writes"), "{error}");
        let text = text.replace("\"version\":1", "\"version\":9");
        assert!(Run::parse("a.json", &text).expect_err("new").to_string().contains("version 9, expected 1"));
    }
}
