//! An owner that gives its backing back writes its last mark after all that was begun before, and nothing
//! begins afterwards. What is lost never holds again.

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::code::Lease;
use crate::memory::Memory;

/// The backing, and the right to change it.
struct Drive {
    lease: Lease,
    backing: Memory,
}

impl Drive {
    fn new() -> Arc<Drive> {
        let lease = Lease::new(std::sync::Arc::new(|| 0));
        lease.extend(1);
        Arc::new(Drive { lease, backing: Memory::new() })
    }

    /// Simulates a file: the operation is given to the kernel if the lease holds.
    fn write(&self) {
        let Ok(changing) = self.lease.begin() else { return };
        if self.lease.holds() {
            self.backing.write();
        }
        changing.end();
    }

    /// Simulates the end of an owner, which writes its mark if nothing else is written any more.
    fn give_back(&self) {
        if let Some(rest) = self.lease.close("closed") {
            assert!(rest.holds());
            self.backing.write();
        }
    }
}

pub(crate) fn the_last_write_is_the_last() {
    let drive = Drive::new();
    let writer = {
        let drive = drive.clone();
        thread::spawn(move || drive.write())
    };
    drive.give_back();
    writer.join().expect("no thread panics");
    assert!(drive.lease.is_quiet());
}

/// The lease is extended by one thread, and lost by another.
pub(crate) fn a_lost_lease_is_not_extended() {
    let drive = Drive::new();
    let looking = {
        let drive = drive.clone();
        thread::spawn(move || drive.lease.extend(2))
    };
    drive.lease.lose("taken over");
    looking.join().expect("no thread panics");
    assert!(!drive.lease.holds(), "a lost lease holds");
}

/// A request that waits for the lease gets it, or learns that it is lost.
pub(crate) fn who_waits_for_a_lease_is_told() {
    let drive = Drive::new();
    drive.lease.suspend();
    let waiting = {
        let drive = drive.clone();
        thread::spawn(move || block_on(drive.lease.confirm()))
    };
    drive.lease.extend(1);
    assert!(waiting.join().expect("no thread panics").is_ok());
    let waiting = {
        let drive = drive.clone();
        drive.lease.suspend();
        thread::spawn(move || block_on(drive.lease.confirm()))
    };
    drive.lease.lose("taken over");
    assert!(waiting.join().expect("no thread panics").is_err());
}
