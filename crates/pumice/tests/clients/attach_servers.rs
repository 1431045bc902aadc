//! Servers below attached drives: one that hangs, one that cannot start, one that is opening the drive still,
//! one of another program.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::attach::{Attached, kill, usable};
use crate::common::mounts::unmount;
use crate::common::opening::Opening;
use crate::common::run::{USER, own_user};
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Run, fails, in_time, sample, succeed};

/// Time in which a drive goes on whose own server is well. One that hangs would delay it by 20 seconds and
/// more.
const SOON: Duration = Duration::from_secs(10);

fn signal(pid: i64, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_process(pid, signal).expect("it runs");
}

/// A process that is stopped until this is dropped.
pub(crate) struct Stopped(i64);

impl Stopped {
    pub(crate) fn new(pid: i64) -> Stopped {
        let stopped = Stopped(pid);
        signal(pid, Signal::STOP);
        wait_until("it has stopped", || has_stopped(pid));
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed.
        if let Some(pid) = Pid::from_raw(self.0 as i32) {
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// Process id of the server of a drive.
pub(crate) fn server_of(drive: &Drive, path: &str) -> i64 {
    let mut pid = None;
    wait_until("a server", || {
        let run = drive.pumice(&["status", path, "--json"]);
        let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
        pid = answer["drives"][0]["server"]["pid"].as_i64();
        pid.is_some()
    });
    pid.expect("found")
}

/// The only attachment in the list. Another drive in its place may have a line of its own.
pub(crate) fn attachment(drive: &Drive) -> Value {
    let run = drive.pumice(&["list", "--json"]);
    let list: Value = serde_json::from_str(&run.stdout).unwrap_or_default();
    let drives = list["drives"].as_array().cloned().unwrap_or_default();
    drives.into_iter().map(|drive| drive["attachment"].clone()).find(|it| !it.is_null()).unwrap_or_default()
}

pub(crate) fn write(node: &str, seed: u64) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), sample(seed, 1 << 20)).expect("written");
    succeed(
        "dd",
        &[&format!("if={}", file.path().display()), &format!("of={node}"), "bs=64k", "oflag=direct"],
    );
}

/// Returns whether a device holds what was written last.
pub(crate) fn holds(node: &str, seed: u64) -> bool {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let to = format!("of={}", file.path().display());
    succeed("dd", &[&format!("if={node}"), &to, "bs=64k", "count=16", "iflag=direct"]);
    fs::read(file.path()).expect("read") == sample(seed, 1 << 20)
}

#[test]
fn a_server_that_hangs_delays_no_other_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let other = it.drive.file("other");
    let run = it.drive.pumice(&["create", &other, "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let server = it.drive.serve_paths(&[Path::new(&other)], &[]);
    let node = it.attach(&[]);
    let hung = Stopped::new(i64::from(server.pid()));
    it.kill_server_at_once();
    let since = Instant::now();
    write(&node, 1);
    assert!(since.elapsed() < SOON, "{:?}: {}", since.elapsed(), it.logs());
    drop(hung);
    it.detach(&node);
    Ok(())
}

/// `attach` in the background.
fn begin(it: &Attached, arguments: &[&str]) -> Outcome<Child> {
    Ok(Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args([&["attach", &it.path(), "--by", "loop"], arguments].concat())
        .env("PUMICE_RUNTIME_DIR", it.drive.runtime_dir())
        .env(USER, own_user())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?)
}

/// Process ids of the servers that bridges have started for a drive, whether or not they serve it.
fn servers(it: &Attached) -> Vec<i64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
    let is_server = |id: &i64| {
        let arguments = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        arguments.contains(&format!("\0serve\0{}\0", it.path()))
    };
    ids.filter(is_server).collect()
}

/// Returns whether all threads of a process have stopped.
fn has_stopped(pid: i64) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .all(|stat| stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with('T')))
}

