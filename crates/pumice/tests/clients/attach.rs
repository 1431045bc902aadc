//! `pumice attach`, `detach` and `list` with the kernel of this machine: loop devices.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::mounts::unmount;
use crate::common::run::{USER, own_user};
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Run, fails, in_time, needs, sample, succeed};

/// Returns whether this machine can attach drives by loop devices.
pub(crate) fn usable() -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: attaching needs root");
        return false;
    }
    let open = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    if !open("/dev/fuse") || !open("/dev/loop-control") {
        eprintln!("skipped: no /dev/fuse or no /dev/loop-control here");
        return false;
    }
    needs(&["mount", "umount", "fstrim", "mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair", "fio"])
}

/// A drive to attach. Detaches it when dropped.
pub(crate) struct Attached {
    pub(crate) drive: Drive,
}

impl Attached {
    /// A drive whose run-time directory is in memory, as on most machines.
    pub(crate) fn create(arguments: &[&str]) -> Attached {
        let it = Attached::create_on_disk(arguments);
        let dir = it.drive.runtime_dir();
        fs::create_dir(&dir).expect("made");
        succeed(
            "mount",
            &[
                Path::new("-t"),
                Path::new("tmpfs"),
                Path::new("-o"),
                Path::new("mode=700"),
                Path::new("tmpfs"),
                &dir,
            ],
        );
        it
    }

    /// A drive whose run-time directory is on a disk, as in many containers.
    pub(crate) fn create_on_disk(arguments: &[&str]) -> Attached {
        Attached { drive: Drive::create(arguments) }
    }

    pub(crate) fn path(&self) -> String {
        text(&self.drive.path())
    }

    /// Attaches by a loop device. Returns the node.
    pub(crate) fn attach(&self, arguments: &[&str]) -> String {
        let run = self.drive.pumice(&[&["attach", &self.path(), "--by", "loop"], arguments].concat());
        assert_eq!(run.code, Some(0), "{run:?}\n{}", self.logs());
        assert!(run.stderr.contains(" attached by loop"), "{run:?}");
        run.stdout.trim().to_string()
    }

    pub(crate) fn detach(&self, what: &str) {
        let run = self.drive.pumice(&["detach", what]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", self.logs());
        assert!(!self.directory().exists(), "nothing is left");
    }

    fn directory(&self) -> PathBuf {
        self.drive.folder().join("run-attach")
    }

    /// Folder of the attachment.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        fs::read_dir(self.directory()).ok()?.flatten().map(|entry| entry.path()).next()
    }

    pub(crate) fn record(&self) -> Value {
        let file = self.folder().expect("attached").join("attachment.json");
        serde_json::from_slice(&fs::read(file).expect("a record")).expect("JSON")
    }

    pub(crate) fn logs(&self) -> String {
        let read = |name| self.folder().and_then(|folder| fs::read_to_string(folder.join(name)).ok());
        ["bridge.log", "server.log"].map(|name| read(name).unwrap_or_default()).concat()
    }

    /// The drive in `list --json`.
    pub(crate) fn listed(&self) -> Value {
        let run = self.drive.pumice(&["list", "--json"]);
        let mut list: Value = serde_json::from_str(&run.stdout).expect("JSON");
        list["drives"][0].take()
    }

    /// Kills the server that the bridge has started, as soon as it serves the drive.
    fn kill_server(&self) {
        kill(self.server());
    }

    /// Process id of the server that the bridge has started. Waits until it serves the drive.
    fn server(&self) -> i64 {
        let mut pid = None;
        wait_until("a server", || {
            // A server that is opening the drive does not answer yet.
            let run = self.drive.pumice(&["status", &text(&self.drive.path()), "--json"]);
            let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap_or_default();
            pid = answer["drives"][0]["server"]["pid"].as_i64();
            pid.is_some()
        });
        pid.expect("found")
    }

    /// Kills the server when it has served the drive for a while.
    pub(crate) fn kill_working_server(&self) {
        let pid = self.server();
        std::thread::sleep(Duration::from_millis(700));
        kill(pid);
    }

    /// Kills the server that the bridge has started, as it is recorded: whether or not it serves the drive.
    pub(crate) fn kill_server_at_once(&self) {
        let pid = self.record()["server_pid"].as_i64();
        kill(pid.expect("the bridge has started it"));
    }

    /// Kills the bridge, and the server that it has started.
    pub(crate) fn kill_bridge_and_server(&self) {
        kill(self.record()["bridge_pid"].as_i64().expect("a process"));
        self.kill_server_at_once();
    }

