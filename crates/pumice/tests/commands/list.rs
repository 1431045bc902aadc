//! `pumice list`

use std::os::unix::net::UnixListener;

use crate::common::server::text;
use crate::common::{Drive, Outcome, pumice};

#[test]
fn a_line_for_each_drive_of_the_servers() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let none = drive.pumice(&["list"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
    assert!(none.stderr.contains("no drive is being served"), "{none:?}");
    let second = drive.file("a-second-drive");
    let run = drive.pumice(&["create", &second, "--size", "32M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let config = [text(&drive.path()), second.clone(), drive.file("missing")]
        .map(|path| format!("[[drive]]\npath = \"{path}\"\n"))
        .concat();
    let server = drive.serve_config(&config, 2);

    let list = drive.pumice(&["list"]);
    assert_eq!(list.code, Some(0), "{list:?}");
    let words: Vec<Vec<&str>> = list.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let (first, missing) = (text(&drive.path()), drive.file("missing"));
    let socket = |path: &str| format!("nbd+unix:///?socket={path}.nbd");
    assert_eq!(words.len(), 4, "{list:?}");
    assert_eq!(words[0], ["PATH", "NBD", "DEVICE", "CAPACITY", "USED", "RATIO", "MOUNTED", "STATE"]);
    assert_eq!(
        words[1],
        [&second, &socket(&second), "-", "32.00", "MiB", "0.0", "%", "-", "-", "online"]
            .map(|word: &str| word)
    );
    assert_eq!(
        words[2],
        [&first, &socket(&first), "-", "128.00", "MiB", "0.0", "%", "-", "-", "online"]
            .map(|word: &str| word)
    );
    assert_eq!(words[3], [&missing, "-", "-", "-", "-", "-", "-", "down"].map(|word: &str| word));
    let lines: Vec<&str> = list.stdout.lines().collect();
    let state = lines[0].find("STATE");
    assert!(lines[1..3].iter().all(|line| line.rfind("online") == state), "{list:?}");
    assert_eq!(lines[3].rfind("down"), state, "{list:?}");
    assert_eq!(drive.pumice(&["list", "--no-header"]).stdout.lines().count(), 3);
    // The address leads to the drive and is also in the status.
    assert!(server.uris().contains(&socket(&first)));
    assert_eq!(drive.status()["server"]["nbd_uris"], serde_json::json!([socket(&first)]));
    assert!(server.stop().success());
}

#[test]
fn a_server_that_hangs_is_named_and_hides_no_other_drive() -> Outcome {
    let drive = Drive::create(&["--size", "32M"]);
    let idle = drive.file("idle");
    assert_eq!(drive.pumice(&["create", &idle, "--size", "32M"]).code, Some(0));
    let server = drive.serve(&[]);
    let path = text(&drive.path());
    let hung = drive.runtime_dir().join("hung.sock");
    let _listener = UnixListener::bind(&hung)?;
    let named = format!(
        "pumice: warning: the server at {} (process {}) did not answer within 3 seconds: ",
        hung.display(),
        std::process::id()
    );
    for all in [
        &["list"][..],
        &["list", "--json"],
        &["status"],
        &["status", "--json"],
        &["capacity"],
        &["sfx-status"],
    ] {
        let run = drive.pumice(all);
        assert_eq!((run.code, run.stderr), (Some(0), format!("{named}its drives are left out\n")), "{all:?}");
        assert!(run.stdout.contains(&path), "{all:?}: {}", run.stdout);
    }
    // The drive of a server that answers is shown at once, and one without a server after the search for it.
    for one in [&["status", &path][..], &["capacity", &path], &["doctor", &path]] {
        let run = drive.pumice(one);
        assert!(!run.stderr.contains("warning"), "{one:?}: {run:?}");
    }
    for one in [&["status", &idle][..], &["capacity", &idle], &["doctor", &idle]] {
        let run = drive.pumice(one);
        assert!(run.stderr.starts_with(&format!("{named}it may have this drive\n")), "{one:?}: {run:?}");
        assert!(!run.stdout.is_empty(), "{one:?}: {run:?}");
    }
    assert!(server.stop().success());
    let run = drive.pumice(&["list"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(
        run.stderr,
        format!("{named}its drives are left out\n"),
        "it does not say that there are none"
    );
    Ok(())
}

#[test]
fn wrong_usage() {
    for wrong in [&["list", "/srv/drive"][..], &["list", "--json", "--no-header"]] {
        let run = pumice(wrong);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{wrong:?}: {run:?}");
    }
}
