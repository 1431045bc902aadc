//! `pumice doctor` on this machine and on simulated ones.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::server::text;
use crate::common::{Drive, Outcome, Run, in_time, needs, pumice, succeed};

/// A directory that simulates `/` of a machine.
pub(crate) struct Machine(tempfile::TempDir);

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine(tempfile::tempdir().expect("a directory"))
    }

    pub(crate) fn put(&self, path: &str, text: &str) -> &Machine {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, format!("{text}\n")).expect("written");
        self
    }

    pub(crate) fn link(&self, path: &str, to: impl AsRef<Path>) -> &Machine {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        symlink(to, path).expect("linked");
        self
    }

    /// Adds a disk `name` with a partition that holds `path`.
    fn disk(&self, name: &str, path: &Path, start_sector: u64, queue: &[(&str, &str)]) {
        for (file, value) in queue {
            self.put(&format!("sys/devices/{name}/queue/{file}"), value);
        }
        let partition = format!("sys/devices/{name}/{name}1");
        self.put(&format!("{partition}/partition"), "1");
        self.put(&format!("{partition}/start"), &start_sector.to_string());
        let number = std::fs::metadata(path).expect("there").dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        self.link(&format!("sys/dev/block/{major}:{minor}"), self.0.path().join(&partition));
    }

    /// Runs the doctor on the simulated machine.
    fn doctor(&self, drive: &Drive, path: &Path, more: &[&str]) -> (Run, Value) {
        let root = text(self.0.path());
        let run = drive.pumice(&[&["doctor", &text(path), "--json", "--root", &root], more].concat());
        let answer = serde_json::from_str(&run.stdout).expect("JSON");
        (run, answer)
    }

    /// Returns verdict and text of one check.
    pub(crate) fn check(&self, drive: &Drive, path: &Path, check: &str) -> (String, String) {
        verdict(&self.doctor(drive, path, &[]).1, check)
    }
}

fn verdict(answer: &Value, check: &str) -> (String, String) {
    let found: Vec<&Value> =
        answer["checks"].as_array().expect("checks").iter().filter(|it| it["check"] == check).collect();
    assert_eq!(found.len(), 1, "{check}: {answer}");
    let field = |name: &str| found[0][name].as_str().unwrap_or_default().to_string();
    (field("verdict"), format!("{}; {}", field("found"), field("advice")))
}

pub(crate) fn assert_verdict(found: &(String, String), verdict: &str, words: &[&str]) {
    assert!(
        found.0 == verdict && words.iter().all(|word| found.1.contains(word)),
        "{verdict} {words:?}: {found:?}"
    );
}

const CHECKS: [&str; 26] = [
    "drive",
    "capacity-plan",
    "filesystem-below",
    "promised-space",
    "direct-io",
    "discard",
    "alignment",
    "rotational",
    "temperature",
    "trim-above",
    "io-uring",
    "memory",
    "map-cache",
    "open-files",
    "locked-memory",
    "cpu-governor",
    "cpu-idle",
    "cpu-affinity",
    "cpu-frequency",
    "pcie-link",
    "trim-gap",
    "partition-above",
    "flush-above",
    "wbt-above",
    "shortage-above",
    "swap-above",
];

#[test]
fn every_check_has_a_line_and_nothing_is_changed() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let before = std::fs::read(drive.path())?;
    let files = || -> Vec<_> {
        std::fs::read_dir(drive.folder()).expect("there").flatten().map(|entry| entry.file_name()).collect()
    };
    let beside = files();
    let run = drive.pumice(&["doctor", &text(&drive.path())]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    for check in CHECKS {
        let line = lines.iter().find(|line| line.split_whitespace().nth(1) == Some(check));
        let verdict = line.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
        assert!(["ok", "warn", "fail", "unknown"].contains(&verdict), "{check}: {run:?}");
    }
    assert_eq!(
        run.code,
        Some(i32::from(lines.iter().any(|line| line.trim_start().starts_with("fail ")))),
        "{run:?}"
    );
    assert!(std::fs::read(drive.path())? == before, "the drive is as it was");
    assert_eq!(files(), beside, "nothing is left beside it");
    Ok(())
}