/// The server has the FUSE device as well as the bridge, so the kernel does not see the end of that.
#[test]
fn nothing_waits_for_a_bridge_that_was_killed_below_a_server_that_hangs() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    // Not a child of the bridge: the kernel wakes one of those.
    let server = it.drive.serve(&[]);
    let node = it.attach(&[]);
    // The bridge passes it on after the device is there.
    wait_until("the server has the FUSE device", || {
        let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).into_iter().flatten().flatten();
        open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|to| to.ends_with("fuse"))
    });
    let hung = Stopped::new(i64::from(server.pid()));
    let read = Command::new("dd")
        .args([&format!("if={node}"), "of=/dev/null", "bs=4k", "count=1", "skip=99", "iflag=direct"])
        .stderr(Stdio::null())
        .spawn();
    let mut read = read?;
    kill(it.record()["bridge_pid"].as_i64().ok_or("a process")?);
    std::thread::sleep(Duration::from_millis(300));
    assert!(read.try_wait()?.is_none(), "it waits");
    let since = Instant::now();
    it.drive.pumice(&["detach", "--force", &node]);
    assert!(!read.wait()?.success(), "an error");
    assert!(since.elapsed() < 2 * SOON, "{:?}", since.elapsed());
    drop(hung);
    // Nothing of it is left.
    let again = it.attach(&[]);
    write(&again, 1);
    it.detach(&again);
    Ok(())
}

#[test]
fn a_server_that_is_opening_the_drive_is_not_left_behind() -> Outcome {
    if !usable() {
        return Ok(());
    }
    for is_detached in [true, false] {
        let it = Attached::create(&["--size", "64M"]);
        let mut attach = begin(&it, &[])?;
        let mut found = None;
        let since = Instant::now();
        while found.is_none() {
            assert!(since.elapsed() < SOON, "a server is started");
            found = servers(&it).first().copied();
        }
        let found = found.ok_or("a server")?;
        let server = Stopped::new(found);
        // The kernel resumes it at the end of its bridge.
        wait_until("the record", || it.folder().is_some_and(|folder| folder.join("server").exists()));
        let bridge = it.record()["bridge_pid"].as_i64().ok_or("a process")?;
        kill(bridge);
        attach.wait()?;
        assert!(!attach.wait()?.success());
        // It goes on while it is being ended, or adopted.
        let go_on = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            drop(server);
        });
        if is_detached {
            it.detach(&it.path());
        } else {
            it.attach(&[]);
            assert_eq!(servers(&it).len(), 1, "no second one is started: {}", it.logs());
            it.detach(&it.path());
        }
        go_on.join().map_err(|_| "a panic")?;
        assert!(servers(&it).is_empty(), "it has ended");
        it.attach(&[]);
        it.detach(&it.path());
    }
    Ok(())
}

#[test]
fn a_drive_whose_server_hangs_is_shown_and_not_erased() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let server = it.record()["server_pid"].as_i64().ok_or("a server")?;
    let hung = Stopped::new(server);
    let named = format!("(process {server}) did not answer within ");
    shown(&it.drive, &["list", "--no-header"], |run| {
        run.stderr.contains(&named) && run.stdout.trim_end().ends_with("no answer")
    });
    // As the text, and with the state that readers of earlier versions know.
    let listed = it.listed();
    assert_eq!((&listed["no_answer"], &listed["state"]), (&true.into(), &"down".into()), "{listed}");
    let path = it.path();
    let erase = || it.drive.pumice(&["sfx-nvme", "format", &path, "-l", "1", "--force"]);
    let run = erase();
    assert!(run.code == Some(1) && run.stderr.contains("its server does not answer"), "{run:?}");
    assert_eq!(it.listed()["attachment"]["device"], node.as_str());
    // A slow one is waited for.
    let go_on = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(5));
        drop(hung);
    });
    let run = erase();
    assert!(run.code == Some(0) && !run.stderr.contains("did not answer"), "{run:?}");
    go_on.join().map_err(|_| "a panic")?;
    it.detach(&path);
    Ok(())
}

