//! A block device as a backing: a loop device, where the machine lets the test make one.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{exercise, now};
use media::{Direct, FileMedia, Media, MediaError};

/// A loop device that goes away with the test.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(file: &std::path::Path) -> Result<LoopDevice, String> {
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .map_err(|error| format!("cannot run losetup: {error}"))?;
        match output.status.success() {
            true => Ok(LoopDevice(String::from_utf8_lossy(&output.stdout).trim().into())),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.0).status());
    }
}

#[test]
fn a_block_device_is_a_backing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let file = dir.path().join("disk");
    std::fs::write(&file, vec![7; 8 << 20]).expect("disk file");
    let device = match LoopDevice::attach(&file) {
        Ok(device) => device,
        Err(reason) => return eprintln!("skipped: no loop device here: {reason}"),
    };
    let media = FileMedia::open(&device.0, false, Direct::Auto).expect("open");
    assert!(media.block_device());
    assert_eq!(media.size_bytes(), 8 << 20);
    let second = FileMedia::open(&device.0, false, Direct::Auto).expect_err("claimed");
    assert!(matches!(second, MediaError::InUse { .. }), "{second}");
    now(exercise(&media));
    match now(media.discard(0, 4 << 20)) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {}
        result => result.expect("discard"),
    }
    drop(media);
    FileMedia::open(&device.0, true, Direct::Off).expect("free again");
}
