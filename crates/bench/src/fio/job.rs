//! Jobs of fio.

use super::IoTarget;

/// Order and direction of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Write,
    Read,
    RandomWrite,
    RandomRead,
    /// 70 % reads, 30 % writes, at random.
    Mixed,
    /// Discards all.
    Trim,
}

impl Pattern {
    fn fio(self) -> &'static str {
        match self {
            Pattern::Write => "write",
            Pattern::Read => "read",
            Pattern::RandomWrite => "randwrite",
            Pattern::RandomRead => "randread",
            Pattern::Mixed => "randrw",
            Pattern::Trim => "trim",
        }
    }

    /// In words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Pattern::Write => "write",
            Pattern::Read => "read",
            Pattern::RandomWrite => "random write",
            Pattern::RandomRead => "random read",
            Pattern::Mixed => "random 70/30",
            Pattern::Trim => "trim",
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Pattern::Write | Pattern::RandomWrite | Pattern::Mixed)
    }

    pub(crate) fn reads(self) -> bool {
        matches!(self, Pattern::Read | Pattern::RandomRead | Pattern::Mixed)
    }
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Zeros,
    /// `buffer_compress_percentage` in chunks of 4 KiB: this share of each is zeros, the rest random.
    Compressible(u8),
}

/// How long a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Until all was read or written once, or the time is up.
    Once,
    /// For the time given, again and again.
    Timed,
}

/// A job of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) pattern: Pattern,
    pub(crate) block_kib: u32,
    /// Requests in flight of each of `jobs`.
    pub(crate) depth: u32,
    pub(crate) jobs: u32,
    /// Images at once, each with `depth` requests in flight and an equal share of the bytes; 1 where there
    /// are no images.
    pub(crate) images: u32,
    pub(crate) data: Data,
    pub(crate) amount: Amount,
}

impl Job {
    /// Fills or reads all, in requests of 128 KiB.
    pub(crate) fn sequential(pattern: Pattern, data: Data) -> Job {
        Job { pattern, block_kib: 128, depth: 16, jobs: 1, images: 1, data, amount: Amount::Once }
    }

    /// Requests of 4 KiB at random, for a time.
    pub(crate) fn random(pattern: Pattern, data: Data) -> Job {
        Job { pattern, block_kib: 4, depth: 16, jobs: 1, images: 1, data, amount: Amount::Timed }
    }

    pub(crate) fn depth(self, depth: u32) -> Job {
        Job { depth, ..self }
    }

    pub(crate) fn jobs(self, jobs: u32) -> Job {
        Job { jobs, ..self }
    }

    pub(crate) fn images(self, images: u32) -> Job {
        Job { images, ..self }
    }

    pub(crate) fn timed(self) -> Job {
        Job { amount: Amount::Timed, ..self }
    }

    fn is_random(&self) -> bool {
        matches!(self.pattern, Pattern::RandomWrite | Pattern::RandomRead | Pattern::Mixed)
    }

    /// Whether what it writes is zeros to 80 % or more.
    pub(crate) fn is_compressible(&self) -> bool {
        self.pattern.writes() && matches!(self.data, Data::Zeros | Data::Compressible(80..))
    }

    /// Bytes that each of `jobs` uses on each image: all of a store, or with sequential requests an area of
    /// its own.
    fn area_bytes(&self, capacity_bytes: u64) -> u64 {
        let jobs = if self.is_random() { 1 } else { u64::from(self.jobs.max(1)) };
        let share = jobs * u64::from(self.images.max(1));
        let block_bytes = u64::from(self.block_kib) << 10;
        capacity_bytes / share / block_bytes * block_bytes
    }

    /// Bytes that a job that runs once reads or writes; `None` if it runs for a time, or moves none.
    pub(crate) fn once_bytes(&self, capacity_bytes: u64) -> Option<u64> {
        let is_once = self.amount == Amount::Once && self.pattern != Pattern::Trim;
        is_once.then(|| self.area_bytes(capacity_bytes) * u64::from(self.jobs) * u64::from(self.images))
    }

    /// In words: `128K write, depth 16`.
    pub(crate) fn text(&self) -> String {
        let jobs = if self.jobs > 1 { format!(" x {}", self.jobs) } else { String::new() };
        let images = if self.images > 1 { format!(", {} images", self.images) } else { String::new() };
        format!("{}K {}, depth {}{jobs}{images}", self.block_kib, self.pattern.text(), self.depth)
    }

