//! Marks of an attached drive, by its file and by its places in directories: see [`ask::AttachedMark`].

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use ask::{AttachedMark, MarkName};
use status::FileId;

/// Tells servers that are started that the drive is attached, until this is dropped.
#[derive(Default)]
pub(crate) struct Marks {
    /// Paths of the drive, as bridge and servers have it.
    paths: BTreeSet<PathBuf>,
    held: Vec<(MarkName, AttachedMark)>,
    /// Names that cannot be marked. The log says so once.
    missing: Vec<MarkName>,
}

impl Marks {
    /// Notes a path of the drive.
    pub(crate) fn note(&mut self, path: &Path) {
        if !self.paths.contains(path) {
            self.paths.insert(path.to_path_buf());
        }
    }

    /// Marks the drive. It may be in another file than before.
    ///
    /// # Errors
    /// If another bridge has marked the drive in this file.
    pub(crate) fn set(&mut self, uuid: &str, file: Option<&FileId>) -> io::Result<()> {
        // A server of an older program neither reports its file nor checks for marks.
        let Some(file) = file else { return Ok(()) };
        let places = self.paths.iter().flat_map(|path| MarkName::at(uuid, path));
        let names: Vec<MarkName> = std::iter::once(MarkName::of(uuid, file)).chain(places).collect();
        for (number, name) in names.iter().enumerate() {
            if self.held.iter().any(|(known, _)| known == name) {
                continue;
            }
            match AttachedMark::set(name) {
                Ok(mark) => self.held.push((name.clone(), mark)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && number == 0 => return Err(error),
                Err(error) if !self.missing.contains(name) => {
                    self.missing.push(name.clone());
                    // The server knows while it is connected.
                    tracing::warn!(%error, "servers that are started may not know that the drive is attached");
                }
                Err(_) => {}
            }
        }
        self.held.retain(|(known, _)| names.contains(known));
        Ok(())
    }
}
