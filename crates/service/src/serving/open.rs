//! Opening the drive at a path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ask::{MarkName, file_id, server_with_open};
use drive::{Compute, Drive, OpenOptions, ReadCache, Spawner};
use host::file::absolute;
use media::{AnyMedia, Direct, FileMedia, Lease, MediaError};
use offload::Offload;
use rand::TryRngCore;
use rand::rngs::OsRng;
use status::{StatusReport, shown};

use crate::admission::held::WhenFull;
use crate::admission::throttle::Throttling;
use crate::answer::Answer;
use crate::error::ServiceError;
use crate::serving::close::close;
use crate::serving::features::keeps_allocated;
use crate::serving::memories::{Forgets, Memories, Purpose};
use crate::serving::ownership::{Claimed, Ownership, boot_id};
use crate::serving::run_memory::{Key, RunMemory};
use crate::watch::monitor::MonitorSettings;
use crate::watch::report::{OpenedLog, idle_report};

/// Time for which opening a backing that is in use is retried, and interval.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Settings to open a drive.
#[derive(Clone, Debug)]
pub struct OpenSettings {
    /// Memory for map nodes, in bytes.
    pub map_budget_bytes: u64,
    /// Acknowledge writes when they are in memory.
    pub write_cache: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Opens a drive with a damaged log as it was before the damage. Only with `read_only`.
    pub accept_damage: bool,
    /// Opens the drive although another machine has it, or had it and did not close it, unless its process
    /// there answers.
    pub take_over: bool,
    /// Sets the memory of a killed server aside if it cannot be used.
    pub forget_memory: bool,
    /// True if I/O bypasses the page cache.
    pub direct: Direct,
    /// Monitoring of a served drive.
    pub monitor: MonitorSettings,
    /// Slows writes down before the drive is full.
    pub throttle: Throttling,
    /// Period in which all records of a served drive are verified once; `None`: only when a user asks.
    pub scrub_every: Option<Duration>,
    /// Writes for which there is no room.
    pub when_full: WhenFull,
    /// Share of a processor that a served drive uses to compress its data better in the background, in
    /// percent from 0 (off) to 100.
    pub background_cpu_percent: f64,
}

/// Default of [`OpenSettings::background_cpu_percent`].
pub const DEFAULT_BACKGROUND_CPU_PERCENT: f64 = 10.0;

impl Default for OpenSettings {
    fn default() -> Self {
        OpenSettings {
            map_budget_bytes: drive::DEFAULT_MAP_BUDGET_BYTES,
            write_cache: true,
            read_only: false,
            accept_damage: false,
            take_over: false,
            forget_memory: false,
            direct: Direct::Auto,
            monitor: MonitorSettings::default(),
            throttle: Throttling::default(),
            scrub_every: None,
            when_full: WhenFull::default(),
            background_cpu_percent: DEFAULT_BACKGROUND_CPU_PERCENT,
        }
    }
}

impl OpenSettings {
    /// Settings to inspect a drive: nothing is written, recovery happens in memory.
    pub fn read_only(accept_damage: bool) -> OpenSettings {
        OpenSettings { read_only: true, accept_damage, ..OpenSettings::default() }
    }
}

/// Longest wait of flushes for room on a full backing: ten seconds of ticks.
const FULL_BACKING_PATIENCE_TICKS: u64 = 1000;

/// Helpers of a served drive.
pub(crate) struct Helpers {
    pub(crate) compute: Compute,
    pub(crate) offload: Option<Arc<dyn Offload>>,
    pub(crate) read_cache: Option<Arc<ReadCache>>,
}

/// A drive that was opened.
pub(crate) struct Opened {
    /// As it was given.
    pub(crate) path: PathBuf,
    pub(crate) drive: Drive<AnyMedia>,
    pub(crate) media: Arc<AnyMedia>,
    /// `None` if it was opened read-only.
    ownership: Option<Ownership>,
    /// What outlives a kill.
    memory: Option<RunMemory>,
    /// What a killed server had acknowledged and is lost, in one line.
    pub(crate) lost: Option<String>,
}

impl Opened {
    /// The lease of the backing. `None` if it was opened read-only.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        self.ownership.as_ref().map(|ownership| &ownership.lease)
    }

    /// Takes the right to write, which is to be given back when the drive is closed.
    pub(crate) fn take_ownership(&mut self) -> Option<Ownership> {
        self.ownership.take()
    }

    /// Takes the memory of the run, which is to be removed once the drive is closed.
    pub(crate) fn take_memory(&mut self) -> Option<RunMemory> {
        self.memory.take()
    }

    /// Closes the drive, and gives the backing back.
    pub(crate) async fn close(&mut self) -> Result<(), drive::Error> {
        let closed = close(&self.drive, &mut self.memory).await;
        if let Some(ownership) = self.ownership.take() {
            ownership.give_back().await;
        }
        closed
    }
}