#[test]
fn the_reason_why_a_server_does_not_start_is_shown() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let (path, aside) = (it.drive.path(), it.drive.file("aside"));
    fs::rename(&path, &aside)?;
    it.kill_server_at_once();
    wait_until("the reason", || {
        let reason = it.listed()["attachment"]["state_reason"].to_string();
        reason.contains("does not start") && reason.contains("no such file")
    });
    fs::rename(&aside, &path)?;
    write(&node, 2);
    assert_eq!(it.listed()["attachment"]["state_reason"], Value::Null);
    it.detach(&node);
    Ok(())
}

/// A drive in a sparse file that is longer than what its file system has.
#[test]
fn a_full_file_system_is_the_reason_in_the_status() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "32M"]);
    let mounted = it.drive.file("mounted");
    fs::create_dir(&mounted)?;
    if in_time("mount", &["-t", "tmpfs", "-o", "size=48M", "tmpfs", &mounted]).code != Some(0) {
        eprintln!("skipped: no file system can be mounted");
        return Ok(());
    }
    // Unmounts even after a panic.
    let result = std::panic::catch_unwind(|| {
        attached_on_a_full_filesystem(&it, &mounted).map_err(|error| error.to_string())
    });
    let _ = it.drive.pumice(&["detach", "--force", &format!("{mounted}/drive")]);
    assert_eq!(in_time("umount", &["--lazy", &mounted]).code, Some(0));
    match result {
        Ok(result) => Ok(result?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs a command again and again until its output is right.
fn shown(drive: &Drive, command: &[&str], is_right: impl Fn(&Run) -> bool) {
    let since = Instant::now();
    loop {
        let run = drive.pumice(command);
        if is_right(&run) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{command:?}: {run:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn attached_on_a_full_filesystem(it: &Attached, mounted: &str) -> Outcome {
    let path = format!("{mounted}/drive");
    assert_eq!(it.drive.pumice(&["create", &path, "--size", "128M", "--capacity", "128M"]).code, Some(0));
    let attached = it.drive.pumice(&["attach", &path]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    let node = attached.stdout.trim().to_string();
    write(&node, 1);
    // It writes when it is opened again, for which there is no room.
    let server = server_of(&it.drive, &path);
    let stopped = Stopped::new(server);
    let filler = format!("{mounted}/filler");
    let mut file = File::create(&filler)?;
    for block in [vec![1; 1 << 20], vec![1; 4096]] {
        while file.write_all(&block).is_ok() {}
    }
    drop(file);
    kill(server);
    drop(stopped);
    let full = "the file system or volume under it is full";
    // The server is started again and again, and locks the drive then: an output may say for once that it is
    // in use.
    let reason = "its server does not start: ";
    let begin = format!("{path}  idle: {reason}");
    shown(&it.drive, &["status", &path], |run| {
        let first = run.stdout.lines().next().unwrap_or_default();
        first.starts_with(&begin) && first.contains(full)
    });
    let warning = format!("pumice: warning: {path} is attached, and not served: {reason}");
    shown(&it.drive, &["status"], |run| {
        run.code == Some(0) && run.stderr.starts_with(&warning) && run.stderr.contains(full)
    });
    shown(&it.drive, &["list"], |run| {
        run.stdout.contains(&format!("waiting for the server: {reason}")) && run.stdout.contains(full)
    });
    shown(&it.drive, &["doctor", &path], |run| {
        let told = format!("attached, and not served: {reason}");
        run.code == Some(1) && run.stdout.contains(&told) && run.stdout.contains(full)
    });
    // With room it goes on by itself.
    fs::remove_file(&filler)?;
    write(&node, 2);
    shown(&it.drive, &["status", &path], |run| run.stdout.starts_with(&format!("{path}  online\n")));
    assert_eq!(it.drive.pumice(&["detach", &node]).code, Some(0));
    Ok(())
}

/// Waits for a server of the configuration while something else has the drive: that server rolls its log
/// forward, for example.
#[test]
fn a_drive_in_use_is_waited_for() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let locked = File::options().read(true).write(true).open(it.drive.path())?;
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive)?;
    let mut attach = begin(&it, &["--wait", "60"])?;
    std::thread::sleep(Duration::from_secs(3));
    assert!(attach.try_wait()?.is_none(), "it waits");
    drop(locked);
    let server = it.drive.serve(&[]);
    let attached = attach.wait_with_output()?;
    assert!(attached.status.success(), "{attached:?}");
    assert_eq!(server_of(&it.drive, &it.path()), i64::from(server.pid()));
    it.detach(&it.path());
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_server_that_somebody_else_has_just_started_is_waited_for() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = Opening::start(&it.drive)?;
    let mut attach = begin(&it, &[])?;
    // Longer than a second server waits for the drive.
    std::thread::sleep(Duration::from_secs(5));
    assert!(attach.try_wait()?.is_none(), "it waits");
    server.resume();
    let attached = attach.wait_with_output()?;
    assert!(attached.status.success(), "{attached:?}");
    assert_eq!(server_of(&it.drive, &it.path()), i64::from(server.pid()));
    it.detach(&it.path());
    Ok(())
}

#[test]
fn only_a_listed_drive_is_waited_for() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let config = it.drive.file("pumice.toml");
    let attach = || {
        let own = format!("PUMICE_RUNTIME_DIR={}", it.drive.runtime_dir().display());
        let (config, path) = (format!("PUMICE_CONFIG={config}"), it.path());
        let program = env!("CARGO_BIN_EXE_pumice");
        let since = Instant::now();
        let run =
            in_time("env", &[&own, &config, program, "attach", &path, "--by", "loop", "--wait-listed", "3"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        it.detach(&path);
        since.elapsed()
    };
    it.drive.write_config("[[drive]]\npath = \"/other\"\n");
    let unlisted = attach();
    // By another path.
    let link = it.drive.file("link");
    std::os::unix::fs::symlink(it.drive.path(), &link)?;
    it.drive.write_config(&format!("[[drive]]\npath = \"{link}\"\n"));
    let listed = attach();
    assert!(listed >= Duration::from_secs(3), "{listed:?}");
    assert!(unlisted < listed, "{unlisted:?} {listed:?}");
    Ok(())
}

/// What `list` shows of a drive that is attached by a link, and of one in whose place an older copy is
/// served.
#[test]
fn a_drive_has_one_line() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let copy = it.drive.file("copy");
    fs::copy(it.drive.path(), &copy)?;
    let link = it.drive.file("link");
    std::os::unix::fs::symlink(it.drive.path(), &link)?;
    let server = it.drive.serve(&[]);
    let run = it.drive.pumice(&["attach", &link, "--by", "loop"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let node = run.stdout.trim().to_string();
    let lines = || {
        let list = it.drive.pumice(&["list", "--no-header"]);
        list.stdout.lines().map(str::to_string).collect::<Vec<_>>()
    };
    let line = lines();
    assert_eq!(line.len(), 1, "{line:?}");
    assert!(line[0].contains(&node) && line[0].ends_with("online"), "{line:?}");
    write(&node, 3);
    // Durable: the bridge takes nothing older, once it has seen that.
    succeed("sync", &[&node]);
    let run = it.drive.pumice(&["status", &it.path(), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&run.stdout)?;
    let durable = status["drives"][0]["cleaning"]["durable_sequence"].as_u64();
    wait_until("the bridge", || it.record()["durable_sequence"].as_u64() >= durable);
    server.kill();
    let right = it.drive.file("right");
    fs::rename(it.drive.path(), &right)?;
    fs::rename(&copy, it.drive.path())?;
    let server = it.drive.serve(&[]);
    wait_until("the state", || {
        let line = lines();
        line.len() == 1 && line[0].contains("online, its device is waiting for the server")
    });
    assert!(server.stop().success());
    fs::rename(&right, it.drive.path())?;
    let server = it.drive.serve(&[]);
    write(&node, 4);
    it.detach(&node);
    assert!(server.stop().success());
    Ok(())
}

/// A copy that was made while the drive was in use comes into its place, and its server ends. What is on the
/// device must not go on without what was acknowledged since.
#[test]
fn an_older_copy_in_the_place_of_the_drive_does_not_go_on_below_its_device() -> Outcome {
    if !usable() {
        return Ok(());
    }
    for signal in ["-KILL", "-TERM"] {
        let it = Attached::create(&["--size", "64M"]);
        let node = it.attach(&[]);
        write(&node, 3);
        succeed("sync", &[&node]);
        let (copy, right) = (it.drive.file("copy"), it.drive.file("right"));
        fs::copy(it.drive.path(), &copy)?;
        for seed in 4..40 {
            write(&node, seed);
        }
        fs::rename(it.drive.path(), &right)?;
        fs::rename(&copy, it.drive.path())?;
        let pid = it.record()["server_pid"].as_i64().ok_or("no server")?;
        succeed("kill", &[signal, &pid.to_string()]);
        let held = || {
            let listed = it.listed();
            listed["attachment"]["state"] == "waiting"
                && listed["attachment"]["state_reason"].to_string().contains("acknowledged writes are lost")
        };
        wait_until("a refusal", held);
        fs::rename(it.drive.path(), &copy)?;
        fs::rename(&right, it.drive.path())?;
        wait_until("the device", || it.listed()["attachment"]["state"] == "attached");
        assert!(holds(&node, 39), "{}", it.logs());
        it.detach(&node);
    }
    Ok(())
}

/// Something else comes into the place of the drive, and goes again. The bridge's own server has it open.
#[test]
fn a_device_goes_on_when_its_drive_is_back() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let older = it.drive.file("older");
    fs::copy(it.drive.path(), &older)?;
    let node = it.attach(&[]);
    write(&node, 3);
    succeed("sync", &[&node]);
    let run = it.drive.pumice(&["status", &it.path(), "--json"]);
    let status: Value = serde_json::from_str(&run.stdout)?;
    let durable = status["drives"][0]["cleaning"]["durable_sequence"].as_u64();
    wait_until("the bridge", || it.record()["durable_sequence"].as_u64() >= durable);
    let other = it.drive.file("other");
    succeed(env!("CARGO_BIN_EXE_pumice"), &["create", &other, "--size", "64M", "--capacity", "64M"]);
    let right = it.drive.file("right");
    let attachment = || attachment(&it.drive);
    let waits = |why: &str| attachment()["state_reason"].to_string().contains(why);
    for (wrong, why) in [(&older, "an older state of the drive"), (&other, "another drive")] {
        let server = server_of(&it.drive, &it.path());
        fs::rename(it.drive.path(), &right)?;
        fs::rename(wrong, it.drive.path())?;
        kill(server);
        wait_until(why, || waits(why));
        fs::rename(it.drive.path(), wrong)?;
        fs::rename(&right, it.drive.path())?;
        wait_until("the device", || attachment()["state"] == "attached");
        assert!(holds(&node, 3), "{}", it.logs());
    }
    // Who gives it up while something else is there is told.
    let server = server_of(&it.drive, &it.path());
    fs::rename(it.drive.path(), &right)?;
    fs::rename(&older, it.drive.path())?;
    kill(server);
    let why = "an older state of the drive";
    wait_until(why, || waits(why));
    fails(&it.drive.pumice(&["detach", &node, "--force"]), &[why, "what was acknowledged is not there"]);
    assert!(it.folder().is_none(), "it is detached");
    Ok(())
}

/// Who gives up a device whose drive has lost writes is told.
#[test]
fn a_device_that_is_given_up_after_a_loss_reports_it() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    write(&node, 3);
    {
        let _stopped = Stopped::new(it.record()["bridge_pid"].as_i64().ok_or("no bridge")?);
        let pid = it.record()["server_pid"].as_i64().ok_or("no server")?;
        succeed("kill", &["-KILL", &pid.to_string()]);
        wait_until("its end", || !fs::exists(format!("/proc/{pid}/exe")).unwrap_or(true));
        let memories = fs::read_dir(it.drive.runtime_dir())?.flatten().map(|entry| entry.path());
        for memory in memories.filter(|path| path.extension().is_some_and(|end| end == "memory")) {
            fs::remove_file(memory)?;
        }
    }
    wait_until("a refusal", || {
        it.listed()["attachment"]["state_reason"].to_string().contains("acknowledged writes are lost")
    });
    fails(&it.drive.pumice(&["detach", &node]), &[&node, "acknowledged writes are lost"]);
    let run = it.drive.pumice(&["detach", &node, "--force"]);
    fails(&run, &["acknowledged writes that were not flushed are lost"]);
    assert!(it.folder().is_none(), "it is detached");
    // So is who attaches it next.
    let run = it.drive.pumice(&["attach", &it.path(), "--by", "loop"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("warning: ") && run.stderr.contains("not flushed are lost"), "{run:?}");
    it.detach(run.stdout.trim());
    Ok(())
}

/// The backing is overwritten with an older copy of the closed drive.
#[test]
fn a_device_that_is_given_up_after_its_drive_was_put_back_reports_it() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let older = it.drive.file("older");
    fs::copy(it.drive.path(), &older)?;
    let node = it.attach(&[]);
    write(&node, 3);
    {
        let _stopped = Stopped::new(it.record()["bridge_pid"].as_i64().ok_or("no bridge")?);
        let pid = it.record()["server_pid"].as_i64().ok_or("no server")?;
        succeed("kill", &["-KILL", &pid.to_string()]);
        wait_until("its end", || !fs::exists(format!("/proc/{pid}/exe")).unwrap_or(true));
        succeed("dd", &[&format!("if={older}"), &format!("of={}", it.path()), "bs=1M", "conv=notrunc"]);
    }
    wait_until("a refusal", || {
        it.listed()["attachment"]["state_reason"].to_string().contains("of an earlier run")
    });
    fails(&it.drive.pumice(&["detach", &node, "--force"]), &["acknowledged writes", "are lost"]);
    assert!(it.folder().is_none(), "it is detached");
    Ok(())
}

/// An upgrade under an attached drive: the program is replaced, and the server restarted.
#[test]
fn the_server_of_a_newer_program_goes_on() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M", "--capacity", "96M"]);
    let program = it.drive.file("pumice");
    fs::copy(env!("CARGO_BIN_EXE_pumice"), &program)?;
    let own = format!("PUMICE_RUNTIME_DIR={}", it.drive.runtime_dir().display());
    let run = in_time("env", &[&own, &program, "attach", &it.path(), "--by", "loop", "--mkfs", "ext4"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let node = run.stdout.trim().to_string();
    let point = it.mount(&node);
    let data = sample(5, 3 << 20);
    fs::write(point.join("data"), &data)?;
    let old = server_of(&it.drive, &it.path());
    // As a package manager does.
    let newer = it.drive.file("pumice.new");
    fs::copy(env!("CARGO_BIN_EXE_pumice"), &newer)?;
    fs::rename(&newer, &program)?;
    let installed = fs::metadata(&program)?.ino();
    let runs = |pid: i64| fs::metadata(format!("/proc/{pid}/exe")).map(|found| found.ino());
    assert_ne!(runs(old)?, installed);
    signal(old, Signal::TERM);
    fs::write(point.join("more"), &data)?;
    rustix::fs::syncfs(File::open(&point)?)?;
    let new = server_of(&it.drive, &it.path());
    assert_ne!(new, old);
    assert_eq!(runs(new)?, installed, "the newer program serves");
    for name in ["data", "more"] {
        assert!(fs::read(point.join(name))? == data, "{name}");
    }
    unmount(&point);
    succeed("e2fsck", &["-f", "-n", &node]);
    it.detach(&text(&it.drive.path()));
    Ok(())
}
