//! `pumice attach --configured` and `pumice detach --configured`: the drives with `attach = true`, all
//! together.

use std::path::PathBuf;

use serde_json::Value;

use crate::attach::usable;
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, fails, fails_with};

/// Drives in one directory, which are detached when dropped.
struct Drives {
    first: Drive,
    names: Vec<&'static str>,
}

impl Drives {
    fn create(names: &[&'static str]) -> Drives {
        let drives = Drives { first: Drive::create(&["--size", "32M"]), names: names.to_vec() };
        for name in names {
            let run =
                drives.first.pumice(&["create", &drives.path(name), "--size", "32M", "--capacity", "32M"]);
            assert_eq!(run.code, Some(0), "{run:?}");
        }
        drives
    }

    fn path(&self, name: &str) -> String {
        self.first.file(name)
    }

    /// The paths of drives that `list` shows as attached.
    fn attached(&self) -> Vec<PathBuf> {
        let run = self.first.pumice(&["list", "--json"]);
        let list: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let drives = list["drives"].as_array().expect("a list").iter();
        let attached = drives.filter(|drive| drive["attachment"]["device"].is_string());
        attached.map(|drive| PathBuf::from(drive["path"].as_str().expect("a path"))).collect()
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        // After a failure only.
        for name in self.names.iter().chain(&["drive"]) {
            self.first.pumice(&["detach", "--force", &self.path(name)]);
        }
    }
}

/// Detaches. Programs of other tests that look for users of a file may have the nodes open for a moment.
fn detach(drive: &Drive, arguments: &[&str]) {
    wait_until("detached", || drive.pumice(&[&["detach"], arguments].concat()).code == Some(0));
}

#[test]
fn configured_drives_are_attached_and_detached_together() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let drives = Drives::create(&["one", "two", "other"]);
    let drive = &drives.first;
    let entry = |name: &str, rest: &str| format!("[[drive]]\npath = \"{}\"\n{rest}", drives.path(name));
    let attach = "attach = true\nby = \"loop\"\n";
    let config = [entry("one", attach), entry("drive", ""), entry("two", attach)].concat();
    let server = drive.serve_config(&config, 3);
    let config_file = drive.file("pumice.toml");
    let attach_all = || drive.pumice(&["attach", "--configured", "--config", &config_file]);
    let run = attach_all();
    assert_eq!(run.code, Some(0), "{run:?}");
    let nodes = run.stdout.clone();
    assert_eq!(nodes.lines().filter(|line| line.starts_with("/dev/loop")).count(), 2, "{run:?}");
    assert_eq!(run.stderr.matches("attached by loop").count(), 2, "{run:?}");
    let two = ["one", "two"].map(|name| PathBuf::from(drives.path(name)));
    assert_eq!(drives.attached(), two);
    // Their numbers are in the order of the file.
    let drive_of = |number: u32| {
        let file = drive.folder().join(format!("run-sfx/sfdv{number}n1/drive"));
        std::fs::read_to_string(file).ok().map(|path| PathBuf::from(path.trim_end()))
    };
    // Others on this machine may have the first ones.
    let numbered: Vec<PathBuf> = (0..16).filter_map(drive_of).collect();
    assert_eq!(numbered, two);
    // Again: nothing changes, and what was attached by hand is not touched later.
    let run = drive.pumice(&["attach", &drives.path("other"), "--by", "loop"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let run = attach_all();
    assert_eq!((run.code, &run.stdout), (Some(0), &nodes), "{run:?}");
    assert_eq!(run.stderr.matches("already attached").count(), 2, "{run:?}");
    // One that is not there does not keep the others from it. The server takes no notice of the key.
    let more = [entry("gone", attach), entry("drive", attach)].concat();
    drive.reload(&server, &[entry("one", attach), entry("two", ""), more].concat());
    let run = attach_all();
    assert_eq!((run.code, run.stdout.lines().count()), (Some(1), 2), "{run:?}");
    assert!(run.stderr.contains("gone: not attached: "), "{run:?}");
    assert!(run.stderr.contains("1 of 3 drives with attach = true were not attached"), "{run:?}");
    assert_eq!(drives.attached().len(), 4);
    // Whatever the file says by now.
    drive.write_config("nonsense");
    detach(drive, &["--configured"]);
    assert_eq!(drives.attached(), [PathBuf::from(drives.path("other"))]);
    detach(drive, &[&drives.path("other")]);
    assert!(!drive.folder().join("run-attach").exists(), "nothing is left");
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn what_is_in_use_stays_attached() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let drives = Drives::create(&["one"]);
    let drive = &drives.first;
    let entry =
        |name: &str| format!("[[drive]]\npath = \"{}\"\nattach = true\nby = \"loop\"\n", drives.path(name));
    drive.write_config(&[entry("one"), entry("drive")].concat());
    let run = drive.pumice(&["attach", "--configured", "--config", &drive.file("pumice.toml")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let open = std::fs::File::open(run.stdout.lines().next().expect("a node"))?;
    let one = [PathBuf::from(drives.path("one"))];
    wait_until("the other one detached", || {
        let run = drive.pumice(&["detach", "--configured"]);
        assert_eq!(run.code, Some(1), "{run:?}");
        drives.attached() == one
    });
    let run = drive.pumice(&["detach", "--configured"]);
    assert!(run.stderr.contains("1 of 1 drives were not detached"), "{run:?}");
    drop(open);
    detach(drive, &["--configured"]);
    assert!(drives.attached().is_empty());
    Ok(())
}

#[test]
fn mistakes_are_one_line() {
    let drive = Drive::create(&["--size", "32M"]);
    let config = drive.file("pumice.toml");
    let attach = || drive.pumice(&["attach", "--configured", "--config", &config]);
    let path = text(&drive.path());
    if rustix::process::geteuid().is_root() {
        drive.write_config(&format!("[[drive]]\npath = \"{path}\"\nby = \"loop\"\n"));
        fails(&attach(), &["drive[0]", "by needs attach = true"]);
        drive.write_config(&format!("[[drive]]\npath = \"{path}\"\nattach = true\nby = \"magic\"\n"));
        fails(&attach(), &["pumice.toml:4: drive[0].by", "expected auto"]);
        drive.write_config(&format!("[[drive]]\npath = \"{path}\"\n"));
        let run = attach();
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "nothing to do");
    }
    for arguments in [&["attach"][..], &["attach", &path, "--configured"], &["detach"]] {
        fails_with(2, &drive.pumice(arguments), &["--help"]);
    }
    fails_with(2, &drive.pumice(&["attach", "--configured", "--by", "loop"]), &["--by"]);
}
