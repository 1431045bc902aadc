//! warp, MinIO's benchmark of S3: found, checked, run on a bucket, its analysis read.
//!
//! warp empties its bucket before and after a benchmark. `--noclear` keeps it from both, and so that nothing
//! depends on that alone, it is run on buckets only that hold no objects of others. Its keys go by the
//! environment, which other users do not see.

mod output;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::fio::Measured;
use crate::objects::{Access, ObjectJob};
use crate::process::{self, Stop};

/// Oldest warp with all options that are used.
const OLDEST: (u32, u32, u32) = (0, 8, 0);
/// First warp without its generator of CSV.
const WITHOUT_CSV: (u32, u32, u32) = (1, 0, 8);
/// Shortest job, in seconds: the analysis leaves out two at each end, and needs more than one between.
const SECONDS_MIN: u32 = 8;
/// Longest job that puts: it puts as much as the gateway takes in this time.
const PUT_SECONDS_MAX: u32 = 10;
/// What it takes besides: it waits for three seconds before it begins.
const BESIDES_SECONDS: f64 = 4.0;
/// Time beyond that of a job after which warp is given up.
const LATE: Duration = Duration::from_secs(60);
/// Pieces that the analysis cuts a job into: before 1.1 it has no figures of a job unless two of them fit
/// between the end of each client's first request and the begin of each one's last. By default they are of a
/// second.
const PIECES: &str = "--analyze.dur=100ms";
/// Name of the file with results, without what warp adds to it.
const RESULTS: &str = "warp-results";
/// What warp would also take from the environment, which would make it another benchmark.
const UNSET: [&str; 4] = ["WARP_INFLUXDB_CONNECT", "WARP_RDMA", "WARP_STS_ENDPOINT", "WARP_STS_WEB_TOKEN"];

/// An installed warp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warp {
    program: PathBuf,
    version: String,
    makes_csv: bool,
}

impl Warp {
    /// Finds the one installed.
    pub(crate) fn find(folder: &Path, stop: &Stop) -> Result<Warp> {
        let missing = || BenchError::program("warp", "not in PATH: install it, or give --s3-client own");
        Warp::at(process::find("warp").ok_or_else(missing)?, folder, stop)
    }

    /// Asks a program whether it is a warp that will do.
    pub(crate) fn at(program: PathBuf, folder: &Path, stop: &Stop) -> Result<Warp> {
        let said = process::run(&program, &["--version"], folder, LATE, stop)?.output;
        let said = said.trim().lines().next().unwrap_or_default();
        let wrong = |problem: &str| BenchError::program("warp", format!("{problem}, it says {said:?}"));
        let version = version_of(said).ok_or_else(|| wrong("not MinIO's benchmark of S3"))?;
        // One that was built from a branch calls itself "(dev)": taken to be new.
        let number = number(version);
        if number.is_some_and(|number| number < OLDEST) {
            return Err(wrong("too old, expected 0.8.0 or newer"));
        }
        let makes_csv = number.is_some_and(|number| number < WITHOUT_CSV);
        Ok(Warp { program, version: version.to_string(), makes_csv })
    }

    /// Its name and version, such as `warp 1.3.1`.
    pub(crate) fn text(&self) -> String {
        format!("warp {}", self.version)
    }

    /// Whether it makes the document's data, a CSV whose ratio is 4:3. Else its data is random.
    pub(crate) fn makes_csv(&self) -> bool {
        self.makes_csv
    }

