//! One owner: a drive that two processes reach by two paths of an overlay, which have locks of their own, as
//! if they were on two machines. Machines are told apart by files mounted over the machine id and the boot
//! id.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nbd::client::{Replies, negotiate};
use nbd::protocol::*;
use nbd::reply::{SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;
use rustix::process::{Pid, Signal, kill_process};

use crate::attach::usable;
use crate::common::mounts::DROP_COPIES;
use crate::common::run::{USER, own_user};
use crate::common::server::{Server, text, wait_until};
use crate::common::{Drive, Outcome, fails, in_time, needs, sample};

const BLOCK: usize = 4096;

/// A client that waits for each answer.
pub(crate) struct Client(UnixStream);

impl Client {
    pub(crate) fn connect(socket: &Path) -> std::io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        negotiate(&mut stream, "", Replies::Simple)?;
        Ok(Client(stream))
    }

    /// Returns the error of the reply: 0 if it was done.
    fn ask(&mut self, command: u16, at: usize, len: usize, data: &[u8]) -> std::io::Result<u32> {
        let header = RequestHeader { flags: 0, command, cookie: 1, offset: at as u64, length: len as u32 };
        self.0.write_all(&[&header.encode()[..], data].concat())?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.0.read_exact(&mut reply)?;
        Ok(SimpleReply::decode(&reply).expect("a simple reply").error)
    }

    pub(crate) fn write(&mut self, block: usize, data: &[u8]) -> std::io::Result<u32> {
        self.ask(CMD_WRITE, block * BLOCK, data.len(), data)
    }

    pub(crate) fn flush(&mut self) -> std::io::Result<u32> {
        self.ask(CMD_FLUSH, 0, 0, &[])
    }

    pub(crate) fn read(&mut self, block: usize) -> std::io::Result<Vec<u8>> {
        assert_eq!(self.ask(CMD_READ, block * BLOCK, BLOCK, &[])?, 0);
        let mut data = vec![0; BLOCK];
        self.0.read_exact(&mut data)?;
        Ok(data)
    }
}

/// A drive below an overlay: by its own path, and by that of the overlay.
struct TwoPaths {
    drive: Drive,
}

impl TwoPaths {
    /// Returns `None` and prints a message if nothing can be mounted here.
    fn make() -> Option<TwoPaths> {
        if !needs(&["mount", "umount", "unshare"]) {
            return None;
        }
        let all = TwoPaths { drive: Drive::create(&["--size", "32M"]) };
        let layers = all.drive.file("layers");
        std::fs::create_dir(&layers).expect("a directory");
        let mounted = in_time("mount", &["-t", "tmpfs", "-o", "size=512M", "pumice-test", &layers]);
        let part = |name: &str| format!("{layers}/{name}");
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(part(name)).expect("a directory");
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}", part("lower"), part("upper"), part("work"));
        let merged = part("merged");
        let overlaid = in_time("mount", &["-t", "overlay", "-o", &options, "pumice-test", &merged]);
        let machine = in_time("unshare", &["--mount", "true"]);
        if [&mounted, &overlaid, &machine].iter().any(|run| run.code != Some(0)) {
            eprintln!("skipped: no overlay can be mounted here: {mounted:?} {overlaid:?} {machine:?}");
            return None;
        }
        let run = all.drive.pumice(&["create", &text(&all.upper()), "--size", "64M", "--capacity", "64M"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        Some(all)
    }

    fn upper(&self) -> PathBuf {
        self.drive.folder().join("layers/upper/d")
    }

    fn merged(&self) -> PathBuf {
        self.drive.folder().join("layers/merged/d")
    }

    /// Returns a command that runs `pumice` as if on another machine, or on the same machine after another
    /// boot.
    fn on(&self, machine: u8, boot: u8) -> Command {
        let file = |name: &str, id: String| {
            let path = self.drive.file(name);
            std::fs::write(&path, format!("{id}\n")).expect("written");
            path
        };
        let machine_id = file(&format!("machine{machine}"), format!("{machine:02x}").repeat(16));
        let boot = format!("{boot:02x}");
        let (two, four) = (boot.repeat(2), boot.repeat(4));
        let boot_id = file(&format!("boot{boot}"), format!("{four}-{two}-{two}-{two}-{}", boot.repeat(6)));
        let script = format!(
            "{DROP_COPIES} mount --bind {machine_id} /etc/machine-id && \
             mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", &script, "sh", env!("CARGO_BIN_EXE_pumice")]);
        command
    }

