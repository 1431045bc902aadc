//! Invalid input for every command: one line that describes the error, the right exit code, and no changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::server::text;
use crate::common::{Drive, Outcome, Run, in_time, pumice, sample};

/// Returns every entry below a directory with its contents; empty contents for entries other than files.
fn everything(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a directory").flatten() {
        let kind = entry.file_type().expect("a kind");
        let contents = if kind.is_file() { fs::read(entry.path()).expect("readable") } else { Vec::new() };
        if kind.is_dir() {
            found.extend(everything(&entry.path()));
        }
        found.insert(text(&entry.path()), contents);
    }
    found
}

/// Creates a drive with other files and objects beside it.
fn surroundings() -> Outcome<Drive> {
    let drive = Drive::create(&["--size", "32M"]);
    fs::write(drive.file("text"), sample(3, 100_000))?;
    fs::write(drive.file("empty"), "")?;
    fs::write(drive.file("tiny"), "abcdef")?;
    fs::create_dir(drive.file("dir"))?;
    std::os::unix::fs::symlink(drive.file("nowhere"), drive.file("dangling"))?;
    std::os::unix::fs::symlink(drive.file("loop"), drive.file("loop"))?;
    drop(std::os::unix::net::UnixListener::bind(drive.file("socket"))?);
    rustix::fs::mkfifoat(rustix::fs::CWD, drive.file("pipe"), rustix::fs::Mode::RUSR)?;
    // The first 20 MB of a drive.
    let mut short = fs::read(drive.path())?;
    short.truncate(20_000_000);
    fs::write(drive.file("short"), short)?;
    Ok(drive)
}

/// Runs `pumice` in the drive's directory with environment variables.
fn pumice_with(drive: &Drive, variables: &[&str], arguments: &[&str]) -> Run {
    let folder = text(drive.folder());
    let own = format!("PUMICE_RUNTIME_DIR={folder}");
    let fixed = ["-C", &folder, &own, "PUMICE_CONFIG=/nonexistent/pumice.toml"];
    in_time("env", &[&fixed, variables, &[env!("CARGO_BIN_EXE_pumice")], arguments].concat())
}

/// Expects a failure with this code and one line on standard error that contains `says` and no control
/// characters.
fn refused(run: &Run, code: i32, says: &str, what: &dyn std::fmt::Debug) {
    assert_eq!(run.code, Some(code), "{what:?}: {run:?}");
    assert!(run.stderr.starts_with("pumice: ") && run.stderr.contains(says), "{what:?}: {says}: {run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{what:?}: {run:?}");
    assert!(!run.stderr.trim_end().contains(char::is_control), "{what:?}: {run:?}");
}

#[test]
fn no_command_takes_for_a_drive_what_is_none() -> Outcome {
    let drive = surroundings()?;
    let long = "x".repeat(300);
    let paths = [
        ("text", "not a Pumice drive"),
        ("empty", "too small to hold a drive"),
        ("dir", "directory"),
        ("dangling", "no such file"),
        ("loop", "symbolic links"),
        ("socket", "socket"),
        ("pipe", "pipe"),
        ("missing", "no such file"),
        ("text/below", "Not a directory"),
        ("/dev/null", "character device"),
        ("a\nb\x1b[2J", "no such file"),
        (&long, "name too long"),
        ("short", "cut short"),
    ];
    let commands: [&[&str]; 16] = [
        &["status", "PATH"],
        &["status", "PATH", "--json"],
        &["capacity", "PATH"],
        &["check", "PATH"],
        &["check", "PATH", "--deep", "--json"],
        &["serve", "PATH", "--nbd", "unix:nbd"],
        &["serve", "--read-only", "PATH", "--nbd", "unix:nbd"],
        &["set-capacity", "PATH", "1G"],
        &["set-size", "PATH", "64M"],
        &["set-codec", "PATH", "lz4"],
        &["set-parity", "PATH", "1/16"],
        &["train", "PATH"],
        &["settle", "PATH"],
        &["settle", "PATH", "--json"],
        &["wipe", "PATH", "--yes"],
        &["format", "PATH", "--sector", "512", "--yes"],
    ];
    let before = everything(drive.folder());
    for (path, says) in paths {
        for command in commands {
            // For a truncated drive, `check` lists what is left as faults instead.
            if command[0] == "check" && path == "short" {
                continue;
            }
            let arguments: Vec<&str> =
                command.iter().map(|word| if *word == "PATH" { path } else { *word }).collect();
            let run = pumice_with(&drive, &[], &arguments);
            let code = if command[0] == "check" { 3 } else { 1 };
            refused(&run, code, says, &arguments);
            assert!(run.stdout.is_empty(), "{run:?}");
        }
    }
    assert!(everything(drive.folder()) == before, "something was changed");
    Ok(())
}

