//! A file system that hangs under one drive: commands about others must not hang with it.

use std::path::PathBuf;
use std::process::{Child, Command};

use crate::common::server::{Drive, wait_until};
use crate::common::{Outcome, needs, succeed};

/// A file of 64 MiB by FUSE, which can be made to hang.
struct Fuse {
    child: Child,
    folder: PathBuf,
}

impl Fuse {
    fn mount(drive: &Drive) -> Fuse {
        let folder = drive.folder().join("fuse");
        std::fs::create_dir(&folder).expect("a directory");
        let mut command = Command::new("nbdfuse");
        command.arg(folder.join("drive"));
        command.args(["[", "nbdkit", "--exit-with-parent", "memory", "64M", "]"]);
        let child = command.spawn().expect("nbdfuse");
        let fuse = Fuse { child, folder };
        wait_until("mounted", || fuse.file().exists());
        fuse
    }

    fn file(&self) -> PathBuf {
        self.folder.join("drive")
    }

    fn signal(&self, signal: &str) {
        succeed("kill", &[signal, &self.child.id().to_string()]);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // What waits for it ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.folder).status();
    }
}

/// A loop device on its file, where that is possible.
struct Loop(Option<String>);

impl Loop {
    fn on(fuse: &Fuse) -> Loop {
        let made =
            Command::new("losetup").args(["--find", "--show", "--read-only"]).arg(fuse.file()).output();
        let made = made.ok().filter(|made| made.status.success());
        Loop(made.map(|made| String::from_utf8_lossy(&made.stdout).trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(node) = &self.0 {
            let _ = Command::new("losetup").args(["--detach", node]).status();
        }
    }
}

#[test]
fn a_drive_whose_file_system_hangs_keeps_no_command_about_others_waiting() -> Outcome {
    if !needs(&["nbdfuse", "nbdkit", "fusermount3"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let fuse = Fuse::mount(&drive);
    let hanging = fuse.file().display().to_string();
    let created = drive.pumice(&["create", &hanging]);
    assert_eq!(created.code, Some(0), "{created:?}");
    let socket = format!("unix:{}", drive.file("hanging.nbd"));
    let hangs = drive.serve_paths(&[&fuse.file()], &["--nbd", &socket]);
    let looped = Loop::on(&fuse);
    fuse.signal("-STOP");
    let path = drive.path().display().to_string();
    let other = drive.file("other");
    let all: [&[&str]; 7] = [
        &["check", &path],
        &["status", &path],
        &["doctor", &path],
        &["create", &other, "--size", "64M"],
        &["wipe", &other, "--yes"],
        &["create", &other, "--force"],
        &["set-codec", &path, "zstd"],
    ];
    for arguments in all {
        let run = drive.pumice(arguments);
        // Checks of the machine may fail.
        assert!(
            run.code == Some(0) || arguments[0] == "doctor" && run.code == Some(1),
            "{arguments:?}: {run:?}"
        );
    }
    // Also while a server of its own has it open.
    let server = drive.serve(&[]);
    let run = drive.pumice(&["status", &path]);
    assert_eq!(run.code, Some(0), "{run:?}");
    server.stop();
    fuse.signal("-CONT");
    drop(looped);
    hangs.kill();
    Ok(())
}