#[test]
fn a_served_drive_an_idle_one_and_none_yet() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let new = drive.folder().join("new");
    assert_verdict(&machine.check(&drive, &drive.path(), "drive"), "ok", &["idle"]);
    assert_verdict(&machine.check(&drive, &new, "drive"), "ok", &["none yet"]);
    let server = drive.serve(&[]);
    let (_, answer) = machine.doctor(&drive, &drive.path(), &[]);
    assert_verdict(&verdict(&answer, "drive"), "ok", &["online"]);
    for check in ["direct-io", "discard"] {
        assert_eq!(
            verdict(&answer, check).0,
            verdict(&machine.doctor(&drive, &new, &[]).1, check).0,
            "{check}"
        );
    }
    assert!(server.stop().success());
    assert!(!new.exists());
}

#[test]
fn what_is_no_drive_fails() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let other = drive.folder().join("other");
    std::fs::write(&other, vec![7; 1 << 20])?;
    let (run, answer) = Machine::new().doctor(&drive, &other, &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert_verdict(&verdict(&answer, "drive"), "fail", &["not a Pumice drive"]);
    assert_eq!(answer["failed_count"], 1);
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    Ok(())
}

#[test]
fn capacity_is_held_against_the_ratio() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let machine = Machine::new();
    let drive = Drive::create(&["--size", "256M", "--capacity", "150M"]);
    assert_verdict(&machine.check(&drive, &drive.path(), "capacity-plan"), "ok", &["any data fits"]);
    for (capacity, result, word) in
        [("300M", "ok", "its data shows"), ("2G", "warn", "full at"), ("1G", "warn", "full at")]
    {
        let drive = Drive::create(&["--size", "256M", "--capacity", capacity]);
        assert_verdict(
            &machine.check(&drive, &drive.path(), "capacity-plan"),
            "unknown",
            &["too little data"],
        );
        let data = drive.file("data");
        // Data with a ratio of about two to one.
        std::fs::write(&data, crate::common::sample(1, 100 << 20)).expect("written");
        let server = drive.serve(&[]);
        succeed("nbdcopy", &["--flush", &data, server.uri()]);
        assert_verdict(&machine.check(&drive, &drive.path(), "capacity-plan"), result, &[word]);
        assert!(server.stop().success());
        assert_verdict(&machine.check(&drive, &drive.path(), "capacity-plan"), result, &[word]);
    }
}

#[test]
fn processors() {
    let drive = Drive::create(&["--size", "64M"]);
    let check = |machine: &Machine, check: &str| machine.check(&drive, &drive.path(), check);
    let machine = Machine::new();
    assert_verdict(&check(&machine, "cpu-governor"), "unknown", &["firmware"]);
    assert_verdict(&check(&machine, "cpu-idle"), "unknown", &[]);
    for cpu in 0..2 {
        machine.put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), "performance");
        for (state, name, latency) in [(0, "POLL", 0), (1, "C1", 2), (2, "C6", 133)] {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}");
            machine.put(&format!("{directory}/name"), name);
            machine.put(&format!("{directory}/latency"), &latency.to_string());
            machine.put(&format!("{directory}/disable"), "0");
        }
    }
    machine.put("sys/devices/system/cpu/cpufreq/boost", "1");
    assert_verdict(&check(&machine, "cpu-governor"), "ok", &["all 2"]);
    assert_verdict(&check(&machine, "cpu-idle"), "warn", &["C6", "133 us", "cpupower idle-set"]);
    machine.put("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1");
    assert_verdict(&check(&machine, "cpu-idle"), "ok", &["C1"]);
    machine.put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
    assert_verdict(&check(&machine, "cpu-governor"), "warn", &["powersave on 1 of 2", "cpupower"]);
}