#[test]
fn a_wrong_number_is_named_with_the_right_ones() {
    for (arguments, says) in [
        (
            &["scan", "x", "--threads", "x"][..],
            "invalid value 'x' for '--threads <THREADS>': expected a whole number \
            from 1 to 1024; see",
        ),
        (&["scan", "x", "--threads", "0"], "from 1 to 1024; see"),
        (&["scan", "x", "--depth", "999"], "from 1 to 255; see"),
        (
            &["scan", "x", "--seed", "x"],
            "invalid value 'x' for '--seed <SEED>': expected a whole number; see",
        ),
        (&["scan", "x", "--seed", ""], "'' for '--seed <SEED>': expected a whole number; see"),
        (&["tco", "--vary", "1.5"], "from 1 to 99; see"),
        (
            &["scan", "x", "--seed=-1"],
            "'-1' for '--seed <SEED>': expected a number that is not negative; see",
        ),
        (
            &["scan", "x", "--seed", "99999999999999999999"],
            "'99999999999999999999' for '--seed <SEED>': expected a smaller number; see",
        ),
        (
            &["detach", "x", "--wait", "99999999999999999999"],
            "'--wait <SECONDS>': expected a smaller number; see",
        ),
        (
            &["serve", "x", "--io"],
            "pumice: a value is required for '--io <HOW>' but none was supplied: expected auto, uring or plain; see",
        ),
        (
            &["create", "x", "--sector"],
            "pumice: a value is required for '--sector <SECTOR>' but none was supplied: expected 512 or 4096; see",
        ),
        (
            &["scan", "x", "--seed"],
            "pumice: a value is required for '--seed <SEED>' but none was supplied; see",
        ),
        (&["detach", "x", "--wait", "soon"], "'--wait <SECONDS>': expected a whole number; see"),
        (&["serve", "x", "--io", "fast"], "'--io <HOW>': expected auto, uring or plain; see"),
        (&["bench", "x"], "expected"),
    ] {
        let run = pumice(arguments);
        refused(&run, 2, says, &arguments);
        let library = ["invalid digit", "possible values", "is not in", "similar value"];
        assert!(!library.iter().any(|words| run.stderr.contains(words)), "{run:?}");
    }
}

