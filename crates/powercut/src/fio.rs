//! fio beside the other clients: what it wrote and flushed is verified after each restart, in a place of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use media::SimRng;

use crate::server::wait;

/// Bytes of the range that is verified after restarts.
pub const SETTLED_BYTES: u64 = 4 << 20;
/// Bytes of the range that is written and verified while the power goes.
pub const BUSY_BYTES: u64 = 4 << 20;
/// How long a job that is not interrupted may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Each generation has other checksums, so that an old one is not taken for the newest.
const SUMS: [&str; 5] = ["crc32c", "crc64", "xxhash", "sha1", "md5"];
const BLOCKS: [&str; 4] = ["4k", "16k", "64k", "256k"];

/// Whether fio is installed and speaks NBD.
///
/// # Errors
/// What is missing.
pub fn look() -> Result<(), String> {
    let output = Command::new("fio").arg("--enghelp").stderr(Stdio::null()).output();
    let output = output.map_err(|_| "fio is not installed".to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let speaks = said.lines().any(|line| line.trim() == "nbd");
    if speaks { Ok(()) } else { Err("this fio has no nbd engine".to_string()) }
}

/// One filling of the settled range.
#[derive(Clone, Copy, Debug)]
struct Generation {
    number: usize,
    block: &'static str,
    random: bool,
}

/// fio's part of a drive.
pub struct Fio {
    folder: PathBuf,
    /// Where its ranges begin: the settled, then the busy one.
    offset: u64,
    next: usize,
    /// What was written whole and flushed, and not begun to be overwritten.
    settled: Option<Generation>,
    /// What is being written.
    filling: Option<Generation>,
    /// Times that the settled range was verified.
    pub verified: u64,
    /// Times that it was filled and flushed.
    pub filled: u64,
}

/// A job that runs.
pub struct Job {
    child: Child,
    output: PathBuf,
}

impl Fio {
    /// With its ranges from an offset on, and files in a folder.
    pub fn new(folder: &Path, offset: u64) -> Fio {
        Fio {
            folder: folder.to_path_buf(),
            offset,
            next: 0,
            settled: None,
            filling: None,
            verified: 0,
            filled: 0,
        }
    }

    fn job(&self, socket: &Path, name: &str, arguments: &[String]) -> Result<Job, String> {
        let output = self.folder.join(format!("fio-{name}.out"));
        let file = std::fs::File::create(&output).map_err(|error| format!("cannot log fio: {error}"))?;
        let errors = file.try_clone().map_err(|error| format!("cannot log fio: {error}"))?;
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
        let child = command.spawn().map_err(|error| format!("cannot start fio: {error}"))?;
        Ok(Job { child, output })
    }

    fn settled_range(&self, generation: Generation) -> Vec<String> {
        vec![
            format!("--offset={}", self.offset),
            format!("--size={SETTLED_BYTES}"),
            format!("--bs={}", generation.block),
            format!("--verify={}", SUMS[generation.number % SUMS.len()]),
        ]
    }

    /// Begins to fill the settled range anew, with a flush at the end.
    ///
    /// # Errors
    /// If fio cannot be started.
    pub fn fill(&mut self, socket: &Path, rng: &mut SimRng) -> Result<Job, String> {
        let generation = Generation {
            number: self.next,
            block: BLOCKS[rng.index(BLOCKS.len())],
            random: rng.chance(1, 2),
        };
        self.next += 1;
        self.settled = None;
        let mut arguments = self.settled_range(generation);
        let order = if generation.random { "randwrite" } else { "write" };
        arguments.extend([format!("--rw={order}"), "--do_verify=0".into(), "--end_fsync=1".into()]);
        arguments.push(format!("--randseed={}", 1 + generation.number));
        self.filling = Some(generation);
        self.job(socket, "fill", &arguments)
    }

    /// Waits for a filling to end. Unless it ended well, the range holds nothing that can be verified; answers whether it did.
    ///
    /// # Errors
    /// If it takes too long.
    pub fn filled(&mut self, mut job: Job, stop: impl Fn() -> bool) -> Result<bool, String> {
        let ended = job.wait(stop)?;
        let is_filled = ended == Some(0);
        self.settled = self.filling.take().filter(|_| is_filled);
        self.filled += u64::from(is_filled);
        Ok(is_filled)
    }

    /// Verifies the settled range, if it is.
    ///
    /// # Errors
    /// If it does not hold what was flushed.
    pub fn verify(&mut self, socket: &Path) -> Result<(), String> {
        let Some(generation) = self.settled else { return Ok(()) };
        let mut arguments = self.settled_range(generation);
        arguments.push("--rw=read".into());
        let mut job = self.job(socket, "verify", &arguments)?;
        if job.wait(|| false)? != Some(0) {
            return Err(format!(
                "fio: generation {} was flushed and is not there:\n{}",
                generation.number,
                job.said()
            ));
        }
        self.verified += 1;
        Ok(())
    }

    /// Begins to overwrite and verify the busy range, until it is stopped.
    ///
    /// # Errors
    /// If fio cannot be started.
    pub fn be_busy(&self, socket: &Path, rng: &mut SimRng) -> Result<Job, String> {
        let mut arguments = vec![
            format!("--offset={}", self.offset + SETTLED_BYTES),
            format!("--size={BUSY_BYTES}"),
            "--rw=randwrite".into(),
            "--bs=4k".into(),
            "--verify=crc32c".into(),
            "--verify_backlog=64".into(),
            // Else a block could be written twice at a time, and either might win.
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
    /// Waits for its end, or until `stop`. Its exit code, if it ended by itself.
    fn wait(&mut self, stop: impl Fn() -> bool) -> Result<Option<i32>, String> {
        let since = std::time::Instant::now();
        loop {
            let ended = wait(&mut self.child, Duration::ZERO).map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Ok(status.code());
            }
            if stop() {
                return Ok(None);
            }
            if since.elapsed() > LIMIT {
                return Err(format!("fio did not end in {} seconds:\n{}", LIMIT.as_secs(), self.said()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// If it has read something that it had not written.
    pub fn stop(mut self) -> Result<(), String> {
        // It may have ended with its server.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = self.said();
        // Errors of reading and writing are the power's; these are not.
        match said.lines().any(|line| line.starts_with("verify:") || line.contains(": verify failed")) {
            true => Err(format!("fio read something it had not written:\n{said}")),
            false => Ok(()),
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
