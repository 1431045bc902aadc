//! A file, device, NBD export, NVMe/TCP namespace or RBD image of the user. Before each scene the part that
//! is used is discarded, where that is possible.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Discards, Space, Store, Workshop, cluster::Cluster};
use crate::error::{BenchError, Result};
use crate::examine::large_enough;
use crate::fio::IoTarget;
use crate::process;
use crate::target::Target;

/// Longest wait for a server to say how large its export is.
const ASK: Duration = Duration::from_secs(30);

/// What is there, and how much of it jobs use.
pub(crate) struct Kept {
    io_target: IoTarget,
    capacity_bytes: u64,
    pids: Vec<u32>,
    /// Who knows what it takes.
    cluster: Cluster,
    /// The pool of an image of Ceph.
    pool: Option<String>,
    discards: Discards,
    /// Whether servers answer what jobs ask.
    is_remote: bool,
    /// Keeps others from claiming a block device.
    _claim: Option<File>,
}

impl Kept {
    pub(crate) fn path(workshop: &Workshop<'_>, path: &Path, target: &Target) -> Result<Kept> {
        Kept::opened(workshop, path, target, true)
    }

    /// A device that requests to a server are behind. Its connection has claimed it for the run.
    pub(crate) fn remote(workshop: &Workshop<'_>, device: &Path, target: &Target) -> Result<Kept> {
        Ok(Kept { is_remote: true, ..Kept::opened(workshop, device, target, false)? })
    }

    fn opened(workshop: &Workshop<'_>, path: &Path, target: &Target, is_claimed: bool) -> Result<Kept> {
        let (file, size, is_device) = open(path, is_claimed).map_err(BenchError::io(path))?;
        let io_target = IoTarget::File(path.to_path_buf());
        let kept = Kept::new(workshop, io_target, &path.display().to_string(), size, target)?;
        let discards = if is_device { Discards::ByRequests } else { Discards::Holes(path.to_path_buf()) };
        // Direct requests to a file or device.
        Ok(Kept { _claim: Some(file), discards, is_remote: false, ..kept })
    }

    pub(crate) fn nbd(workshop: &Workshop<'_>, uri: &str, target: &Target) -> Result<Kept> {
        let program = process::need("nbdinfo", "libnbd-bin")?;
        let ended = process::run(&program, &["--size", uri], workshop.folder, ASK, workshop.stop)?;
        let size = ended.output.trim().parse();
        let size = size.map_err(|_| BenchError::target(uri, "the server does not say how large it is"))?;
        Kept::new(workshop, IoTarget::Nbd(uri.to_string()), uri, size, target)
    }

    /// Images of at least the size of stores: fio says so if one is smaller.
    pub(crate) fn rbd(
        workshop: &Workshop<'_>,
        pool: &str,
        images: &[String],
        conf: Option<&Path>,
        target: &Target,
    ) -> Result<Kept> {
        let usual = || std::env::var_os("CEPH_CONF").map_or("/etc/ceph/ceph.conf".into(), PathBuf::from);
        let conf = conf.map_or_else(usual, Path::to_path_buf);
        let io_target = IoTarget::Rbd {
            pool: pool.to_string(),
            images: images.to_vec(),
            conf: without_cache(workshop, &conf, &target.name)?,
        };
        let kept = Kept::new(workshop, io_target, &target.name, workshop.size_bytes, target)?;
        let cluster = Cluster::new(workshop, Some(&conf), &target.drives);
        Ok(Kept { pool: Some(pool.to_string()), cluster, ..kept })
    }

    fn new(
        workshop: &Workshop<'_>,
        io_target: IoTarget,
        name: &str,
        size: u64,
        target: &Target,
    ) -> Result<Kept> {
        large_enough(size).map_err(|problem| BenchError::target(name, problem))?;
        let capacity_bytes = size.min(workshop.size_bytes);
        Ok(Kept {
            io_target,
            capacity_bytes,
            pids: target.pids.clone(),
            cluster: Cluster::new(workshop, None, &target.drives),
            pool: None,
            discards: Discards::ByRequests,
            is_remote: true,
            _claim: None,
        })
    }
}

/// Copies a configuration of Ceph, with librbd's cache off: it answers reads, and gathers writes, before the
/// pool sees them.
fn without_cache(workshop: &Workshop<'_>, conf: &Path, name: &str) -> Result<PathBuf> {
    let text = std::fs::read_to_string(conf).map_err(BenchError::io(conf))?;
    // A name may have any characters.
    let name: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    let copy = workshop.path(&format!("ceph-{name}.conf"));
    let text = format!("{text}\n[client]\nrbd cache = false\n");
    std::fs::write(&copy, text).map_err(BenchError::io(&copy))?;
    Ok(copy)
}

/// Opens a file or block device, and returns its size. To claim a device it is opened with `O_EXCL`, which
/// fails while it or one of its partitions is mounted, swap, part of another device, or claimed by others
/// (`open(2)`).
fn open(path: &Path, is_claimed: bool) -> std::io::Result<(File, u64, bool)> {
    let mut options = File::options();
    options.read(true);
    let is_device = path.metadata()?.file_type().is_block_device();
    if is_device && is_claimed {
        options.custom_flags(rustix::fs::OFlags::EXCL.bits() as i32);
    }
    let mut file = options.open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    Ok((file, size, is_device))
}

impl Store for Kept {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
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

    fn discards(&self) -> &Discards {
        &self.discards
    }

    fn space(&self) -> Result<Option<Space>> {
        match &self.pool {
            _ if self.cluster.has_drives() => self.cluster.drives_space(),
            Some(pool) => self.cluster.pool_space(pool),
            None => Ok(None),
        }
    }

    fn note(&self) -> Option<String> {
        self.is_remote.then(|| "reads may be answered from the memory of its servers".to_string())
    }
}
