//! What a server had acknowledged, and not written, when it was killed: the next one has it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::attach::usable;
use crate::common::server::{Server, text, wait_until};
use crate::common::{Drive, Outcome, fails, fails_with, in_time, needs, sample};
use crate::owner::Client;

/// File systems in memory that most machines have.
const IN_MEMORY: &str = "/dev/shm";

/// A drive whose runtime directory is in memory. `None` if there is no such place here.
fn drive(arguments: &[&str]) -> Option<Drive> {
    let kind = in_time("stat", &["-f", "-c", "%T", IN_MEMORY]);
    if kind.stdout.trim() != "tmpfs" {
        eprintln!("skipped: {IN_MEMORY} is not in memory: {kind:?}");
        return None;
    }
    let space = rustix::fs::statvfs(IN_MEMORY).expect("a file system");
    if space.f_bavail * space.f_frsize < 2 << 30 {
        eprintln!("skipped: {IN_MEMORY} has less than 2 GiB left");
        return None;
    }
    Some(Drive::create_in(Path::new(IN_MEMORY), arguments))
}

/// Files of memories in the runtime directory, by the end of their names.
fn files(drive: &Drive, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(drive.runtime_dir()).expect("a directory").flatten();
    entries.map(|entry| entry.path()).filter(|path| text(path).ends_with(end)).collect()
}

fn memory(drive: &Drive) -> PathBuf {
    match files(drive, ".memory").as_slice() {
        [only] => only.clone(),
        found => panic!("one memory is expected: {found:?}"),
    }
}

fn block(seed: u64) -> Vec<u8> {
    sample(seed, 4096)
}

/// Writes blocks that nobody flushes, kills the server, and returns what it left.
fn write_and_kill(drive: &Drive, server: Server, blocks: std::ops::Range<u64>) -> io::Result<PathBuf> {
    let mut client = Client::connect(&server.socket())?;
    for at in blocks {
        assert_eq!(client.write(at as usize, &block(at))?, 0);
    }
    server.kill();
    Ok(memory(drive))
}

fn holds(server: &Server, blocks: std::ops::Range<u64>) -> Outcome {
    let mut client = Client::connect(&server.socket())?;
    for at in blocks {
        assert!(client.read(at as usize)? == block(at), "block {at}");
    }
    Ok(())
}

