//! fio beside the other clients, in a separate range: data that it wrote and flushed is verified after each
//! restart.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use launch::wait;
use media::SimRng;

use crate::error::{Error, Result};

/// Size of the range that is verified after restarts, in bytes.
pub const SETTLED_BYTES: u64 = 4 << 20;
/// Size of the range that is written and verified while the power is cut, in bytes.
pub const BUSY_BYTES: u64 = 4 << 20;
/// Time limit of a job that is not interrupted.
const LIMIT: Duration = Duration::from_secs(60);

/// Checksums differ from one generation to the next, so that an old generation is not mistaken for the
/// newest.
const SUMS: [&str; 5] = ["crc32c", "crc64", "xxhash", "sha1", "md5"];
const BLOCKS: [&str; 4] = ["4k", "16k", "64k", "256k"];

/// Checks that fio and its NBD engine are installed.
///
/// # Errors
/// Fails with the missing one.
pub fn check_installed() -> Result<()> {
    let output = Command::new("fio").arg("--enghelp").stderr(Stdio::null()).output();
    let output = output.map_err(|_| Error::Missing("fio is not installed"))?;
    let engines = String::from_utf8_lossy(&output.stdout);
    let has_nbd = engines.lines().any(|line| line.trim() == "nbd");
    if has_nbd { Ok(()) } else { Err(Error::Missing("this fio has no nbd engine")) }
}

/// One filling of the quiet range.
#[derive(Clone, Copy, Debug)]
struct Generation {
    number: usize,
    block: &'static str,
    random: bool,
}

/// State of fio on one drive.
pub struct Fio {
    folder: PathBuf,
    /// Start of its ranges: the quiet one, then the busy one.
    offset: u64,
    next: usize,
    /// Generation that was completely written and flushed, and has not been overwritten since.
    quiet: Option<Generation>,
    /// Generation that is being written.
    filling: Option<Generation>,
    /// Number of times the quiet range was verified.
    pub verified: u64,
    /// Number of times it was filled and flushed.
    pub filled: u64,
}

/// A running job.
pub struct Job {
    child: Child,
    log: PathBuf,
}

impl Fio {
    /// Creates the state, with ranges from `offset` on, and files in `folder`.
    pub fn new(folder: &Path, offset: u64) -> Fio {
        Fio {
            folder: folder.to_path_buf(),
            offset,
            next: 0,
            quiet: None,
            filling: None,
            verified: 0,
            filled: 0,
        }
    }

