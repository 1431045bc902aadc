//! Partitions of attached drives, and nodes that were taken from them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::attach::{Attached, usable};
use crate::attach_again::wait_until_left;
use crate::common::mounts::unmount;
use crate::common::server::wait_until;
use crate::common::{Outcome, fails, in_time, needs, succeed};

/// Writes a table of one partition, from 1 MiB on, of 64 MiB. Returns whether this kernel reads it;
/// otherwise, the partition is made by hand.
pub(crate) fn partition(node: &str) -> Outcome<bool> {
    let mut sector = [0; 512];
    sector[446 + 4] = 0x83;
    sector[446 + 8..][..4].copy_from_slice(&2048_u32.to_le_bytes());
    sector[446 + 12..][..4].copy_from_slice(&131_072_u32.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let device = File::options().write(true).open(node)?;
    device.write_all_at(&sector, 0)?;
    device.sync_all()?;
    drop(device);
    // A process that looks at each new device may have it open.
    wait_until("the table is read", || in_time("blockdev", &["--rereadpt", node]).code == Some(0));
    let is_read = is_known(node, "p1");
    if !is_read {
        add(node, "1");
    }
    Ok(is_read)
}

/// Returns whether the kernel knows a partition.
fn is_known(node: &str, suffix: &str) -> bool {
    let name = node.trim_start_matches("/dev/");
    Path::new(&format!("/sys/block/{name}/{name}{suffix}")).exists()
}

fn add(node: &str, number: &str) {
    succeed("addpart", &[node, number, "2048", "131072"]);
}

#[test]
fn partitions_are_listed_and_go_with_the_device() -> Outcome {
    if !usable() || !needs(&["blockdev", "addpart"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "256M"]);
    let node = it.attach(&[]);
    let is_read = partition(&node)?;
    let (first, second) = (format!("{node}p1"), format!("{node}p7"));
    wait_until("the partition", || Path::new(&first).exists());
    succeed("mkfs.ext4", &["-q", &first]);
    let point = it.mount(&first);
    assert_eq!(it.listed()["attachment"]["mounted"], serde_json::json!([point]));
    for what in [&node, &it.path()] {
        fails(&it.drive.pumice(&["detach", what]), &[&node, &first, "mounted at", "umount"]);
    }
    assert!(Path::new(&first).exists(), "a refusal changes nothing");
    unmount(&point);

    // One that another program makes, and has open.
    succeed("addpart", &[&node, "7", "262144", "2048"]);
    wait_until("the partition", || Path::new(&second).exists());
    let open = File::open(&second)?;
    fails(&it.drive.pumice(&["detach", &node]), &["in use by process", &format!("by {second}")]);
    drop(open);
    it.detach(&node);
    for partition in ["p1", "p7"] {
        assert!(!is_known(&node, partition), "{partition}");
    }

    // The partitions of the table are there again, and no others.
    let node = it.attach(&[]);
    assert_eq!((is_known(&node, "p1"), is_known(&node, "p7")), (is_read, false), "{}", it.logs());
    if !is_read {
        add(&node, "1");
    }
    // What a killed bridge leaves.
    let pid = it.record()["bridge_pid"].as_i64().ok_or("no bridge")?;
    crate::attach::kill(pid);
    wait_until("detached", || it.drive.pumice(&["detach", &it.path()]).code == Some(0));
    assert!(!is_known(&node, "p1"));
    Ok(())
}

#[test]
fn a_node_that_was_taken_from_a_drive_is_not_named() -> Outcome {
    if !usable() || !needs(&["losetup"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let list = || it.drive.pumice(&["list"]).stdout;
    let is_gone = |why: &str, is_free: bool| {
        let (listed, shown) = (it.listed(), list());
        assert_eq!(listed["attachment"]["device"], serde_json::Value::Null, "{listed}");
        assert_eq!((&listed["state"], &listed["attachment"]["state"]), (&"online".into(), &"failed".into()));
        assert!(shown.contains("its device is gone: ") && shown.contains(why), "{shown}");
        if !is_free {
            fails(&it.drive.pumice(&["detach", &node]), &[&node, "was the device of", &it.path(), why]);
            fails(&it.drive.pumice(&["attach", &it.path()]), &["detach it first", why]);
        }
    };
    succeed("losetup", &["--detach", &node]);
    wait_until_left(&it, &node);
    // Another process may have it at once.
    is_gone("taken from it", true);
    let image = it.drive.file("image");
    fs::write(&image, vec![0; 1 << 20])?;
    let is_given = in_time("losetup", &[&node, &image]).code == Some(0);
    if is_given {
        is_gone(&image, false);
    }
    it.detach(&it.path());
    if is_given {
        let file = fs::read_to_string(format!("/sys/block/{}/loop/backing_file", &node[5..]))?;
        assert_eq!(file.trim(), image, "what is another's stays");
        succeed("losetup", &["--detach", &node]);
    }
    Ok(())
}

/// Neither the node nor the path names the drive alone.
#[test]
fn a_drive_without_its_node_and_its_path_is_detached_by_force() -> Outcome {
    if !usable() || !needs(&["losetup"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let (path, node) = (it.path(), it.attach(&[]));
    fs::remove_file(&path)?;
    succeed_create(&it, &path);
    let other = fs::read(&path)?;
    succeed("losetup", &["--detach", &node]);
    wait_until_left(&it, &node);
    let way_out = format!("`pumice detach --force {path}`");
    fails(&it.drive.pumice(&["detach", &node]), &[&way_out]);
    fails(
        &it.drive.pumice(&["detach", &path]),
        &["leads to", "was taken from it", &way_out, "all of its data is lost"],
    );
    let detached = it.drive.pumice(&["detach", "--force", &path]);
    assert_eq!(detached.code, Some(0), "{detached:?}");
    assert!(detached.stderr.contains("all of its data is lost"), "{detached:?}");
    assert!(fs::read(&path)? == other, "the other drive was touched");
    fails(&it.drive.pumice(&["detach", "--force", &path]), &["not attached"]);
    // What is there now can be attached.
    let node = it.attach(&[]);
    it.detach(&node);
    Ok(())
}

fn succeed_create(it: &Attached, path: &str) {
    let created = it.drive.pumice(&["create", path, "--size", "64M"]);
    assert_eq!(created.code, Some(0), "{created:?}");
}

#[test]
fn the_disk_of_an_attached_partition_is_not_made_anew() -> Outcome {
    if !usable() || !needs(&["losetup", "blockdev", "addpart"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let image = it.drive.file("disk");
    File::create(&image)?.set_len(96 << 20)?;
    let disk = succeed("losetup", &["--find", "--show", "--partscan", &image]).trim().to_string();
    partition(&disk)?;
    let first = format!("{disk}p1");
    wait_until("the partition", || Path::new(&first).exists());
    fs::remove_file(it.drive.path())?;
    std::os::unix::fs::symlink(&first, it.drive.path())?;
    assert_eq!(it.drive.pumice(&["create", &it.path()]).code, Some(0));
    let server = it.drive.serve(&[]);
    let node = it.attach(&["--timeout", "120"]);
    server.kill();
    for backing in [&disk, &first] {
        let run = it.drive.pumice(&["create", backing, "--force"]);
        fails(&run, &[&first, "attached as ", &node, "detach it first"]);
    }
    let server = it.drive.serve(&[]);
    // Answered once the bridge has found it.
    succeed("dd", &[&format!("if={node}"), "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]);
    it.detach(&node);
    assert!(server.stop().success());
    wait_until("the disk is free", || in_time("losetup", &["--detach", &disk]).code == Some(0));
    Ok(())
}
