//! `pumice serve --offload` with a test library in place of libqatzip.

use crate::common::server::text;
use crate::common::{Drive, needs, succeed};

#[path = "../../../offload/tests/common/standin.rs"]
#[allow(unreachable_pub, reason = "a test")]
mod standin;

#[test]
fn what_a_host_writes_is_compressed_by_it_and_read_without_it() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let Some((_folder, library)) = standin::build() else { return };
    let drive = Drive::create(&["--size", "64M"]);
    let choice = format!("qat:{}", library.display());
    let contents = codec::testdata::fio_like(1, 8 << 20, 70);
    std::fs::write(drive.file("in"), &contents).expect("written");
    let holds = |uri: &str| {
        succeed("nbdcopy", &[uri, &drive.file("back")]);
        let back = std::fs::read(drive.file("back")).expect("copied");
        assert!(back[..contents.len()] == contents[..], "the drive holds something else");
    };
    let server = drive.serve(&["--offload", &choice, "--background-cpu", "0"]);
    succeed("nbdcopy", &["--flush", &drive.file("in"), server.uri()]);
    holds(server.uri());
    let status = drive.status();
    let offload = &status["server"]["offload"];
    assert_eq!(offload["name"], choice.as_str());
    let number = |key: &str| offload[key].as_u64().unwrap_or_else(|| panic!("{key}: {offload}"));
    let given = number("device_input_bytes") + number("software_input_bytes");
    assert!(number("device_jobs_count") > 0 && given >= 8 << 20, "{offload}");
    assert!(number("device_output_bytes") < number("device_input_bytes") / 2, "{offload}");
    assert!(status["physical_used_bytes"].as_u64().is_some_and(|used| used < 5 << 20), "{status}");
    let table = drive.pumice(&["status", "--all", &text(&drive.path())]);
    assert!(table.stdout.contains("compressed by") && table.stdout.contains("jobs in software"), "{table:?}");
    server.kill();
    let server = drive.serve(&[]);
    holds(server.uri());
    assert!(drive.status()["server"]["offload"].is_null());
    assert!(server.stop().success());
}

#[test]
fn one_that_is_not_there_is_an_error_in_one_line() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["serve", &text(&drive.path()), "--offload", "qat:/nowhere/libqatzip.so"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("/nowhere/libqatzip.so cannot be loaded"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    let run = drive.pumice(&["serve", &text(&drive.path()), "--offload", "gpu"]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(
        run.stderr.contains("expected none, qat, qat:PATH (of libqatzip.so) or, to measure, simulated:TIME"),
        "{run:?}"
    );
}
