//! Stores: what a target is while a scene runs on it.

mod btrfs;
mod bucket;
mod cluster;
mod kept;
mod limited;
mod loops;
mod mounts;
mod nvme_tcp;
mod pumice;
mod qcow2;
mod raw;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{BenchError, Result};
use crate::fio::IoTarget;
use crate::objects::Access;
use crate::process::Stop;
use crate::scene::{Action, Scene};
use crate::target::{Kind, Target};
use ::status::StatusReport;
pub(crate) use cluster::MANAGER_AGE;
pub use nvme_tcp::{Connections, InUse, connect};
pub(crate) use volume::{layer_name, left_behind};

/// The URI of the default export of an NBD server on a Unix socket.
fn nbd_uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", ::status::uri_path(socket))
}

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

impl Space {
    /// What a drive says of itself.
    fn of(status: &StatusReport) -> Space {
        Space {
            logical_used_bytes: status.logical_used_bytes,
            physical_used_bytes: status.physical_used_bytes,
            ratio: status.compression_ratio,
            host_written_bytes: Some(status.host_written_bytes),
            physical_written_bytes: Some(status.physical_written_bytes),
        }
    }

    /// Several together; `None` if there are none.
    fn sum(each: impl IntoIterator<Item = Space>) -> Option<Space> {
        let add = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let all = each.into_iter().reduce(|one, other| Space {
            logical_used_bytes: one.logical_used_bytes + other.logical_used_bytes,
            physical_used_bytes: one.physical_used_bytes + other.physical_used_bytes,
            // That of the sum follows.
            ratio: one.ratio,
            host_written_bytes: add(one.host_written_bytes, other.host_written_bytes),
            physical_written_bytes: add(one.physical_written_bytes, other.physical_written_bytes),
        })?;
        let ratio = all.logical_used_bytes as f64 / all.physical_used_bytes.max(1) as f64;
        Some(Space { ratio, ..all })
    }
}

/// How what earlier scenes wrote is discarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discards {
    /// There is nothing: the store is new.
    New,
    /// By discard requests.
    ByRequests,
    /// By holes in a file.
    Holes(PathBuf),
}

/// What a target is while a scene runs on it. Dropping it ends its servers and removes what was made.
pub(crate) trait Store {
    /// Where fio finds it.
    fn io_target(&self) -> &IoTarget;

    /// Access to objects, where jobs are of objects.
    fn objects(&self) -> Option<&Arc<Access>> {
        None
    }

    /// How it is emptied before a scene.
    fn discards(&self) -> &Discards {
        &Discards::New
    }

    /// Bytes that jobs may use.
    fn capacity_bytes(&self) -> u64;

