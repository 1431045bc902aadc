//! `pumice doctor` with a real file system on the drive.

use serde_json::Value;

use crate::common::{Drive, Outcome, needs, succeed};
use crate::disk::Disk;

/// Returns verdict and text of the trimming check.
fn trim_above(drive: &Drive) -> (String, String) {
    check(drive, "trim-above")
}

/// Returns verdict and text of a check.
fn check(drive: &Drive, name: &str) -> (String, String) {
    let run = drive.pumice(&["doctor", &drive.file("drive"), "--json"]);
    let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let checks = answer["checks"].as_array().expect("checks");
    let found = checks.iter().find(|it| it["check"] == name).expect("the check");
    let field = |name: &str| found[name].as_str().unwrap_or_default().to_string();
    (field("verdict"), field("found"))
}

#[test]
fn the_filesystem_above_is_found_and_its_mount_options_are_shown() -> Outcome {
    if let Some(why) = Disk::missing() {
        eprintln!("skipped: {why}");
        return Ok(());
    }
    if !needs(&["mkfs.ext4", "mount", "fstrim", "sync"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let point = drive.folder().join("mount");
    let mut disk = Disk::attach(drive.folder(), &server.socket())?;
    let (verdict, found) = trim_above(&drive);
    assert_eq!(verdict, "unknown", "{found}");
    assert!(found.contains("not mounted"), "{found}");
    succeed("mkfs.ext4", &["-q", disk.device()]);
    disk.mount(&point)?;
    let at = format!("ext4 at {} ({})", point.display(), disk.device());
    let (verdict, found) = trim_above(&drive);
    // The result depends on whether this machine has the timer.
    assert!(verdict == "warn" || verdict == "ok" && found.contains("fstrim.timer"), "{verdict}: {found}");
    assert!(found.contains(&at), "{found}");
    succeed("mount", &["-o".as_ref(), "remount,discard".as_ref(), point.as_os_str()]);
    let (verdict, found) = trim_above(&drive);
    assert_eq!(verdict, "ok", "{found}");
    assert!(found.contains("discards what is deleted"), "{found}");
    // Data deleted without a trim stays on the drive.
    succeed("mount", &["-o".as_ref(), "remount,nodiscard".as_ref(), point.as_os_str()]);
    let (verdict, found) = check(&drive, "trim-gap");
    assert_eq!(verdict, "ok", "{found}");
    let file = point.join("file");
    std::fs::write(&file, codec::testdata::random(1, 24 << 20))?;
    succeed("sync", &["-f".as_ref(), point.as_os_str()]);
    std::fs::remove_file(&file)?;
    succeed("sync", &["-f".as_ref(), point.as_os_str()]);
    let (verdict, found) = check(&drive, "trim-gap");
    assert!(verdict == "warn" && found.contains("freed and not trimmed"), "{verdict}: {found}");
    succeed("fstrim", &[&point]);
    let (verdict, found) = check(&drive, "trim-gap");
    assert_eq!(verdict, "ok", "{found}");
    let (verdict, found) = check(&drive, "partition-above");
    assert!(verdict == "ok" && found.contains("no partitions"), "{verdict}: {found}");
    disk.unmount()?;
    drop(disk);
    assert!(server.stop().success());
    Ok(())
}
