//! The right to write to a backing, as this process gets, keeps and gives it back: [`drive::Claim`] with the
//! machine's clocks, ids and processes.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ask::runtime_dir::is_absence;
use drive::{Claim, Drive, Error, Fate, Owner, Pace, Planted, Sleep, Spawner, Surroundings};
use host::patience;
use host::process::{Stat, stat};
use layout::owner::{Process, UNKNOWN_ID};
use media::{AnyMedia, FileMedia};
use rand::TryRngCore;
use rand::rngs::OsRng;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};
use status::shown;
use tokio::sync::{oneshot, watch};

use crate::error::ServiceError;

/// Interval of warnings about a mark that cannot be read, in looks.
const LOOKS_A_WARNING: u64 = 60;

/// Nanoseconds of a clock that keeps running while the machine is suspended.
fn boot_time_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// The machine on which this process runs.
struct Machine {
    process: Process,
}

impl Machine {
    /// This process, which has the backing with this identity open and locked.
    fn with(backing: [u64; 2], boot_id: [u8; 16]) -> Machine {
        let pid = std::process::id();
        Machine {
            process: Process {
                machine_id: id(&text("/etc/machine-id")),
                boot_id,
                pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
                pid,
                started_ticks: match Started::of(pid) {
                    Started::At(ticks) => ticks,
                    Started::Ended | Started::Hidden => 0,
                },
                backing,
                host: [text("/proc/sys/kernel/hostname"), text("/etc/hostname")]
                    .concat()
                    .lines()
                    .next()
                    .unwrap_or("")
                    .to_string(),
            },
        }
    }
}

fn text(path: &str) -> String {
    patience::read(path).map_or(String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The id of this boot of the machine; [`UNKNOWN_ID`] where the kernel shows none. It says which memories
/// count.
///
/// # Errors
///
/// If it cannot be read just now, for the drive at `path`.
pub(crate) async fn boot_id(path: &Path) -> Result<[u8; 16], ServiceError> {
    let read = tokio::task::spawn_blocking(|| patience::read("/proc/sys/kernel/random/boot_id")).await;
    match read.unwrap_or_else(|lost| Err(io::Error::other(lost))) {
        Ok(bytes) => Ok(id(&String::from_utf8_lossy(&bytes))),
        Err(error) if is_absence(&error) => Ok(UNKNOWN_ID),
        Err(source) => {
            let what = "cannot read the id of this boot";
            Err(ServiceError::Unknown { path: path.to_path_buf(), what, source })
        }
    }
}

/// Reads an id of 32 hexadecimal digits, with or without hyphens.
fn id(text: &str) -> [u8; 16] {
    uuid::Uuid::try_parse(text.trim()).map_or(UNKNOWN_ID, uuid::Uuid::into_bytes)
}

/// When a process of this namespace was started.
#[derive(Debug, PartialEq, Eq)]
enum Started {
    At(u64),
    /// There is none with this id, or it has ended.
    Ended,
    /// There is one, which does not show that.
    Hidden,
}

impl Started {
    fn of(pid: u32) -> Started {
        let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Started::Ended };
        // Processes of other users may be hidden in /proc.
        if test_kill_process(process) == Err(Errno::SRCH) {
            return Started::Ended;
        }
        match stat(pid) {
            // A zombie has closed its files.
            Some(Stat { state: 'Z' | 'X', .. }) => Started::Ended,
            Some(found) => Started::At(found.started_ticks),
            None => Started::Hidden,
        }
    }
}

impl Surroundings for Machine {
    fn sleep(&self, nanoseconds: u64) -> Sleep<'_> {
        Box::pin(tokio::time::sleep(Duration::from_nanos(nanoseconds)))
    }

    fn fate(&self, other: &Process) -> Fate {
        let own = &self.process;
        let is_same = |one: &[u8; 16], two: &[u8; 16]| one == two && *one != UNKNOWN_ID;
        if is_same(&own.boot_id, &other.boot_id) {
            // This process has the lock that the other one had, so that has ended.
            if own.backing == other.backing {
                return Fate::Gone;
            }
            if own.pid_namespace == other.pid_namespace && own.pid_namespace != 0 {
                return match Started::of(other.pid) {
                    Started::At(ticks) if ticks == other.started_ticks => Fate::Runs,
                    Started::At(_) | Started::Ended => Fate::Gone,
                    Started::Hidden => Fate::Unseen,
                };
            }
            return Fate::Unseen;
        }
        match is_same(&own.machine_id, &other.machine_id) {
            true => Fate::Unseen,
            false => Fate::Elsewhere,
        }
    }

    fn unix_seconds(&self) -> u64 {
        status::unix_seconds_now()
    }
}

