//! The drives of a server: a list that grows and shrinks while others look at it.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::served::ServedDrive;

/// Drives that are being served; clones share the list.
#[derive(Clone, Default)]
pub struct Drives(Arc<RwLock<Vec<Arc<ServedDrive>>>>);

impl Drives {
    /// All of them now.
    pub fn all(&self) -> Vec<Arc<ServedDrive>> {
        self.0.read().clone()
    }

    /// Adds one at the end.
    pub fn add(&self, drive: Arc<ServedDrive>) {
        self.0.write().push(drive);
    }

    /// Takes one off; it goes on living where it is used.
    pub fn remove(&self, drive: &Arc<ServedDrive>) {
        self.0.write().retain(|other| !Arc::ptr_eq(other, drive));
    }
}

impl From<Vec<Arc<ServedDrive>>> for Drives {
    fn from(drives: Vec<Arc<ServedDrive>>) -> Drives {
        Drives(Arc::new(RwLock::new(drives)))
    }
}

impl From<Arc<ServedDrive>> for Drives {
    fn from(drive: Arc<ServedDrive>) -> Drives {
        Drives::from(vec![drive])
    }
}