    fn serve(&self, (machine, boot): (u8, u8), path: &Path, socket: &str, more: &[&str]) -> Server {
        let mut command = self.on(machine, boot);
        let socket = format!("unix:{}", self.drive.file(socket));
        command.arg("serve").arg(path).args(["--nbd", &socket]).args(more);
        self.drive.start(command, 1)
    }

    /// Serves in vain. Returns the reason.
    fn is_refused(&self, (machine, boot): (u8, u8), path: &Path, more: &[&str]) -> String {
        let socket = format!("unix:{}", self.drive.file("refused"));
        let mut command = self.on(machine, boot);
        command.arg("serve").arg(path).args(["--nbd", &socket]).args(more);
        command.env("PUMICE_RUNTIME_DIR", self.drive.file("refused-run")).env(USER, own_user());
        let output = command.output().expect("run");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{why}");
        why
    }
}

impl Drop for TwoPaths {
    fn drop(&mut self) {
        for mounted in ["layers/merged", "layers"] {
            in_time("umount", &["--lazy", &self.drive.file(mounted)]);
        }
    }
}

fn signal(server: &Server, signal: Signal) {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn two_processes_of_one_machine_are_told_apart_by_the_mark() -> Outcome {
    let Some(all) = TwoPaths::make() else { return Ok(()) };
    let drive = &all.drive;
    let server = drive.serve_paths(&[&all.merged()], &[]);
    let written = sample(1, BLOCK);
    let mut client = Client::connect(&server.socket())?;
    assert_eq!((client.write(3, &written)?, client.flush()?), (0, 0));
    // The lock of the upper file is free.
    let (upper, pid) = (text(&all.upper()), server.pid());
    for command in [
        &["serve", &upper, "--nbd", &format!("unix:{}", drive.file("second"))][..],
        &["set-size", &upper, "128M"],
        &["set-codec", &upper, "lz4"],
        &["set-parity", &upper, "1/32"],
        &["settle", &upper],
        &["wipe", &upper, "--yes"],
        &["format", &upper, "--sector", "4096", "--yes"],
        &["create", &upper, "--force"],
    ] {
        let run = drive.pumice(command);
        fails(&run, &[&format!("open in process {pid} on host ")]);
    }
    // One that is asked answers.
    let asked = all.is_refused((1, 1), &all.upper(), &["--take-over"]);
    assert!(asked.contains("which is at work"), "{asked}");
    assert_eq!(client.read(3)?, written);
    // Nobody waits for one that was killed, or has closed the drive.
    server.kill();
    let server = drive.serve_paths(&[&all.upper()], &[]);
    assert_eq!(Client::connect(&server.socket())?.read(3)?, written);
    assert!(server.stop().success());
    let server = all.serve((1, 1), &all.merged(), "other", &[]);
    assert_eq!(Client::connect(&server.socket())?.read(3)?, written);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["check", &upper, "--deep"]).code, Some(0));
    Ok(())
}

