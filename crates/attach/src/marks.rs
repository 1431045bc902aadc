//! Marks of an attached drive, by its file and by its paths: see [`ask::AttachedMark`].

use std::io;
use std::path::{Path, PathBuf};

use ask::{AttachedMark, MarkName, names_of};
use status::FileId;

/// Tells servers that are started that the drive is attached, until this is dropped.
pub(crate) struct Marks {
    /// Paths of the drive as the bridge has it.
    paths: Vec<PathBuf>,
    held: Vec<(MarkName, AttachedMark)>,
}

impl Marks {
    /// None yet, for a drive at a path.
    pub(crate) fn of(path: &Path) -> Marks {
        Marks { paths: names_of(path), held: Vec::new() }
    }

    /// Marks the drive. It may be in another file than before. `served`: its path as its server has it.
    ///
    /// # Errors
    /// If another bridge has marked the drive in this file.
    pub(crate) fn set(&mut self, uuid: &str, file: Option<&FileId>, served: Option<&Path>) -> io::Result<()> {
        // A server of an older program neither reports its file nor checks for marks.
        let Some(file) = file else { return Ok(()) };
        let paths = self.paths.iter().map(PathBuf::as_path).chain(served);
        let of_paths = paths.map(|path| MarkName::at(uuid, path));
        let names: Vec<MarkName> = std::iter::once(MarkName::of(uuid, file)).chain(of_paths).collect();
        self.held.retain(|(known, _)| names.contains(known));
        for (number, name) in names.into_iter().enumerate() {
            if self.held.iter().any(|(known, _)| *known == name) {
                continue;
            }
            match AttachedMark::set(&name) {
                Ok(mark) => self.held.push((name, mark)),
                // Where files have other names, a copy may be at the same path.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && number == 0 => return Err(error),
                // The server knows while it is connected.
                Err(error) => {
                    tracing::warn!(%error, "servers that are started do not know that the drive is attached")
                }
            }
        }
        Ok(())
    }
}