#[test]
fn create_makes_nothing_and_overwrites_nothing() -> Outcome {
    let drive = surroundings()?;
    let before = everything(drive.folder());
    for (arguments, code, says) in [
        (&["drive"][..], 1, "holds a Pumice drive"),
        (&["text"], 1, "--force"),
        (&["text", "--force"], 1, "at least 25 MiB"),
        (&["empty"], 1, "is empty; use --size"),
        (&["tiny"], 1, "physical size 6 bytes is too small: at least 25 MiB"),
        (&["tiny", "--size", "64M", "--force"], 1, "holds 6 bytes, less than --size 64 MiB; grow it first\n"),
        (&["empty", "--size", "64M", "--capacity", "0"], 1, "capacity"),
        (&["dir"], 1, "directory"),
        (&["loop", "--size", "64M"], 1, "symbolic links"),
        (&["pipe"], 1, "pipe"),
        (&["socket", "--force"], 1, "socket"),
        (&["/dev/null", "--force"], 1, "character device"),
        (&["text/below", "--size", "64M"], 1, "Not a directory"),
        (&["dir/none/below", "--size", "64M"], 1, "dir/none is not a directory"),
        (&["new"], 1, "--size"),
        (&["new", "--size", "2P"], 1, "physical size 2.00 PiB is too large: at most 1.00 PiB"),
        (&["new", "--size", "9000P"], 1, "too large: at most 1.00 PiB"),
        (&["new", "--size", "1"], 1, "at least 25 MiB"),
        (&["new", "--size", "64M", "--capacity", "300T"], 1, "capacity 300.00 TiB is not possible"),
        (&["new", "--size", "999999999999T"], 2, "expected a size below 16 EiB"),
        (&["new", "--size", "8M"], 1, "8 MiB is too small: at least 25 MiB"),
        (
            &["drive", "--force", "--size", "1G"],
            1,
            "holds 32 MiB, less than --size 1 GiB; choose a smaller size, or grow it first\n",
        ),
        (&["drive", "--force", "--segment", "3M"], 1, "power of two"),
        (&["drive", "--force", "--capacity", "257T"], 1, "256 TiB"),
        (&["drive", "--force", "--capacity", "1000"], 1, "4096"),
        (&["drive", "--force", "--preallocate"], 1, "exists already"),
        (&["drive", "--force", "--codec", "zstd:99"], 2, "zstd:LEVEL"),
        (&["drive", "--force", "--sector", "520"], 2, "512 or 4096"),
        (&["drive", "--force", "--size", "99999999999999999999"], 2, "expected a size below 16 EiB"),
        (&["drive", "--force", "--size", "1.5.2G"], 2, "expected a size"),
        (&["drive", "--force", "--size", "nan"], 2, "expected a size"),
        (&["drive", "--force", "--endurance", "-1"], 2, "-1"),
        (&["drive", "--force", "--size"], 2, "value is required"),
        (&["drive", "--force", "--siz", "1G"], 2, "similar argument exists: '--size'"),
        (
            &["new", "--size", "64M", "--sector", "51"],
            2,
            "'51' for '--sector <SECTOR>': expected 512 or 4096; see",
        ),
        (&["drive", "--force", "other"], 2, "unexpected"),
        (&[""], 2, "value is required"),
        (&[], 2, "<PATH>"),
    ] {
        let run = pumice_with(&drive, &[], &[&["create"], arguments].concat());
        refused(&run, code, says, &arguments);
        assert!(everything(drive.folder()) == before, "{arguments:?} changed something");
    }
    Ok(())
}

