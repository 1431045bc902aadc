//! The commands of Hyperscalers' *Gluster Scale Out Storage for Cloud using Computational Storage Drives*,
//! 2022, by the names that it uses.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nbd::client::{Replies, negotiate};

use crate::common::mounts::unmount;
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Run, fails, in_time, needs, pumice, succeed};
use crate::copies::answered_after;

/// Labels of the listing, figure 6.
const LABELS: [&str; 26] = [
    "SFX card",
    "PCIe Vendor ID",
    "PCIe Subsystem Vendor ID",
    "Manufacturer",
    "Model",
    "Serial Number",
    "OPN",
    "FPGA BitStream",
    "Drive Type",
    "Software Revision",
    "Temperature",
    "Power Consumption",
    "Atomic Write mode",
    "Percentage Used",
    "Data Read",
    "Data Written",
    "Correctable Error Cnt",
    "Uncorrectable Error Cnt",
    "PCIe Link Status",
    "PCIe Device Status",
    "Formatted Capacity",
    "Provisioned Capacity",
    "Compression Ratio",
    "Physical Used Ratio",
    "Free Physical Space",
    "Critical Warning",
];
const COLUMNS: &str = "free_space\tphysical_size\tlogical_size\tcomp_ratio\tprovisioned_cap\tspace_flag";

/// Held while names in `/dev` are used: a link of one test is found by the other.
static NAMES: Mutex<()> = Mutex::new(());

/// A drive that can have the document's capacities, and links with the names of the tools.
struct Lab {
    drive: Drive,
    is_attached: bool,
}

impl Lab {
    fn new() -> Lab {
        // Of a sparse file.
        let lab = Lab { drive: Drive::create(&["--size", "64GB"]), is_attached: false };
        for name in ["sfx-status", "sfx-nvme"] {
            symlink(env!("CARGO_BIN_EXE_pumice"), lab.drive.folder().join(name)).expect("linked");
        }
        lab
    }

    fn path(&self) -> String {
        text(&self.drive.path())
    }

    /// Runs a line of the document.
    fn line(&self, line: &str) -> Run {
        let run_time = format!("PUMICE_RUNTIME_DIR={}", text(&self.drive.runtime_dir()));
        let path =
            format!("PATH={}:{}", text(self.drive.folder()), std::env::var("PATH").unwrap_or_default());
        in_time("env", &[&run_time, &path, "sh", "-c", line])
    }

    /// Runs a line that must succeed. Returns what it prints.
    fn done(&self, line: &str) -> String {
        let run = self.line(line);
        assert_eq!(run.code, Some(0), "{line}: {run:?}");
        run.stdout
    }

    /// Returns the listing of a drive, which has the lines of the document in its order.
    fn listing(&self, line: &str) -> Vec<(String, String)> {
        let printed = self.done(line);
        let split = |line: &str| {
            let (label, value) = line.split_once(':').expect("a label");
            (label.to_string(), value.trim().to_string())
        };
        let lines: Vec<_> = printed.lines().map(split).collect();
        let labels: Vec<&str> = lines.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels[..LABELS.len()], LABELS, "{printed}");
        assert_eq!(labels[LABELS.len()..], ["Pumice Drive", "Block Device"], "{printed}");
        lines
    }

    fn value(&self, line: &str, label: &str) -> String {
        let mut lines = self.listing(line).into_iter();
        lines.find(|(name, _)| name == label).map(|(_, value)| value).expect(label)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // After a failure only.
        if self.is_attached {
            self.drive.pumice(&["detach", "--force", &self.path()]);
        }
    }
}

