//! What the kernel keeps with the queue of a node from the one before: devices of `loop` and `nbd` stay when
//! their disk goes.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use crate::upstream::spawn;

/// Longest wait for the kernel to change a setting of a queue.
const QUEUE_PATIENCE: Duration = Duration::from_secs(1);

/// Makes the kernel send flushes to a new node. An administrator may have written `write through` to
/// `queue/write_cache` of the device when it was another disk, and the kernel (6.18) keeps that.
pub(super) fn send_flushes(node: &Path) {
    if let Err(error) = send_flushes_in(Path::new("/sys"), node) {
        let node = node.display();
        tracing::error!(
            "the kernel sends no flushes to {node}, so synced data is not durable: write \"write back\" to \
             queue/write_cache of it ({error})"
        );
    }
}

fn send_flushes_in(sys: &Path, node: &Path) -> io::Result<()> {
    let attribute = sys.join("block").join(node.file_name().unwrap_or_default()).join("queue/write_cache");
    // Without sysfs, nothing is known.
    if fs::read_to_string(&attribute).is_ok_and(|shown| shown.trim_end() == "write through") {
        return fs::write(attribute, "write back");
    }
    Ok(())
}

/// Sets the time after which the driver looks what has become of a request. The kernel (6.12.117, 6.13) first
/// waits for all requests of the queue, which may be waiting for what the caller does next: after a while it
/// is not waited for.
pub(super) fn set_timeout(node: &Path, timeout: Duration) {
    let (done, is_done) = mpsc::channel::<()>();
    let path = node.to_path_buf();
    let set = move || {
        if let Err(error) = set_timeout_in(Path::new("/sys"), &path, timeout) {
            let node = path.display();
            tracing::warn!(%error, %node, "after a kill of the server, requests in flight may wait for 30 seconds");
        }
        drop(done);
    };
    match spawn("timeout", set) {
        // It carries nothing but its end.
        Ok(_) => _ = is_done.recv_timeout(QUEUE_PATIENCE),
        Err(error) => tracing::warn!(%error, "cannot start a thread: the queue's timeout stays as it is"),
    }
}

fn set_timeout_in(sys: &Path, node: &Path, timeout: Duration) -> io::Result<()> {
    let attribute = sys.join("block").join(node.file_name().unwrap_or_default()).join("queue/io_timeout");
    let wanted = timeout.as_millis().to_string();
    if fs::read_to_string(&attribute).is_ok_and(|shown| shown.trim_end() == wanted) {
        return Ok(());
    }
    fs::write(attribute, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_another_disk_gets_flushes() -> io::Result<()> {
        let sys = tempfile::tempdir()?;
        let node = Path::new("/dev/loop3");
        send_flushes_in(sys.path(), node)?;
        let attribute = sys.path().join("block/loop3/queue/write_cache");
        fs::create_dir_all(attribute.parent().expect("a folder"))?;
        for (shown, then) in [("write through\n", "write back"), ("write back\n", "write back\n")] {
            fs::write(&attribute, shown)?;
            send_flushes_in(sys.path(), node)?;
            assert_eq!(fs::read_to_string(&attribute)?, then);
        }
        Ok(())
    }

    #[test]
    fn a_timeout_that_is_right_is_not_written() -> io::Result<()> {
        let sys = tempfile::tempdir()?;
        let node = Path::new("/dev/nbd3");
        let attribute = sys.path().join("block/nbd3/queue/io_timeout");
        fs::create_dir_all(attribute.parent().expect("a folder"))?;
        // The kernel's newline is not there behind a write.
        for (shown, then) in [("2000\n", "2000\n"), ("30000\n", "2000")] {
            fs::write(&attribute, shown)?;
            set_timeout_in(sys.path(), node, Duration::from_secs(2))?;
            assert_eq!(fs::read_to_string(&attribute)?, then);
        }
        Ok(())
    }
}