#[test]
fn serve_opens_no_drive_that_it_cannot_offer() -> Outcome {
    let drive = surroundings()?;
    let listening = std::os::unix::net::UnixListener::bind(drive.file("taken"))?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?;
    let taken = format!("tcp:{}", port.local_addr()?);
    let long = format!("unix:{}", "x".repeat(200));
    fs::write(
        drive.file("config"),
        format!("[[drive]]\npath = \"{}\"\nmap-cache = \"1K\"\n", text(&drive.path())),
    )?;
    let before = everything(drive.folder());
    for (arguments, code, says) in [
        (&["--nbd", "unix:none/below"][..], 1, "/none: create it, or choose another path"),
        (&["--nbd", "unix:/proc/below"], 1, "/proc cannot hold sockets; choose another path"),
        (&["--nbd", "unix:text"], 1, "not a socket"),
        (&["--nbd", "unix:taken"], 1, "another server"),
        (&["--nbd", &long], 1, "bytes, at most 107; choose a shorter one"),
        (&["--nbd", "unix:good", "--nbd", &taken], 1, "in use"),
        (&["--nbd", "tcp:nohost.invalid:1"], 1, "nohost.invalid"),
        (&["--nbd", "tcp:0.0.0.0:0"], 1, "--insecure"),
        (&["--http", "0.0.0.0:0"], 1, "--insecure"),
        (&["--http", &taken["tcp:".len()..]], 1, "in use"),
        (&["--admin", "unix:none/below"], 1, "no directory none: create it, or choose another path"),
        (&["--admin", &long], 1, "at most 107"),
        (&["--admin", "unix:text"], 1, "text"),
        (&["--admin", "unix:taken"], 1, "another server"),
        (&["--tls-cert", "none", "--tls-key", "none"], 1, "none"),
        (&["--tls-cert", "text", "--tls-key", "text"], 1, "certificate"),
        (&["--tls-cert", "/dev/zero", "--tls-key", "text"], 1, "neither a regular file nor a pipe"),
        (&["--tls-cert", "dir", "--tls-key", "text"], 1, "neither a regular file nor a pipe"),
        (&["--config", "/dev/zero"], 1, "not a configuration file"),
        (&["--config", "none"], 1, "cannot read the configuration"),
        (&["--config", "text"], 1, "text"),
        (&["--config", "dir"], 1, "dir"),
        (&["--config", "config"], 1, "map-cache: invalid value \"1K\": expected a size of 64K or more"),
        (&["drive"], 2, "twice"),
        (&["--nbd", "unix:"], 2, "not an address"),
        (&["--nbd", "tcp:127.0.0.1:99999"], 2, "not an address"),
        (&["--http", "127.0.0.1:1x"], 2, "not an address"),
        (&["--admin", "tcp:127.0.0.1:1"], 2, "unix:SOCKET"),
        (&["--threads", "5000"], 2, "1024"),
        (&["--max-connections", "0"], 2, "from 1 to 1048576"),
        (&["--max-connections-per-peer", "many"], 2, "many"),
        (
            &["--map-cache", "1K"],
            2,
            "invalid value '1K' for '--map-cache <SIZE>': expected a size of 64K or more",
        ),
        (&["--warn-at", "95,80"], 2, "rising"),
        (&["--warn-at", "101"], 2, "expected up to"),
        (&["--throttle-at", "100"], 2, "1 to 99"),
        (&["--throttle-at", "50", "--throttle-floor", "0"], 2, "expected a size of 4K or more"),
        (&["--tls-cert", "text"], 2, "--tls-key"),
        (&["--accept-damage"], 2, "--read-only"),
        (&["--background-cpu", "101"], 2, "0 to 100"),
        (&["--background-cpu", "nan"], 2, "0 to 100"),
        (&["--background-cpu", "some"], 2, "0 to 100"),
        (&["--user=+0"], 2, "expected a user, by name or number"),
        (&["--io", "spdk"], 2, "auto, uring or plain"),
        (&["--log-format", "xml"], 2, "text or json"),
        (&["--direct", "maybe"], 2, "auto, on or off"),
        (&["--write-cache", "maybe"], 2, "on or off"),
    ] {
        let run = pumice_with(&drive, &[], &[&["serve", "drive"], arguments].concat());
        refused(&run, code, says, &arguments);
        assert!(everything(drive.folder()) == before, "{arguments:?} changed something");
    }
    refused(&pumice_with(&drive, &["PUMICE_IO=bogus"], &["serve", "drive"]), 2, "bogus", &"PUMICE_IO");
    refused(
        &pumice_with(&drive, &[], &["serve"]),
        1,
        "/nonexistent/pumice.toml: cannot read",
        &"PUMICE_CONFIG",
    );
    if !Path::new("/etc/pumice/pumice.toml").exists() {
        let run = pumice_with(&drive, &["PUMICE_CONFIG="], &["serve"]);
        refused(&run, 2, "no drive to serve", &"no path");
    }
    assert!(everything(drive.folder()) == before);
    drop(listening);
    Ok(())
}