    pub(crate) fn mount(&self, node: &str) -> PathBuf {
        let point = self.drive.folder().join("mount");
        fs::create_dir_all(&point).expect("made");
        succeed("mount", &[Path::new(node), &point]);
        point
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // After a failure only.
        if self.folder().is_some() {
            in_time("umount", &["--lazy", &self.drive.file("mount")]);
            self.drive.pumice(&["detach", "--force", &self.path()]);
        }
        // A server of the test may have files there still.
        in_time("umount", &["--lazy", &text(&self.drive.runtime_dir())]);
    }
}

pub(crate) fn kill(pid: i64) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
}

/// fio with verification, while something is killed.
pub(crate) fn fio(folder: &Path, direct: bool, meanwhile: impl Fn()) {
    let arguments = [
        "--name=verified",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--blockalign=4k",
        "--size=48m",
        "--numjobs=2",
        "--ioengine=libaio",
        "--iodepth=16",
        "--fsync=64",
        "--loops=2",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--time_based=0",
    ];
    let (folder, direct) =
        (format!("--directory={}", folder.display()), format!("--direct={}", u8::from(direct)));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| in_time("fio", &[&arguments[..], &[&folder, &direct]].concat()));
        while !run.is_finished() {
            meanwhile();
        }
        let run = run.join().expect("no panic");
        assert_eq!(run.code, Some(0), "{run:?}");
    });
}