    /// What its data is.
    pub(crate) fn data_text(&self) -> &'static str {
        if self.makes_csv { "CSV" } else { "random data" }
    }

    /// Time of a job of about `seconds`.
    fn job_seconds(is_put: bool, seconds: u32) -> u32 {
        seconds.clamp(SECONDS_MIN, if is_put { PUT_SECONDS_MAX } else { u32::MAX })
    }

    /// Time that a job of about `seconds` takes with all that belongs to it.
    pub(crate) fn expected_seconds(is_put: bool, seconds: u32) -> f64 {
        f64::from(Warp::job_seconds(is_put, seconds)) + BESIDES_SECONDS
    }

    fn arguments(&self, job: &ObjectJob, access: &Access, seconds: u32, results: &Path) -> Vec<String> {
        let prefix = access.prefix();
        let mut all = match job.is_put {
            // It adds a slash and a name of each client.
            true => vec!["put".to_string(), format!("--prefix={}", prefix.trim_end_matches('/'))],
            // What it put: objects of its own would be put without a figure.
            false => vec!["get".to_string(), format!("--prefix={prefix}"), "--list-existing".to_string()],
        };
        all.extend(["--noclear", "--quiet", "--no-color"].map(str::to_string));
        all.push(format!("--bucket={}", access.bucket_name()));
        all.push(format!("--concurrent={}", job.clients));
        all.push(format!("--duration={seconds}s"));
        all.push(format!("--benchdata={}", results.display()));
        if job.is_put {
            let generator = if self.makes_csv { "csv" } else { "random" };
            all.push(format!("--obj.size={}KiB", job.object_kib));
            all.push(format!("--obj.generator={generator}"));
            all.extend(access.class().map(|class| format!("--storage-class={class}")));
        }
        all
    }

    /// Puts objects for a time of about `seconds`, or gets those that were put. Files go to `folder`.
    pub(crate) fn run(
        &self,
        job: &ObjectJob,
        access: &Access,
        seconds: u32,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Measured> {
        let seconds = Warp::job_seconds(job.is_put, seconds);
        if !job.is_put {
            return self.measure(job, access, seconds, folder, stop);
        }
        if let Some(problem) = in_use(access, stop)? {
            return Err(BenchError::program("warp", problem));
        }
        access.will_be_put_to();
        // Without figures, too, and if it ended well, as it does if requests fail: the gateway may be storing
        // what one without an answer brought.
        self.measure(job, access, seconds, folder, stop).inspect_err(|_| access.was_cut())
    }

    fn measure(
        &self,
        job: &ObjectJob,
        access: &Access,
        seconds: u32,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Measured> {
        let results = folder.join(RESULTS);
        // The first is of 1.1 and newer, the other of older ones.
        let files = ["json.zst", "csv.zst"].map(|ending| folder.join(format!("{RESULTS}.{ending}")));
        files.iter().for_each(|file| drop(std::fs::remove_file(file)));
        let own = access.warp_environment();
        let unset = UNSET.iter().map(|name| (*name, Path::new("")));
        let environment: Vec<(&str, &Path)> =
            own.iter().map(|(name, value)| (*name, Path::new(value))).chain(unset).collect();
        let arguments = self.arguments(job, access, seconds, &results);
        let limit = Duration::from_secs(u64::from(seconds)) * 3 + LATE;
        let ended = process::run_with(&self.program, &arguments, &environment, folder, limit, stop);
        let ended = ended.map_err(without_name)?;
        let none = || BenchError::program("warp", "it ended without results");
        let file = files.iter().find(|file| file.is_file()).ok_or_else(none)?.display().to_string();
        let ask = ["analyze", "--json", "--quiet", "--no-color", PIECES, &file];
        let analysis = process::run(&self.program, &ask, folder, LATE, stop).map_err(without_name)?.output;
        output::parse(&analysis, job, ended.cpu_seconds)
    }
}

/// Says why warp is not for a bucket that holds objects; `None` if it holds none.
pub(crate) fn in_use(access: &Access, stop: &Stop) -> Result<Option<String>> {
    let problem = |key| {
        let bucket = access.bucket_name();
        format!(
            "the bucket {bucket} holds objects, such as {key}, and warp is for empty buckets only: name one, or give \
             --s3-client own"
        )
    };
    Ok(access.first_key(stop)?.map(problem))
}

/// What warp said, without the name that it puts before each error, as the error has it.
fn without_name(error: BenchError) -> BenchError {
    match error {
        BenchError::Program { program, problem, was_killed } => {
            let problem = problem.strip_prefix("warp: <ERROR> ").unwrap_or(&problem).to_string();
            BenchError::Program { program, problem, was_killed }
        }
        error => error,
    }
}

/// The version in `warp version 1.3.1 - 0123abc`.
fn version_of(said: &str) -> Option<&str> {
    said.strip_prefix("warp version ")?.split_whitespace().next()
}

/// The parts of a version such as `1.3.1` or `v1.1.0-rc`.
fn number(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next().and_then(|it| it.ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::objects::tests::{gateway, listed};

    fn job(is_put: bool) -> ObjectJob {
        ObjectJob { is_put, object_kib: 4096, clients: 20, zeros_percent: 25, warp: None }
    }

    /// A script in place of warp, which notes its arguments and does `put` for a benchmark.
    fn fake(folder: &Path, version: &str, put: &str) -> Result<Warp> {
        let figures = r#"{"total_requests": 100, "total_errors": 0, "total_bytes": 419430400, "first_errors": null,
            "throughput": {"measure_duration_millis": 4000, "bytes": 400000000}}"#;
        let script = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >>calls\ncase $1 in\n--version) echo '{version}' ;;\n\
             analyze) if [ -e wait ]; then touch analyzes; sleep 300; fi\n\
             cat figures 2>/dev/null || echo '{{\"by_op_type\": {{\"PUT\": {figures}, \"GET\": {figures}}}}}' ;;\n\
             *) {put} ;;\nesac\n",
            folder.display()
        );
        let program = folder.join("warp");
        process::tests::script(&program, &script);
        Warp::at(program, folder, &Stop::default())
    }

    const NEW: &str = "warp version 1.3.1 - abc";

    /// Access to an empty bucket.
    fn empty() -> Access {
        gateway(Box::new(|_, _, _| ("200 OK", listed(&[]))))
    }

    #[test]
    fn a_warp_runs_and_has_figures() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = "env | grep ^WARP_ | sort >keys; touch warp-results.json.zst";
        let (warp, access) = (fake(folder.path(), NEW, put).expect("a warp"), empty());
        assert_eq!((warp.text().as_str(), warp.data_text()), ("warp 1.3.1", "random data"));
        let run = |is_put, seconds| warp.run(&job(is_put), &access, seconds, folder.path(), &Stop::default());
        let found = run(true, 30).expect("figures");
        assert_eq!((found.written_bytes, found.read_bytes), (419_430_400, 0));
        assert_eq!(run(false, 2).expect("figures").read_bytes, 419_430_400);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("it ran");
        let calls = read("calls");
        let calls: Vec<&str> = calls.lines().collect();
        let common = "--noclear --quiet --no-color --bucket=b --concurrent=20";
        assert!(calls[1].starts_with(&format!("put --prefix=run {common} --duration=10s ")), "{calls:?}");
        assert!(calls[1].ends_with("--obj.size=4096KiB --obj.generator=random"), "{calls:?}");
        assert!(calls[2].starts_with("analyze --json --quiet --no-color --analyze.dur=100ms /"), "{calls:?}");
        assert!(
            calls[3].starts_with(&format!("get --prefix=run/ --list-existing {common} --duration=8s ")),
            "{calls:?}"
        );
        // Keys are in the environment, and there only.
        assert!(!calls.concat().contains("secret"), "{calls:?}");
        let keys = read("keys");
        assert!(
            keys.contains("WARP_ACCESS_KEY=key\n") && keys.contains("WARP_SECRET_KEY=secret\n"),
            "{keys}"
        );
        assert!(keys.contains("WARP_TLS=false\n") && keys.contains("WARP_HOST=127.0.0.1:"), "{keys}");
    }

    #[test]
    fn a_warp_that_will_not_do_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = |said: &str| fake(folder.path(), said, "true").expect_err("refused").to_string();
        let old = refused("warp version 0.7.6 - abc");
        assert_eq!(old, "warp: too old, expected 0.8.0 or newer, it says \"warp version 0.7.6 - abc\"");
        assert!(refused("Warp, the terminal").contains("not MinIO's benchmark of S3"));
        assert!(refused("").contains("not MinIO's benchmark of S3"));
        let csv = |version: &str| fake(folder.path(), version, "true").expect("a warp").makes_csv();
        assert!(csv("warp version 1.0.7 - abc") && !csv("warp version 1.0.8 - abc"));
        assert!(!csv("warp version (dev) - (dev)"));
    }

    #[test]
    fn a_warp_that_fails_or_is_stopped_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = |put: &str, access: &Access, stop: &Stop| {
            let warp = fake(folder.path(), NEW, put).expect("a warp");
            warp.run(&job(true), access, 8, folder.path(), stop).expect_err("no figures")
        };
        let stop = Stop::default();
        let denied = run(
            "echo first >&2; echo 'warp: <ERROR> Error preparing server: denied.' >&2; exit 1",
            &empty(),
            &stop,
        );
        assert_eq!(denied.to_string(), "warp: Error preparing server: denied.");
        // It ends well though a gateway went away: what was sent may be stored yet.
        let failing = r#"touch warp-results.json.zst; echo '{"by_op_type": {"PUT": {"total_requests": 9, "total_errors": 2,
            "total_bytes": 7, "first_errors": ["reset"], "throughput": {"measure_duration_millis": 0}}}}' >figures"#;
        let access = empty();
        assert!(!access.may_be_late());
        assert_eq!(run(failing, &access, &stop).to_string(), "warp: 2 of 9 requests failed: reset");
        assert!(access.may_be_late());
        std::fs::remove_file(folder.path().join("warp-results.json.zst")).expect("it was there");
        // Nor is it known without results, or if their analysis does not end.
        let access = empty();
        assert_eq!(run("true", &access, &stop).to_string(), "warp: it ended without results");
        assert!(access.may_be_late());
        let (access, cut) = (empty(), Stop::default());
        std::fs::write(folder.path().join("wait"), "").expect("written");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let since = Instant::now();
                while !folder.path().join("analyzes").exists() && since.elapsed() < LATE {
                    std::thread::sleep(Duration::from_millis(5));
                }
                cut.set();
            });
            assert!(run("touch warp-results.json.zst", &access, &cut).is_interrupted());
        });
        assert!(access.may_be_late());
        for name in ["wait", "warp-results.json.zst"] {
            std::fs::remove_file(folder.path().join(name)).expect("it was there");
        }
        // Not even begun where somebody's objects are.
        let used = gateway(Box::new(|_, _, _| ("200 OK", listed(&["theirs".to_string()]))));
        let refused = run("touch begun", &used, &stop).to_string();
        assert!(refused.starts_with("warp: the bucket b holds objects, such as theirs, "), "{refused}");
        assert!(!folder.path().join("begun").exists());
        let (at, signal) = (folder.path().join("pid"), stop.clone());
        let signaller = std::thread::spawn(move || {
            let since = Instant::now();
            while !at.exists() && since.elapsed() < LATE {
                std::thread::sleep(Duration::from_millis(5));
            }
            signal.set();
        });
        let stopped = run("sleep 300 & echo $! >pid.new; mv pid.new pid; wait", &empty(), &stop);
        assert!(stopped.is_interrupted(), "{stopped}");
        signaller.join().expect("it signalled");
        let pid = std::fs::read_to_string(folder.path().join("pid")).expect("it began");
        let is_alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
        };
        let since = Instant::now();
        while is_alive() {
            assert!(since.elapsed() < LATE, "process {pid} goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn versions() {
        assert_eq!(version_of("warp version 1.3.1 - abc"), Some("1.3.1"));
        assert_eq!(version_of("warp version (dev) - (dev)"), Some("(dev)"));
        assert_eq!(version_of("warp-terminal 3"), None);
        assert_eq!(number("1.0.7"), Some((1, 0, 7)));
        assert_eq!(number("v1.1.0-rc"), Some((1, 1, 0)));
        assert_eq!(number("0.8"), Some((0, 8, 0)));
        assert_eq!(number("(dev)"), None);
        assert!((1, 0, 7) < WITHOUT_CSV && (1, 0, 8) >= WITHOUT_CSV && (0, 7, 9) < OLDEST);
    }
}
