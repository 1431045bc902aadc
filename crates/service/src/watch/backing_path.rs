//! Checks that the path of the backing still leads to it while the drive is served. Another program may
//! delete, rename or replace the file. The server keeps using the file it has open.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::Root;
use host::file::{is_nfs_deleted, is_same};
use host::loops::is_on_deleted;
use rustix::io::Errno;
use status::BackingPlace;

/// Observations in a row with the same result before it counts: programs rename files temporarily, and udev
/// recreates links.
const OBSERVATIONS_MIN: u32 = 3;

/// An open backing and its path.
#[derive(Debug)]
pub(crate) struct BackingPath {
    file: Arc<File>,
    path: PathBuf,
    /// The file has had a name. One that never had any is temporary on purpose: `O_TMPFILE`, `memfd_create`,
    /// or opened by `/proc/PID/fd` after it was deleted.
    is_named: bool,
    /// Directory of the path when it first led to the backing. `None`: it never did, so a mismatch means
    /// nothing.
    home: Option<Home>,
    known: BackingPlace,
    /// The latest result, and the number of observations in a row that had it.
    latest: (BackingPlace, u32),
}

/// The directory of a backing.
#[derive(Debug)]
struct Home {
    /// Without symbolic links.
    path: PathBuf,
    /// Number of its file system.
    device: u64,
}

impl BackingPath {
    /// Of a file or block device that was opened by `path`.
    pub(crate) fn of(file: Arc<File>, path: &Path) -> BackingPath {
        let known = BackingPlace::Unknown;
        BackingPath { file, path: path.to_path_buf(), is_named: false, home: None, known, latest: (known, 0) }
    }

    /// Returns where the backing is. If that cannot be determined now, the previous result holds.
    ///
    /// A file system on the network may block the thread.
    pub(crate) fn observe(&mut self) -> BackingPlace {
        let found = self.find().unwrap_or(BackingPlace::Unknown);
        let in_a_row = if found == self.latest.0 { self.latest.1.saturating_add(1) } else { 1 };
        self.latest = (found, in_a_row);
        match found {
            BackingPlace::Unknown => {}
            BackingPlace::InPlace => self.known = found,
            BackingPlace::Moved | BackingPlace::Replaced | BackingPlace::Deleted => {
                if in_a_row >= OBSERVATIONS_MIN {
                    self.known = found;
                }
            }
        }
        self.known
    }

    /// Returns the result of the last observation.
    pub(crate) fn known(&self) -> BackingPlace {
        self.known
    }

    /// Returns where the backing is at this moment. `None` if that cannot be determined: access to the path
    /// is denied, or it leads through a file system that is not mounted.
    fn find(&mut self) -> Option<BackingPlace> {
        // Queries both again: some file systems change the number of an open file.
        let (open, at_path) = (self.file.metadata(), std::fs::metadata(&self.path));
        let open = match open {
            Ok(open) => open,
            Err(error) => return self.is_deleted_elsewhere(&error).then_some(BackingPlace::Deleted),
        };
        self.is_named |= open.nlink() > 0;
        if open.is_file() && self.is_named && open.nlink() == 0 {
            return Some(BackingPlace::Deleted);
        }
        if open.file_type().is_block_device() && is_on_deleted(&Root::machine(), open.rdev()) {
            return Some(BackingPlace::Deleted);
        }
        match at_path {
            Ok(found) if is_same(&open, &found) => {
                if self.home.is_none() {
                    self.home = home_of(&self.path);
                }
                Some(BackingPlace::InPlace)
            }
            Ok(_) => self.home.is_some().then(|| self.elsewhere(BackingPlace::Replaced)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                // Nodes of devices come and go, and hold no data.
                let can_be_moved = open.is_file() && self.home.as_ref().is_some_and(Home::is_mounted);
                can_be_moved.then(|| self.elsewhere(BackingPlace::Moved))
            }
            Err(_) => None,
        }
    }