    /// Processes that serve it.
    fn servers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Those of its servers that are no children of this process, and end with the store.
    fn strangers(&self) -> Vec<u32> {
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

    /// Whether it is there for its compression: a ratio near 1 is a mistake of the run.
    fn must_compress(&self) -> bool {
        false
    }

    /// Drops what the page cache has of its backing, so that reads are reads of the disk.
    fn drop_caches(&self) {}

    /// What a report must say of it; empty if there is nothing.
    fn note(&self) -> Option<String> {
        None
    }

    /// Whether [`Store::space`] has counts of bytes written. To ask takes seconds where it does not.
    fn counts_writes(&self) -> bool {
        true
    }

    /// What it holds; `None` if it cannot say.
    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    /// Removes what stays where the store was, and says what could not be removed.
    fn remove(&self) -> Option<String> {
        None
    }

    /// Whether more may appear where it was, after it was removed.
    fn may_be_late(&self) -> bool {
        false
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
    /// Size of a server's cache of decompressed blocks: the default is for drives a thousand times larger. It
    /// is the same small part of the stores that are made here.
    pub(crate) fn read_cache(&self) -> String {
        /// Default of `pumice serve`, and the least that it uses.
        const DEFAULT_BYTES: u64 = 64 << 20;
        const LEAST_BYTES: u64 = 1 << 20;
        const SHARE: u64 = 64;
        (self.size_bytes / SHARE).clamp(LEAST_BYTES, DEFAULT_BYTES).to_string()
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Removes what has appeared late where the stores of a target were. Returns what stays, by name.
    pub(crate) fn remove_late(&self, target: &Target) -> Option<String> {
        match &target.kind {
            Kind::S3(address) => bucket::remove_late(self, address),
            _ => None,
        }
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
            Kind::Volume { count, is_raw } => Box::new(volume::Volume::open(self, *count, *is_raw, scene)?),
            Kind::Nbd(uri) => Box::new(kept::Kept::nbd(self, uri, target)?),
            Kind::Rbd { pool, images, conf } => {
                Box::new(kept::Kept::rbd(self, pool, images, conf.as_deref(), target)?)
            }
            Kind::NvmeTcp { device: Some(device), .. } => Box::new(kept::Kept::remote(self, device, target)?),
            Kind::NvmeTcp { device: None, .. } => {
                return Err(BenchError::target(&target.name, "is not connected"));
            }
            Kind::Path(path) => Box::new(kept::Kept::path(self, path, target)?),
            Kind::S3(address) => Box::new(bucket::Bucket::open(self, address, target)?),
        })
    }
}

/// Most bytes that the store of a target takes where it is made, whatever the data compresses to, at a size
/// of `size_bytes`: that of its files, unless they have more than jobs can fill.
pub(crate) fn most_bytes(target: &Target, size_bytes: u64) -> u64 {
    match &target.kind {
        Kind::Pumice { .. } => pumice::sizes(size_bytes, None).0,
        Kind::Qcow2 => size_bytes.saturating_add(qcow2::tables_bytes(size_bytes)),
        Kind::Btrfs => btrfs::most_bytes(size_bytes),
        Kind::Volume { count, is_raw } => {
            let each = if *is_raw { size_bytes } else { pumice::sizes(size_bytes, None).0 };
            each.saturating_mul(u64::from(*count))
        }
        _ => size_bytes,
    }
}

/// Why a scene cannot run on a target; `None` if it can.
pub(crate) fn unsuitable(target: &Target, scene: &Scene) -> Option<String> {
    let is_made = match &target.kind {
        Kind::Pumice { path, .. } => path.is_none(),
        Kind::Raw => true,
        _ => false,
    };
    let is_of_objects = |step: &crate::scene::Step| matches!(step.action, Action::Objects(_));
    if matches!(target.kind, Kind::S3(_)) != scene.steps.iter().any(is_of_objects) {
        return Some("blocks need a device, and objects an address of S3".to_string());
    }
    if scene.is_for_drives && !target.is_drive() {
        return Some("only drives have it".to_string());
    }
    if scene.backing_mb_per_s.is_some() && !is_made {
        return Some("a limited backing is for pumice and raw".to_string());
    }
    let (needed, found) = (scene.images_count(), target.images_count());
    if found < needed {
        return Some(format!("has {found} images, the jobs are on {needed}"));
    }
    let is_fixed = target.is_kept() || !target.is_drive();
    (scene.expansion.is_some() && is_fixed).then(|| "its capacity is what it is".to_string())
}

/// Why a target cannot take part on this machine; `None` if it can.
pub(crate) fn lacks(target: &Target) -> Option<String> {
    match &target.kind {
        Kind::Qcow2 => qcow2::lacks(),
        Kind::Btrfs => btrfs::lacks(),
        Kind::Volume { .. } => volume::lacks(),
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

/// Drops what the page cache has of a file. Others' files stay there.
fn drop_cached(path: &Path) {
    let Ok(file) = std::fs::File::open(path) else { return };
    // Only what is on the disk can be dropped. A failure leaves the cache as it is, as on file systems
    // without one.
    let _ = file.sync_all();
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Bytes that a file takes on its file system.
fn allocated_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    /// Unit of `st_blocks`.
    const UNIT_BYTES: u64 = 512;
    path.metadata().map_or(0, |found| found.blocks() * UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uri_of_a_socket_is_escaped() {
        let uri = nbd_uri(Path::new("/mnt/some disk/50%&x=1/nbd.sock"));
        assert_eq!(uri, "nbd+unix:///?socket=/mnt/some%20disk/50%25%26x%3D1/nbd.sock");
    }
}