#[test]
fn section_4_on_a_served_drive() {
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new();
    let server = lab.drive.serve(&[]);
    assert_eq!(lab.value("sfx-status", "SFX card"), "/dev/sfdv0n1");
    for name in ["0", "/dev/sfdv0n1", "/dev/sfxv0", &lab.path()] {
        assert_eq!(lab.value(&format!("sfx-status {name}"), "Pumice Drive"), lab.path(), "{name}");
    }
    assert_eq!(lab.value("sfx-status 0", "PCIe Device Status"), "Good");
    for (line, shown) in [
        ("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 9600", "9600 GB"),
        ("sfx-nvme sfx change-cap /dev/sfdv0n1 --cap=9601", "9601 GB"),
        ("sfx-nvme sfx change-cap /dev/sfdv0n1 -c=9602", "9602 GB"),
        ("sfx-nvme sfx change-cap 0 -z 9700000006144", "9698 GB"),
    ] {
        lab.done(line);
        assert_eq!(lab.value("sfx-status 0", "Formatted Capacity"), shown, "{line}");
    }
    assert_eq!(lab.drive.status()["logical_capacity_bytes"], 9_700_000_006_144_u64);
    let list = lab.done("sfx-nvme list");
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].starts_with("Node  ") && lines[2].starts_with("/dev/sfdv0n1  "), "{list}");
    assert!(lines[2].contains("0.00  B /   9.70 TB") && lines[2].contains("512   B +  0 B"), "{list}");

    // A client would lose its drive.
    let mut client = UnixStream::connect(server.socket()).expect("connected");
    negotiate(&mut client, "", Replies::Simple).expect("a client");
    let erasing = [
        "sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0 --force",
        "sfx-nvme format /dev/sfdv0n1 -l 1 --force",
        "sfx-nvme sfx change-cap /dev/sfdv0n1 -c 6400",
    ];
    for line in erasing {
        fails(&lab.line(line), &[&lab.path(), "a client is connected"]);
    }
    drop(client);
    // Without one, the server erases its drive and serves it again.
    for line in erasing {
        lab.done(line);
    }
    let status = lab.drive.status();
    assert_eq!((&status["server"]["pid"], &status["sector_bytes"]), (&server.pid().into(), &4096.into()));
    assert_eq!(lab.value("sfx-status 0", "Formatted Capacity"), "6400 GB");
    let mut client = UnixStream::connect(server.socket()).expect("connected");
    negotiate(&mut client, "", Replies::Simple).expect("it is served again");
    drop(client);
    lab.done("sfx-nvme format /dev/sfdv0n1 -l 0 --force");
    assert!(server.stop().success());

    // It keeps its number.
    fails(&lab.line("sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0"), &["unchanged", "--force"]);
    lab.done("echo yes | sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0");
    lab.done("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 6400");
    assert_eq!(lab.value("sfx-status 0", "Formatted Capacity"), "6400 GB");
    lab.done("yes | sfx-nvme format /dev/sfdv0n1 -l 1");
    assert_eq!(lab.drive.status()["sector_bytes"], 4096);
    assert_eq!(lab.value("sfx-status 0", "Block Device"), "-");
}

#[test]
fn a_smaller_capacity_needs_an_empty_drive() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new();
    let server = lab.drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 0 1M", "-c", "flush", server.uri()]);
    assert!(server.stop().success());
    let line = format!("sfx-nvme sfx change-cap {} -c 50", lab.path());
    fails(&lab.line(&line), &["holds data", "0xdc"]);
    assert_eq!(lab.drive.status()["logical_used_bytes"], 1 << 20);
    lab.done(&format!("sfx-nvme sfx set-feature -f 0xdc {} -s", lab.path()));
    lab.done(&line);
    assert_eq!(lab.value("sfx-status 0", "Formatted Capacity"), "50 GB");
}