    /// Returns whether an open file cannot be asked because another client of its NFS server has deleted it.
    fn is_deleted_elsewhere(&self, error: &Error) -> bool {
        self.is_named && error.raw_os_error() == Some(Errno::STALE.raw_os_error())
    }

    /// Returns `place` for a file that has another name than its path, unless that name is one of a deleted
    /// file.
    fn elsewhere(&self, place: BackingPlace) -> BackingPlace {
        let real = std::fs::read_link(by_descriptor(&self.file)).unwrap_or_default();
        if is_nfs_deleted(&real) { BackingPlace::Deleted } else { place }
    }
}

impl Home {
    /// Returns whether the file system of the directory is where it was: that of the directory, or if it is
    /// gone of the nearest one above that exists.
    fn is_mounted(&self) -> bool {
        let nearest = self.path.ancestors().find_map(|path| std::fs::metadata(path).ok());
        nearest.is_some_and(|nearest| nearest.dev() == self.device)
    }
}

/// Returns a path that leads to an open file of this process, whatever its name is.
pub(crate) fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the directory that a path leads to.
fn home_of(path: &Path) -> Option<Home> {
    // `/proc/PID/fd/N` of a file without a name has no real path.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let home = real.parent()?;
    let device = std::fs::metadata(home).ok()?.dev();
    Some(Home { path: home.to_path_buf(), device })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// A folder with a file `drive` in a folder of its own.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> std::io::Result<Files> {
            let files = Files(tempfile::tempdir()?);
            fs::create_dir(files.path("home"))?;
            fs::write(files.path("home/drive"), "a drive")?;
            Ok(files)
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        /// The file at a path, observed once.
        fn place(&self, path: &str) -> std::io::Result<BackingPath> {
            let path = self.path(path);
            let mut place = BackingPath::of(Arc::new(File::open(&path)?), &path);
            assert_eq!(place.observe(), BackingPlace::InPlace);
            Ok(place)
        }
    }

    /// Looks as often as a result needs to count.
    fn settled(place: &mut BackingPath) -> BackingPlace {
        for _ in 1..OBSERVATIONS_MIN {
            place.observe();
        }
        place.observe()
    }

    #[test]
    fn a_deleted_file_is_deleted_whatever_is_at_its_path() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::remove_file(files.path("home/drive"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        fs::write(files.path("home/drive"), "another")?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        fs::remove_dir_all(files.path("home"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        Ok(())
    }

    #[test]
    fn a_file_that_another_one_is_renamed_over_is_deleted() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::write(files.path("new"), "another")?;
        fs::rename(files.path("new"), files.path("home/drive"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        Ok(())
    }

    #[test]
    fn a_renamed_file_is_moved_and_then_replaced_until_it_is_back() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        let (here, there) = (files.path("home/drive"), files.path("there"));
        fs::rename(&here, &there)?;
        assert_eq!(place.observe(), BackingPlace::InPlace, "it may come back at once");
        assert_eq!(settled(&mut place), BackingPlace::Moved);
        fs::write(&here, "another")?;
        assert_eq!(settled(&mut place), BackingPlace::Replaced);
        fs::rename(&there, &here)?;
        assert_eq!(place.observe(), BackingPlace::InPlace);
        Ok(())
    }

    #[test]
    fn a_file_with_two_names_is_moved_when_it_loses_one_and_deleted_without_both() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::hard_link(files.path("home/drive"), files.path("second"))?;
        assert_eq!(settled(&mut place), BackingPlace::InPlace);
        fs::remove_file(files.path("home/drive"))?;
        assert_eq!(settled(&mut place), BackingPlace::Moved);
        fs::remove_file(files.path("second"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        Ok(())
    }

    #[test]
    fn a_file_that_an_nfs_client_keeps_until_it_is_closed_is_deleted() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::rename(files.path("home/drive"), files.path("home/.nfs00000000000a1b2c00000001"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        fs::write(files.path("home/drive"), "another")?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted);
        Ok(())
    }

    #[test]
    fn a_file_that_another_nfs_client_has_deleted_is_deleted_if_it_had_a_name() -> Outcome {
        let (stale, other) = (Error::from(Errno::STALE), Error::from(Errno::IO));
        let files = Files::new()?;
        let place = files.place("home/drive")?;
        assert!(place.is_deleted_elsewhere(&stale) && !place.is_deleted_elsewhere(&other));
        let file = Arc::new(tempfile::tempfile()?);
        let mut place = BackingPath::of(file.clone(), &by_descriptor(&file));
        place.observe();
        assert!(!place.is_deleted_elsewhere(&stale));
        Ok(())
    }

    #[test]
    fn a_renamed_folder_moves_the_file() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::rename(files.path("home"), files.path("away"))?;
        assert_eq!(settled(&mut place), BackingPlace::Moved);
        // A part of the path is no folder now.
        fs::write(files.path("home"), "a file")?;
        assert_eq!(settled(&mut place), BackingPlace::Moved);
        Ok(())
    }

    #[test]
    fn a_link_that_leads_elsewhere_or_nowhere() -> Outcome {
        let files = Files::new()?;
        let link = files.path("link");
        symlink(files.path("home/drive"), &link)?;
        let mut place = files.place("link")?;
        fs::write(files.path("other"), "another")?;
        fs::remove_file(&link)?;
        assert_eq!(settled(&mut place), BackingPlace::Moved);
        symlink(files.path("other"), &link)?;
        assert_eq!(settled(&mut place), BackingPlace::Replaced);
        fs::remove_file(&link)?;
        symlink(files.path("home/../home/drive"), &link)?;
        assert_eq!(place.observe(), BackingPlace::InPlace);
        Ok(())
    }

    #[test]
    fn what_comes_back_at_once_is_not_seen() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        for _ in 0..OBSERVATIONS_MIN {
            fs::rename(files.path("home/drive"), files.path("there"))?;
            assert_eq!(place.observe(), BackingPlace::InPlace);
            fs::rename(files.path("there"), files.path("home/drive"))?;
            assert_eq!(place.observe(), BackingPlace::InPlace);
        }
        Ok(())
    }

    #[test]
    fn a_path_that_cannot_be_looked_at_says_nothing() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        fs::rename(files.path("home"), files.path("away"))?;
        // Any error other than not found.
        symlink(files.path("home"), files.path("home"))?;
        assert_eq!(settled(&mut place), BackingPlace::InPlace);
        fs::remove_file(files.path("away/drive"))?;
        assert_eq!(settled(&mut place), BackingPlace::Deleted, "the open file says that");
        Ok(())
    }

    #[test]
    fn a_file_system_that_is_not_mounted_says_nothing() -> Outcome {
        let files = Files::new()?;
        let mut place = files.place("home/drive")?;
        // As if the folder above were a mount point, under which there is another file system now.
        place.home.as_mut().ok_or("no home")?.device += 1;
        fs::rename(files.path("home"), files.path("away"))?;
        assert_eq!(settled(&mut place), BackingPlace::InPlace);
        Ok(())
    }

    #[test]
    fn a_file_that_never_had_a_name_is_not_deleted() -> Outcome {
        let file = Arc::new(tempfile::tempfile()?);
        let path = by_descriptor(&file);
        let mut place = BackingPath::of(file.clone(), &path);
        assert_eq!(settled(&mut place), BackingPlace::InPlace);
        // A path that does not lead to it from the start on, either.
        let mut place = BackingPath::of(file, Path::new("/dev/null"));
        assert_eq!(settled(&mut place), BackingPlace::Unknown);
        Ok(())
    }

    #[test]
    fn a_path_that_never_led_to_the_file_says_nothing() -> Outcome {
        let files = Files::new()?;
        fs::write(files.path("other"), "another")?;
        let mut place =
            BackingPath::of(Arc::new(File::open(files.path("home/drive"))?), &files.path("other"));
        assert_eq!(settled(&mut place), BackingPlace::Unknown);
        fs::remove_file(files.path("other"))?;
        assert_eq!(settled(&mut place), BackingPlace::Unknown);
        Ok(())
    }
}
