//! Drives that are attached again: after the end of a bridge, and beside a detach.

use std::thread::{scope, sleep};
use std::time::Duration;

use crate::attach::{Attached, usable};
use crate::attach_holders::Held;
use crate::common::mounts::DROP_COPIES;
use crate::common::server::wait_until;
use crate::common::{Outcome, Run, fails, in_time, needs, succeed};

/// File of a loop device. Another process may have it as soon as it is free.
fn file_of(node: &str) -> Option<String> {
    let file = format!("/sys/block/{}/loop/backing_file", node.strip_prefix("/dev/")?);
    std::fs::read_to_string(file).ok().filter(|file| !file.trim().is_empty())
}

/// Waits until a loop device is not the drive's any more. Returns how to name the drive: by the device,
/// unless another process has that.
pub(crate) fn wait_until_left(it: &Attached, node: &str) -> String {
    let own = it.drive.file("");
    wait_until("the device is free", || file_of(node).is_none_or(|file| !file.starts_with(&own)));
    if file_of(node).is_none() { node.to_string() } else { it.path() }
}

/// Detaches a drive by its device that the kernel has freed, or by its path if another process takes that
/// device first.
fn detach_left(it: &Attached, node: &str) {
    let run = it.drive.pumice(&["detach", &wait_until_left(it, node)]);
    let is_taken = run.code == Some(1) && run.stderr.contains("removes what is left");
    assert!(run.code == Some(0) || is_taken, "{run:?}");
    if is_taken {
        it.detach(&it.path());
    }
}

/// What a command says to people has no text of a library, and blames nobody for what Pumice does itself.
fn is_clear(run: &Run) {
    for riddle in ["os error", "EOF", "line 1 column", "losetup", "does not answer"] {
        assert!(!run.stderr.contains(riddle), "{riddle}: {run:?}");
    }
}

/// Kills the bridge and its server while a process has the device open. `attach` is refused, and the kernel
/// takes the file from the device when that process closes it.
fn lose_bridge(it: &Attached) -> String {
    let node = it.attach(&[]);
    let held = Held::by(&format!("exec 5<{node}"));
    it.kill_bridge_and_server();
    let pending = |run: &Run| {
        run.code == Some(1) && run.stderr.contains(&node) && !run.stderr.contains("already attached")
    };
    // The kernel closes the files of the bridge first.
    wait_until("a refusal", || pending(&it.drive.pumice(&["attach", &it.path(), "--by", "loop"])));
    assert!(file_of(&node).is_some(), "a refusal takes it from nobody");
    drop(held);
    wait_until_left(it, &node);
    node
}

#[test]
fn a_device_that_a_killed_bridge_left_and_the_kernel_freed_keeps_nobody_from_it() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = lose_bridge(&it);
    let reason = it.listed()["attachment"]["state_reason"].to_string();
    assert!(reason.contains(&format!("its bridge process has ended, and {node} is ")), "{reason}");
    assert!(reason.contains("`pumice attach`"), "{reason}");
    let again = it.attach(&[]);
    it.detach(&again);
    // By its node, and by its drive.
    let node = lose_bridge(&it);
    detach_left(&it, &node);
    lose_bridge(&it);
    it.detach(&it.path());
    Ok(())
}

