//! `pumice check`

use std::os::unix::fs::FileExt;

use crate::common::server::text;
use crate::common::{Drive, Outcome, needs, sample, succeed};

/// A drive with 16 MiB of data, closed.
fn filled() -> Drive {
    let drive = Drive::create(&["--size", "64M"]);
    let data = drive.file("data");
    std::fs::write(&data, sample(1, 16 << 20)).expect("written");
    let server = drive.serve(&[]);
    succeed("nbdcopy", &["--flush", &data, server.uri()]);
    assert!(server.stop().success());
    drive
}

#[test]
fn a_sound_drive_has_no_faults() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = filled();
    for arguments in [&["check"][..], &["check", "--deep"]] {
        let run = drive.pumice(&[arguments, &[&text(&drive.path())]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.ends_with("no faults\n"), "{run:?}");
    }
}

#[test]
fn flipped_bits_in_records_are_found() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = filled();
    let file = std::fs::File::options().read(true).write(true).open(drive.path())?;
    // A place in the middle of the data: sixteen bytes that the sample's blocks share would not be in one piece once
    // compressed, so any page that holds something will do.
    let mut page = vec![0; 4096];
    let mut at = 8 << 20;
    loop {
        file.read_exact_at(&mut page, at)?;
        if page.iter().filter(|byte| **byte != 0).count() > 3000 {
            break;
        }
        at += 4096;
    }
    page[2000..2016].iter_mut().for_each(|byte| *byte ^= 0x55);
    file.write_all_at(&page, at)?;
    drop(file);
    let run = drive.pumice(&["check", "--deep", &text(&drive.path())]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stdout.contains("fault: "), "{run:?}");
    assert!(run.stderr.contains("fault"), "{run:?}");
    Ok(())
}

#[test]
fn a_served_drive_is_not_checked() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let run = drive.pumice(&["check", &text(&drive.path())]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("in use"), "{run:?}");
}

#[test]
fn nothing_is_written() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    drive.serve(&[]).kill();
    let before = std::fs::read(drive.path())?;
    let run = drive.pumice(&["check", "--deep", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("not closed properly"), "{run:?}");
    assert!(std::fs::read(drive.path())? == before);
    Ok(())
}