    /// Returns the command line of fio.
    pub(crate) fn arguments(&self, io_target: &IoTarget, capacity_bytes: u64, seconds: u32) -> Vec<String> {
        let block_bytes = u64::from(self.block_kib) << 10;
        // Options before the first name are those of all jobs.
        let mut arguments: Vec<String> = [
            "--thread",
            "--group_reporting",
            "--output-format=json",
            // A file that was allocated before it is written is not compressed by btrfs.
            "--fallocate=none",
            "--percentile_list=50:99",
            "--randrepeat=0",
        ]
        .map(str::to_string)
        .to_vec();
        arguments.push(format!("--ioengine={}", io_target.engine()));
        match io_target {
            IoTarget::File(path) | IoTarget::Cached(path) => {
                arguments.push(format!("--filename={}", path.display().to_string().replace(':', "\\:")));
                let is_cached = matches!(io_target, IoTarget::Cached(_));
                arguments.push(if is_cached { "--invalidate=1" } else { "--direct=1" }.to_string());
            }
            IoTarget::Nbd(uri) => arguments.push(format!("--uri={uri}")),
            IoTarget::Rbd { pool, .. } => arguments.push(format!("--pool={pool}")),
            // Unsuitable for fio; its engine says so.
            IoTarget::Objects => {}
        }
        arguments.extend([
            format!("--rw={}", self.pattern.fio()),
            format!("--bs={block_bytes}"),
            format!("--size={}", self.area_bytes(capacity_bytes)),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.jobs),
            format!("--runtime={seconds}"),
        ]);
        if self.jobs > 1 && !self.is_random() {
            // Else all would read and write the same blocks.
            arguments.push(format!("--offset_increment={}", self.area_bytes(capacity_bytes)));
        }
        if self.amount == Amount::Timed {
            arguments.push("--time_based".to_string());
        }
        if self.is_random() {
            // Uniform: without it each block comes once before any comes again.
            arguments.push("--norandommap".to_string());
        }
        if self.pattern == Pattern::Mixed {
            arguments.push("--rwmixread=70".to_string());
        }
        if self.pattern.writes() {
            arguments.push("--end_fsync=1".to_string());
            arguments.extend(match self.data {
                Data::Zeros => vec!["--zero_buffers".to_string()],
                Data::Compressible(percent) => vec![
                    format!("--buffer_compress_percentage={percent}"),
                    "--buffer_compress_chunk=4096".to_string(),
                    "--refill_buffers".to_string(),
                ],
            });
        }
        match io_target {
            IoTarget::Rbd { images, .. } => {
                for image in images.iter().take(self.images as usize) {
                    arguments.extend(["--name=bench".to_string(), format!("--rbdname={image}")]);
                }
            }
            _ => arguments.push("--name=bench".to_string()),
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_become_arguments() {
        let job = Job::sequential(Pattern::Write, Data::Compressible(60)).depth(128);
        assert_eq!(job.text(), "128K write, depth 128");
        let arguments = job.arguments(&IoTarget::Nbd("nbd://h".to_string()), (1 << 20) + 5, 7);
        for expected in [
            "--uri=nbd://h",
            "--size=1048576",
            "--runtime=7",
            "--end_fsync=1",
            "--buffer_compress_percentage=60",
        ] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
        }
        assert!(!arguments.iter().any(|argument| argument == "--time_based"));
        let job = Job::random(Pattern::Mixed, Data::Zeros).jobs(8);
        assert_eq!(job.text(), "4K random 70/30, depth 16 x 8");
        let arguments = job.arguments(&IoTarget::File("/a:b".into()), 1 << 20, 7);
        for expected in
            ["--filename=/a\\:b", "--time_based", "--rwmixread=70", "--zero_buffers", "--numjobs=8"]
        {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
        }
        let stream = Job::sequential(Pattern::Write, Data::Zeros).jobs(8);
        let arguments = stream.arguments(&IoTarget::File("/a".into()), (8 << 20) + 4096, 7);
        for expected in ["--size=1048576", "--offset_increment=1048576", "--numjobs=8"] {
            assert!(arguments.iter().any(|argument| argument == expected), "{expected}: {arguments:?}");
        }
        assert_eq!(stream.once_bytes((8 << 20) + 4096), Some(8 << 20));
        assert_eq!(stream.timed().once_bytes(8 << 20), None);
        let images = ["a", "b", "c"].map(str::to_string).to_vec();
        let io_target = IoTarget::Rbd { pool: "p".to_string(), images, conf: "/c".into() };
        let many = Job::sequential(Pattern::Write, Data::Zeros).depth(128).images(2);
        assert_eq!(many.text(), "128K write, depth 128, 2 images");
        let arguments = many.arguments(&io_target, 4 << 20, 7);
        let end: Vec<&str> = arguments[arguments.len() - 4..].iter().map(String::as_str).collect();
        assert_eq!(end, ["--name=bench", "--rbdname=a", "--name=bench", "--rbdname=b"]);
        // Both together as much as one alone.
        assert!(arguments.contains(&format!("--size={}", 2 << 20)), "{arguments:?}");
        assert_eq!(many.once_bytes(4 << 20), Some(4 << 20));
        let one = many.images(1).arguments(&io_target, 4 << 20, 7);
        assert!(one.ends_with(&["--name=bench".to_string(), "--rbdname=a".to_string()]), "{one:?}");
        let cached = job.arguments(&IoTarget::Cached("/a".into()), 1 << 20, 7);
        assert!(!cached.iter().any(|argument| argument == "--direct=1"), "{cached:?}");
        let reads =
            Job::random(Pattern::RandomRead, Data::Zeros).arguments(&IoTarget::File("/a".into()), 4096, 1);
        assert!(!reads.iter().any(|argument| argument.contains("zero_buffers")));
    }
}
