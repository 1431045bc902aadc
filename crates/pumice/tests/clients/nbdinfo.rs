//! nbdinfo

use crate::common::{Drive, needs, succeed};

#[test]
fn lists_the_export() {
    if !needs(&["nbdinfo"]) {
        return;
    }
    for sector in ["512", "4096"] {
        let drive = Drive::create(&["--size", "64M", "--capacity", "128M", "--sector", sector]);
        let server = drive.serve(&[]);
        assert_eq!(succeed("nbdinfo", &["--size", server.uri()]).trim(), (128 << 20).to_string());
        let info = succeed("nbdinfo", &["--list", server.uri()]);
        let minimum = format!("block_size_minimum: {sector}");
        for line in ["export=\"drive\"", "base:allocation", "can_multi_conn: true", "can_fua: true", &minimum]
        {
            assert!(info.contains(line), "{line} in {info}");
        }
    }
}

#[test]
fn maps_what_is_there() {
    if !needs(&["nbdinfo", "qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 5 1M 1M", "-c", "write -z 4M 1M", server.uri()]);
    let map = succeed("nbdinfo", &["--map", server.uri()]);
    let rows: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0][..3], ["0", "1048576", "3"], "{map}");
    assert_eq!(rows[1][..3], ["1048576", "1048576", "0"], "{map}");
    let total: u64 = rows.iter().map(|row| row[1].parse::<u64>().expect("a length")).sum();
    assert_eq!(total, 64 << 20, "{map}");
}