/// A file system from its making to its end, with kills of the server below it.
fn a_filesystem_sees_no_kill(kind: &str, check: &[&str]) -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "512M", "--capacity", "600M"]);
    let node = it.attach(&["--mkfs", kind]);
    assert_eq!(fs::read_to_string(format!("/sys/block/{}/loop/dio", &node[5..]))?.trim(), "1", "direct I/O");
    let point = it.mount(&node);
    let examined = it.drive.pumice(&["doctor", &it.path()]);
    assert!(examined.stdout.contains(&format!("at {} ({node})", point.display())), "{examined:?}");
    fio(&point, false, || it.kill_working_server());
    fio(&point, true, || it.kill_working_server());
    assert!(it.logs().matches("the server is gone").count() > 2, "{}", it.logs());
    for entry in fs::read_dir(&point)?.flatten().filter(|entry| entry.path().is_file()) {
        fs::remove_file(entry.path())?;
    }

    // Writes that were acknowledged and not flushed, in the memory of a server that is killed.
    let data = sample(7, 3 << 20);
    fs::write(point.join("data"), &data)?;
    rustix::fs::syncfs(File::open(&point)?)?;
    it.kill_server();
    unmount(&point);
    let point = it.mount(&node);
    assert!(fs::read(point.join("data"))? == data);

    // TRIM reaches the drive.
    fs::write(point.join("deleted"), sample(8, 64 << 20))?;
    rustix::fs::syncfs(File::open(&point)?)?;
    let used = || it.drive.status()["logical_used_bytes"].as_u64().expect("a number");
    let before = used();
    fs::remove_file(point.join("deleted"))?;
    wait_until("trimmed space to come back", || {
        rustix::fs::syncfs(File::open(&point).expect("mounted")).expect("synced");
        succeed("fstrim", &[&point]);
        used() + (32 << 20) < before
    });

    // The list, and what is refused while it is mounted.
    let listed = it.listed();
    assert_eq!(listed["attachment"]["device"], node.as_str());
    assert_eq!(listed["attachment"]["by"], "loop");
    assert_eq!(listed["attachment"]["state"], "attached");
    assert_eq!(listed["attachment"]["mounted"], serde_json::json!([text(&point)]));
    assert_eq!(listed["attachment"]["size_bytes"], 600 << 20);
    fails(&it.drive.pumice(&["detach", &node]), &[&node, "mounted at", "umount"]);
    fails(&it.drive.pumice(&["attach", &it.path()]), &["already attached as", &node]);
    unmount(&point);
    succeed(check[0], &[&check[1..], &[&node]].concat());
    it.detach(&node);
    fails(&it.drive.pumice(&["attach", &it.path(), "--mkfs", "ext4"]), &["it holds an", "--mkfs"]);
    assert!(!it.directory().exists(), "a refusal leaves nothing");
    let run = it.drive.pumice(&["check", "--deep", &it.path()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

#[test]
fn ext4_sees_no_kill() -> Outcome {
    a_filesystem_sees_no_kill("ext4", &["e2fsck", "-f", "-n"])
}

#[test]
fn xfs_sees_no_kill() -> Outcome {
    a_filesystem_sees_no_kill("xfs", &["xfs_repair", "-n"])
}

/// A server of the user's own: stopped, missed, started again. Then the drive grows.
#[test]
fn a_server_that_was_there_may_go_and_come() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M", "--capacity", "96M"]);
    let server = it.drive.serve(&[]);
    let node = it.attach(&[]);
    let data = sample(3, 1 << 20);
    fs::write(it.drive.file("data"), &data)?;
    let copy = |to: &str| {
        vec![
            format!("if={}", it.drive.file("data")),
            format!("of={to}"),
            "bs=64k".into(),
            "oflag=direct".into(),
        ]
    };
    succeed("dd", &copy(&node));
    assert!(server.stop().success());
    wait_until("the state", || it.listed()["attachment"]["state"] == "waiting");
    let list = it.drive.pumice(&["list"]);
    assert!(list.stdout.contains("waiting for the server"), "{list:?}");
    fails(&it.drive.pumice(&["detach", &node]), &["requests are held", "--force"]);
    let read = std::thread::spawn({
        let node = node.clone();
        move || {
            succeed(
                "sh",
                &["-c", &format!("dd if={node} bs=64k count=16 iflag=direct 2>/dev/null | sha256sum")],
            )
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!read.is_finished(), "it waits for the server");
    let server = it.drive.serve(&[]);
    let sum = read.join().map_err(|_| "the reader panicked")?;
    assert_eq!(sum, succeed("sh", &["-c", &format!("sha256sum <{}", it.drive.file("data"))]));
    // Small requests work too.
    succeed("dd", &[&format!("of={node}"), "if=/dev/zero", "bs=512", "count=3", "seek=1", "oflag=direct"]);
    let run = it.drive.pumice(&["set-capacity", &it.path(), "128M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    wait_until("growth", || succeed("blockdev", &["--getsize64", &node]).trim() == (128 << 20).to_string());
    wait_until("growth in the list", || it.listed()["attachment"]["size_bytes"] == 128 << 20);
    it.detach(&it.path());
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_run_time_directory_on_disk_loses_nothing() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create_on_disk(&["--size", "64M"]);
    let node = it.attach(&[]);
    let (data, back) = (it.drive.file("data"), it.drive.file("back"));
    fs::write(&data, sample(3, 1 << 20))?;
    let copy = |from: &str, to: &str, flag: &str| {
        succeed("dd", &[&format!("if={from}"), &format!("of={to}"), "bs=64k", "count=16", flag]);
    };
    for _ in 0..3 {
        copy(&data, &node, "oflag=direct");
        it.kill_server();
        copy(&node, &back, "iflag=direct");
        assert!(fs::read(&back)? == fs::read(&data)?, "{}", it.logs());
    }
    it.detach(&node);
    Ok(())
}

#[test]
fn a_full_drive_has_no_space() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "32M", "--capacity", "96M"]);
    let node = it.attach(&[]);
    let run = in_time("dd", &["if=/dev/urandom", &format!("of={node}"), "bs=1M", "oflag=direct", "count=90"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("No space left on device"), "{run:?}");
    it.detach(&node);
    Ok(())
}

/// A killed bridge and a killed server: the list says so, `detach` clears up, and the drive can be attached
/// again.
#[test]
fn what_a_killed_bridge_and_its_server_left_is_cleared_away() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    it.kill_bridge_and_server();
    wait_until("the state", || it.listed()["attachment"]["state"] == "failed");
    let again = it.attach(&[]);
    assert!(again.starts_with("/dev/loop"), "{again} {node}");
    it.kill_bridge_and_server();
    wait_until("the state", || it.listed()["attachment"]["state"] == "failed");
    it.detach(&it.path());
    // While it is mounted, all of it stays, so that it can be removed later.
    let node = it.attach(&["--mkfs", "ext4"]);
    let point = it.mount(&node);
    it.kill_bridge_and_server();
    wait_until("the state", || it.listed()["attachment"]["state"] == "failed");
    let run = it.drive.pumice(&["attach", &it.path()]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_eq!(it.record()["node"], node.as_str());
    unmount(&point);
    it.attach(&[]);
    it.detach(&it.path());
    let none = it.drive.pumice(&["list"]);
    assert!(none.stderr.contains("no drive is being served"), "{none:?}");
    Ok(())
}

/// Returns whether nothing of the drive is left on the machine.
fn is_clean(it: &Attached) -> bool {
    let folder = text(&it.directory());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut files = devices.filter_map(|it| fs::read_to_string(it.path().join("loop/backing_file")).ok());
    !it.directory().exists()
        && !mounts.contains(&folder)
        && !files.any(|file| file.contains(&folder))
        && it.drive.pumice(&["list"]).stderr.contains("no drive is being served")
}

#[test]
fn mkfs_spares_what_is_between_the_ends() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    succeed(
        "dd",
        &["if=/dev/urandom", &format!("of={node}"), "bs=4k", "count=1", "seek=5000", "oflag=direct"],
    );
    it.detach(&node);
    let run = it.drive.pumice(&["attach", &it.path(), "--mkfs", "ext4"]);
    assert!(run.code == Some(1) && run.stderr.contains("it holds data"), "{run:?}");
    assert!(is_clean(&it), "nothing is left");
    Ok(())
}

#[test]
fn a_killed_attach_leaves_nothing() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    for milliseconds in [1, 3, 5, 8, 12, 18, 25, 35, 50, 70, 90, 110, 150] {
        let mut attach = Command::new(env!("CARGO_BIN_EXE_pumice"))
            // mkfs takes its time, with the node there already.
            .args(["attach", &it.path(), "--by", "loop", "--mkfs", "ext4"])
            .env("PUMICE_RUNTIME_DIR", it.drive.runtime_dir())
            .env(USER, own_user())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(milliseconds));
        attach.kill()?;
        let mut printed = String::new();
        attach.stdout.take().ok_or("piped")?.read_to_string(&mut printed)?;
        attach.wait()?;
        if it.folder().is_some_and(|_| !printed.is_empty()) {
            // Too late: it was attached.
            it.detach(&it.path());
        }
        // The file system may have been made. Only the kill matters here.
        wait_until("everything to be removed", || is_clean(&it));
    }
    Ok(())
}

