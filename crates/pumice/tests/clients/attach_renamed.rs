//! An attached drive whose name passes to another drive of its server.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::attach::{Attached, usable};
use crate::common::{Outcome, sample, succeed};

const BLOCK: usize = 4096;

/// A reload swaps the names of two drives and opens the attached one anew, so that its bridge connects again.
#[test]
fn what_is_written_to_a_device_stays_in_its_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let other = it.drive.file("other");
    assert_eq!(it.drive.pumice(&["create", &other, "--size", "64M", "--capacity", "64M"]).code, Some(0));
    let config = |names: [&str; 2], write_cache: bool| {
        format!(
            "[server]\nnbd = [\"unix:{}\"]\n[[drive]]\npath = \"{}\"\nname = \"{}\"\nwrite-cache = {write_cache}\n\
             [[drive]]\npath = \"{other}\"\nname = \"{}\"\n",
            it.drive.file("all"),
            it.path(),
            names[0],
            names[1],
        )
    };
    let server = it.drive.serve_config(&config(["one", "two"], true), 2);
    let node = it.attach(&[]);
    let mut write_cache = true;
    for round in 0..6_u64 {
        write_cache = !write_cache;
        let names = if round % 2 == 0 { ["two", "one"] } else { ["one", "two"] };
        it.drive.reload(&server, &config(names, write_cache));
        let mut device = std::fs::File::options().write(true).custom_flags(libc::O_DSYNC).open(&node)?;
        device.seek(SeekFrom::Start(round * BLOCK as u64))?;
        device.write_all(&sample(round, BLOCK))?;
    }
    it.detach(&node);
    assert!(server.stop().success(), "{}", it.drive.log());
    let used = |path: &str| -> Outcome<u64> {
        let report: serde_json::Value =
            serde_json::from_str(&succeed(env!("CARGO_BIN_EXE_pumice"), &["status", "--json", path]))?;
        Ok(report["drives"][0]["logical_used_bytes"].as_u64().ok_or("a number")?)
    };
    assert_eq!((used(&it.path())?, used(&other)?), (6 * BLOCK as u64, 0));
    Ok(())
}