#[test]
fn processors_that_the_server_may_use() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = || machine.check(&drive, &drive.path(), "cpu-affinity");
    assert_verdict(&check(), "unknown", &[]);
    machine.put("sys/devices/system/cpu/online", "0-7");
    for (list, result, word) in [
        ("0-7", "ok", "all 8"),
        ("2-3,6", "ok", "pinned to 3 of 8 processors (2-3,6)"),
        ("5", "warn", "pinned to 1 of 8"),
        ("x", "unknown", "invalid list"),
    ] {
        machine.put("proc/self/status", &format!("Name:\tpumice\nCpus_allowed_list:\t{list}"));
        assert_verdict(&check(), result, &[word]);
    }
    machine.put("proc/self/status", "Cpus_allowed_list:\t0-7");
    machine.put("proc/self/cgroup", "0::/small");
    machine.put("sys/fs/cgroup/small/cpu.max", "50000 100000");
    assert_verdict(&check(), "warn", &["this shell", "the time of 0.5"]);
    machine.put("sys/fs/cgroup/small/cpu.max", "400000 100000");
    assert_verdict(&check(), "ok", &["the time of 4.0"]);
    let server = drive.serve(&[]);
    machine.put(&format!("proc/{}/status", server.pid()), "Cpus_allowed_list:\t0");
    assert_verdict(&check(), "warn", &["the server is pinned"]);
}

#[test]
fn frequencies() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = || machine.check(&drive, &drive.path(), "cpu-frequency");
    assert_verdict(&check(), "unknown", &[]);
    machine.put(
        "proc/cpuinfo",
        "processor\t: 0\ncpu MHz\t\t: 2596.120\n\nprocessor\t: 1\ncpu MHz\t\t: 2600.000",
    );
    let none = "sys/devices/system/cpu/cpu0/topology/core_id";
    machine.put(none, "0");
    assert_verdict(&check(), "ok", &["2596 to 2600 MHz now on 2 processors"]);
    let set = |name: &str, kilohertz: [u32; 2]| {
        for (cpu, kilohertz) in kilohertz.iter().enumerate() {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}");
            machine.put(&file, &kilohertz.to_string());
        }
    };
    set("scaling_cur_freq", [800_000, 3_500_000]);
    set("cpuinfo_max_freq", [3_600_000, 3_600_000]);
    set("scaling_max_freq", [3_600_000, 3_600_000]);
    assert_verdict(&check(), "ok", &["800 to 3500 MHz", "3600 MHz at most"]);
    set("scaling_max_freq", [3_600_000, 2_000_000]);
    assert_verdict(&check(), "warn", &["limited to 2000 MHz"]);
    set("scaling_max_freq", [3_600_000, 3_600_000]);
    set("scaling_cur_freq", [800_000, 1_200_000]);
    assert_verdict(&check(), "ok", &["1200 MHz"]);
    for cpu in 0..2 {
        machine.put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), "performance");
    }
    assert_verdict(&check(), "warn", &["although the governor is performance"]);
}

#[test]
fn memory_and_control_groups() {
    let drive = Drive::create(&["--size", "64M"]);
    let check = |machine: &Machine| machine.check(&drive, &drive.path(), "memory");
    let machine = Machine::new();
    assert_verdict(&check(&machine), "unknown", &[]);
    let memory = |total: u64, available: u64| {
        machine.put(
            "proc/meminfo",
            &format!("MemTotal:  {} kB\nMemFree: 1 kB\nMemAvailable:  {} kB", total << 10, available << 10),
        );
    };
    memory(16 << 10, 8 << 10);
    assert_verdict(&check(&machine), "ok", &["16.00 GiB", "128.00 MiB"]);
    memory(16 << 10, 500);
    assert_verdict(&check(&machine), "warn", &["killed"]);
    memory(600, 500);
    assert_verdict(&check(&machine), "fail", &["--map-cache"]);
    let (run, _) = machine.doctor(&drive, &drive.path(), &[]);
    assert_eq!(run.code, Some(1), "{run:?}");
    // The limit of a control group counts: here of version 1, for a drive that is not being served.
    memory(16 << 10, 8 << 10);
    machine.put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/user/session\n0::/");
    machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    assert_verdict(&check(&machine), "ok", &["machine"]);
    machine.put("sys/fs/cgroup/memory/user/memory.limit_in_bytes", &(300 << 20).to_string());
    assert_verdict(&check(&machine), "fail", &["control group of this shell has 300.00 MiB"]);
    // The same for the control group of the server.
    let server = drive.serve(&["--map-cache", "1G"]);
    assert_verdict(&check(&machine), "ok", &["machine", "map cache 1.00 GiB"]);
    machine.put(&format!("proc/{}/cgroup", server.pid()), "0::/system.slice/pumice.service");
    machine.put("sys/fs/cgroup/system.slice/pumice.service/memory.max", "max");
    machine.put("sys/fs/cgroup/system.slice/memory.max", &(1 << 30).to_string());
    assert_verdict(&check(&machine), "fail", &["control group", "1.00 GiB"]);
    machine.put(&format!("proc/{}/cgroup", server.pid()), "4:memory:/user/session\n0::/");
    assert_verdict(&check(&machine), "fail", &["the server's control group has 300.00 MiB"]);
}

