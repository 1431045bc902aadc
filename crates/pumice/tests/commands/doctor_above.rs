//! `pumice doctor` on simulated machines: block devices and file systems on the drive.

use crate::common::server::text;
use crate::common::{Drive, Server, needs, succeed};
use crate::doctor::{Machine, assert_verdict};

/// Simulates a machine on which a client has attached the drive from the server's socket as a block device.
fn with_device(server: &Server, device: &str, client: &str) -> Machine {
    let machine = Machine::new();
    let socket = text(&server.socket());
    let pid = server.pid();
    machine.link(&format!("proc/{pid}/fd/3"), "socket:[4711]");
    machine.link(&format!("proc/{pid}/fd/4"), "/dev/null");
    machine.put(
        "proc/net/unix",
        &format!("Num       RefCount Protocol Flags    Type St Inode Path\n0000: 00000002 00000000 00010000 0001 01 \
            4711 {socket}\n0000: 00000002 00000000 00010000 0001 01 99 /run/other"),
    );
    machine.put("proc/4242/cmdline", &client.replace("SOCKET", &socket).replace(' ', "\0"));
    match device {
        "nbd0" => machine.put("sys/block/nbd0/pid", "4242"),
        _ => machine.put("sys/block/loop0/loop/backing_file", "/run/drive.raw"),
    };
    machine.put(&format!("sys/class/block/{device}/dev"), "43:0");
    machine
}

#[test]
fn filesystems_above() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    assert_verdict(&machine.check(&drive, &drive.path(), "trim-above"), "unknown", &["not being served"]);
    let server = drive.serve(&[]);
    let check = |machine: &Machine| machine.check(&drive, &drive.path(), "trim-above");
    assert_verdict(&check(&machine), "unknown", &["no block device"]);
    for (device, client) in [
        ("nbd0", "nbd-client -unix SOCKET /dev/nbd0"),
        (
            "loop0",
            "qemu-storage-daemon --blockdev driver=nbd,server.path=SOCKET --export type=fuse,mountpoint=/run/drive.raw",
        ),
    ] {
        let machine = with_device(&server, device, client);
        assert_verdict(&check(&machine), "unknown", &[device, "not mounted"]);
        let mount = |options: &str| {
            machine.put(
                "proc/self/mountinfo",
                &format!("5 1 43:0 / /mnt rw,noatime - ext4 /dev/{device} {options}"),
            );
        };
        mount("rw");
        assert_verdict(&check(&machine), "warn", &["/mnt", "-o discard", "fstrim.timer"]);
        machine.put("etc/systemd/system/timers.target.wants/fstrim.timer", "");
        assert_verdict(&check(&machine), "ok", &["fstrim.timer"]);
        mount("rw,discard");
        assert_verdict(&check(&machine), "ok", &["discards what is deleted"]);
        machine.put(&format!("sys/class/block/{device}/queue/discard_max_bytes"), "0");
        assert_verdict(&check(&machine), "warn", &["passes no discards"]);
    }
    // Clients of other drives do not count.
    let machine = with_device(&server, "nbd0", "nbd-client -unix /run/other /dev/nbd0");
    assert_verdict(&check(&machine), "unknown", &["no block device"]);
}

#[test]
fn filesystems_on_partitions_and_mapped_devices() {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let machine = with_device(&server, "nbd0", "nbd-client -unix SOCKET /dev/nbd0");
    machine.put("sys/class/block/nbd0/nbd0p1/dev", "43:1");
    machine.put("sys/class/block/nbd0p1/dev", "43:1");
    machine.put("sys/class/block/nbd0p1/holders/dm-0/dev", "252:0");
    machine.put("sys/class/block/dm-0/dev", "252:0");
    machine.put("proc/self/mountinfo", "5 1 252:0 / /mnt rw - xfs /dev/mapper/data rw");
    let found = machine.check(&drive, &drive.path(), "trim-above");
    assert_verdict(&found, "warn", &["xfs at /mnt", "dm-0"]);
}

#[test]
fn partitions_on_the_drive() {
    let drive = Drive::create(&["--size", "64M"]);
    let machine = Machine::new();
    let check = |machine: &Machine| machine.check(&drive, &drive.path(), "partition-above");
    assert_verdict(&check(&machine), "unknown", &["not being served"]);
    let server = drive.serve(&[]);
    assert_verdict(&check(&machine), "unknown", &["no block device"]);
    let machine = with_device(&server, "nbd0", "nbd-client -unix SOCKET /dev/nbd0");
    assert_verdict(&check(&machine), "ok", &["no partitions"]);
    for (sectors, result, word) in [
        ("2048", "ok", "/dev/nbd0p1 at byte 1048576"),
        ("40", "warn", "byte 20480 of the drive, off the 32 KiB"),
        ("63", "warn", "byte 32256 of the drive, off its 4 KiB"),
    ] {
        machine.put("sys/class/block/nbd0/nbd0p1/start", sectors);
        assert_verdict(&check(&machine), result, &[word]);
    }
}