#[test]
fn section_4_on_an_attached_drive() -> Outcome {
    let opens = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    if !rustix::process::geteuid().is_root() || !opens("/dev/fuse") || !opens("/dev/loop-control") {
        eprintln!("skipped: attaching needs root, /dev/fuse and /dev/loop-control");
        return Ok(());
    }
    if !needs(&["blockdev", "mkfs.ext4", "mount", "umount", "fstrim"]) {
        return Ok(());
    }
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new();
    lab.is_attached = true;
    let attached =
        lab.line(&format!("{} attach --by loop --sfx {}", env!("CARGO_BIN_EXE_pumice"), lab.path()));
    assert_eq!(attached.code, Some(0), "{attached:?}");
    // Another drive may have the first number.
    let link = lab.value("sfx-status", "SFX card");
    let number = link.trim_start_matches("/dev/sfdv").trim_end_matches("n1").to_string();
    assert_eq!(fs::read_link(&link)?, Path::new(attached.stdout.trim()));
    let device =
        |line: &str| line.replace("/dev/sfdv0n1", &link).replace("/dev/sfxv0", &format!("/dev/sfxv{number}"));
    let done = |line: &str| lab.done(&device(line));

    let features = lab.drive.file(&format!("run-sfx/sfdv{number}n1/sfx_smart_features"));
    let stat = || fs::read_to_string(format!("{features}/sfx_capacity_stat")).unwrap_or_default();
    let column =
        |at: usize| stat().lines().nth(1).and_then(|line| Some(line.split('\t').nth(at)?.to_string()));
    assert_eq!(stat().lines().next(), Some(COLUMNS), "there as soon as the device is");
    assert_eq!(column(4).as_deref(), Some("125000000"));
    for file in ["sfx_freespace", "sfx_logical_size", "sfx_physical_size", "sfx_comp_ratio", "space_flag"] {
        assert!(Path::new(&features).join(file).is_file(), "{file}");
    }

    done("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 9600");
    let bytes = 18_753_659_568_u64 * 512;
    assert_eq!(done("blockdev --getsize64 /dev/sfdv0n1").trim(), bytes.to_string(), "shown at once");
    assert_eq!(lab.value(&device("sfx-status /dev/sfdv[0-9]n1 | head -28"), "SFX card"), link);
    assert_eq!(lab.value(&device("sfx-status /dev/sfdv0n1"), "Formatted Capacity"), "9600 GB");
    wait_until("the values", || column(4).as_deref() == Some("18753659568"));

    // Mounted, nothing is erased.
    let part = lab.drive.file("part");
    done(&format!(
        "sfx-nvme sfx change-cap /dev/sfdv0n1 -c 9600 && mkfs.ext4 -q /dev/sfdv0n1 1G && mkdir {part}"
    ));
    done(&format!("mount -o discard /dev/sfdv0n1 {part} && fstrim {part}"));
    wait_until("the values", || column(2).is_some_and(|logical| logical != "0"));
    for line in ["sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0 -s", "sfx-nvme format /dev/sfdv0n1 -l 1 -f"] {
        fails(&lab.line(&device(line)), &["mounted at", &part]);
    }
    unmount(Path::new(&part));
    fails(&lab.line(&device("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 6400")), &["holds data"]);

    // Erased under its device, which stays.
    done("echo yes | sfx-nvme sfx set-feature -f 0xdc /dev/sfxv0");
    assert_eq!(lab.drive.status()["logical_used_bytes"], 0);
    done("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 6400");
    assert_eq!(lab.value(&device("sfx-status /dev/sfdv0n1"), "Formatted Capacity"), "6400 GB");
    for (format, bytes) in [("1", "4096"), ("0", "512")] {
        done(&format!("echo yes | sfx-nvme format /dev/sfdv0n1 -l {format}"));
        assert_eq!(done("blockdev --getss /dev/sfdv0n1").trim(), bytes);
    }
    assert!(done("sfx-nvme sfx set-feature /dev/sfdv0n1 -f 1 -v 1").contains("are on"));
    let off = lab.line(&device("sfx-nvme sfx set-feature /dev/sfdv0n1 -f 1 -v 0"));
    assert!(off.code == Some(0) && off.stderr.contains("always on"), "{off:?}");

    let pumice = env!("CARGO_BIN_EXE_pumice");
    let is_gone = || fs::symlink_metadata(&link).is_err() && !Path::new(&features).exists();
    done(&format!("{pumice} detach /dev/sfdv0n1"));
    assert!(is_gone(), "nothing is left");

    // The same number, and a device whose bridge was killed.
    done(&format!("{pumice} attach --by loop --sfx {}", lab.path()));
    assert!(!is_gone(), "linked again");
    let folder = fs::read_dir(lab.drive.file("run-attach"))?.flatten().next().ok_or("attached")?;
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join("attachment.json"))?)?;
    done(&format!("kill -9 {}", record["bridge_pid"]));
    wait_until("its end", || {
        lab.value("sfx-status", "PCIe Device Status").starts_with("waiting for pumice attach")
    });
    fails(&lab.line(&device("sfx-nvme format /dev/sfdv0n1 -l 1 -f")), &["bridge process"]);
    // The kernel may still be giving up the device.
    wait_until("detached", || lab.line(&format!("{pumice} detach {}", lab.path())).code == Some(0));
    lab.is_attached = false;
    assert!(is_gone(), "nothing is left");
    Ok(())
}

