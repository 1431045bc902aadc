//! Stores: what a target is while a scene runs on it.

mod btrfs;
mod kept;
mod limited;
mod pumice;
mod qcow2;
mod raw;

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::fio::Place;
use crate::process::Stop;
use crate::scene::Scene;
use crate::target::{Kind, Target};

/// Bytes of a store and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Space {
    /// Bytes that hosts have written and not discarded.
    pub(crate) logical_used_bytes: u64,
    /// Bytes that these take.
    pub(crate) physical_used_bytes: u64,
    /// Logical over physical, with what the store knows of headers and zeros.
    pub(crate) ratio: f64,
    /// Bytes written by hosts so far, where it is counted.
    pub(crate) host_written_bytes: Option<u64>,
    /// Bytes written to the backing so far, where it is counted.
    pub(crate) physical_written_bytes: Option<u64>,
}

/// What a target is while a scene runs on it. Dropping it ends its servers and removes what was made.
pub(crate) trait Store {
    /// Where fio finds it.
    fn place(&self) -> &Place;

    /// Bytes that jobs may use.
    fn capacity_bytes(&self) -> u64;

    /// Processes that serve it.
    fn servers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Processes that are its slow backing.
    fn devices(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether kernel threads do its work.
    fn is_in_kernel(&self) -> bool {
        false
    }

    /// What it holds; `None` if it cannot say.
    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    /// Recompresses what is cold. Does nothing where there is no such thing.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// What stores are made of.
pub(crate) struct Workshop<'a> {
    /// The program `pumice`.
    pub(crate) program: &'a Path,
    /// Folder for everything temporary, on the disk to measure.
    pub(crate) folder: &'a Path,
    /// Physical size of stores that are made.
    pub(crate) size_bytes: u64,
    pub(crate) stop: &'a Stop,
    /// Drives of the user that were there when the run began.
    pub(crate) drives: Vec<&'a Path>,
}

impl Workshop<'_> {
    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Opens the store of a target for a scene: new and empty where that is possible.
    pub(crate) fn open(&self, target: &Target, scene: &Scene) -> Result<Box<dyn Store>> {
        let backing = match scene.backing_mb_per_s {
            Some(rate) => Some(limited::Limited::new(self, rate)?),
            None => None,
        };
        Ok(match &target.kind {
            Kind::Pumice { path, codec } => {
                Box::new(pumice::Pumice::open(self, path.as_deref(), codec.as_deref(), scene, backing)?)
            }
            Kind::Raw => Box::new(raw::Raw::open(self, backing)?),
            Kind::Qcow2 => Box::new(qcow2::Qcow2::open(self)?),
            Kind::Btrfs => Box::new(btrfs::Btrfs::open(self)?),
            Kind::Nbd(uri) => Box::new(kept::Kept::nbd(self, uri, &target.pids)?),
            Kind::Rbd { pool, image } => Box::new(kept::Kept::rbd(self, pool, image, &target.pids)),
            Kind::Path(path) => Box::new(kept::Kept::path(self, path, &target.pids)?),
        })
    }
}

/// Why a scene cannot run on a target; `None` if it can.
pub(crate) fn unsuitable(target: &Target, scene: &Scene) -> Option<String> {
    let is_made = match &target.kind {
        Kind::Pumice { path, .. } => path.is_none(),
        Kind::Raw => true,
        _ => false,
    };
    if scene.is_for_drives && !target.is_drive() {
        return Some("only drives have it".to_string());
    }
    if scene.backing_mb_per_s.is_some() && !is_made {
        return Some("a limited backing is for pumice and raw".to_string());
    }
    let is_fixed = target.is_kept() || !target.is_drive();
    (scene.expansion.is_some() && is_fixed).then(|| "its capacity is what it is".to_string())
}

/// Why a target cannot take part on this machine; `None` if it can.
pub(crate) fn lacks(target: &Target) -> Option<String> {
    match &target.kind {
        Kind::Qcow2 => qcow2::lacks(),
        Kind::Btrfs => btrfs::lacks(),
        Kind::Pumice { path: Some(path), codec: Some(codec) } if path.exists() => Some(format!(
            "{} exists and keeps its codec: leave out codec={codec}, or change it with `pumice set-codec`",
            path.display()
        )),
        _ => None,
    }
}

/// Why no backing can be limited on this machine; `None` if it can.
pub(crate) fn lacks_limit() -> Option<String> {
    limited::lacks()
}

/// Bytes that a file takes on its file system.
fn allocated_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    /// Unit of `st_blocks`.
    const UNIT_BYTES: u64 = 512;
    path.metadata().map_or(0, |found| found.blocks() * UNIT_BYTES)
}