#[test]
fn flushes_and_writeback_above() {
    let drive = Drive::create(&["--size", "64M"]);
    let check = |machine: &Machine, name: &str| machine.check(&drive, &drive.path(), name);
    for name in ["flush-above", "wbt-above"] {
        assert_verdict(&check(&Machine::new(), name), "unknown", &["not being served"]);
    }
    for (arguments, verdict, word) in [
        (&[][..], "fail", "a power cut loses synced data"),
        (&["--write-cache=off"][..], "ok", "needs no flushes"),
    ] {
        let server = drive.serve(arguments);
        assert_verdict(&check(&Machine::new(), "flush-above"), "unknown", &["no block device"]);
        let machine = with_device(&server, "nbd0", "nbd-client -unix SOCKET /dev/nbd0");
        assert_verdict(&check(&machine, "flush-above"), "unknown", &["not available in sysfs"]);
        assert_verdict(&check(&machine, "wbt-above"), "ok", &["does not throttle"]);
        let queue = |name: &str, value: &str| {
            machine.put(&format!("sys/class/block/nbd0/queue/{name}"), value);
        };
        queue("write_cache", "write back");
        assert_verdict(&check(&machine, "flush-above"), "ok", &["/dev/nbd0 passes flushes on"]);
        queue("write_cache", "write through");
        assert_verdict(&check(&machine, "flush-above"), verdict, &[word]);
        machine.put("sys/class/block/nbd0/ro", "1");
        assert_verdict(&check(&machine, "flush-above"), "ok", &["/dev/nbd0"]);
        queue("wbt_lat_usec", "2000");
        assert_verdict(&check(&machine, "wbt-above"), "warn", &["/dev/nbd0", "2000 us", "echo 0 >"]);
        queue("wbt_lat_usec", "0");
        assert_verdict(&check(&machine, "wbt-above"), "ok", &["does not throttle"]);
        assert!(server.stop().success());
    }
}

#[test]
fn memory_that_is_short_above() {
    let drive = Drive::create(&["--size", "64M"]);
    let check = |machine: &Machine, name: &str| machine.check(&drive, &drive.path(), name);
    for name in ["shortage-above", "swap-above"] {
        assert_verdict(&check(&Machine::new(), name), "unknown", &["not being served"]);
    }
    let server = drive.serve(&[]);
    for name in ["shortage-above", "swap-above"] {
        assert_verdict(&check(&Machine::new(), name), "unknown", &["no block device"]);
    }
    let machine = with_device(&server, "nbd0", "nbd-client -unix SOCKET /dev/nbd0");
    assert_verdict(&check(&machine, "shortage-above"), "unknown", &["not available"]);
    let thread = |number: u32, flags: u32| {
        let stat = format!("{number} (pumice) S 1 7 7 0 -1 {flags} 1 2 3 4 10 20 30 40 20 0 2 0 4711 6");
        machine.put(&format!("proc/{}/task/{number}/stat", server.pid()), &stat);
    };
    thread(1, 0x0058_0140);
    assert_verdict(&check(&machine, "shortage-above"), "ok", &["does not wait"]);
    thread(2, 0x0040_0140);
    assert_verdict(&check(&machine, "shortage-above"), "warn", &["its own drive", "CAP_SYS_RESOURCE"]);
    machine.put("sys/class/block/nbd0/nbd0p1/dev", "43:1");
    machine.put("sys/class/block/nbd0p1/holders/dm-0/dev", "252:0");
    machine.put("proc/self/mountinfo", "5 1 43:0 / /mnt\\040x rw - ext4 /dev/nbd0 rw");
    let swap = |path: &str| {
        machine
            .put("proc/swaps", &format!("Filename\tType\tSize\tUsed\tPriority\n{path} partition 4 0 -2\n"));
        check(&machine, "swap-above")
    };
    for path in ["/dev/nbd1", "/dev/nbd0p2", "/mnt/swap"] {
        assert_verdict(&swap(path), "ok", &["no swap space"]);
    }
    for path in ["/dev/nbd0", "/dev/nbd0p1", "/dev/dm-0"] {
        assert_verdict(&swap(path), "fail", &[path, "swapoff"]);
    }
    assert_verdict(&swap("/mnt\\040x/swap"), "fail", &["/mnt x/swap"]);
}

#[test]
fn space_that_was_freed_and_not_trimmed() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let machine = Machine::new();
    let check = |machine: &Machine| machine.check(&drive, &drive.path(), "trim-gap");
    assert_verdict(&check(&machine), "unknown", &["not being served"]);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 0 40M", "-c", "flush", server.uri()]);
    let machine = with_device(&server, "nbd0", "nbd-client -unix SOCKET /dev/nbd0");
    assert_verdict(&check(&machine), "unknown", &["no file system"]);
    machine.put("proc/self/mountinfo", "5 1 43:0 / /mnt rw - ext4 /dev/nbd0 rw");
    assert_verdict(&check(&machine), "unknown", &["/mnt is not available"]);
    // The file system space is that of this machine, on a device that is first smaller, then larger.
    machine.put("mnt/file", "");
    machine.put("sys/class/block/nbd0/size", "8");
    assert_verdict(
        &check(&machine),
        "warn",
        &["holds 40.00 MiB", "40.00 MiB freed and not trimmed", "fstrim"],
    );
    machine.put("sys/class/block/nbd0/size", &(1_u64 << 45).to_string());
    assert_verdict(&check(&machine), "ok", &["holds 40.00 MiB"]);
}