/// Opens the backing at `path`, locked, and the drive on it. With helpers, long work is passed to them.
/// Otherwise the calling thread does everything.
pub(crate) async fn open(
    path: &Path,
    settings: &OpenSettings,
    spawner: Spawner,
    helpers: Option<Helpers>,
) -> Result<Opened, ServiceError> {
    let file = open_media(path, settings).await?;
    let unknown = |source| {
        let what = "cannot look at the file or device";
        ServiceError::Unknown { path: path.to_path_buf(), what, source }
    };
    let backing = file.identity().map_err(unknown)?;
    let boot = boot_id(path).await?;
    let entropy = OsRng.try_next_u64().map_err(|error| ServiceError::Entropy(error.to_string()))?;
    let purpose = match helpers {
        _ if settings.read_only => Purpose::Look,
        None => Purpose::Change,
        Some(_) => Purpose::Serve,
    };
    let uuid = Drive::read_id(&file).await.map_err(|source| failed(path, &file, source))?;
    let id = uuid::Uuid::from_bytes(uuid).to_string();
    let own = MarkName::of(&id, &file_id(&file.metadata().map_err(unknown)?));
    let memories = Memories::find(path, Key { uuid, backing }, (boot, entropy), purpose, own).await?;
    let (media, ownership) = match settings.read_only {
        true => (Arc::new(AnyMedia::from(file)), None),
        false => match Ownership::claim(path, file, Claimed::Drive, settings.take_over, &spawner).await {
            Ok(claimed) => (claimed.media.clone(), Some(claimed)),
            Err(error) => {
                memories.failed();
                return Err(error);
            }
        },
    };
    let mut options = OpenOptions::new(entropy, spawner);
    options.map_budget_bytes = settings.map_budget_bytes;
    options.write_cache = settings.write_cache;
    options.read_only = settings.read_only;
    options.accept_damage = settings.accept_damage;
    options.lease = ownership.as_ref().map(|ownership| ownership.lease.clone());
    options.left_open = ownership.as_ref().is_some_and(|ownership| ownership.left_open);
    if let Some(helpers) = helpers {
        options.compute = helpers.compute;
        options.offload = helpers.offload;
        options.read_cache = helpers.read_cache;
        options.full_backing_patience_ticks = FULL_BACKING_PATIENCE_TICKS;
    }
    match open_with_memories(path, settings, &media, memories, options).await {
        Ok((drive, memory, lost)) => {
            if let Some(ownership) = &ownership {
                ownership.opened(&drive);
            }
            Ok(Opened { path: path.to_path_buf(), drive, media, ownership, memory, lost })
        }
        Err(error) => {
            drop(media);
            if let Some(ownership) = ownership {
                ownership.give_back().await;
            }
            Err(error)
        }
    }
}

/// Opens a drive with the memories that earlier runs left. Returns the memory of this run, and what is lost.
async fn open_with_memories(
    path: &Path,
    settings: &OpenSettings,
    media: &Arc<AnyMedia>,
    mut memories: Memories,
    options: OpenOptions,
) -> Result<(Drive<AnyMedia>, Option<RunMemory>, Option<String>), ServiceError> {
    let forgets = match settings.forget_memory {
        _ if settings.read_only => Forgets::Overlooked,
        true => Forgets::All,
        false => Forgets::Useless,
    };
    let mut lost = None;
    loop {
        let begun = Arc::new(AtomicBool::new(false));
        let mut options = OpenOptions { begun: begun.clone(), ..options.clone() };
        memories.give_to(&mut options);
        options.gives_up_memory = settings.forget_memory;
        let error = match Drive::open(media.clone(), options).await {
            Ok(drive) => {
                let lost = lost.or_else(|| drive.misses_memory().then(|| memories.missed()).flatten());
                return Ok((drive, memories.opened(), lost));
            }
            Err(drive::Error::LeftMemory(why)) => match memories.forget(why, forgets) {
                Ok(loss) => {
                    lost = Some(loss);
                    continue;
                }
                Err(error) => error,
            },
            Err(drive::Error::Damaged(why)) if memories.contradicts() => match forgets {
                Forgets::All => {
                    lost = Some(memories.forget(why, forgets)?);
                    continue;
                }
                Forgets::Useless if memories.are_needed() => {
                    ServiceError::LostBelow { path: path.to_path_buf(), why }
                }
                _ => {
                    let why = format!("{why}; `pumice serve --forget-memory` opens an older copy as it is");
                    ServiceError::Drive { path: path.to_path_buf(), source: drive::Error::Damaged(why) }
                }
            },
            Err(source) => match &**media {
                AnyMedia::File(file) => failed(path, file, source),
                AnyMedia::Memory(_) => ServiceError::Drive { path: path.to_path_buf(), source },
            },
        };
        // A memory that the newest checkpoint may name is left, as after a kill.
        if !begun.load(Ordering::Relaxed) {
            memories.failed();
        }
        return Err(error);
    }
}