/// Target of a claim.
pub(crate) enum Claimed {
    /// The drive on the backing.
    Drive,
    /// The backing, on which a drive with this id is going to be created.
    Backing([u8; 16]),
}

/// A backing that this process may write to, until it is given back. Dropped without that, it is left as by a
/// killed process.
pub(crate) struct Ownership {
    /// The backing, whose writes observe the lease.
    pub(crate) media: Arc<AnyMedia>,
    /// The lease, for the answers to hosts.
    pub(crate) lease: Arc<media::Lease>,
    /// The owner before has not given the drive back.
    pub(crate) left_open: bool,
    drive: Arc<OnceLock<Drive<AnyMedia>>>,
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<Result<(), Error>>,
}

impl Ownership {
    /// Claims a backing that was opened for writing, and keeps it in the background.
    ///
    /// # Errors
    ///
    /// As for [`Claim::drive`].
    pub(crate) async fn claim(
        path: &Path,
        file: FileMedia,
        what: Claimed,
        take_over: bool,
        spawner: &Spawner,
    ) -> Result<Ownership, ServiceError> {
        let failed = |source| ServiceError::Drive { path: path.to_path_buf(), source };
        let backing = file.identity().map_err(|error| failed(Error::Io(error.to_string())))?;
        let machine = Machine::with(backing, boot_id(path).await?);
        let mut run = [0; 16];
        OsRng.try_fill_bytes(&mut run).map_err(|error| ServiceError::Entropy(error.to_string()))?;
        let claim = Claim {
            run,
            process: machine.process.clone(),
            clock: Arc::new(boot_time_ns),
            take_over,
            pace: Pace::default(),
            planted: Planted::default(),
        };
        let claimed = match what {
            Claimed::Drive => claim.drive(&file, &machine).await,
            Claimed::Backing(uuid) => claim.backing(&file, uuid, &machine).await,
        };
        let owner = match claimed {
            Err(Error::BackingFull) if file.out_of_space() => {
                return Err(ServiceError::BackingFull {
                    path: path.to_path_buf(),
                    source: Error::BackingFull,
                });
            }
            claimed => claimed.map_err(failed)?,
        };
        // Another machine may have had the drive since this one read it last.
        let cached = file.clone();
        let forgotten = tokio::task::spawn_blocking(move || cached.forget_cached()).await;
        let forgotten = forgotten.unwrap_or_else(|lost| Err(std::io::Error::other(lost)));
        forgotten.map_err(|error| {
            failed(Error::Io(format!("cannot drop cached pages of the backing: {error}")))
        })?;
        let (lease, left_open) = (owner.lease().clone(), owner.left_open());
        let media = Arc::new(AnyMedia::from(file.leased(lease.clone())));
        let drive = Arc::new(OnceLock::new());
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let keeping = keep(shown(path).to_string(), (file, machine), owner, drive.clone(), stopped);
        spawner(Box::pin(async move {
            // Nobody may wait for it.
            let _ = end.send(keeping.await);
        }));
        Ok(Ownership { media, lease, left_open, drive, stop, ended })
    }

    /// The drive on the backing was opened: it stops if it is taken over, or was meanwhile.
    pub(crate) fn opened(&self, drive: &Drive<AnyMedia>) {
        // Opened once.
        let _ = self.drive.set(drive.clone());
        // After it is set: either this task sees the loss, or the task that sees the loss sees the drive.
        if let Some(why) = self.lease.lost() {
            drive.disown(&why);
        }
    }

    /// Gives the backing back.
    pub(crate) async fn give_back(self) {
        let Ownership { media, stop, ended, .. } = self;
        stop.send_replace(true);
        if let Ok(Err(error)) = ended.await {
            tracing::warn!(%error, "the mark of this process on the backing stays: it could not be written");
        }
        drop(media);
    }
}

