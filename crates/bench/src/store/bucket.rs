//! A bucket of the user behind an S3 gateway. Objects are put under a prefix of this run, and removed after
//! each scene.

use std::sync::Arc;

use super::{Space, Store, Workshop, cluster::Cluster};
use crate::error::{BenchError, Result};
use crate::fio::IoTarget;
use crate::objects::Access;
use crate::target::{S3Address, Target};

/// Prefix of the objects of a run. The folder's name is like no other.
fn prefix(workshop: &Workshop<'_>) -> String {
    format!("{}/", workshop.folder.file_name().unwrap_or_default().to_string_lossy())
}

/// Removes what a gateway has stored after its store was removed. Returns what stays, by name.
pub(super) fn remove_late(workshop: &Workshop<'_>, address: &S3Address) -> Option<String> {
    // It was possible before.
    let access = Access::to(address, prefix(workshop), workshop.stop).ok()?;
    access.remove_late()
}

/// Access to a bucket, and the space it took before.
pub(crate) struct Bucket {
    io_target: IoTarget,
    access: Arc<Access>,
    cluster: Cluster,
    name: String,
    capacity_bytes: u64,
    pids: Vec<u32>,
    before: Option<Space>,
}

impl Bucket {
    pub(crate) fn open(workshop: &Workshop<'_>, address: &S3Address, target: &Target) -> Result<Bucket> {
        let access = Access::open(address, prefix(workshop), workshop.stop)?;
        let cluster = Cluster::new(workshop, address.conf.as_deref(), &target.drives);
        let mut bucket = Bucket {
            io_target: IoTarget::Objects,
            access: Arc::new(access),
            cluster,
            name: address.bucket.clone(),
            capacity_bytes: workshop.size_bytes,
            pids: target.pids.clone(),
            before: None,
        };
        match bucket.total() {
            Ok(total) => bucket.before = total,
            Err(error) => {
                return Err(match bucket.remove() {
                    None => error,
                    Some(left) => BenchError::LeftBehind { source: Box::new(error), left },
                });
            }
        }
        Ok(bucket)
    }

    /// What drives hold, or what the bucket takes.
    fn total(&self) -> Result<Option<Space>> {
        match self.cluster.has_drives() {
            true => self.cluster.drives_space(),
            false => self.cluster.bucket_space(&self.name),
        }
    }
}

impl Store for Bucket {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn objects(&self) -> Option<&Arc<Access>> {
        Some(&self.access)
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn counts_writes(&self) -> bool {
        self.cluster.has_drives()
    }

    fn servers(&self) -> Vec<u32> {
        self.pids.clone()
    }

    /// What came to that by these objects: what Ceph keeps for itself compresses otherwise.
    fn space(&self) -> Result<Option<Space>> {
        let now = self.total()?;
        Ok(now.zip(self.before).map(|(now, before)| {
            let logical = now.logical_used_bytes.saturating_sub(before.logical_used_bytes);
            let physical = now.physical_used_bytes.saturating_sub(before.physical_used_bytes);
            let ratio = if physical > 0 { logical as f64 / physical as f64 } else { 0.0 };
            Space { logical_used_bytes: logical, physical_used_bytes: physical, ratio, ..now }
        }))
    }

    fn remove(&self) -> Option<String> {
        self.access.remove_all()
    }

    fn may_be_late(&self) -> bool {
        self.access.may_be_late()
    }

    fn note(&self) -> Option<String> {
        Some("objects may be read from the memory of its servers".to_string())
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Nothing, unless the scene came to no end.
        let _ = self.access.remove_all();
    }
}
