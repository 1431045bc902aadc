//! nbdcopy

use crate::common::{Drive, Outcome, needs, sample, succeed};

/// Returns an image of the drive's size with data, zeros and fills.
fn image(len: usize) -> Vec<u8> {
    let mut image = vec![0; len];
    for (index, chunk) in image.chunks_mut(1 << 20).enumerate() {
        match index % 4 {
            0 => {}
            1 => chunk.fill(index as u8),
            _ => chunk.copy_from_slice(&sample(index as u64, chunk.len())),
        }
    }
    image
}

#[test]
fn copies_in_and_out() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    for sector in ["512", "4096"] {
        let drive = Drive::create(&["--size", "64M", "--sector", sector]);
        let (data, back) = (drive.file("data"), drive.file("back"));
        std::fs::write(&data, image(64 << 20))?;
        let server = drive.serve(&[]);
        succeed("nbdcopy", &["--flush", &data, server.uri()]);
        succeed("nbdcopy", &[server.uri(), &back]);
        assert!(std::fs::read(&data)? == std::fs::read(&back)?);
    }
    Ok(())
}

#[test]
fn what_was_flushed_survives_a_kill() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let (data, back) = (drive.file("data"), drive.file("back"));
    std::fs::write(&data, image(64 << 20))?;
    let server = drive.serve(&[]);
    succeed("nbdcopy", &["--flush", &data, server.uri()]);
    server.kill();
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["recovery"]["clean"], false);
    succeed("nbdcopy", &[server.uri(), &back]);
    assert!(std::fs::read(&data)? == std::fs::read(&back)?);
    Ok(())
}

#[test]
fn overwriting_again_and_again_is_cleaned_up_after() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    // Writes five times the physical size to a drive that is three quarters full.
    let drive = Drive::create(&["--size", "128M", "--codec", "none"]);
    let (data, back) = (drive.file("data"), drive.file("back"));
    let server = drive.serve(&[]);
    for round in 0..7 {
        std::fs::write(&data, sample(round, 96 << 20))?;
        succeed("nbdcopy", &["--flush", &data, server.uri()]);
    }
    succeed("nbdcopy", &[server.uri(), &back]);
    assert!(std::fs::read(&data)? == std::fs::read(&back)?[..96 << 20]);
    let status = drive.status();
    assert!(
        status["cleaning"]["segments_cleaned_count"].as_u64() > Some(0) || status["waf"].as_f64() < Some(1.1)
    );
    assert!(server.stop().success());
    let run = drive.pumice(&["check", "--deep", &drive.file("drive")]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

#[test]
fn a_full_drive_refuses_writes_and_still_reads_and_trims() -> Outcome {
    if !needs(&["nbdcopy", "qemu-io"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "256M", "--codec", "none"]);
    let data = drive.file("data");
    std::fs::write(&data, sample(1, 128 << 20))?;
    let server = drive.serve(&[]);
    let full = crate::common::in_time("nbdcopy", &["--flush", &data, server.uri()]);
    assert_ne!(full.code, Some(0), "128 MiB do not fit into 64");
    assert!(full.stderr.contains("No space left"), "{full:?}");
    let status = drive.status();
    assert_eq!(status["state"], "online");
    assert!(status["physical_free_bytes"].as_u64() < Some(4 << 20), "{status}");
    succeed("qemu-io", &["-r", "-f", "raw", "-c", "read 0 32M", server.uri()]);
    succeed(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-d",
            "unmap",
            "-c",
            "discard 0 128M",
            "-c",
            "flush",
            "-c",
            "read -P 0 0 64M",
            server.uri(),
        ],
    );
    std::fs::write(&data, sample(2, 32 << 20))?;
    succeed("nbdcopy", &["--flush", &data, server.uri()]);
    Ok(())
}
