//! `pumice set-capacity` and `pumice set-size`

use crate::common::server::text;
use crate::common::{Drive, fails, needs, succeed};

#[test]
fn a_client_that_connects_again_sees_the_new_capacity() {
    if !needs(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "100M"]);
    let path = text(&drive.path());
    let server = drive.serve(&[]);
    let size = || succeed("nbdinfo", &["--size", server.uri()]).trim().to_string();
    assert_eq!(size(), (100 << 20).to_string());
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 99M 1M", server.uri()]);
    let run = drive.pumice(&["set-capacity", &path, "300M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    // 300 MiB on 64 MiB; 1 MiB of data is too little to estimate the ratio.
    assert!(run.stderr.contains("warning: 300.00 MiB") && run.stderr.contains("too little"), "{run:?}");
    assert_eq!(size(), (300 << 20).to_string());
    let log = drive.log();
    assert!(
        log.contains("changed by an administrator") && log.contains("SetCapacity { bytes: 314572800 }"),
        "{log}"
    );
    let reads = ["-f", "raw", "-c", "read -P 7 99M 1M", "-c", "write -P 8 299M 1M", server.uri()];
    succeed("qemu-io", &reads);
    server.kill();
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 7 99M 1M", server.uri()]);
    assert_eq!(drive.status()["logical_capacity_bytes"], 300 << 20);
}

#[test]
fn an_idle_drive_grows_too_and_none_shrinks() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    assert_eq!(drive.pumice(&["set-capacity", &path, "128M"]).code, Some(0));
    assert_eq!(drive.status()["logical_capacity_bytes"], 128 << 20);
    for served in [false, true] {
        let _server = served.then(|| drive.serve(&[]));
        let run = drive.pumice(&["set-capacity", &path, "127M"]);
        fails(&run, &["a capacity of 127 MiB is less than the 128 MiB that hosts see: only a wipe"]);
        let run = drive.pumice(&["set-capacity", &path, "257T"]);
        fails(&run, &["a capacity of 257 TiB is not possible", "at most 256 TiB less 2 MiB"]);
        let run = drive.pumice(&["set-size", &path, "1"]);
        fails(&run, &["a size of 1 byte is less than the 64 MiB in use: drives only grow"]);
        // The size that it names is possible.
        let run = drive.pumice(&["set-size", &path, "1T"]);
        fails(&run, &["a size of 1 TiB is more than the 257 MiB that the drive has room for"]);
        assert_eq!(drive.log().contains("a change by an administrator failed"), served, "{}", drive.log());
        assert_eq!(drive.status()["logical_capacity_bytes"], 128 << 20);
    }
    assert_eq!(drive.pumice(&["set-size", &path, "257M"]).code, Some(0));
}

#[test]
fn data_that_compresses_too_little_for_the_capacity_is_warned_of() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "128M", "--capacity", "256M"]);
    let server = drive.serve(&[]);
    let random: Vec<u8> = codec::testdata::random(1, 70 << 20);
    std::fs::write(drive.file("random"), random).expect("write");
    succeed("nbdcopy", &[&drive.file("random"), server.uri()]);
    let run = drive.pumice(&["set-capacity", &text(&drive.path()), "512M"]);
    assert_eq!(run.code, Some(0));
    // An idle drive writes a checkpoint, so the map may be included or not.
    let ratio = ["1.00:1", "0.99:1"].iter().any(|ratio| run.stderr.contains(&format!("has shown {ratio}")));
    let enough = ["104", "105", "106"].iter().any(|mib| run.stderr.contains(&format!("enough for {mib}.")));
    assert!(ratio && enough, "{run:?}");
}

#[test]
fn a_full_drive_goes_on_once_its_file_has_grown() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "32M", "--capacity", "100M"]);
    let path = text(&drive.path());
    std::fs::write(drive.file("random"), codec::testdata::random(1, 256 << 10)).expect("write");
    let server = drive.serve(&[]);
    let pattern = drive.file("random");
    let write = |from: u64, count: u64| {
        let commands: Vec<String> =
            (from..from + count).map(|at| format!("write -s {pattern} {}k 256k", at * 256)).collect();
        let mut arguments = vec!["-f", "raw"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(server.uri());
        crate::common::in_time("qemu-io", &arguments)
    };
    let run = write(0, 160);
    assert!((run.stdout.clone() + &run.stderr).contains("No space left"), "{run:?}");
    assert_eq!(drive.status()["out_of_space"], true);
    for size in ["31M", "200M"] {
        let run = drive.pumice(&["set-size", &path, size]);
        fails(&run, &[if size == "31M" { "only grow" } else { "four times" }]);
        assert_eq!(std::fs::metadata(drive.path()).expect("metadata").len(), 32 << 20);
    }
    let run = drive.pumice(&["set-size", &path, "96M", "--preallocate"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(drive.status()["physical_size_bytes"], 96 << 20);
    assert_eq!(drive.status()["out_of_space"], false);
    assert!(!(write(0, 240).stdout).contains("No space left"));
    assert!(server.stop().success());
    let run = drive.pumice(&["set-size", &path, "100M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

#[test]
fn bad_input_changes_nothing() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let missing = drive.file("nothing");
    std::fs::write(drive.file("text"), vec![b'x'; 100_000]).expect("write");
    for command in ["set-capacity", "set-size"] {
        for (arguments, code, says) in [
            (vec![command, &missing, "1G"], 1, "o such file"),
            (vec![command, &drive.file("text"), "1G"], 1, "not a Pumice drive"),
            (vec![command, "/", "1G"], 1, "directory"),
            (vec![command, &path], 2, "required"),
            (vec![command, &path, "big"], 2, "expected a size"),
            (vec![command, &path, "-1"], 2, "unexpected"),
            (vec![command, &path, "0"], 1, "less than"),
            (vec![command, &path, "90000T"], 1, if command == "set-size" { "four times" } else { "256 TiB" }),
        ] {
            let run = drive.pumice(&arguments);
            assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
            assert!(run.stderr.contains(says) && run.stderr.lines().count() <= 3, "{arguments:?}: {run:?}");
        }
    }
    assert_eq!(drive.status()["logical_capacity_bytes"], 64 << 20);
    assert_eq!(drive.status()["physical_size_bytes"], 64 << 20);
}