#[test]
fn memory_of_a_configured_server() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    machine.put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB");
    machine.put("lib/systemd/system/pumice.service", "[Service]\nMemoryMax=4G");
    let config = |request_memory: &str, second: &str| {
        let of = |path: &str, cache: &str| format!("[[drive]]\npath = \"{path}\"\nmap-cache = \"{cache}\"\n");
        drive.write_config(&format!(
            "[server]\nrequest-memory = \"{request_memory}\"\n{}{}",
            of(&text(&drive.path()), "512M"),
            of(second, "1G")
        ));
    };
    let check = |path: &Path| {
        let named = format!("PUMICE_CONFIG={}", drive.file("pumice.toml"));
        let runtime = format!("PUMICE_RUNTIME_DIR={}", drive.runtime_dir().display());
        let (program, root) = (env!("CARGO_BIN_EXE_pumice"), text(machine.0.path()));
        let run =
            in_time("env", &[&named, &runtime, program, "doctor", &text(path), "--json", "--root", &root]);
        verdict(&serde_json::from_str(&run.stdout).expect("JSON"), "memory")
    };
    config("256M", "/srv/other");
    // 1.5 GiB and a quarter, 84 MiB, 256 MiB, 256 MiB, 64 MiB.
    assert_verdict(
        &check(&drive.path()),
        "ok",
        &["configured server (2 drives)", "2.52 GiB", "unit", "4.00 GiB"],
    );
    config("2G", "/srv/other");
    assert_verdict(&check(&drive.path()), "fail", &["4.27 GiB", "request-memory 2.00 GiB", "MemoryMax="]);
    // Without a unit, the server is started from here.
    machine.put("proc/self/cgroup", "0::/shell");
    machine.put("sys/fs/cgroup/shell/memory.max", "3221225472");
    assert_verdict(&check(&drive.path()), "fail", &["unit of the server has 4.00 GiB"]);
    std::fs::remove_file(machine.0.path().join("lib/systemd/system/pumice.service")).expect("removed");
    assert_verdict(&check(&drive.path()), "fail", &["control group of this shell has 3.00 GiB"]);
    std::fs::remove_file(machine.0.path().join("proc/self/cgroup")).expect("removed");
    // A drive that the configuration does not have is one of another server.
    let other = drive.folder().join("new");
    assert_verdict(&check(&other), "ok", &["a server with this drive", "map cache 128.00 MiB"]);
    drive.write_config("[server]\nrequest-memory = 7\n");
    assert_verdict(&check(&drive.path()), "ok", &["a server with this drive", "request-memory 256.00 MiB"]);
}

#[test]
fn limits() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = |check: &str| machine.check(&drive, &drive.path(), check);
    let limits = |whose: &str, files: &str, locked: &str| {
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            {files:<20} 524288               files     \n\
             Max locked memory         {locked:<20} 8388608              bytes     "
        );
        machine.put(&format!("proc/{whose}/limits"), &text);
    };
    assert_verdict(&check("open-files"), "unknown", &[]);
    for (files, result) in [("64", "fail"), ("1024", "warn"), ("65536", "ok"), ("unlimited", "ok")] {
        limits("self", files, "65536");
        assert_verdict(&check("open-files"), result, &["this shell"]);
    }
    assert_verdict(&check("locked-memory"), "unknown", &[]);
    machine.put("proc/sys/kernel/osrelease", "5.10.0-28-amd64");
    assert_verdict(&check("locked-memory"), "warn", &["64.00 KiB", "LimitMEMLOCK"]);
    limits("self", "1024", "unlimited");
    assert_verdict(&check("locked-memory"), "ok", &[]);
    machine.put("proc/sys/kernel/osrelease", "6.1.0");
    assert_verdict(&check("locked-memory"), "ok", &["6.1"]);
    // If there is a server, its own limits count.
    let server = drive.serve(&[]);
    limits(&server.pid().to_string(), "100", "65536");
    assert_verdict(&check("open-files"), "fail", &["the server"]);
}

