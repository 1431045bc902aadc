//! The list of a server's drives, which changes while others read it.

use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use status::StatusReport;

use crate::serving::down::DownDrive;
use crate::serving::served::ServedDrive;
use crate::watch::monitor::MonitorSettings;

/// Weak reference to the list, so that closed drives are not kept.
#[derive(Clone)]
pub(crate) struct WeakDrives {
    list: Weak<RwLock<List>>,
    only_down: bool,
}

impl WeakDrives {
    /// Returns the list, if it still exists.
    pub(crate) fn upgrade(&self) -> Option<Drives> {
        Some(Drives { list: self.list.upgrade()?, only_down: self.only_down })
    }
}

/// Drives that are being served, and configured ones that could not be opened. Clones share the list.
#[derive(Clone, Default)]
pub struct Drives {
    list: Arc<RwLock<List>>,
    /// Shows only those that could not be opened.
    only_down: bool,
}

#[derive(Default)]
struct List {
    up: Vec<Arc<ServedDrive>>,
    down: Vec<Arc<DownDrive>>,
}

impl Drives {
    /// Returns all drives being served.
    pub fn all(&self) -> Vec<Arc<ServedDrive>> {
        if self.only_down { Vec::new() } else { self.list.read().up.clone() }
    }

    /// Returns those that could not be opened.
    pub fn down(&self) -> Vec<Arc<DownDrive>> {
        self.list.read().down.clone()
    }

    /// Returns a view of the list that shows only drives that could not be opened.
    pub fn only_down(&self) -> Drives {
        Drives { list: self.list.clone(), only_down: true }
    }

    /// Returns a reference to the list that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakDrives {
        WeakDrives { list: Arc::downgrade(&self.list), only_down: self.only_down }
    }

    /// Returns the status of each drive: those being served, then those that could not be opened.
    pub fn reports(&self) -> Vec<StatusReport> {
        let up = self.all().into_iter().map(|drive| drive.report());
        up.chain(self.down().into_iter().map(|drive| drive.report())).collect()
    }

    /// Adds a drive at the end.
    pub fn add(&self, drive: Arc<ServedDrive>) {
        let mut list = self.list.write();
        assert!(!list.up.iter().any(|other| Arc::ptr_eq(other, &drive)), "a drive is listed once");
        list.up.push(drive);
    }

    /// Removes a drive. It continues to exist where it is used.
    pub fn remove(&self, drive: &Arc<ServedDrive>) {
        self.list.write().up.retain(|other| !Arc::ptr_eq(other, drive));
    }

    /// Records that the drive at `path` could not be opened, on the current runtime. It is down from now on.
    /// `writes_lost`: acknowledged writes are lost.
    pub fn fail(&self, path: &Path, settings: &MonitorSettings, error: &str, writes_lost: bool) {
        let drive = {
            let mut list = self.list.write();
            list.down.retain(|drive| drive.path() != path || drive.is_watched_by(settings));
            match list.down.iter().find(|drive| drive.path() == path) {
                Some(known) => known.clone(),
                None => {
                    let new = Arc::new(DownDrive::new(path, settings));
                    list.down.push(new.clone());
                    new
                }
            }
        };
        drive.fail(error, writes_lost);
    }

    /// Returns whether the drive at a path is down for a reason that begins so.
    pub fn is_down(&self, path: &Path, reason: &str) -> bool {
        self.list.read().down.iter().any(|drive| drive.path() == path && drive.has_reason(reason))
    }

    /// Removes the drives that are down and for which `stays` is false.
    pub fn retain_down(&self, stays: impl Fn(&Path) -> bool) {
        self.list.write().down.retain(|drive| stays(drive.path()));
    }
}

impl From<Vec<Arc<ServedDrive>>> for Drives {
    fn from(drives: Vec<Arc<ServedDrive>>) -> Drives {
        let list = List { up: drives, down: Vec::new() };
        Drives { list: Arc::new(RwLock::new(list)), only_down: false }
    }
}

impl From<Arc<ServedDrive>> for Drives {
    fn from(drive: Arc<ServedDrive>) -> Drives {
        Drives::from(vec![drive])
    }
}
