//! `pumice list`

use crate::common::server::text;
use crate::common::{Drive, pumice};

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
fn wrong_usage() {
    for wrong in [&["list", "/srv/drive"][..], &["list", "--json", "--no-header"]] {
        let run = pumice(wrong);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{wrong:?}: {run:?}");
    }
}