#[test]
fn disks() {
    let drive = Drive::create(&["--size", "64M"]);
    let check = |machine: &Machine, check: &str| machine.check(&drive, &drive.path(), check);
    let good = [("logical_block_size", "512"), ("physical_block_size", "4096"), ("rotational", "0")];
    let machine = Machine::new();
    assert_verdict(&check(&machine, "alignment"), "unknown", &[]);
    assert_verdict(&check(&machine, "rotational"), "unknown", &[]);
    assert_verdict(&check(&machine, "temperature"), "unknown", &[]);
    machine.disk("nvme0n1", &drive.path(), 2048, &good);
    assert_verdict(&check(&machine, "alignment"), "ok", &["byte 1048576", "4096 physical"]);
    assert_verdict(&check(&machine, "rotational"), "ok", &["nvme0n1"]);
    machine.put("sys/devices/nvme0n1/device/hwmon0/temp1_input", "41850");
    machine.put("sys/devices/nvme0n1/device/hwmon0/temp1_max", "84850");
    assert_verdict(&check(&machine, "temperature"), "ok", &["42 °C", "85 °C"]);
    machine.put("sys/devices/nvme0n1/device/hwmon0/temp1_input", "86000");
    assert_verdict(&check(&machine, "temperature"), "warn", &["ventilation"]);
    for (start, queue, result, word) in [
        (
            63,
            [("logical_block_size", "512"), ("physical_block_size", "4096"), ("rotational", "1")],
            "warn",
            "byte 32256",
        ),
        (
            2048,
            [("logical_block_size", "512"), ("physical_block_size", "16384"), ("rotational", "1")],
            "warn",
            "16384",
        ),
        (
            2048,
            [("logical_block_size", "8192"), ("physical_block_size", "8192"), ("rotational", "1")],
            "fail",
            "8192",
        ),
    ] {
        let machine = Machine::new();
        machine.disk("sda", &drive.path(), start, &queue);
        assert_verdict(&check(&machine, "alignment"), result, &["sda", word]);
        assert_verdict(&check(&machine, "rotational"), "warn", &["sda spins"]);
    }
}

#[test]
fn links_of_nvme_disks() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = || machine.check(&drive, &drive.path(), "pcie-link");
    assert_verdict(&check(), "unknown", &["NVMe"]);
    machine.disk("nvme0n1", &drive.path(), 2048, &[("rotational", "0")]);
    assert_verdict(&check(), "unknown", &["nvme0n1 does not report a link"]);
    let link = |now: (&str, &str), most: (&str, &str)| {
        for (when, (speed, width)) in [("current", now), ("max", most)] {
            machine.put(&format!("sys/devices/nvme0n1/{when}_link_speed"), speed);
            machine.put(&format!("sys/devices/nvme0n1/{when}_link_width"), width);
        }
        check()
    };
    let full = ("16.0 GT/s PCIe", "4");
    assert_verdict(&link(full, full), "ok", &["4 lanes at 16 GT/s"]);
    assert_verdict(&link(("8.0 GT/s PCIe", "4"), full), "warn", &["4 lanes at 8 GT/s", "4 at 16 GT/s"]);
    assert_verdict(&link(("16.0 GT/s PCIe", "1"), full), "warn", &["1 lanes", "slot"]);
    assert_verdict(&link(("Unknown", "0"), ("Unknown", "255")), "unknown", &["does not report"]);
}

