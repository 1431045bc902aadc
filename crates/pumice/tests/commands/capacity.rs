//! `pumice capacity`

use crate::common::server::text;
use crate::common::{Drive, needs, succeed};

const HEADER: &str = "free_space\tphysical_size\tlogical_size\tcomp_ratio\tprovisioned_cap\tspace_flag";

fn lines(drive: &Drive, arguments: &[&str]) -> Vec<String> {
    let run = drive.pumice(&[&["capacity"], arguments].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    run.stdout.lines().map(str::to_string).collect()
}

#[test]
fn six_columns_in_sectors() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M", "--sector", "4096"]);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 3 0 4M", "-c", "flush", server.uri()]);
    let lines = lines(&drive, &[&text(&drive.path())]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], HEADER);
    let status = drive.status();
    let sectors = |key: &str| status[key].as_u64().map(|bytes| (bytes / 512).to_string());
    let values: Vec<Option<String>> = lines[1].split('\t').map(|value| Some(value.to_string())).collect();
    assert_eq!(values.len(), 6, "{lines:?}");
    assert_eq!(values[0], sectors("physical_available_bytes"));
    assert_eq!(values[1], sectors("physical_used_bytes"));
    assert_eq!(values[2].as_deref(), Some("8192"));
    assert_eq!(values[4].as_deref(), Some("262144"));
    assert_eq!(values[5].as_deref(), Some("0"));
    assert!(server.stop().success());
}

#[test]
fn a_line_for_each_drive_that_is_served() {
    let drive = Drive::create(&["--size", "64M"]);
    assert_eq!(lines(&drive, &[]), [format!("{HEADER}\tpath")]);
    let second = drive.folder().join("second");
    let run = drive.pumice(&["create", &text(&second), "--size", "32M", "--capacity", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let _server = drive.serve_paths(&[&drive.path(), &second], &[]);
    let mut printed: Vec<String> = lines(&drive, &["--no-header"]);
    printed.sort_by_key(|line| line.split('\t').next_back().map(str::to_string));
    let paths: Vec<&str> = printed.iter().filter_map(|line| line.split('\t').nth(6)).collect();
    assert_eq!(paths, [text(&drive.path()), text(&second)]);
}

#[test]
fn a_drive_that_is_not_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let line = lines(&drive, &["--no-header", &text(&drive.path())]).remove(0);
    assert!(line.ends_with("\t0\t0\t0.00\t131072\t0"), "{line}");
}