#[test]
fn a_drive_of_another_machine_is_taken_over_only_if_somebody_says_so() -> Outcome {
    let Some(all) = TwoPaths::make() else { return Ok(()) };
    let written = sample(2, BLOCK);
    let server = all.serve((1, 1), &all.merged(), "one", &[]);
    let mut client = Client::connect(&server.socket())?;
    assert_eq!((client.write(3, &written)?, client.flush()?), (0, 0));
    server.kill();
    let refused = all.is_refused((2, 2), &all.upper(), &[]);
    let machine = "01".repeat(16);
    assert!(
        refused.contains(&format!("(machine {machine})")) && refused.contains("--take-over"),
        "{refused}"
    );
    // The same machine after a boot asks, and goes on by itself.
    let server = all.serve((1, 3), &all.upper(), "two", &[]);
    assert_eq!(Client::connect(&server.socket())?.read(3)?, written);
    server.kill();
    let server = all.serve((2, 2), &all.merged(), "three", &["--take-over"]);
    assert_eq!(Client::connect(&server.socket())?.read(3)?, written);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_server_that_was_stopped_while_another_took_its_drive_over_answers_nothing_more() -> Outcome {
    let Some(all) = TwoPaths::make() else { return Ok(()) };
    let first = all.serve((1, 1), &all.merged(), "one", &[]);
    let socket = first.socket();
    let (done, has_ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let count = || done.load(Ordering::Relaxed);
    std::thread::scope(|scope| -> Outcome {
        // Writes until it gets no answer, or an error.
        let load = scope.spawn(|| -> std::io::Result<()> {
            let mut client = Client::connect(&socket)?;
            for turn in 0.. {
                let data = sample(turn, BLOCK);
                if client.write(turn as usize % 64, &data)? != 0 || turn % 4 == 0 && client.flush()? != 0 {
                    break;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            has_ended.store(true, Ordering::Relaxed);
            Ok(())
        });
        wait_until("some writes", || count() > 200);
        signal(&first, Signal::STOP);
        let second = all.serve((2, 2), &all.upper(), "two", &["--take-over"]);
        let mut client = Client::connect(&second.socket())?;
        let mut written = Vec::new();
        for block in 0..64 {
            let data = sample(1000 + block as u64, BLOCK);
            assert_eq!((client.write(block, &data)?, client.flush()?), (0, 0));
            written.push(data);
        }
        let before = count();
        signal(&first, Signal::CONT);
        wait_until("an error", || has_ended.load(Ordering::Relaxed));
        load.join().expect("no panic")?;
        // An answer may have been on its way.
        assert!(count() <= before + 1, "{} writes were acknowledged after that", count() - before);
        let status = all.drive.pumice(&["status", &text(&all.merged())]).stdout;
        assert!(status.contains("taken over by process"), "{status}");
        assert_ne!(first.stop().code(), Some(0), "it has lost its drive");
        for (block, data) in written.iter().enumerate() {
            assert!(client.read(block)? == *data, "block {block}");
        }
        assert!(second.stop().success());
        Ok(())
    })?;
    let log = all.drive.log();
    assert!(log.contains("taken over by process") && log.contains("event=\"poisoned\""), "{log}");
    assert_eq!(all.drive.pumice(&["check", &text(&all.upper()), "--deep"]).code, Some(0));
    Ok(())
}

/// Detaches what a failed test leaves.
struct Detached<'a>(&'a Drive, String);

impl Drop for Detached<'_> {
    fn drop(&mut self) {
        self.0.pumice(&["detach", "--force", &self.1]);
    }
}

#[test]
fn a_device_whose_drive_was_taken_over_is_given_up_by_force_only() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let Some(all) = TwoPaths::make() else { return Ok(()) };
    let (drive, path) = (&all.drive, text(&all.merged()));
    let first = all.serve((1, 1), &all.merged(), "one", &[]);
    let attached = drive.pumice(&["attach", &path, "--by", "loop"]);
    let _detached = Detached(drive, path.clone());
    assert_eq!(attached.code, Some(0), "{attached:?}");
    let node = attached.stdout.trim();
    signal(&first, Signal::STOP);
    let second = all.serve((2, 2), &all.upper(), "two", &["--take-over"]);
    signal(&first, Signal::CONT);
    let served = || drive.pumice(&["status", &path, "--json"]).stdout;
    wait_until("it knows", || served().contains("\"disowned\": true"));
    for what in [node, &path] {
        let refused = drive.pumice(&["detach", what]);
        fails(
            &refused,
            &[node, "taken over by process", "cannot be delivered any more", "`pumice detach --force`"],
        );
        assert!(!refused.stderr.contains("start the server"), "{refused:?}");
    }
    let forced = drive.pumice(&["detach", "--force", &path]);
    // Whatever that server had in its memory, the other one did not get.
    fails(&forced, &["detached", "acknowledged writes that were not flushed are lost"]);
    fails(&drive.pumice(&["detach", node]), &["not attached"]);
    assert_ne!(first.stop().code(), Some(0), "it has lost its drive");
    assert!(second.stop().success());
    Ok(())
}

#[test]
fn a_server_that_is_stopped_while_it_opens_a_drive_gives_it_back() -> Outcome {
    let Some(all) = TwoPaths::make() else { return Ok(()) };
    all.serve((1, 1), &all.merged(), "one", &[]).kill();
    // After a boot the drive is challenged, which takes five seconds.
    let mut command = all.on(1, 3);
    let socket = format!("unix:{}", all.drive.file("two"));
    command.arg("serve").arg(all.upper()).args(["--nbd", &socket]).stderr(Stdio::piped());
    command.env("PUMICE_RUNTIME_DIR", all.drive.file("stopped-run")).env(USER, own_user());
    let mut server = command.spawn()?;
    let mut log = BufReader::new(server.stderr.take().expect("piped")).lines();
    let asks = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("waiting for an answer"));
    assert!(log.by_ref().any(asks), "it asks");
    let pid = i32::try_from(server.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::TERM)?;
    let rest: Vec<String> = log.map_while(Result::ok).collect();
    assert!(server.wait()?.success(), "{rest:?}");
    if rest.iter().any(|line| line.contains("while a drive was being opened")) {
        eprintln!("skipped: opening took longer than ten seconds");
        return Ok(());
    }
    let other = all.serve((2, 2), &all.merged(), "three", &[]);
    assert!(other.stop().success());
    Ok(())
}
