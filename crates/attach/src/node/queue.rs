//! What the kernel keeps with the queue of a node from the one before: devices of `loop` and `nbd` stay when
//! their disk goes.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

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

/// Sets the time after which the driver looks what has become of a request.
pub(super) fn set_timeout(node: &Path, timeout: Duration) {
    let name = node.file_name().unwrap_or_default();
    let attribute = Path::new("/sys/block").join(name).join("queue/io_timeout");
    if let Err(error) = fs::write(&attribute, timeout.as_millis().to_string()) {
        let attribute = attribute.display();
        tracing::warn!(%error, %attribute, "after a kill of the server, requests in flight may wait for 30 seconds");
    }
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
}