    fn job(&self, socket: &Path, name: &str, arguments: &[String]) -> Result<Job> {
        let log = self.folder.join(format!("fio-{name}.out"));
        let file = std::fs::File::create(&log).map_err(Error::system("cannot log fio"))?;
        let errors = file.try_clone().map_err(Error::system("cannot log fio"))?;
        let mut command = Command::new("fio");
        command
            .args([format!("--name={name}"), "--ioengine=nbd".into(), "--thread".into()])
            .arg(format!("--uri=nbd+unix:///?socket={}", socket.display()))
            .arg(format!("--aux-path={}", self.folder.display()))
            .args(["--verify_fatal=1", "--verify_state_save=0", "--refill_buffers"])
            .args(["--buffer_compress_percentage=50", "--iodepth=8"])
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors);
        let child = command.spawn().map_err(Error::system("cannot start fio"))?;
        Ok(Job { child, log })
    }

    fn quiet_range(&self, generation: Generation) -> Vec<String> {
        vec![
            format!("--offset={}", self.offset),
            format!("--size={SETTLED_BYTES}"),
            format!("--bs={}", generation.block),
            format!("--verify={}", SUMS[generation.number % SUMS.len()]),
        ]
    }

    /// Starts to fill the quiet range again, with a flush at the end.
    ///
    /// # Errors
    /// If fio cannot be started.
    pub fn fill(&mut self, socket: &Path, rng: &mut SimRng) -> Result<Job> {
        let generation = Generation {
            number: self.next,
            block: BLOCKS[rng.index(BLOCKS.len())],
            random: rng.chance(1, 2),
        };
        self.next += 1;
        self.quiet = None;
        let mut arguments = self.quiet_range(generation);
        let order = if generation.random { "randwrite" } else { "write" };
        arguments.extend([format!("--rw={order}"), "--do_verify=0".into(), "--end_fsync=1".into()]);
        arguments.push(format!("--randseed={}", 1 + generation.number));
        self.filling = Some(generation);
        self.job(socket, "fill", &arguments)
    }

    /// Waits for the end of a fill. Returns whether it succeeded. If not, the range holds nothing that can be
    /// verified.
    ///
    /// # Errors
    /// If it takes too long.
    pub fn filled(&mut self, mut job: Job, stop: impl Fn() -> bool) -> Result<bool> {
        let ended = job.wait(stop)?;
        let is_filled = ended == Some(0);
        self.quiet = self.filling.take().filter(|_| is_filled);
        self.filled += u64::from(is_filled);
        Ok(is_filled)
    }

    /// The last fill may not have been flushed.
    pub fn forget_fill(&mut self) {
        self.quiet = None;
        self.filled -= 1;
    }

    /// Verifies the quiet range, if it is filled.
    ///
    /// # Errors
    /// If it does not hold what was flushed.
    pub fn verify(&mut self, socket: &Path) -> Result<()> {
        let Some(generation) = self.quiet else { return Ok(()) };
        let mut arguments = self.quiet_range(generation);
        arguments.push("--rw=read".into());
        let mut job = self.job(socket, "verify", &arguments)?;
        if job.wait(|| false)? != Some(0) {
            let problem = format!("lost generation {}, which was flushed", generation.number);
            return Err(Error::Fio { problem, output: job.output() });
        }
        self.verified += 1;
        Ok(())
    }

    /// Starts to overwrite and verify the busy range, until it is stopped.
    ///
    /// # Errors
    /// If fio cannot be started.
    pub fn be_busy(&self, socket: &Path, rng: &mut SimRng) -> Result<Job> {
        let mut arguments = vec![
            format!("--offset={}", self.offset + SETTLED_BYTES),
            format!("--size={BUSY_BYTES}"),
            "--rw=randwrite".into(),
            "--bs=4k".into(),
            "--verify=crc32c".into(),
            "--verify_backlog=64".into(),
            // Otherwise a block could be written twice at the same time, with an undefined result.
            "--serialize_overlap=1".into(),
            "--time_based".into(),
            "--runtime=60".into(),
            format!("--randseed={}", 1 + rng.below(1 << 30)),
        ];
        if rng.chance(1, 2) {
            arguments.push("--fsync=32".into());
        }
        self.job(socket, "busy", &arguments)
    }
}

impl Job {
    /// Waits for its end, or until `stop` returns true. Returns its exit code if it ended by itself.
    fn wait(&mut self, stop: impl Fn() -> bool) -> Result<Option<i32>> {
        let since = std::time::Instant::now();
        loop {
            let ended =
                wait(&mut self.child, Duration::ZERO).map_err(Error::system("cannot wait for fio"))?;
            if let Some(status) = ended {
                return Ok(status.code());
            }
            if stop() {
                return Ok(None);
            }
            if since.elapsed() > LIMIT {
                let problem = format!("did not end in {} seconds", LIMIT.as_secs());
                return Err(Error::Fio { problem, output: self.output() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the job.
    ///
    /// # Errors
    /// If it has read data that it had not written.
    pub fn stop(mut self) -> Result<()> {
        // It may have ended when the server did.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let output = self.output();
        // Errors of reading and writing may be caused by the power cut; these are not.
        match output.lines().any(|line| line.starts_with("verify:") || line.contains(": verify failed")) {
            true => Err(Error::Fio { problem: "read something it had not written".to_string(), output }),
            false => Ok(()),
        }
    }

    fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