#[test]
fn unflushed_writes_outlive_kills_and_a_stop_leaves_nothing() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    for life in 0..4 {
        let server = drive.serve(&[]);
        assert_eq!(drive.status()["server"]["memory_kept"], true);
        holds(&server, 0..life * 30)?;
        write_and_kill(&drive, server, life * 30..(life + 1) * 30)?;
    }
    // Looking writes nothing, and shows all.
    let before = (fs::read(drive.path())?, fs::read(memory(&drive))?);
    let run = drive.pumice(&["check", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(drive.status()["state"], "idle");
    assert!(drive.status()["logical_used_bytes"].as_u64() >= Some(120 * 4096), "{}", drive.status());
    assert!(before == (fs::read(drive.path())?, fs::read(memory(&drive))?), "something was written");
    let server = drive.serve(&[]);
    holds(&server, 0..120)?;
    assert!(server.stop().success());
    assert_eq!(files(&drive, "memory"), Vec::<PathBuf>::new());
    // A command that opens the drive takes it over as well.
    write_and_kill(&drive, drive.serve(&[]), 120..130)?;
    let run = drive.pumice(&["set-codec", &text(&drive.path()), "lz4"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(files(&drive, "memory"), Vec::<PathBuf>::new());
    let server = drive.serve(&[]);
    holds(&server, 0..130)?;
    let bytes = fs::metadata(memory(&drive))?;
    assert!(bytes.blocks() * 512 <= 12 << 20, "an idle drive has few pages");
    // Nobody is told that what is gone would be kept.
    fs::remove_file(memory(&drive))?;
    assert_eq!(drive.status()["server"]["memory_kept"], false);
    assert!(server.stop().success(), "{}", drive.log());
    assert!(drive.log().contains("somebody has deleted or hidden the memory"), "{}", drive.log());
    Ok(())
}

#[test]
fn starts_that_are_killed_leave_one_memory_that_counts() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    write_and_kill(&drive, drive.serve(&[]), 0..40)?;
    // To the end of an opening, which waits 200 ms for other owners.
    for round in 0..16 {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("serve").arg(drive.path()).env("PUMICE_RUNTIME_DIR", drive.runtime_dir());
        command.env("PUMICE_USER", crate::common::run::own_user());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn()?;
        std::thread::sleep(std::time::Duration::from_millis(25 * round));
        child.kill()?;
        child.wait()?;
    }
    assert!(files(&drive, ".memory").len() <= 3, "{:?}", files(&drive, ""));
    let server = drive.serve(&[]);
    holds(&server, 0..40)?;
    assert_eq!(files(&drive, "memory").len(), 1, "{:?}", files(&drive, ""));
    assert_eq!(files(&drive, ".new"), Vec::<PathBuf>::new());
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_memory_that_cannot_be_used_is_set_aside_and_the_loss_is_reported() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let server = drive.serve(&[]);
    let mut client = Client::connect(&server.socket())?;
    assert_eq!((client.write(0, &block(0))?, client.flush()?), (0, 0));
    let left = write_and_kill(&drive, server, 1..20)?;
    let whole = fs::read(&left)?;
    let mut damaged = whole.clone();
    damaged[50] ^= 1;
    fs::write(&left, damaged)?;
    // Looking sets nothing aside.
    let looked = drive.pumice(&["status", &text(&drive.path())]);
    assert_eq!(looked.code, Some(0), "{looked:?}");
    assert_eq!(files(&drive, ".memory"), [left]);
    let server = drive.serve(&[]);
    let lost = |status: &serde_json::Value| {
        let counts = status["server"]["events"]["counts"].as_array().cloned().unwrap_or_default();
        counts.iter().any(|count| count["event"] == "writes-lost" && count["count"] == 1)
    };
    wait_until("the event", || lost(&drive.status()));
    assert_eq!(files(&drive, ".memory.forgotten").len(), 1);
    holds(&server, 0..1)?;
    assert!(server.stop().success());
    let log = drive.log();
    let line = log.lines().find(|line| line.contains("writes-lost")).expect("the event");
    assert!(line.contains("ERROR") && line.contains(".memory.forgotten"), "{line}");
    Ok(())
}

#[test]
fn a_memory_that_is_gone_is_a_loss_that_is_reported() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let lost = |status: &serde_json::Value| {
        let counts = status["server"]["events"]["counts"].as_array().cloned().unwrap_or_default();
        counts.iter().any(|count| count["event"] == "writes-lost" && count["count"] == 1)
    };
    // Of a server that acknowledges only what is durable nothing can be lost.
    for (option, is_lost) in [("--write-cache=off", false), ("--write-cache=on", true)] {
        let server = drive.serve(&[option]);
        let mut client = Client::connect(&server.socket())?;
        assert_eq!((client.write(0, &block(0))?, client.flush()?), (0, 0));
        let copy = PathBuf::from(drive.file("copy"));
        fs::copy(drive.path(), &copy)?;
        let beside = drive.serve_paths(&[&copy], &["--take-over"]);
        holds(&beside, 0..1)?;
        assert!(beside.stop().success(), "{}", drive.log());
        assert!(!drive.log().contains("writes-lost"), "a copy lacks what its original has: {}", drive.log());
        fs::remove_file(write_and_kill(&drive, server, 1..20)?)?;
        let server = drive.serve(&[]);
        holds(&server, 0..1)?;
        if is_lost {
            wait_until("the event", || lost(&drive.status()));
        } else {
            holds(&server, 1..20)?;
        }
        assert!(server.stop().success());
        assert_eq!(drive.log().contains("its memory was not found"), is_lost, "{}", drive.log());
    }
    Ok(())
}

#[test]
fn what_is_no_memory_stops_nobody_for_ever() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let left = write_and_kill(&drive, drive.serve(&[]), 0..20)?;
    let other = text(&left).replace(".memory", "1.memory");
    // No server makes such things.
    assert_eq!(in_time("mkfifo", &[&other]).code, Some(0));
    fs::create_dir(text(&left).replace(".memory", "2.memory"))?;
    // Beside a whole one, garbage does not matter.
    let garbage = text(&left).replace(".memory", "3.memory");
    fs::write(&garbage, "garbage")?;
    let server = drive.serve(&[]);
    holds(&server, 0..20)?;
    assert!(!fs::exists(&garbage)?);
    // Nor does it for a drive that was closed.
    assert!(server.stop().success());
    fs::write(&garbage, "garbage")?;
    let server = drive.serve(&[]);
    holds(&server, 0..20)?;
    assert!(server.stop().success());
    assert_eq!(files(&drive, ".forgotten"), Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn openings_that_end_three_times_wait_for_an_administrator() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let left = write_and_kill(&drive, drive.serve(&[]), 0..20)?;
    // As three killed openings leave it.
    rustix::io::pwrite(File::options().write(true).open(&left)?, &3_u64.to_le_bytes(), 136)?;
    let path = text(&drive.path());
    let refused = drive.pumice(&["serve", &path]);
    fails(&refused, &["3 openings with it came to no end", "--forget-memory"]);
    assert_eq!(files(&drive, ".memory"), std::slice::from_ref(&left));
    // It is tried again after a while.
    let before = SystemTime::now() - Duration::from_secs(120);
    File::options().write(true).open(&left)?.set_modified(before)?;
    let server = drive.serve(&[]);
    holds(&server, 0..20)?;
    let left = write_and_kill(&drive, server, 20..30)?;
    rustix::io::pwrite(File::options().write(true).open(&left)?, &3_u64.to_le_bytes(), 136)?;
    let server = drive.serve(&["--forget-memory"]);
    assert_eq!(files(&drive, ".forgotten").len(), 1);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn an_option_to_forget_spares_a_memory_that_can_be_used() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    write_and_kill(&drive, drive.serve(&[]), 0..20)?;
    let server = drive.serve(&["--forget-memory"]);
    holds(&server, 0..20)?;
    assert_eq!(files(&drive, ".forgotten"), Vec::<PathBuf>::new());
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_moved_drive_finds_its_memory_and_an_older_copy_does_not() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let server = drive.serve(&[]);
    let mut client = Client::connect(&server.socket())?;
    assert_eq!((client.write(0, &block(0))?, client.flush()?), (0, 0));
    let older = PathBuf::from(drive.file("older"));
    fs::copy(drive.path(), &older)?;
    assert_eq!((client.write(1, &block(1))?, client.flush()?), (0, 0));
    let left = write_and_kill(&drive, server, 2..20)?;
    // Both are other files than the one of the killed server.
    let moved = PathBuf::from(drive.file("moved"));
    fs::copy(drive.path(), &moved)?;
    let server = drive.serve_paths(&[&older], &[]);
    holds(&server, 0..1)?;
    let mut client = Client::connect(&server.socket())?;
    assert!(client.read(1)?.iter().all(|byte| *byte == 0), "it is older");
    assert!(server.stop().success());
    let server = drive.serve_paths(&[&moved], &[]);
    holds(&server, 0..20)?;
    assert!(server.stop().success());
    assert_eq!(files(&drive, ".memory"), [left], "it is the original's");
    let server = drive.serve(&[]);
    holds(&server, 0..20)?;
    assert!(server.stop().success());
    assert_eq!(files(&drive, "memory"), Vec::<PathBuf>::new());
    Ok(())
}

/// Place of the newest pack on the backing.
fn newest_pack(drive: &Drive) -> io::Result<u64> {
    let bytes = fs::read(drive.path())?;
    let packs = bytes.chunks(4096).enumerate().filter(|(_, page)| page.starts_with(b"PACK"));
    let sequence = |page: &[u8]| page[48..56].try_into().map_or(0, u64::from_le_bytes);
    let newest = packs.max_by_key(|(_, page)| sequence(page)).expect("a pack");
    Ok(newest.0 as u64 * 4096)
}

#[test]
fn a_memory_shows_what_the_backing_lacks() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let path = text(&drive.path());
    for mends in [true, false] {
        let server = drive.serve(&[]);
        let mut client = Client::connect(&server.socket())?;
        assert_eq!((client.write(0, &block(0))?, client.flush()?), (0, 0));
        let pack = newest_pack(&drive)?;
        write_and_kill(&drive, server, 1..20)?;
        let file = File::options().read(true).write(true).open(drive.path())?;
        let mut page = [0; 4096];
        if mends {
            rustix::io::pread(&file, &mut page, pack)?;
            page[60] ^= 8;
        }
        rustix::io::pwrite(&file, &page, pack)?;
        if mends {
            let server = drive.serve(&[]);
            holds(&server, 0..20)?;
            assert!(server.stop().success());
            continue;
        }
        // A pack behind it, on the backing or in the memory, may be what proves it.
        fails(&drive.pumice(&["serve", &path]), &["the log is damaged", "durable"]);
        assert_eq!(files(&drive, ".memory").len(), 1, "it is not set aside");
    }
    Ok(())
}

