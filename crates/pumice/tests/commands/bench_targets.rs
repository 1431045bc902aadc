//! `pumice bench --target`: what is no target is wrong usage.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::run::in_time;
use crate::common::server::{text, wait_until};
use crate::common::{Outcome, needs, pumice};

#[test]
fn options_that_a_target_does_not_have_are_wrong_usage() {
    for (target, says) in [
        ("pumice,codec=bogus", "unknown codec \"bogus\": expected auto, lz4"),
        ("named=pumice:/nonexistent/drive,codec=zstd:99", "unknown codec \"zstd:99\""),
        ("pumice,codec=", "unknown codec"),
        ("pumice,level=3", "expected pumice, or pumice,codec=CODEC"),
        ("raw,codec=lz4", "only pumice and pumice:PATH take a codec"),
        ("nbd+unix:///name", "write nbd+unix:///?socket=PATH"),
        ("rbd:pool/image?user=me", "after ? conf=PATH"),
        ("s3+http://127.0.0.1/bucket?size=1", "class=CLASS or conf=PATH"),
        ("nvme-tcp://127.0.0.1", "expected nvme-tcp://HOST/NQN"),
        ("nvme-tcp://127.0.0.1/nqn.a?nsid=0", "expected nsid=N"),
        ("drive", "unknown target"),
    ] {
        let run = pumice(&["bench", "quick", "--target", target]);
        assert!(run.code == Some(2) && run.stdout.is_empty(), "{target}: {run:?}");
        assert!(run.stderr.contains(says) && run.stderr.lines().count() == 1, "{target}: {run:?}");
    }
    let run = pumice(&["bench", "quick", "--target", "a=raw", "--target", "a=pumice"]);
    let says = "pumice: target a: given twice: name one, as NAME=TARGET\n";
    // Without fio that is what is missing.
    if needs(&["fio"]) {
        assert_eq!((run.code, run.stderr.as_str()), (Some(2), says), "{run:?}");
    }
}

/// It says how large its export is, and answers no read.
#[test]
fn a_server_that_hangs_when_it_is_searched_for_data_is_named() -> Outcome {
    const LONG: Duration = Duration::from_secs(40);
    if !needs(&["fio", "nbdkit"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let socket = text(&folder.path().join("socket"));
    let nbdkit = ["-f", "-U", &socket, "--filter=delay", "memory", "64M", "rdelay=3600"];
    let mut server = Command::new("nbdkit").args(nbdkit).spawn()?;
    wait_until("the server", || Path::new(&socket).exists());
    let uri = format!("nbd+unix:///?socket={socket}");
    let since = Instant::now();
    let run = pumice(&["bench", "quick", "--minutes", "0", "--target", &format!("far={uri}")]);
    let seconds = since.elapsed();
    server.kill()?;
    server.wait()?;
    assert!(seconds < LONG, "{seconds:?}");
    let expected = format!(
        "pumice: looking for data on the target far\n\
         pumice: target far: {uri}: the server does not answer a read within 10 seconds, so what it holds is not \
         known\n"
    );
    assert_eq!((run.code, run.stderr), (Some(2), expected));
    Ok(())
}

#[test]
fn targets_at_which_there_is_nothing_to_measure_are_wrong_usage() -> Outcome {
    if !needs(&["fio", "mkfifo"]) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let at = |name: &str| text(&folder.path().join(name));
    let (pipe, nobody, hung) = (at("pipe"), at("nobody"), at("hung"));
    assert_eq!(in_time("mkfifo", &[&pipe]).code, Some(0));
    // It takes connections, and says nothing.
    let _listener = UnixListener::bind(&hung)?;
    let nbd = |socket: &str| format!("nbd+unix:///?socket={socket}");
    for (target, says) in [
        (pipe.clone(), format!("{pipe} is a pipe: expected a file or block device")),
        (format!("pumice:{pipe}"), format!("{pipe} is a pipe: expected a file or block device")),
        ("/dev/null".to_string(), "/dev/null is a character device: expected a file".to_string()),
        ("/dev/zero".to_string(), "/dev/zero is a character device: expected a file".to_string()),
        (nbd(&nobody), "No such file or directory".to_string()),
        (nbd(&hung), "the server does not answer within 10 seconds".to_string()),
    ] {
        for destroy in [&[][..], &["--destroy"]] {
            let first = at("first");
            let target = format!("t={target}");
            let all = ["bench", "quick", "--minutes", "0", "--dir", &at("."), "--target", &target];
            let run = pumice(&[&all[..], &["--target", &format!("pumice:{first}")], destroy].concat());
            assert!(run.code == Some(2) && run.stdout.is_empty(), "{target}: {run:?}");
            let last = run.stderr.lines().last().unwrap_or_default();
            assert!(last.starts_with("pumice: target t: ") && last.contains(&says), "{target}: {run:?}");
            // What takes long is said.
            let before =
                if target.ends_with("hung") { "pumice: waiting for an answer of the target t\n" } else { "" };
            assert_eq!(run.stderr, format!("{before}{last}\n"), "{target}");
        }
    }
    Ok(())
}
