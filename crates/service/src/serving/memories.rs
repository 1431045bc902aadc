//! Memories of an opening: those that earlier runs left, and that of the new run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ask::runtime_dir::MEMORY_DIR;
use ask::{MarkName, any_is_marked};
use drive::{Left, OpenOptions};
use media::Arena;
use status::shown;

use crate::error::ServiceError;
use crate::serving::run_memory::{Key, LeftFile, LeftFiles, RunMemory, left};

/// Memories that an opening is given.
pub(crate) struct Memories {
    /// Path of the backing.
    path: PathBuf,
    boot: [u8; 16],
    left: Vec<Arc<LeftFile>>,
    /// A run has the drive on another backing: what it acknowledged is not lost.
    is_used_elsewhere: bool,
    /// Directories that may hold memories, and whose contents this user cannot see.
    hidden: Vec<PathBuf>,
    /// Or why there is none, if there should be one.
    own: Option<Result<(RunMemory, Arena), String>>,
    writes: bool,
    /// A block device of this machine has the drive.
    is_attached: bool,
}

/// What an opening is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Look,
    /// A change, which is durable before it is answered.
    Change,
    /// Hosts.
    Serve,
}

impl Memories {
    /// Finds what earlier runs left. One that serves hosts gets a memory of its own, if there is a place for
    /// it. `mark` is that of a block device with the drive in this file.
    ///
    /// # Errors
    /// If another process keeps one locked, or it is unknown whether there are any.
    pub(crate) async fn find(
        path: &Path,
        key: Key,
        (boot, run): ([u8; 16], u64),
        purpose: Purpose,
        mark: MarkName,
    ) -> Result<Memories, ServiceError> {
        let (at, writes) = (path.to_path_buf(), purpose != Purpose::Look);
        let found = tokio::task::spawn_blocking(move || {
            let unknown = |(memory, why)| ServiceError::LeftMemory {
                path: at.clone(),
                memory,
                why,
                may_serve_later: true,
                passes: true,
            };
            let dirs = ask::runtime_dir::memory_dirs();
            let dirs = dirs.map_err(|(dir, error)| unknown((dir, error.to_string())))?;
            let left = left(&dirs, &key, writes).map_err(unknown)?;
            let own = (purpose == Purpose::Serve).then(|| make(&key, run));
            let is_attached = writes && {
                let id = uuid::Uuid::from_bytes(key.uuid).to_string();
                let marks = std::iter::once(mark).chain(MarkName::at(&id, &at));
                any_is_marked(marks).map_err(|source| {
                    let what = "cannot find out whether it is attached";
                    ServiceError::Unknown { path: at.clone(), what, source }
                })?
            };
            Ok((left, dirs.hidden, own, is_attached))
        });
        let (left, hidden, own, is_attached) = found.await.unwrap_or(Err(ServiceError::WorkerGone))?;
        let LeftFiles { files, is_used_elsewhere } = left;
        let left = files.into_iter().map(Arc::new).collect();
        Ok(Memories {
            path: path.to_path_buf(),
            boot,
            left,
            is_used_elsewhere,
            hidden,
            own,
            writes,
            is_attached,
        })
    }

    /// Gives them to an opening.
    pub(crate) fn give_to(&self, options: &mut OpenOptions) {
        options.boot = self.boot;
        options.needs_memory = self.is_attached;
        options.memory = self.own.iter().flatten().next().map(|(_, arena)| arena.clone());
        let left =
            self.left.iter().map(|left| Left { memory: left.clone(), is_elsewhere: left.is_elsewhere });
        options.left_memories = left.collect();
    }

    /// The last run had a memory that was not found. Returns what that means, unless this is a copy of a
    /// drive that is in use.
    pub(crate) fn missed(&self) -> Option<String> {
        // One of another backing that does not fit is that of a later state: this is an older copy.
        if self.is_used_elsewhere || self.left.iter().any(|left| left.is_elsewhere) {
            return None;
        }
        let hidden = self.hidden_dirs().map_or(String::new(), |hidden| format!(", and {hidden}"));
        let lost = format!(
            "acknowledged writes that were not flushed are lost: the last server did not close the drive, and its \
             memory was not found{hidden}"
        );
        tracing::error!(drive = %shown(&self.path), "{lost}");
        Some(lost)
    }

    /// Returns whether a block device has the drive: what is on that must not go on after a loss.
    pub(crate) fn are_needed(&self) -> bool {
        self.is_attached
    }

    /// Returns whether one of them alone shows that the drive is damaged.
    pub(crate) fn contradicts(&self) -> bool {
        self.left.iter().any(|left| left.contradicts())
    }

