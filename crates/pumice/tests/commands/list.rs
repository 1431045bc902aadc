//! `pumice list`

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Run, pumice};

#[test]
fn a_line_for_each_drive_of_the_servers() {
    let drive = Drive::create(&["--size", "64M", "--capacity", "128M"]);
    let none = drive.pumice(&["list"]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
    assert!(none.stderr.contains("no drive is being served"), "{none:?}");
    let second = drive.file("a-second-drive");
    let run = drive.pumice(&["create", &second, "--size", "32M", "--capacity", "32M"]);
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
    assert_eq!(drive.pumice(&["create", &idle, "--size", "32M", "--capacity", "32M"]).code, Some(0));
    let server = drive.serve(&[]);
    let path = text(&drive.path());
    let hung = drive.runtime_dir().join("down-7.sock");
    let _listener = UnixListener::bind(&hung)?;
    let named = format!(
        "pumice: warning: the server at {} (process {}) did not answer within 3 seconds: ",
        hung.display(),
        std::process::id()
    );
    // The other server may be slow: what is right is waited for.
    let shown = |command: &[&str], is_right: &dyn Fn(&Run) -> bool| {
        wait_until(&format!("{command:?}"), || {
            let run = drive.pumice(command);
            eprintln!("{run:?}");
            run.code == Some(0) && is_right(&run)
        });
    };
    let left_out = format!("{named}its drives are left out\n");
    for all in [&["list"][..], &["capacity"]] {
        shown(all, &|run| run.stderr == left_out && run.stdout.contains(&path));
    }
    // The drive of a server that answers is shown at once, and one without a server after the search for it.
    shown(&["status", &path], &|run| run.stderr.is_empty() && run.stdout.contains("online"));
    let may_have = format!("{named}it may have this drive\n");
    shown(&["status", &idle], &|run| run.stderr == may_have && run.stdout.contains("idle"));
    assert!(server.stop().success());
    // It does not say that there are none.
    shown(&["list"], &|run| run.stderr == left_out && run.stdout.is_empty());
    Ok(())
}

#[test]
fn a_server_of_many_drives_that_hangs_has_one_line_and_one_time_limit() -> Outcome {
    let drive = Drive::create(&["--size", "32M"]);
    let _server = drive.serve(&[]);
    let hung = |number: u32| UnixListener::bind(drive.runtime_dir().join(format!("down-{number}.sock")));
    let _listeners = (0..100).map(hung).collect::<Result<Vec<_>, _>>()?;
    let since = Instant::now();
    let run = drive.pumice(&["list"]);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}: {run:?}", since.elapsed());
    let begin = format!("pumice: warning: the server process {} (", std::process::id());
    // Who was asked late on a busy machine had less time.
    assert!(run.code == Some(0) && run.stderr.lines().count() < 10, "{run:?}");
    assert!(
        run.stderr.starts_with(&begin) && run.stderr.contains(" sockets) did not answer within "),
        "{run:?}"
    );
    Ok(())
}

/// As in the configuration that is installed: NBD in the directory of the admin sockets.
#[test]
fn sockets_for_other_clients_are_no_servers_that_do_not_answer() -> Outcome {
    let drive = Drive::create(&["--size", "32M"]);
    DirBuilder::new().mode(0o700).create(drive.runtime_dir())?;
    let socket = |name: &str| format!("unix:{}", drive.runtime_dir().join(name).display());
    let (nbd, http) = (socket("nbd.sock"), socket("http.sock"));
    let server = drive.serve(&["--nbd", &nbd, "--http", &http]);
    let path = text(&drive.path());
    for command in [&["list"][..], &["status"], &["capacity"], &["status", &path], &["capacity", &path]] {
        // The server may be slow.
        wait_until("no warning", || {
            let run = drive.pumice(command);
            eprintln!("{run:?}");
            run.code == Some(0) && run.stderr.is_empty() && run.stdout.lines().count() > 1
        });
    }
    assert!(server.stop().success());
    // Nobody has spoken to them: refused clients are strangers.
    assert!(!drive.log().contains("refused"), "{}", drive.log());
    Ok(())
}

#[test]
fn wrong_usage() {
    for wrong in [&["list", "/srv/drive"][..], &["list", "--json", "--no-header"]] {
        let run = pumice(wrong);
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{wrong:?}: {run:?}");
    }
}