#[test]
fn a_drive_of_another_server_is_erased_under_its_device() -> Outcome {
    let opens = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    if !rustix::process::geteuid().is_root() || !opens("/dev/fuse") || !opens("/dev/loop-control") {
        eprintln!("skipped: attaching needs root, /dev/fuse and /dev/loop-control");
        return Ok(());
    }
    if !needs(&["blockdev", "addpart"]) {
        return Ok(());
    }
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut lab = Lab::new();
    let server = lab.drive.serve(&[]);
    lab.is_attached = true;
    let pumice = env!("CARGO_BIN_EXE_pumice");
    let node = lab.done(&format!("{pumice} attach --by loop --sfx {}", lab.path())).trim().to_string();
    let link = lab.value("sfx-status", "SFX card");
    let part = format!("{link}p3");
    // Links of partitions come and go with these.
    lab.done(&format!("addpart {node} 3 2048 2048"));
    wait_until("the link", || fs::read_link(&part).is_ok_and(|to| to == Path::new(&format!("{node}p3"))));
    lab.done(&format!("delpart {node} 3"));
    wait_until("its end", || fs::symlink_metadata(&part).is_err());
    lab.done(&format!("addpart {node} 3 2048 2048"));

    for (format, bytes) in [("1", "4096"), ("0", "512")] {
        lab.done(&format!("echo yes | sfx-nvme format {link} -l {format}"));
        assert_eq!(lab.done(&format!("blockdev --getss {link}")).trim(), bytes);
        assert_eq!(lab.drive.status()["server"]["pid"], server.pid());
    }
    lab.done(&format!("sfx-nvme sfx set-feature -f 0xdc {link} -s"));
    let again = fs::read_link(&link)?.display().to_string();
    // Another process may have had the number meanwhile.
    let name = again.strip_prefix("/dev/").expect("a node");
    assert!(Path::new("/sys/block").join(name).join("loop").exists(), "{again}, and was {node}");
    assert!(fs::symlink_metadata(&part).is_err() && !Path::new(&format!("{node}p3")).exists());
    lab.done(&format!("{pumice} detach {link}"));
    lab.is_attached = false;
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn refusals() {
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = Lab::new();
    fails(&lab.line("sfx-status 0"), &["no drive has this number"]);
    fails(
        &lab.line("sfx-nvme sfx change-cap /dev/sfdv0n1 -c 9600"),
        &["/dev/sfdv0n1", "no drive has this number"],
    );
    let path = lab.path();
    fails(&lab.line(&format!("sfx-nvme sfx set-feature -f 0xac -v 3 {path}")), &["0xac"]);
    fails(&lab.line(&format!("sfx-nvme sfx set-feature -f 1 {path}")), &["needs a value"]);
    let none = lab.line("sfx-status");
    assert!(none.code == Some(0) && none.stderr.contains("no drive"), "{none:?}");
    for wrong in [
        &["sfx-nvme"][..],
        &["sfx-nvme", "sfx"],
        &["sfx-nvme", "format", &path, "-l", "2"],
        &["sfx-nvme", "sfx", "change-cap", &path],
        &["sfx-nvme", "sfx", "change-cap", &path, "-c", "0"],
        &["sfx-nvme", "sfx", "set-feature", &path, "-f", "dc"],
    ] {
        assert_eq!(pumice(wrong).code, Some(2), "{wrong:?}");
    }
}

/// A server that could not open a drive does not know its id; its superblock does.
#[test]
fn a_drive_that_is_down_is_erased() -> Outcome {
    let lab = Lab::new();
    let later = lab.drive.file("later");
    let drives = [&later, &lab.path()].map(|path| format!("[[drive]]\npath = \"{path}\"\n"));
    let server = lab.drive.serve_config(&drives.concat(), 1);
    wait_until("it is down", || lab.drive.pumice(&["status", &later]).stdout.contains("down: "));
    let create = lab.drive.pumice(&["create", &later, "--size", "64M"]);
    assert_eq!(create.code, Some(0), "{create:?}");
    let erased = lab.line(&format!("sfx-nvme sfx set-feature -f 0xdc {later} --force"));
    assert_eq!(erased.code, Some(0), "{erased:?}");
    assert!(server.stop().success());
    let status = lab.drive.pumice(&["status", "--json", &later]);
    let answer: serde_json::Value = serde_json::from_str(&status.stdout)?;
    assert_eq!(answer["drives"][0]["incarnation"], 1, "{answer}");
    Ok(())
}

/// Whoever answers the question means the drive that was served when it was asked.
#[test]
fn a_drive_that_is_served_by_now_is_not_erased() -> Outcome {
    if !needs(&["script"]) {
        return Ok(());
    }
    let lab = Lab::new();
    let (path, other) = (lab.path(), lab.drive.file("other"));
    assert_eq!(lab.drive.pumice(&["create", &other, "--size", "64M"]).code, Some(0));
    let mut server = Some(lab.drive.serve(&[]));
    let erase = format!("{}/sfx-nvme sfx set-feature -f 0xdc {path}", lab.drive.folder().display());
    let told = answered_after(&lab.drive, &erase, || {
        assert!(server.take().ok_or("a server")?.stop().success());
        fs::rename(&path, lab.drive.file("moved"))?;
        fs::rename(&other, &path)?;
        server = Some(lab.drive.serve(&[]));
        Ok(())
    })?;
    assert!(told.contains("another drive is served there now; nothing was changed"), "{told}");
    assert_eq!(lab.drive.status()["incarnation"], 0);
    assert!(server.ok_or("a server")?.stop().success());
    Ok(())
}