/// A runtime directory of this size.
struct Small<'a>(&'a Drive);

impl Small<'_> {
    fn mount<'a>(drive: &'a Drive, size: &str) -> Option<Small<'a>> {
        fs::create_dir(drive.runtime_dir()).expect("a directory");
        let point = text(&drive.runtime_dir());
        let options = format!("mode=0700,size={size}");
        let run = in_time("mount", &["-t", "tmpfs", "-o", &options, "pumice-test", &point]);
        if run.code != Some(0) {
            eprintln!("skipped: nothing can be mounted here: {run:?}");
            return None;
        }
        Some(Small(drive))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = in_time("umount", &["--lazy", &text(&self.0.runtime_dir())]);
    }
}

#[test]
fn a_full_file_system_in_memory_stops_nobody() -> Outcome {
    if !needs(&["mount", "umount"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "256M"]);
    let Some(_small) = Small::mount(&drive, "80M") else { return Ok(()) };
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["server"]["memory_kept"], true);
    let fill = || {
        let mut full = File::create(drive.runtime_dir().join("full")).expect("a file");
        let _ = io::copy(&mut io::repeat(1), &mut full);
    };
    fill();
    let mut client = Client::connect(&server.socket())?;
    for at in 0..3000 {
        assert_eq!(client.write(at as usize, &block(at))?, 0);
    }
    server.kill();
    fill();
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["server"]["memory_kept"], false, "there is no room for another");
    holds(&server, 0..3000)?;
    assert!(server.stop().success());
    assert!(drive.log().contains("no memory outlives this server"), "{}", drive.log());
    Ok(())
}