    fn hidden_dirs(&self) -> Option<String> {
        let dirs: Vec<String> = self.hidden.iter().map(|dir| shown(dir).to_string()).collect();
        (!dirs.is_empty()).then(|| format!("this user cannot read {}", dirs.join(", ")))
    }

    /// Sets those aside that stopped an opening. Returns what was lost; an error if that needs an
    /// administrator: what is on a block device must not go on after a loss.
    ///
    /// # Errors
    /// [`ServiceError::LeftMemory`], [`ServiceError::LostBelow`]
    pub(crate) fn forget(&mut self, why: String, forgets: Forgets) -> Result<String, ServiceError> {
        let (refused, others): (Vec<_>, Vec<_>) = self.left.drain(..).partition(|left| left.is_refused());
        self.left = others;
        let may_serve_later = refused.iter().any(|left| left.may_serve_later());
        // Nothing is set aside for a memory that could not be looked at.
        let passes = refused.iter().any(|left| left.is_unreadable()) || refused.is_empty();
        let may_forget = match forgets {
            Forgets::All => true,
            Forgets::Useless | Forgets::Overlooked => !may_serve_later,
        };
        let named = refused.first().or(self.left.first()).map(|left| left.path().to_path_buf());
        let refusal = |why| ServiceError::LeftMemory {
            path: self.path.clone(),
            memory: named.clone().unwrap_or_default(),
            why,
            may_serve_later,
            passes,
        };
        if self.is_attached && forgets == Forgets::Useless && !may_serve_later {
            let why = self.hidden_dirs().map_or(why.clone(), |hidden| format!("{why}; {hidden}"));
            return Err(ServiceError::LostBelow { path: self.path.clone(), why });
        }
        if std::mem::take(&mut self.is_attached) && may_forget && refused.is_empty() {
            let lost = format!("acknowledged writes that were not flushed are lost: {why}");
            tracing::error!(drive = %shown(&self.path), "{lost}");
            return Ok(lost);
        }
        if !may_forget || refused.is_empty() {
            return Err(refusal(why));
        }
        if forgets == Forgets::Overlooked {
            let lost = format!("shown without what the killed server left, which cannot be used: {why}");
            tracing::warn!(drive = %shown(&self.path), "{lost}");
            return Ok(lost);
        }
        refused.iter().for_each(|left| left.remove_forgotten());
        let mut aside = Vec::new();
        for left in &refused {
            let forgotten = left.forget();
            let forgotten =
                forgotten.map_err(|error| refusal(format!("{why}; it cannot be renamed: {error}")))?;
            aside.push(shown(&forgotten).to_string());
        }
        let which = match refused.iter().any(|left| left.contradicts()) {
            true => "acknowledged writes are lost, also such that were flushed",
            false => "acknowledged writes that were not flushed are lost",
        };
        let lost = format!(
            "{which}: what the killed server left cannot be used: {why}; it is kept as {}",
            aside.join(" and ")
        );
        // A served drive has it as an event, too. What follows may fail, and commands have no events.
        tracing::error!(drive = %shown(&self.path), "{lost}");
        Ok(lost)
    }

    /// The drive was opened. Returns the memory of its run.
    pub(crate) fn opened(self) -> Option<RunMemory> {
        if self.writes {
            // What they hold is on the backing.
            self.left.iter().filter(|left| !left.is_elsewhere).for_each(|left| left.remove());
        }
        match self.own? {
            Ok((memory, _)) => Some(memory),
            Err(why) => {
                tracing::info!(
                    drive = %shown(&self.path),
                    "no memory outlives this server, so writes that are not flushed are lost if it is killed; the next \
                     one tries again: {why}"
                );
                None
            }
        }
    }

    /// The drive was not opened: nothing was acknowledged.
    pub(crate) fn failed(self) {
        if let Some(Ok((memory, _))) = self.own {
            memory.remove();
        }
    }
}

/// Which memories that stop an opening are set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgets {
    /// Those that never can be used.
    Useless,
    /// None is renamed. Those that never can be used are passed over, as the next server will.
    Overlooked,
    /// All: an administrator has asked for it.
    All,
}

fn make(key: &Key, run: u64) -> Result<(RunMemory, Arena), String> {
    let dir = ask::make_runtime_dir().map_err(|error| format!("there is no directory for it: {error}"))?;
    let made = RunMemory::create(&dir, key, run);
    match std::env::var_os(MEMORY_DIR).map(PathBuf::from).filter(|other| ask::runtime_dir::trusted(other)) {
        Some(other) => made.or_else(|why| RunMemory::create(&other, key, run).map_err(|_| why)),
        None => made,
    }
}