#[test]
fn a_device_that_a_killed_bridge_left_and_that_is_another_file_s_stays_that() -> Outcome {
    if !usable() || !needs(&["losetup"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = lose_bridge(&it);
    let image = it.drive.file("image");
    std::fs::write(&image, vec![0; 1 << 20])?;
    if in_time("losetup", &[&node, &image]).code != Some(0) {
        eprintln!("skipped: another process has {node} by now");
        return Ok(());
    }
    fails(&it.drive.pumice(&["detach", &node]), &[&node, "was the device of", &image]);
    let again = it.attach(&[]);
    assert_ne!(again, node);
    it.detach(&again);
    let file = std::fs::read_to_string(format!("/sys/block/{}/loop/backing_file", &node[5..]))?;
    assert_eq!(file.trim(), image, "it is another's");
    succeed("losetup", &["--detach", &node]);
    Ok(())
}

#[test]
fn a_device_that_was_taken_and_is_free_is_attached_again() -> Outcome {
    if !usable() || !needs(&["losetup"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let take = |node: &str| {
        succeed("losetup", &["--detach", node]);
        wait_until_left(&it, node);
    };
    for _ in 0..20 {
        let node = it.attach(&[]);
        let first = it.record()["bridge_pid"].clone();
        take(&node);
        let run = it.drive.pumice(&["attach", &it.path(), "--by", "loop"]);
        // Another process has taken it first, at any time before.
        if run.code == Some(1) && run.stderr.contains("was taken from it, and is the device of") {
            it.detach(&it.path());
            continue;
        }
        assert_eq!(run.code, Some(0), "{run:?}\n{}", it.logs());
        assert_ne!(it.record()["bridge_pid"], first, "another bridge");
        let node = run.stdout.trim();
        take(node);
        detach_left(&it, node);
        return Ok(());
    }
    eprintln!("skipped: other processes take each device that becomes free");
    Ok(())
}

#[test]
fn a_mount_namespace_that_was_made_meanwhile_keeps_neither_bridge_nor_server() -> Outcome {
    if !usable() || !needs(&["unshare"]) {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = it.drive.serve(&[]);
    let node = it.attach(&[]);
    // It has a copy of all mounts, that of the FUSE file too.
    let _held = Held::by(&format!("exec unshare --mount sh -c '{DROP_COPIES} echo; exec sleep 1000'"));
    it.detach(&node);
    // The file is mounted still. But its bridge has left, and was not killed.
    let node = it.attach(&[]);
    it.detach(&node);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn who_comes_while_a_drive_is_being_detached_waits_for_that() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    // The mount of the bridge cannot be removed meanwhile: the device is gone, and its bridge is not.
    let file = it.folder().expect("attached").join("file/drive");
    let held = Held::by(&format!("exec 5<'{}'", file.display()));
    let path = it.path();
    scope(|scope| {
        let detach = |what: &str| {
            let what = what.to_string();
            let it = &it;
            scope.spawn(move || it.drive.pumice(&["detach", &what]))
        };
        let first = detach(&path);
        let name = wait_until_left(&it, &node);
        let listed = it.listed();
        assert_eq!(listed["attachment"]["state"], "changing", "{listed}");
        assert!(it.drive.pumice(&["list"]).stdout.contains("being attached or detached"));
        let others = [detach(&name), detach(&path)];
        let waiting = || it.logs().matches("another process waits").count();
        wait_until("both wait", || waiting() == 2 || first.is_finished());
        let bounded = it.drive.pumice(&["detach", "--wait", "0", &path]);
        let attach = scope.spawn(|| it.drive.pumice(&["attach", &it.path(), "--by", "loop"]));
        sleep(Duration::from_millis(300));
        drop(held);
        let first = first.join().expect("no panic");
        assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
        for other in others {
            let other = other.join().expect("no panic");
            assert!(other.code == Some(0) || other.stderr.contains("not attached"), "{other:?}");
            is_clear(&other);
        }
        assert!(bounded.code == Some(0) || bounded.stderr.contains("it is being detached"), "{bounded:?}");
        is_clear(&bounded);
        let attached = attach.join().expect("no panic");
        assert_eq!(attached.code, Some(0), "{attached:?}");
    });
    it.detach(&path);
    Ok(())
}

#[test]
fn two_commands_at_once_give_no_riddles() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let _server = it.drive.serve(&[]);
    let path = it.path();
    for (milliseconds, second) in
        [0, 10, 20, 30, 40, 60].into_iter().flat_map(|delay| [(delay, "detach"), (delay, "attach")])
    {
        it.attach(&[]);
        scope(|scope| {
            let first = scope.spawn(|| it.drive.pumice(&["detach", &path]));
            sleep(Duration::from_millis(milliseconds));
            let run = it.drive.pumice(&[second, &path]);
            is_clear(&run);
            let is_expected = match second {
                "detach" => run.code == Some(0) || run.stderr.contains("not attached"),
                _ => run.code == Some(0) || run.stderr.contains("already attached"),
            };
            assert!(is_expected, "{second} after {milliseconds} ms: {run:?}");
            let first = first.join().expect("no panic");
            is_clear(&first);
            assert!(first.code == Some(0) || first.stderr.contains("not attached"), "{first:?}");
        });
        if it.folder().is_some() {
            it.detach(&path);
        }
    }
    fails(&it.drive.pumice(&["detach", &path]), &["not attached"]);
    Ok(())
}