/// As docs/how-to/backing-trouble.md describes it.
#[test]
fn a_deleted_backing_is_copied_below_its_device_and_not_detached() -> Outcome {
    const DATA_BYTES: usize = 1 << 20;
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let status = || -> Value {
        let run = it.drive.pumice(&["status", "--json"]);
        let mut answer: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
        answer["drives"][0].take()
    };
    let is_refused = |what: &str| {
        fails(
            &it.drive.pumice(&["detach", what]),
            &[&it.path(), "backing was deleted", "copy it", "--force"],
        );
    };
    let delete = || {
        fs::remove_file(it.path()).expect("deleted");
        // Before its server has seen it.
        is_refused(&it.path());
        wait_until("the backing is missed", || status()["backing"]["place"] == "deleted");
    };
    let data = it.drive.file("data");
    fs::write(&data, sample(1, DATA_BYTES))?;
    succeed("dd", &[&format!("if={data}"), &format!("of={node}"), "bs=64K", "oflag=direct", "status=none"]);
    delete();
    is_refused(&node);
    is_refused(&it.path());

    let pid = it.record()["server_pid"].as_i64().ok_or("no server")?;
    let descriptor =
        fs::read_dir(format!("/proc/{pid}/fd"))?.flatten().map(|entry| entry.path()).find(|path| {
            fs::read_link(path).is_ok_and(|file| file == Path::new(&format!("{} (deleted)", it.path())))
        });
    let descriptor = descriptor.ok_or("not open")?;
    kill_process(Pid::from_raw(pid as i32).ok_or("no process")?, Signal::STOP)?;
    let copy = it.drive.file("copy");
    succeed("cp", &["--sparse=always", &text(&descriptor), &copy]);
    fs::rename(&copy, it.path())?;
    kill(pid);
    let read = it.drive.file("read");
    succeed(
        "dd",
        &[&format!("if={node}"), &format!("of={read}"), "bs=64K", "count=16", "iflag=direct", "status=none"],
    );
    assert!(fs::read(&read)? == fs::read(&data)?, "the data of the device\n{}", it.logs());
    wait_until("the copy is served", || status()["backing"]["place"] == "in-place");

    delete();
    let run = it.drive.pumice(&["detach", "--force", &it.path()]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", it.logs());
    assert!(it.folder().is_none(), "nothing is left");
    Ok(())
}

#[test]
fn refusals_are_one_line() -> Outcome {
    let drive = Drive::create(&["--size", "32M"]);
    let (path, none, file) = (text(&drive.path()), drive.file("none"), drive.file("file"));
    fs::write(&file, sample(1, 8192))?;
    if !rustix::process::geteuid().is_root() {
        fails(&drive.pumice(&["attach", &path]), &["needs root"]);
        fails(&drive.pumice(&["detach", &path]), &["needs root"]);
        return Ok(());
    }
    fails(&drive.pumice(&["attach", &none]), &[&none]);
    fails(&drive.pumice(&["attach", &file]), &[&file, "not a Pumice drive"]);
    fails(&drive.pumice(&["detach", &path]), &[&path, "not attached"]);
    let wrong: Run = drive.pumice(&["attach", &path, "--by", "floppy"]);
    assert_eq!((wrong.code, wrong.stderr.lines().count()), (Some(2), 1), "{wrong:?}");
    // A drive that a program has locked, which no server tells of.
    {
        let other = File::open(&path)?;
        rustix::fs::flock(&other, rustix::fs::FlockOperation::LockExclusive)?;
        fails(&drive.pumice(&["attach", &path]), &["in use"]);
    }
    // A server that cannot start says why.
    let run = drive.pumice(&["attach", &path, "--", "--map-cache", "nonsense"]);
    fails(&run, &["nonsense"]);
    assert!(!drive.folder().join("run-attach").exists(), "a refusal leaves nothing");
    Ok(())
}