/// Keeps a backing until stopped, then releases it. If it is lost, the drive on it stops.
async fn keep(
    path: String,
    (file, machine): (FileMedia, Machine),
    owner: Owner,
    drive: Arc<OnceLock<Drive<AnyMedia>>>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Error> {
    let why = {
        let failed = |times: u64, error: &Error| {
            if times % LOOKS_A_WARNING == 1 {
                tracing::warn!(
                    drive = %path,
                    "cannot check whether another process has taken over the drive, so requests wait: \
                     {error}"
                );
            }
        };
        tokio::select! {
            stop = stopped.wait_for(|stop| *stop) => match stop {
                Ok(_) => None,
                // It was dropped.
                Err(_) => return Ok(()),
            },
            why = owner.keep(&file, &machine, failed) => Some(why),
        }
    };
    let Some(why) = why else { return owner.give_back(&file, &machine).await };
    tracing::error!(drive = %path, "{why}; this process no longer writes or answers requests");
    let disown = || drive.get().inspect(|drive| drive.disown(&why));
    // Before writes fail by the loss, so that the drive shows the reason. Again after it, for a drive that
    // was opened in between.
    disown();
    owner.lease().lose(&why);
    disown();
    Ok(())
}

#[cfg(test)]
mod tests {
    use drive::{CreateOptions, OpenOptions, State};
    use layout::Geometry;
    use layout::owner::{OWNER_BYTES, OWNER_COPIES};
    use media::{Allocation, Direct, IoBuf, Media};

    use super::*;

    fn machine() -> Machine {
        Machine::with([1, 2], [2; 16])
    }

    #[test]
    fn a_process_is_known_by_its_id_and_start() {
        let own = machine().process;
        assert!(own.started_ticks > 0, "{own:?}");
        let elsewhere = Process { backing: [1, 3], ..own.clone() };
        assert_eq!(machine().fate(&elsewhere), Fate::Runs);
        let earlier = Process { started_ticks: own.started_ticks - 1, ..elsewhere.clone() };
        assert_eq!(machine().fate(&earlier), Fate::Gone);
        let mut child = std::process::Command::new("true").spawn().expect("coreutils are installed");
        let ended = Process { pid: child.id(), ..elsewhere };
        child.wait().expect("it was started");
        assert_eq!(machine().fate(&ended), Fate::Gone);
    }

    #[test]
    fn who_has_the_lock_knows_that_the_last_one_is_gone() {
        let own = machine().process;
        assert_eq!(machine().fate(&own), Fate::Gone);
        let container = Process { pid_namespace: own.pid_namespace + 1, ..own.clone() };
        assert_eq!(machine().fate(&container), Fate::Gone);
        assert_eq!(machine().fate(&Process { backing: [1, 3], ..container }), Fate::Unseen);
    }

    #[test]
    fn machines_are_told_apart() {
        let mut own = machine();
        own.process.machine_id = [7; 16];
        let booted = Process { boot_id: [1; 16], ..own.process.clone() };
        assert_eq!(own.fate(&booted), Fate::Unseen);
        assert_eq!(own.fate(&Process { machine_id: [2; 16], ..booted.clone() }), Fate::Elsewhere);
        // Two that are unknown are not the same.
        own.process.machine_id = UNKNOWN_ID;
        assert_eq!(own.fate(&Process { machine_id: UNKNOWN_ID, ..booted }), Fate::Elsewhere);
    }

    #[tokio::test]
    async fn a_drive_that_is_lost_while_it_is_opened_stops() {
        const BYTES: u64 = 64 << 20;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("drive");
        let file = FileMedia::create(&path, BYTES, Allocation::Sparse, Direct::Auto).expect("created");
        let options = CreateOptions {
            physical_size_bytes: BYTES,
            logical_capacity_bytes: BYTES,
            sector_bytes: 512,
            segment_bytes: None,
            codec: codec::Policy::default(),
            uuid: [1; 16],
            created_unix_seconds: 0,
            endurance_bytes: 0,
            keep_allocated: false,
            far_copies: None,
            parity: layout::ParityForm::None,
        };
        Drive::create(&file, &options).await.expect("created");
        let spawner: Spawner = Arc::new(|future| _ = tokio::spawn(future));
        let owned = Ownership::claim(&path, file.clone(), Claimed::Drive, false, &spawner).await;
        let owned = owned.expect("nobody has it");
        let mut options = OpenOptions::new(1, spawner);
        options.lease = Some(owned.lease.clone());
        let drive = Drive::open(owned.media.clone(), options).await.expect("opened");
        // Another process writes there before the server knows its drive.
        for copy in 0..OWNER_COPIES {
            let blank = Arc::new(IoBuf::zeroed(OWNER_BYTES));
            file.write(Geometry::owner_offset(copy), blank).await.expect("written");
        }
        owned.lease.suspend();
        let why = owned.lease.confirm().await.expect_err("the mark is gone");
        assert_eq!(drive.status().state, State::Online);
        owned.opened(&drive);
        assert_eq!(drive.status().state, State::Poisoned(why.0));
        owned.give_back().await;
    }
}