#[test]
fn commands_that_look_or_change_refuse_wrong_words() -> Outcome {
    let drive = surroundings()?;
    let before = everything(drive.folder());
    for (arguments, code, says) in [
        (&["status", "drive", "other"][..], 2, "unexpected"),
        (&["status", "drive", "--jsn"], 2, "--json"),
        (&["status", "drive", "--json", "--watch"], 2, "cannot be used with"),
        (&["status", "--watch=0", "drive"], 2, "--watch"),
        (&["status", "--watch=soon"], 2, "--watch"),
        (&["status", "--watch", "drive"], 1, "no server has it"),
        (&["capacity", "drive", "--json", "--no-header"], 2, "--json"),
        (&["capacity", "drive", "--no-headers"], 2, "--no-header"),
        (&["check"], 2, "<PATH>"),
        (&["check", "drive", "--deep=yes"], 2, "--deep"),
        (&["check", "drive", "--rate", "quickly"], 2, "--rate"),
        (&["check", "drive", "--stop"], 3, "drive"),
        (&["set-capacity", "drive"], 2, "required"),
        (&["set-capacity", "drive", "much"], 2, "expected a size"),
        (&["set-capacity", "drive", "0"], 1, "only a wipe"),
        (&["set-capacity", "drive", "16M"], 1, "only a wipe"),
        (&["set-capacity", "drive", "300T"], 1, "256 TiB"),
        (&["set-size", "drive", "1M"], 1, "only grow"),
        (&["set-size", "drive", "1G"], 1, "four times"),
        (&["set-size", "drive", "64M", "--preallocat"], 2, "--preallocate"),
        (&["wipe", "drive"], 1, "--yes"),
        (&["wipe", "drive", "--yes", "--capacity", "300T"], 1, "256 TiB"),
        (&["wipe", "drive", "--yes", "--capacity", "0"], 1, "capacity"),
        (&["wipe", "drive", "--yes", "--capacity", "some"], 2, "expected a size"),
        (&["wipe", "drive", "--yes", "short"], 2, "unexpected"),
        (&["format", "drive", "--yes"], 2, "--sector"),
        (&["format", "drive", "--sector", "4096"], 1, "--yes"),
        (&["format", "drive", "--yes", "--sector", "4K"], 2, "4K"),
    ] {
        let run = pumice_with(&drive, &[], arguments);
        refused(&run, code, says, &arguments);
        assert!(run.stdout.is_empty(), "{arguments:?}: {run:?}");
        assert!(everything(drive.folder()) == before, "{arguments:?} changed something");
    }
    Ok(())
}

#[test]
fn the_demo_leaves_nothing_where_it_cannot_run() -> Outcome {
    let drive = surroundings()?;
    let long = drive.file(&"y".repeat(120));
    fs::create_dir(&long)?;
    let temporary = |path: &str| format!("TMPDIR={path}");
    let (missing, file, loops) = (drive.file("missing"), drive.file("text"), drive.file("loop"));
    let dir = temporary(&drive.file("dir"));
    let before = everything(drive.folder());
    for (variables, arguments, code, says) in [
        (&[temporary(&missing).as_str()][..], &[][..], 1, "TMPDIR"),
        (&[&temporary(&file)], &[], 1, "TMPDIR"),
        (&[&temporary(&loops)], &[], 1, "TMPDIR"),
        (&["TMPDIR=/proc"], &[], 1, "TMPDIR"),
        (&[&temporary(&long)], &[], 1, "too long"),
        (&[&dir, "PATH=/nonexistent"], &[], 1, "not installed"),
        (&[&dir], &["now"], 2, "unexpected"),
        (&[&dir], &["--size", "1G"], 2, "--size"),
        (&[&dir], &["--jsn"], 2, "--jsn"),
        (&[&dir], &[""], 2, "unexpected"),
    ] {
        let run = pumice_with(&drive, variables, &[&["demo"], arguments].concat());
        refused(&run, code, says, &(variables, arguments));
        assert!(everything(drive.folder()) == before, "{variables:?} {arguments:?} left something");
    }
    Ok(())
}