#[test]
fn a_moved_drive_comes_back_without_an_alarm() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    write_and_kill(&drive, drive.serve(&[]), 0..20)?;
    let moved = PathBuf::from(drive.file("moved"));
    fs::copy(drive.path(), &moved)?;
    let server = drive.serve_paths(&[&moved], &[]);
    let mut client = Client::connect(&server.socket())?;
    assert_eq!(client.write(20, &block(20))?, 0);
    assert!(server.stop().success());
    // Into the same file.
    fs::copy(&moved, drive.path())?;
    let server = drive.serve(&[]);
    holds(&server, 0..21)?;
    assert!(server.stop().success());
    assert!(!drive.log().contains("writes-lost"), "{}", drive.log());
    assert_eq!(files(&drive, "memory"), Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_server_of_another_user_leaves_its_memory_to_that_user() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || !needs(&["chown"]) {
        eprintln!("skipped: not root");
        return Ok(());
    }
    let user = "daemon";
    assert_eq!(in_time("chown", &[user, &text(&drive.path())]).code, Some(0));
    assert_eq!(in_time("chmod", &["755", &text(drive.folder())]).code, Some(0));
    let serve = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("serve").arg(drive.path()).env("PUMICE_USER", user);
        drive.start(command, 1)
    };
    let left = write_and_kill(&drive, serve(), 0..20)?;
    assert_eq!(fs::metadata(left)?.uid(), fs::metadata(drive.path())?.uid());
    let server = serve();
    holds(&server, 0..20)?;
    assert_eq!(drive.status()["server"]["memory_kept"], true);
    assert!(server.stop().success());
    assert_eq!(files(&drive, "memory"), Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_memory_that_cannot_be_read_is_kept_until_it_can() -> Outcome {
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let left = write_and_kill(&drive, drive.serve(&[]), 0..20)?;
    if in_time("chattr", &["+i", &text(&left)]).code != Some(0) {
        eprintln!("skipped: no file can be made immutable there");
        return Ok(());
    }
    let refused = drive.pumice(&["serve", &text(&drive.path())]);
    assert_eq!(in_time("chattr", &["-i", &text(&left)]).code, Some(0));
    fails(&refused, &["it cannot be read", "--forget-memory"]);
    let server = drive.serve(&[]);
    holds(&server, 0..20)?;
    assert!(server.stop().success());
    Ok(())
}

/// What is on the device could not see the loss.
#[test]
fn an_attached_drive_is_not_opened_after_a_loss() -> Outcome {
    if !usable() || !needs(&["dd"]) {
        return Ok(());
    }
    let Some(drive) = drive(&["--size", "64M"]) else { return Ok(()) };
    let server = drive.serve(&[]);
    let run = drive.pumice(&["attach", &text(&drive.path()), "--by", "loop"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let node = run.stdout.trim().to_string();
    let data = drive.file("data");
    fs::write(&data, [block(1), block(2)].concat())?;
    let copy = |from: &str, to: &str, flag: &str| {
        in_time("dd", &[&format!("if={from}"), &format!("of={to}"), "bs=4k", "count=2", flag]).code
    };
    assert_eq!(copy(&data, &node, "oflag=direct"), Some(0));
    server.kill();
    let damaged = memory(&drive);
    rustix::io::pwrite(File::options().write(true).open(&damaged)?, &[9; 8], 48)?;
    for _ in 0..2 {
        let run =
            drive.pumice(&["serve", &text(&drive.path()), "--nbd", &format!("unix:{}", drive.file("nbd"))]);
        fails_with(
            5,
            &run,
            &["attached, and acknowledged writes are lost", "detach --force", "--forget-memory"],
        );
        assert!(damaged.exists(), "an administrator may know better");
    }
    let reading = std::thread::spawn({
        let (node, back) = (node.clone(), drive.file("back"));
        move || {
            in_time("dd", &[&format!("if={node}"), &format!("of={back}"), "bs=4k", "count=2", "iflag=direct"])
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!reading.is_finished(), "it waits for a decision");
    let server = drive.serve(&["--forget-memory"]);
    assert_eq!(reading.join().map_err(|_| "a panic")?.code, Some(0));
    assert_eq!(files(&drive, ".memory.forgotten").len(), 1);
    // The memory is gone altogether.
    assert_eq!(copy(&data, &node, "oflag=direct"), Some(0));
    server.kill();
    fs::remove_file(memory(&drive))?;
    let run = drive.pumice(&["serve", &text(&drive.path()), "--nbd", &format!("unix:{}", drive.file("nbd"))]);
    fails_with(5, &run, &["attached, and acknowledged writes are lost", "its memory is gone"]);
    let server = drive.serve(&["--forget-memory"]);
    wait_until("the device", || copy(&node, &drive.file("back"), "iflag=direct") == Some(0));
    let run = drive.pumice(&["detach", &node]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(server.stop().success());
    Ok(())
}
