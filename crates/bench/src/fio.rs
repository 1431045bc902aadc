//! fio: found, checked, run, its results read.

mod job;
mod output;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::process::{self, Stop};
pub(crate) use job::{Amount, Data, Job, Pattern};
pub(crate) use output::Measured;

/// Oldest fio with all options that are used: the engine `nbd` came with 3.14, its results per command with
/// 3.20.
const OLDEST: (u32, u32) = (3, 20);
const OLDEST_TEXT: &str = "3.20";
/// Time beyond that of a job after which fio is given up.
const LATE: Duration = Duration::from_secs(60);

/// What fio reads and writes, and by which engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IoTarget {
    /// A file or block device, past the page cache.
    File(PathBuf),
    /// A file by way of the page cache, of which nothing is there when a job begins.
    Cached(PathBuf),
    /// An NBD export.
    Nbd(String),
    /// Images in a pool of Ceph.
    Rbd {
        /// The pool.
        pool: String,
        /// The images.
        images: Vec<String>,
        /// Configuration of the cluster.
        conf: PathBuf,
    },
    /// Objects of an S3 gateway, where fio does not go.
    Objects,
}

impl IoTarget {
    /// The engine of fio for it.
    fn engine(&self) -> &'static str {
        match self {
            IoTarget::File(_) | IoTarget::Cached(_) => "libaio",
            IoTarget::Nbd(_) => "nbd",
            IoTarget::Rbd { .. } => "rbd",
            IoTarget::Objects => "of objects",
        }
    }

    /// Number of images.
    pub(crate) fn images_count(&self) -> u32 {
        match self {
            IoTarget::Rbd { images, .. } => images.len() as u32,
            _ => 1,
        }
    }

    /// What fio's engine takes from the environment.
    fn environment(&self) -> Vec<(&'static str, &Path)> {
        match self {
            IoTarget::Rbd { conf, .. } => vec![("CEPH_CONF", conf.as_path())],
            _ => Vec::new(),
        }
    }

    /// Writes what a file system holds back, if this is a file in one.
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            IoTarget::File(path) | IoTarget::Cached(path) => {
                let file = std::fs::File::open(path).map_err(BenchError::io(path))?;
                file.sync_all().map_err(BenchError::io(path))
            }
            IoTarget::Nbd(_) | IoTarget::Rbd { .. } | IoTarget::Objects => Ok(()),
        }
    }
}

/// An installed fio.
#[derive(Clone, Debug)]
pub struct Fio {
    program: PathBuf,
    version: String,
    engines: Vec<String>,
    /// Processors for jobs, as `taskset` takes them.
    processors: Option<String>,
}

impl Fio {
    /// Finds fio: the program given, or the one installed.
    ///
    /// # Errors
    /// Fails if there is none, it does not run, or is too old.
    pub fn find(program: Option<&Path>) -> Result<Fio> {
        let program = match program {
            Some(program) => program.to_path_buf(),
            None => process::need("fio", "fio")?,
        };
        let folder = std::env::temp_dir();
        let ask = |what: &str| {
            process::run(&program, &[what], &folder, LATE, &Stop::default()).map(|ended| ended.output)
        };
        let version = ask("--version")?.trim().to_string();
        if number(&version).is_none_or(|number| number < OLDEST) {
            return Err(BenchError::OldFio { found: version, oldest: OLDEST_TEXT });
        }
        let engines = ask("--enghelp")?.lines().map(|line| line.trim().to_string()).collect();
        Ok(Fio { program, version, engines, processors: None })
    }

    /// One that does not exist, for what only looks at runs.
    #[cfg(test)]
    pub(crate) fn none() -> Fio {
        Fio { program: PathBuf::new(), version: String::new(), engines: Vec::new(), processors: None }
    }

    /// Confines jobs to processors, such as `0` or `0-2,5`.
    #[must_use]
    pub fn on_processors(self, processors: &str) -> Fio {
        Fio { processors: Some(processors.to_string()), ..self }
    }

    /// Processors that jobs are confined to.
    pub(crate) fn processors(&self) -> Option<&str> {
        self.processors.as_deref()
    }

    /// What it calls itself, such as `fio-3.33`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Runs a job of at most `seconds` on `capacity_bytes` at a place. Files go to `folder`.
    pub(crate) fn run(
        &self,
        job: &Job,
        io_target: &IoTarget,
        capacity_bytes: u64,
        seconds: u32,
        folder: &Path,
        stop: &Stop,
    ) -> Result<Measured> {
        let engine = io_target.engine();
        if !self.engines.iter().any(|it| it == engine) {
            return Err(BenchError::Missing {
                program: format!("the engine {engine} of fio"),
                package: "fio",
            });
        }
        // Standard output also has messages of engines.
        let results = folder.join("fio.json");
        let mut arguments = job.arguments(io_target, capacity_bytes, seconds);
        arguments.push(format!("--output={}", results.display()));
        // fio writes the state of verification and other files into its working directory.
        arguments.push(format!("--aux-path={}", folder.display()));
        let limit = Duration::from_secs(u64::from(seconds)) * 3 + LATE;
        // Of an earlier job.
        let _ = std::fs::remove_file(&results);
        let environment = io_target.environment();
        // `cpus_allowed` of fio is for its own threads only; engines such as rbd have theirs.
        let program = match &self.processors {
            None => self.program.clone(),
            Some(processors) => {
                let before = ["-c".to_string(), processors.clone(), self.program.display().to_string()];
                arguments.splice(0..0, before);
                process::need("taskset", "util-linux")?
            }
        };
        let ended = process::run_with(&program, &arguments, &environment, folder, limit, stop);
        let text = std::fs::read_to_string(&results).map_err(BenchError::io(&results));
        match ended {
            Ok(ended) => Measured::parse(&text?, ended.cpu_seconds),
            // The results name the error of the requests, which the last line of messages may not.
            Err(error @ BenchError::Program { .. }) => match text.map(|text| Measured::parse(&text, 0.0)) {
                Ok(Err(named @ BenchError::Program { .. })) => Err(named),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }
}

/// Major and minor number of a version such as `fio-3.33` or `fio-3.33-12-g1234`.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("fio-")?.split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(number("fio-3.33"), Some((3, 33)));
        assert_eq!(number("fio-3.5-12-gabc"), Some((3, 5)));
        assert_eq!(number("fio-3"), None);
        assert_eq!(number("nothing"), None);
    }

    #[test]
    fn a_program_that_is_no_fio_is_refused() {
        let error = Fio::find(Some(Path::new("/bin/echo"))).expect_err("no fio");
        assert!(error.to_string().contains("expected fio 3.20"), "{error}");
        assert!(Fio::find(Some(Path::new("/nothing/fio"))).is_err());
    }
}
