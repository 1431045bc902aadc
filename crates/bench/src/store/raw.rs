//! A file without compression.

use std::fs::{self, File};
use std::path::PathBuf;

use super::limited::Limited;
use super::{Space, Store, Workshop, allocated_bytes};
use crate::error::{BenchError, Result};
use crate::fio::IoTarget;

/// A new file, removed at the end.
pub(crate) struct Raw {
    io_target: IoTarget,
    path: PathBuf,
    size_bytes: u64,
    backing: Option<Limited>,
}

impl Raw {
    pub(crate) fn open(workshop: &Workshop<'_>, backing: Option<Limited>) -> Result<Raw> {
        let path = match &backing {
            Some(backing) => backing.path().to_path_buf(),
            None => {
                let path = workshop.path("raw");
                File::create(&path)
                    .and_then(|file| file.set_len(workshop.size_bytes))
                    .map_err(BenchError::io(&path))?;
                path
            }
        };
        Ok(Raw { io_target: IoTarget::File(path.clone()), path, size_bytes: workshop.size_bytes, backing })
    }
}

impl Store for Raw {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn capacity_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn devices(&self) -> Vec<u32> {
        self.backing.as_ref().map_or(Vec::new(), Limited::pids)
    }

    fn drop_caches(&self) {
        super::drop_cached(&self.path);
    }

    fn space(&self) -> Result<Option<Space>> {
        let used = allocated_bytes(&self.path);
        // On a limited backing nothing is known.
        Ok(self.backing.is_none().then_some(Space {
            logical_used_bytes: used,
            physical_used_bytes: used,
            ratio: 1.0,
            ..Space::default()
        }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.backing.is_none() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
