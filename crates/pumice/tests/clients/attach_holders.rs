//! Devices that something holds when they are to be detached, and bridges that hang.

use std::process::{Child, Command, Stdio};

use crate::attach::{Attached, kill, usable};
use crate::attach_servers::Stopped;
use crate::common::server::wait_until;
use crate::common::{Outcome, fails, fails_with, sample, succeed};

/// A process, which is killed when this is dropped.
pub(crate) struct Held(Child);

impl Held {
    /// A shell that runs a script, and says so when it has got to its last command.
    pub(crate) fn by(script: &str) -> Held {
        let script = format!("{script}; echo; exec sleep 1000");
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().expect("sh");
        let mut byte = [0];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut byte).expect("it runs");
        Held(child)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_bridge_that_hangs_is_named_and_killed_by_force() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let data = sample(5, 1 << 20);
    std::fs::write(it.drive.file("data"), &data)?;
    let copy = |from: &str, to: &str, flag: &str| {
        succeed("dd", &[&format!("if={from}"), &format!("of={to}"), "bs=64k", "count=16", flag]);
    };
    copy(&it.drive.file("data"), &node, "oflag=direct");
    let pid = it.record()["bridge_pid"].as_i64().expect("a process");
    let why = [node.as_str(), &format!("its bridge, process {pid}, was stopped")];
    {
        let _stopped = Stopped::new(pid);
        let listed = it.listed();
        assert_eq!(listed["attachment"]["state"], "failed");
        assert!(listed["attachment"]["state_reason"].to_string().contains(why[1]), "{listed}");
        assert!(it.drive.pumice(&["list"]).stdout.contains("its bridge does not answer"));
        let run = it.drive.pumice(&["attach", &it.path()]);
        fails_with(4, &run, &[why[0], why[1], "pumice detach --force"]);
        fails(&it.drive.pumice(&["detach", &node]), &[why[0], why[1], "--force kills it"]);
    }
    wait_until("it goes on", || it.listed()["attachment"]["state"] == "attached");
    let _stopped = Stopped::new(pid);
    let run = it.drive.pumice(&["detach", "--force", &node]);
    assert!(run.code == Some(0) && run.stderr.contains("it was killed, after 10 seconds"), "{run:?}");
    assert!(it.folder().is_none(), "nothing is left");
    // Its server has closed the drive.
    let node = it.attach(&[]);
    copy(&node, &it.drive.file("read"), "iflag=direct");
    assert!(std::fs::read(it.drive.file("read"))? == data);
    it.detach(&node);
    Ok(())
}

#[test]
fn a_device_that_is_open_is_waited_for() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let held = Held::by(&format!("exec 5<{node}"));
    let holder = format!("in use by process {} (sleep)", held.0.id());
    fails(&it.drive.pumice(&["detach", "--wait", "0", &node]), &[&node, &holder]);
    let waiting = std::thread::scope(|scope| {
        let detaching = scope.spawn(|| it.drive.pumice(&["detach", "--wait", "600", &node]));
        std::thread::sleep(std::time::Duration::from_millis(500));
        let waits = !detaching.is_finished();
        drop(held);
        let run = detaching.join().expect("no panic");
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", it.logs());
        waits
    });
    assert!(waiting, "it waits");
    Ok(())
}

#[test]
fn a_file_system_that_was_unmounted_lazily_is_the_cause() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&["--mkfs", "ext4"]);
    let point = it.mount(&node);
    let held = Held::by(&format!("cd '{}'", point.display()));
    succeed("umount", &["--lazy", &point.display().to_string()]);
    let user = format!("process {} (sleep)", held.0.id());
    let run = it.drive.pumice(&["detach", "--wait", "0", &node]);
    fails(&run, &[&node, "unmounted lazily (`umount -l`)", &user]);
    drop(held);
    let run = it.drive.pumice(&["detach", "--wait", "600", &node]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", it.logs());
    Ok(())
}

#[test]
fn who_has_the_device_of_a_killed_bridge_is_named() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = it.drive.serve(&[]);
    let node = it.attach(&[]);
    let held = Held::by(&format!("exec 5<{node}"));
    kill(it.record()["bridge_pid"].as_i64().expect("a process"));
    let holder = format!("in use by process {} (sleep)", held.0.id());
    fails(&it.drive.pumice(&["detach", "--wait", "0", &it.path()]), &[&node, &holder]);
    drop(held);
    it.detach(&it.path());
    assert!(server.stop().success());
    Ok(())
}
