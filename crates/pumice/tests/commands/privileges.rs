//! Privileges that a server drops once its drives are open: the rights of root, writing elsewhere, system
//! calls.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Server, fails, fails_with, in_time, needs, pumice, succeed};

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: not root, so there are no rights to give up");
    }
    root
}

/// Serves drives as `pumice serve` does by default, without the user that other tests choose.
fn serve(drive: &Drive, arguments: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.arg("serve").args(arguments).env_remove("PUMICE_USER");
    drive.start(command, 1)
}

/// Status of a thread as the kernel reports it, in lines of a key and a value (`proc_pid_status(5)`).
struct Thread(String);

impl Thread {
    fn get(&self, key: &str) -> Vec<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.expect("a key of proc_pid_status(5)").split_whitespace().collect()
    }
}

/// Returns the threads of a process. Some that work for io_uring may be gone by then.
fn threads(pid: u32) -> Vec<Thread> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let status = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    status.map(Thread).collect()
}

/// Waits until the log has a line.
fn wait_for_log(drive: &Drive, line: &str) {
    for _ in 0..600 {
        if drive.log().contains(line) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{line:?} is not in the log: {}", drive.log());
}

#[test]
fn a_server_that_opens_no_drive_leaves_nothing() -> Result<(), std::io::Error> {
    let drive = Drive::create(&["--size", "64M"]);
    let (path, missing, config) = (text(&drive.path()), drive.file("missing"), drive.file("pumice.toml"));
    drive.write_config(&format!("[[drive]]\npath = \"{missing}\"\n"));
    let runtime = format!("PUMICE_RUNTIME_DIR={}", text(&drive.runtime_dir()));
    let names = |folder: &Path| -> Result<Vec<_>, std::io::Error> {
        let mut names = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<Result<Vec<_>, _>>()?;
        names.sort();
        Ok(names)
    };
    // A directory of earlier servers stays root's.
    std::fs::DirBuilder::new().mode(0o700).create(drive.runtime_dir())?;
    for arguments in [&[&missing[..]][..], &[&path, &missing], &["--config", &config]] {
        // As it is run by default: a server of root has become another user by the time it gives up.
        let own = ["-u", "PUMICE_USER", &runtime, env!("CARGO_BIN_EXE_pumice"), "serve"];
        let run = in_time("env", &[&own, arguments].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("no such file"), "{run:?}");
        assert_eq!(names(drive.folder())?, ["drive", "pumice.toml", "run"], "{arguments:?}");
        assert!(names(&drive.runtime_dir())?.is_empty(), "{arguments:?}: {:?}", names(&drive.runtime_dir()));
    }
    Ok(())
}

#[test]
fn a_server_of_root_becomes_another_user_and_stays_useful() {
    if !is_root() || !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let dedicated = [&path[..], "--user", "daemon"];
    let server = serve(&drive, &dedicated);
    // Threads of the kernel for io_uring act in the name of those that ask.
    let own = || {
        let mut threads = threads(server.pid());
        threads.retain(|thread| !thread.get("Name")[0].starts_with("iou-"));
        threads
    };
    // The C library passes over those that are ending, which run nothing any more.
    wait_until("threads have ended", || !own().iter().any(|thread| thread.get("Uid").contains(&"0")));
    let threads = own();
    assert!(threads.len() > 2, "{}", threads.len());
    for thread in threads {
        let said = &thread.0;
        assert!(["Uid", "Gid"].iter().all(|key| !thread.get(key).contains(&"0")), "{said}");
        assert!(!thread.get("Groups").contains(&"0"), "{said}");
        assert!(["CapEff", "CapPrm"].iter().all(|key| thread.get(key) == ["0000000000000000"]), "{said}");
        assert_eq!((thread.get("NoNewPrivs"), thread.get("Seccomp")), (vec!["1"], vec!["2"]), "{said}");
    }
    assert!(drive.log().contains("running as a user other than root"), "{}", drive.log());
    // Hosts, root and the operator notice nothing of it.
    let io = ["-f", "raw", "-c", "write -P 7 0 4M", "-c", "flush", "-c", "read -P 7 0 4M", server.uri()];
    succeed("qemu-io", &io);
    let run = drive.pumice(&["set-size", &path, "80M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(server.stop().success());
    let left: Vec<_> = std::fs::read_dir(drive.runtime_dir()).expect("there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    // The next server replaces what is there, and finds everything.
    let server = serve(&drive, &dedicated);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 7 0 4M", server.uri()]);
    server.kill();
    let server = serve(&drive, &dedicated);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 7 0 4M", server.uri()]);
    assert!(server.stop().success());
}

#[test]
fn users_that_cannot_be_are_refused() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let run = pumice(&["serve", &path, "--user", "no-such-user"]);
    fails_with(2, &run, &["no user \"no-such-user\"", "--user"]);
    if !is_root() || !needs(&["setpriv"]) {
        return;
    }
    // Whoever is not root can be nobody else. The program may be in a directory of root's.
    let program = drive.file("pumice");
    std::fs::copy(env!("CARGO_BIN_EXE_pumice"), &program).expect("copied");
    std::fs::set_permissions(drive.folder(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let run =
        in_time("setpriv", &["--reuid=65534", "--clear-groups", &program, "serve", &path, "--user", "root"]);
    fails(&run, &["cannot run as user root", "only root"]);
}

#[test]
fn commands_for_events_never_run_as_root() {
    if !is_root() {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let out = drive.file("who");
    std::fs::write(&out, "").expect("written");
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o666)).expect("chmod");
    // The first event happens while the drive is opened.
    let command = format!("echo $PUMICE_EVENT $(id -u) $(id -G) >> {out}");
    let server = serve(&drive, &[&text(&drive.path()), "--on-event", &command]);
    assert!(server.stop().success());
    let said = std::fs::read_to_string(&out).expect("there");
    let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.iter().map(|line| line[0]).collect::<Vec<_>>(), ["opened", "closed"], "{said}");
    assert!(lines.iter().all(|line| line.len() > 2 && !line[1..].contains(&"0")), "{said}");
}

#[test]
fn attacks_on_the_kernel_are_refused_to_commands_of_root_too() {
    if !is_root() || !needs(&["unshare"]) {
        return;
    }
    for (sandbox, succeeds) in [("on", false), ("off", true)] {
        let drive = Drive::create(&["--size", "64M"]);
        let out = drive.file("result");
        let command = format!("unshare --user true; echo $PUMICE_EVENT $? >> {out}");
        if !succeeds {
            assert!(in_time("unshare", &["--user", "true"]).code == Some(0), "the machine allows it");
        }
        let path = text(&drive.path());
        let server = drive.serve(&["--on-event", &command, "--user", "root", "--sandbox", sandbox]);
        assert!(server.stop().success(), "{path}");
        let said = std::fs::read_to_string(&out).expect("it ran");
        assert_eq!(said.contains("opened 0"), succeeds, "{said}");
    }
}

/// A user that other programs share gets nothing: it could put sockets of its own in the place of the
/// server's.
#[test]
fn the_directory_of_the_sockets_is_not_given_to_nobody() {
    if !is_root() {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    for (user, owner) in [("nobody", 0), ("daemon", 1)] {
        let server = serve(&drive, &[&text(&drive.path()), "--user", user]);
        let owners = |path: &std::path::Path| std::fs::symlink_metadata(path).expect("there").uid();
        assert_eq!(owners(&drive.runtime_dir()), owner, "{user}");
        for entry in std::fs::read_dir(drive.runtime_dir()).expect("there").flatten() {
            assert_eq!(owners(&entry.path()), owner, "{user}: {entry:?}");
        }
        assert_eq!(drive.status()["state"], "online");
        assert!(server.stop().success());
        std::fs::remove_dir_all(drive.runtime_dir()).expect("removed");
    }
}

/// Such a file system refuses other users what is open already: a drive would be poisoned by its first write.
#[test]
fn a_drive_that_the_user_may_not_use_is_not_served() {
    if !is_root() || !needs(&["nbdfuse", "nbdkit"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let mount = drive.folder().join("mount");
    std::fs::create_dir(&mount).expect("a directory");
    let file = text(&mount.join("disk"));
    let ready = drive.file("ready");
    let mut fuse = Command::new("nbdfuse");
    fuse.args(["-P", &ready, &file, "--command", "nbdkit", "-s", "memory", "128M"]);
    let mut fuse = fuse.spawn().expect("nbdfuse");
    while !std::path::Path::new(&ready).exists() {
        assert!(fuse.try_wait().expect("a child").is_none(), "nbdfuse ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let created = drive.pumice(&["create", &file]);
    let nbd = format!("unix:{}", drive.file("nbd.sock"));
    let refused =
        in_time("env", &["-u", "PUMICE_USER", env!("CARGO_BIN_EXE_pumice"), "serve", &file, "--nbd", &nbd]);
    let served = serve(&drive, &[&file, "--nbd", &nbd, "--user", "root"]).stop();
    succeed("umount", &[&text(&mount)]);
    fuse.wait().expect("a child");
    assert_eq!(created.code, Some(0), "{created:?}");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("cannot use it although it is open"), "{refused:?}");
    assert!(served.success());
}

#[test]
fn a_server_that_cannot_reload_says_so_at_its_start() {
    if !is_root() {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    drive.write_config(&format!("[[drive]]\npath = \"{}\"\n", text(&drive.path())));
    let config = drive.file("pumice.toml");
    let open_for = |mode| std::fs::set_permissions(drive.folder(), std::fs::Permissions::from_mode(mode));
    open_for(0o700).expect("chmod");
    let server = serve(&drive, &["--config", &config]);
    wait_for_log(&drive, "a reload will fail, and nothing it should revoke be revoked");
    server.ask_to_reload();
    wait_for_log(&drive, "runs as user");
    assert!(server.stop().success());
    open_for(0o755).expect("chmod");
    let server = serve(&drive, &["--config", &config]);
    server.ask_to_reload();
    wait_for_log(&drive, "serving 1 drive");
    assert_eq!(drive.log().matches("a reload will fail").count(), 1, "{}", drive.log());
    assert!(server.stop().success());
}

#[test]
fn a_server_writes_only_where_its_drives_and_sockets_are() {
    if !is_root() {
        return;
    }
    let (drive, elsewhere) = (Drive::create(&["--size", "64M"]), Drive::create(&["--size", "64M"]));
    let drives = |paths: &[&str]| -> String {
        paths.iter().map(|path| format!("[[drive]]\npath = \"{path}\"\nname = \"{path}\"\n")).collect()
    };
    let (here, there) = (text(&drive.path()), text(&elsewhere.path()));
    for (sandbox, opened) in [("true", false), ("false", true)] {
        let server = format!("[server]\nuser = \"root\"\nsandbox = {sandbox}\n");
        drive.write_config(&format!("{server}{}", drives(&[&here])));
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["serve", "--config", &drive.file("pumice.toml")]).env("PUMICE_LOG", "pumice=debug");
        let running = drive.start(command, 1);
        if drive.log().contains("writes_are_limited=false") {
            eprintln!("skipped: this kernel has no Landlock");
            return;
        }
        drive.write_config(&format!("{server}{}", drives(&[&here, &there])));
        running.ask_to_reload();
        if opened {
            wait_for_log(&drive, "serving 2 drives");
        } else {
            wait_for_log(
                &drive,
                "the server writes only in the directories that its drives and sockets had at its start: restart it",
            );
        }
        assert!(running.stop().success());
    }
}

#[test]
fn a_drive_that_cannot_be_opened_again_is_not_closed_for_a_setting() {
    if !is_root() {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let config =
        |cache: &str| format!("[[drive]]\npath = \"{}\"\nwrite-cache = {cache}\n", text(&drive.path()));
    drive.write_config(&config("true"));
    let server = serve(&drive, &["--config", &drive.file("pumice.toml")]);
    drive.write_config(&config("false"));
    server.ask_to_reload();
    wait_for_log(&drive, "write-cache changed: takes effect when the server is restarted");
    assert_eq!(drive.status()["state"], "online");
    assert!(server.stop().success());
}
