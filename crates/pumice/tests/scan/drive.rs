//! The prediction compared with a served drive that a client has written to.

use std::fs;

use serde_json::Value;

use crate::common::server::text;
use crate::common::{Drive, in_time, needs, pumice, sample, succeed};

fn json(arguments: &[&str]) -> Value {
    let run = pumice(&[&["scan", "--json", "--unit-precision", "0"], arguments].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Returns an image with data, zeros and holes.
fn image() -> Vec<u8> {
    let mut bytes = sample(1, 20 << 20);
    bytes.resize(30 << 20, 0);
    bytes.extend(sample(2, 10 << 20).chunks(3).flat_map(|three| [three[0], 7, 7, 7, 7, 7]));
    bytes.resize(64 << 20, 0);
    bytes
}

#[test]
fn an_image_copied_to_a_drive() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "128M", "--capacity", "256M"]);
    let path = drive.file("image");
    fs::write(&path, image()).expect("written");
    let server = drive.serve(&[]);
    // Zeros are written explicitly, as a file system does.
    succeed("nbdcopy", &["--allocated", "--sparse=0", &path, server.uri()]);
    // The drive's own NBD export is scanned while it is served. Unwritten blocks are holes there.
    let export = json(&[server.uri(), "--full"]);
    server.stop();
    let status = drive.status();
    let predicted = json(&[&path, "--full"]);
    let used = number(&status, "/physical_used_bytes");
    for report in [&predicted, &export] {
        let predicted = number(report, "/predicted_drive/physical_used_bytes/estimate");
        assert!((predicted / used - 1.0).abs() < 0.01, "predicted {predicted}, is {used}");
    }
    let (predicted, is) =
        (number(&predicted, "/predicted_drive/ratio/estimate"), number(&status, "/compression_ratio"));
    assert!((predicted / is - 1.0).abs() < 0.01, "predicted {predicted}, is {is}");
    let sampled = json(&[&path, "--precision", "5"]);
    assert_eq!(sampled["mode"], "sample");
    let [low, high] =
        ["low", "high"].map(|end| number(&sampled, &format!("/predicted_drive/physical_used_bytes/{end}")));
    assert!(low <= used && used <= high, "{low} to {high}, is {used}");
    assert!(low <= used && used <= high, "{low} to {high}, is {used}");
}

#[test]
fn a_block_device() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("image");
    fs::write(&path, image()).expect("written");
    let made = in_time("losetup", &["--find", "--show", "--read-only", &text(&path)]);
    if made.code != Some(0) {
        eprintln!("skipped: no loop device: {}", made.stderr.trim());
        return;
    }
    let device = made.stdout.trim().to_string();
    let of_device = pumice(&["scan", "--json", "--full", "--unit-precision", "0", &device]);
    succeed("losetup", &["--detach", &device]);
    assert_eq!(of_device.code, Some(0), "{of_device:?}");
    let of_device: Value = serde_json::from_str(&of_device.stdout).expect("JSON");
    let of_file = json(&[&text(&path), "--full"]);
    assert_eq!(of_device["data"]["data_bytes"], 64 << 20);
    assert_eq!(of_device["predicted_drive"], of_file["predicted_drive"]);
}