#[test]
fn a_filesystem_too_small_for_the_demo_is_refused_before() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = text(folder.path());
    let mounted = in_time("mount", &["-t", "tmpfs", "-o", "size=20M", "tmpfs", &path]);
    if mounted.code != Some(0) {
        eprintln!("skipped: no file system can be mounted");
        return Ok(());
    }
    let run = in_time("env", &[&format!("TMPDIR={path}"), env!("CARGO_BIN_EXE_pumice"), "demo"]);
    let left = fs::read_dir(folder.path())?.count();
    let unmounted = in_time("umount", &[&path]);
    assert_eq!((left, unmounted.code), (0, Some(0)));
    refused(&run, 1, "20.00 MiB are free", &"a small file system");
    assert!(run.stdout.is_empty(), "{run:?}");
    Ok(())
}

#[test]
fn a_text_without_end_is_refused() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| text(&folder.path().join(name));
    let refused_of = |command: &[&str]| {
        let endless = command[command.len() - 1];
        let says = format!("{endless}: expected a text of at most 64 MiB");
        refused(&pumice(command), 1, &says, &command);
    };
    let endless = "/dev/zero";
    let commands: [&[&str]; 6] = [
        &["bench", "compare", endless, endless],
        &["bench", "scorecard", endless],
        &["plan", "--physical", "1T", "--scan", endless],
        &["tco", endless],
        &["tco", "--preset", "four-ways", "--from-scan", endless],
        &["tco", "--preset", "four-ways", "--from-bench", endless],
    ];
    commands.iter().for_each(|command| refused_of(command));
    // A file, and a pipe.
    let (file, pipe) = (path("file"), path("pipe"));
    fs::File::create(&file)?.set_len(65 << 20)?;
    refused_of(&["tco", &file]);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU)?;
    let into = pipe.clone();
    let writer =
        std::thread::spawn(move || std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(into)?));
    refused_of(&["tco", &pipe]);
    let written = writer.join().map_err(|_| "a panic")?;
    assert!(written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe));
    Ok(())
}

/// Nobody else could change the drive, so "in use" would say nothing.
#[test]
fn commands_for_a_drive_name_its_server_if_that_does_not_answer() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let server = drive.serve(&[]);
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).expect("a process");
    let signal = |what| rustix::process::kill_process(pid, what).expect("sent");
    signal(rustix::process::Signal::STOP);
    let commands: [(&[&str], i32); 8] = [
        (&["train"], 1),
        (&["settle"], 1),
        (&["settle", "--stop"], 1),
        (&["set-capacity", "128M"], 1),
        (&["set-size", "128M"], 1),
        (&["set-codec", "lz4"], 1),
        (&["check"], 3),
        (&["check", "--stop"], 3),
    ];
    let says =
        format!("pumice: {path}: its server (process {}) did not answer within 10 seconds; ", server.pid());
    std::thread::scope(|scope| {
        for (words, code) in commands {
            let (drive, path, says) = (&drive, path.as_str(), &says);
            scope.spawn(move || {
                let run = drive.pumice(&[&words[..1], &[path], &words[1..]].concat());
                assert_eq!(run.code, Some(code), "{words:?}: {run:?}");
                assert!(
                    run.stderr.starts_with(says) && run.stderr.lines().count() == 1,
                    "{words:?}: {run:?}"
                );
            });
        }
    });
    signal(rustix::process::Signal::CONT);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["set-codec", &path, "lz4"]).code, Some(0));
}

#[test]
fn attaching_needs_a_directory_with_a_short_path() {
    let drive = Drive::create(&["--size", "32M"]);
    let long = format!("PUMICE_RUNTIME_DIR={}", drive.file(&"r".repeat(80)));
    let run = in_time("env", &[&long, env!("CARGO_BIN_EXE_pumice"), "attach", &text(&drive.path())]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("set PUMICE_RUNTIME_DIR to a shorter directory"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(!drive.folder().join("r".repeat(80)).exists());
}