/// Returns why the engine refuses to open a drive.
fn failed(path: &Path, file: &FileMedia, source: drive::Error) -> ServiceError {
    let path = path.to_path_buf();
    match (file.out_of_space(), file.size_limit()) {
        (false, _) => ServiceError::Drive { path, source },
        (true, Some(limit)) => ServiceError::SizeLimit { path, limit },
        (true, None) => ServiceError::BackingFull { path, source },
    }
}

/// Opens the backing. The kernel keeps the files of a killed server, and so the lock, until its rings are
/// closed, which may be a moment after the process is gone.
pub(crate) async fn open_media(path: &Path, settings: &OpenSettings) -> Result<FileMedia, MediaError> {
    let since = Instant::now();
    loop {
        // Looking for a lock that is busy takes up to half a second, and a file system may block for longer.
        let (read_only, direct, at) = (settings.read_only, settings.direct, path.to_path_buf());
        let opened = tokio::task::spawn_blocking(move || FileMedia::open(at, read_only, direct)).await;
        let opened = opened.unwrap_or_else(|lost| {
            let (path, source) = (path.to_path_buf(), std::io::Error::other(lost));
            Err(MediaError::Io { path, action: "open it", source })
        });
        match opened {
            Err(error) if error.is_in_use() && since.elapsed() < LOCK_PATIENCE => {
                tokio::time::sleep(LOCK_POLL).await;
            }
            Ok(media) => {
                if let Some(warning) = media.warning() {
                    tracing::warn!("{warning}");
                }
                if let Some(limit) = media.size_limit().filter(|_| !settings.read_only) {
                    tracing::warn!(
                        drive = %shown(path),
                        "the drive is larger than files may be: changes are refused when it is full up to there: \
                         {limit}"
                    );
                }
                return Ok(media);
            }
            error => return error,
        }
    }
}

/// Opens the drive at `path` to inspect it. No admin socket reports it as served. Nothing is written.
///
/// # Errors
///
/// [`ServiceError::Opening`] if a server has it still, [`ServiceError::Media`] if another process has it,
/// [`ServiceError::Drive`] if there is none or it is damaged.
pub fn inspect(
    path: &Path,
    accept_damage: bool,
    spawner: Spawner,
) -> Answer<'_, Result<Drive<AnyMedia>, ServiceError>> {
    Box::pin(async move { open_to_inspect(path, accept_damage, spawner).await.map(|opened| opened.drive) })
}

/// Returns the status of the drive at `path`, which is not being served. Nothing is written. `accept_damage`
/// is for a drive that [`inspect`] refuses as damaged: it is reported as damaged, in the state before the
/// damage.
///
/// # Errors
///
/// As for [`inspect`].
pub fn inspect_status(
    path: &Path,
    accept_damage: bool,
    spawner: Spawner,
) -> Answer<'_, Result<StatusReport, ServiceError>> {
    Box::pin(async move {
        let Opened { drive, media, .. } = open_to_inspect(path, accept_damage, spawner).await?;
        let path = absolute(path);
        let log = if accept_damage { OpenedLog::CutAtDamage } else { OpenedLog::Whole };
        Ok(idle_report(&path, &drive, keeps_allocated(&media).await, log))
    })
}

async fn open_to_inspect(path: &Path, accept_damage: bool, spawner: Spawner) -> Result<Opened, ServiceError> {
    let opened = open(path, &OpenSettings::read_only(accept_damage), spawner, None).await;
    opened.map_err(|error| match &error {
        ServiceError::Media(media) if media.is_in_use() => match server_with_open(path) {
            Some(pid) => ServiceError::Opening { path: path.to_path_buf(), pid },
            None => error,
        },
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use media::Allocation;
    use tokio::runtime::{Builder, Handle};
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn opening_a_backing_blocks_no_worker() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("drive");
        drop(FileMedia::create(&path, 1 << 20, Allocation::Sparse, Direct::Auto).expect("created"));
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.expect("a runtime").block_on(async {
            // No thread here may block.
            let (free, freed) = oneshot::channel::<()>();
            Handle::current().spawn_blocking(|| freed.blocking_recv());
            let settings = OpenSettings::default();
            let mut opening = pin!(open_media(&path, &settings));
            let at_once = std::future::poll_fn(|context| {
                std::task::Poll::Ready(opening.as_mut().poll(context).is_ready())
            });
            assert!(!at_once.await, "it was opened on the thread of the worker");
            free.send(()).expect("it waits");
            opening.await.expect("opened");
        });
    }
}