#[test]
fn filesystems_below() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = || machine.check(&drive, &drive.path(), "filesystem-below");
    assert_verdict(&check(), "unknown", &[]);
    let point = text(drive.folder());
    for (kind, options, result, word) in [
        ("ext4", "rw", "ok", "ext4"),
        ("xfs", "rw", "ok", "xfs"),
        ("btrfs", "rw,compress=zstd:1", "warn", "compresses once more"),
        ("zfs", "rw", "warn", "zvol"),
        ("tmpfs", "rw", "warn", "memory"),
        ("overlay", "rw", "warn", "container"),
        ("nfs4", "rw", "warn", "network"),
        ("fuse.sshfs", "rw", "warn", "user space"),
        ("newfs", "rw", "unknown", "newfs"),
    ] {
        let mountinfo =
            format!("1 0 8:1 / / rw - ext4 /dev/root rw\n2 1 8:2 / {point} rw - {kind} source {options}");
        machine.put("proc/self/mountinfo", &mountinfo);
        assert_verdict(&check(), result, &[word]);
    }
}

#[test]
fn space_that_is_promised() {
    let drive = Drive::create(&["--size", "64M", "--preallocate"]);
    let machine = Machine::new();
    assert_verdict(&machine.check(&drive, &drive.path(), "promised-space"), "ok", &["all of it"]);
    let new = drive.folder().join("new");
    let planned = |size: &str| {
        let (run, answer) = machine.doctor(&drive, &new, &["--size", size]);
        (run.code, verdict(&answer, "promised-space"))
    };
    let (code, found) = planned("1P");
    assert_eq!(code, Some(1));
    assert_verdict(&found, "fail", &["1.00 PiB", "run full"]);
    assert_verdict(&planned("1M").1, "ok", &["--preallocate"]);
    let sparse = Drive::create(&["--size", "64M"]);
    let file = std::fs::File::options().write(true).open(sparse.path()).expect("there");
    assert_verdict(&machine.check(&sparse, &sparse.path(), "promised-space"), "warn", &["--preallocate"]);
    // A sparse drive may be larger than the disk that holds it.
    file.set_len(1 << 43).expect("sparse");
    assert_verdict(&machine.check(&sparse, &sparse.path(), "promised-space"), "fail", &["8.00 TiB"]);
}

#[test]
fn a_block_device_is_only_read() -> Outcome {
    if !needs(&["losetup"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let made = crate::common::in_time("losetup", &["--find", "--show", &text(&drive.path())]);
    if made.code != Some(0) {
        eprintln!("skipped: no loop device can be made here");
        return Ok(());
    }
    let device = PathBuf::from(made.stdout.trim());
    let before = std::fs::read(drive.path())?;
    let run = drive.pumice(&["doctor", &text(&device), "--json"]);
    succeed("losetup", &["--detach", &text(&device)]);
    let answer: Value = serde_json::from_str(&run.stdout)?;
    assert_verdict(&verdict(&answer, "discard"), "ok", &["takes discards"]);
    assert_verdict(&verdict(&answer, "drive"), "ok", &["idle"]);
    assert_eq!(verdict(&answer, "alignment").0, "ok");
    let checks = answer["checks"].as_array().ok_or("checks")?;
    assert!(checks.iter().all(|it| it["check"] != "filesystem-below"), "{answer}");
    assert!(std::fs::read(drive.path())? == before);
    Ok(())
}

#[test]
fn bad_input() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let folder = text(drive.folder());
    for (arguments, code, word) in [
        (&["doctor"][..], 2, "required"),
        (&["doctor", &path, "--size"], 2, "value"),
        (&["doctor", &path, "--size", "big"], 2, "expected a size"),
        (&["doctor", &path, "other"], 2, "unexpected"),
        (&["doctor", &path, "--fix"], 2, "unexpected"),
        (&["doctor", ""], 2, "value is required"),
        (&["doctor", &folder], 1, "neither a file nor a block device"),
        (&["doctor", "/nowhere/at/all"], 1, "neither it nor its directory"),
        (&["doctor", "/dev/null"], 1, "neither a file nor a block device"),
        (&["doctor", &path, "--size", "10G"], 1, "exists already"),
        (&["doctor", &format!("{path}/x")], 1, "cannot look at it"),
    ] {
        let run = pumice(arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.lines().count() == 1 && run.stderr.contains(word), "{arguments:?}: {run:?}");
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}
