//! A drive in a sparse file on a file system that runs out of space.

use std::fs::File;
use std::io::Write;

use crate::common::server::wait_until;
use crate::common::{Drive, Outcome, fails, in_time, needs, sample, succeed};

/// Fills the file system with a file.
fn fill(path: &str) -> Outcome {
    let mut file = File::create(path)?;
    for block in [vec![1; 1 << 20], vec![1; 4096]] {
        while file.write_all(&block).is_ok() {}
    }
    Ok(())
}

#[test]
fn no_room_under_the_drive_is_named_with_the_way_to_read_it() -> Outcome {
    if !needs(&["mount", "nbdcopy"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "32M"]);
    let mounted = drive.file("mounted");
    std::fs::create_dir(&mounted)?;
    if in_time("mount", &["-t", "tmpfs", "-o", "size=48M", "tmpfs", &mounted]).code != Some(0) {
        eprintln!("skipped: no file system can be mounted");
        return Ok(());
    }
    // Unmounts even after a panic.
    let result = std::panic::catch_unwind(|| {
        on_a_full_filesystem(&drive, &mounted).map_err(|error| error.to_string())
    });
    assert_eq!(in_time("umount", &["--lazy", &mounted]).code, Some(0));
    match result {
        Ok(result) => Ok(result?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn on_a_full_filesystem(drive: &Drive, mounted: &str) -> Outcome {
    let long = format!("{mounted}/long");
    File::create(&long)?.set_len(400 << 20)?;
    let created = drive.pumice(&["create", &long, "--size", "26M", "--capacity", "26M"]);
    assert_eq!(created.code, Some(0), "{created:?}");
    assert!(!created.stderr.contains("from the file system"), "it takes less than its file has: {created:?}");
    std::fs::remove_file(&long)?;
    let second = format!("{mounted}/second");
    assert_eq!(drive.pumice(&["create", &second, "--size", "64M"]).code, Some(0));
    let path = format!("{mounted}/drive");
    let created = drive.pumice(&["create", &path, "--size", "128M", "--capacity", "128M"]);
    assert_eq!(created.code, Some(0));
    assert!(created.stderr.contains("more from the file system, which has"), "{created:?}");
    let image = drive.file("image");
    std::fs::write(&image, sample(5, 8 << 20))?;
    let server = drive.serve_paths(&[path.as_ref()], &[]);
    succeed("nbdcopy", &["--flush", &image, server.uri()]);
    // Reopening the drive must roll the log forward, which writes.
    server.kill();
    let filler = format!("{mounted}/filler");
    fill(&filler)?;
    for command in [
        &["serve", &path][..],
        &["set-size", &path, "256M"],
        &["set-capacity", &path, "1G"],
        &["set-codec", &path, "lz4"],
        &["set-parity", &path, "1/32"],
        &["settle", &path],
        &["train", &path],
    ] {
        fails(&drive.pumice(command), &["is full", "no space left", "--read-only", &path]);
    }
    // These have nothing to serve read-only instead.
    let fresh = format!("{mounted}/fresh");
    for command in [
        &["create", &fresh, "--size", "64M"][..],
        &["wipe", &second, "--yes"],
        &["create", &second, "--force"],
    ] {
        let refused = drive.pumice(command);
        fails(&refused, &["is full; make room there", mounted]);
        assert!(!refused.stderr.contains("--read-only"), "{refused:?}");
    }
    assert!(!std::path::Path::new(&fresh).exists());
    let server = drive.serve_paths(&[path.as_ref()], &["--read-only"]);
    let read = drive.file("read");
    succeed("sh", &["-c", &format!("nbdcopy '{}' - | head -c {} > '{read}'", server.uri(), 8 << 20)]);
    assert!(std::fs::read(&read)? == std::fs::read(&image)?, "what was flushed is there");
    assert!(server.stop().success(), "{}", drive.log());
    std::fs::remove_file(&filler)?;
    let server = drive.serve_paths(&[path.as_ref()], &[]);
    assert!(server.stop().success(), "{}", drive.log());
    assert_eq!(drive.pumice(&["check", "--deep", &path]).code, Some(0));
    while_it_is_served(drive, &path, &image, &filler)
}

/// The file system runs out of space while the drive is served. Hosts get an out-of-space error, and the
/// drive continues once space is available.
fn while_it_is_served(drive: &Drive, path: &str, image: &str, filler: &str) -> Outcome {
    let server = drive.serve_paths(&[path.as_ref()], &[]);
    fill(filler)?;
    let more = drive.file("more");
    std::fs::write(&more, sample(6, 32 << 20))?;
    let copied = in_time("nbdcopy", &["--flush", "--destination-is-zero", &more, server.uri()]);
    assert!(copied.code != Some(0) && copied.stderr.contains("No space left"), "{copied:?}");
    let status = drive.pumice(&["status", path, "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout)?;
    let status = &status["drives"][0];
    assert_eq!((&status["state"], &status["backing_full"]), (&"online".into(), &true.into()), "{status}");
    let shown = drive.pumice(&["status", path]).stdout;
    assert!(shown.contains("online (out of space: the backing is full)"), "{shown}");
    // What is free on the drive cannot be written, and no growth fills it.
    let time = &status["time_to_full"];
    assert_eq!((&time["seconds"], &time["reason"]), (&0.0.into(), &"full".into()), "{status}");
    assert!(status["physical_available_bytes"].as_u64() > Some(32 << 20), "{status}");
    let full = "the file system or volume under the drive is full";
    assert!(shown.contains(&format!(" 0 B ({full}; ")), "{shown}");
    assert!(shown.contains(&format!(" none: {full}\n")), "{shown}");
    std::fs::remove_file(filler)?;
    wait_until("there is room", || {
        let status = drive.pumice(&["status", path, "--json"]);
        serde_json::from_str(&status.stdout)
            .is_ok_and(|status: serde_json::Value| status["drives"][0]["backing_full"] == false)
    });
    succeed("nbdcopy", &["--flush", image, server.uri()]);
    wait_until("the event", || drive.log().contains("under the drive is full"));
    // Nor does work that could be left undone take the last of it.
    fill(filler)?;
    fails(&drive.pumice(&["settle", path]), &["nearly full", path]);
    // A server that waits for space must not delay a stop.
    let copied = in_time("nbdcopy", &["--flush", "--destination-is-zero", &more, server.uri()]);
    assert!(copied.code != Some(0), "{copied:?}");
    assert_eq!(
        server.stop().code(),
        Some(1),
        "what was not flushed is not there, and that is said: {}",
        drive.log()
    );
    std::fs::remove_file(filler)?;
    assert_eq!(drive.pumice(&["check", "--deep", path]).code, Some(0));
    Ok(())
}
