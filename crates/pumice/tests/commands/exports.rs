//! The drive that a client gets while drives and addresses change.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::Drive;
use crate::common::server::{text, wait_until};

/// Read timeout of a client.
const LIMIT: Duration = Duration::from_secs(60);
const FIRST: &str = "64M";
const FIRST_BYTES: u64 = 64 << 20;
const SECOND: &str = "32M";
const SECOND_BYTES: u64 = 32 << 20;

/// Returns the size of the export that a client gets by this name; `None` if nothing listens or there is no
/// such export.
fn size(socket: &Path, name: &str) -> Option<u64> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.read_exact(&mut [0; 18]).ok()?;
    // Client flags: fixed newstyle and no zeroes. Then EXPORT_NAME.
    let asks = [
        &3_u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &1_u32.to_be_bytes(),
        &(name.len() as u32).to_be_bytes(),
        name.as_bytes(),
    ];
    stream.write_all(&asks.concat()).ok()?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).ok()?;
    answer.first_chunk().map(|size| u64::from_be_bytes(*size))
}

fn create(drive: &Drive, name: &str, size: &str) -> PathBuf {
    let path = drive.folder().join(name);
    let run = drive.pumice(&["create", &text(&path), "--size", size, "--capacity", size]);
    assert_eq!(run.code, Some(0), "{run:?}");
    path
}

fn table(path: &Path, more: &str) -> String {
    format!("[[drive]]\npath = \"{}\"\n{more}\n", path.display())
}

#[test]
fn who_asks_for_no_name_gets_the_first_drive_or_none() {
    let drive = Drive::create(&["--size", SECOND]);
    let (first, second) = (drive.folder().join("first"), drive.path());
    let socket = drive.folder().join("all");
    let server_table = format!("[server]\nnbd = [\"unix:{}\"]\n", text(&socket));
    let config = server_table.clone() + &table(&first, "") + &table(&second, "");
    // The first drive is down.
    let server = drive.serve_config(&config, 1);
    assert_eq!(size(&socket, "drive"), Some(SECOND_BYTES));
    assert_eq!(size(&socket, ""), None, "another drive in its place");
    create(&drive, "first", FIRST);
    drive.reload(&server, &config);
    assert_eq!(size(&socket, ""), Some(FIRST_BYTES));
    // The first drive goes down again: a reload with other settings reopens it, which fails.
    let away = drive.folder().join("away");
    std::fs::rename(&first, &away).expect("renamed");
    let changed = server_table.clone() + &table(&first, "write-cache = false") + &table(&second, "");
    // A drive is reopened only while it has no client.
    wait_until("it is down", || {
        drive.reload(&server, &changed);
        size(&socket, "first").is_none()
    });
    assert_eq!((size(&socket, ""), size(&socket, "drive")), (None, Some(SECOND_BYTES)));
    std::fs::rename(&away, &first).expect("renamed");
    drive.reload(&server, &changed);
    assert_eq!((size(&socket, ""), size(&socket, "first")), (Some(FIRST_BYTES), Some(FIRST_BYTES)));
    // The order in the file decides which drive is first. A change is logged.
    drive.reload(&server, &(server_table + &table(&second, "") + &table(&first, "write-cache = false")));
    assert_eq!(size(&socket, ""), Some(SECOND_BYTES));
    assert!(drive.log().contains("clients that request no export name get another drive"), "{}", drive.log());
    assert!(server.stop().success());
}

#[test]
fn addresses_of_several_drives_are_printed_with_names() {
    let drive = Drive::create(&["--size", SECOND]);
    let second = create(&drive, "second", FIRST);
    let nbd = format!("unix:{}", drive.file("all"));
    let server = drive.serve_paths(&[&drive.path(), &second], &["--nbd", &nbd]);
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", drive.file("all"));
    assert_eq!(server.uris(), [uri("drive"), uri("second")]);
    assert_eq!(drive.status()["server"]["nbd_uris"][0], uri("drive").as_str());
    assert!(server.stop().success());
    let server = drive.serve(&["--nbd", &nbd]);
    assert_eq!(server.uris(), [uri("")], "one drive needs no name");
    assert!(server.stop().success());
}

#[test]
fn an_address_passes_from_drive_to_drive() {
    let drive = Drive::create(&["--size", SECOND]);
    let other = create(&drive, "other", FIRST);
    let [one, two] = ["one", "two"].map(|name| drive.folder().join(name));
    let at = |socket: &Path| format!("nbd = [\"unix:{}\"]", text(socket));
    let server = drive.serve_config(&table(&drive.path(), &at(&one)), 1);
    assert_eq!(size(&one, ""), Some(SECOND_BYTES));
    // The address moves to a drive that replaces the first.
    drive.reload(&server, &table(&other, &at(&one)));
    assert_eq!(size(&one, ""), Some(FIRST_BYTES), "{}", drive.log());
    // The address moves to a drive that is added.
    drive.reload(&server, &(table(&drive.path(), &at(&one)) + &table(&other, &at(&two))));
    assert_eq!((size(&one, ""), size(&two, "")), (Some(SECOND_BYTES), Some(FIRST_BYTES)), "{}", drive.log());
    // The drives swap their addresses.
    drive.reload(&server, &(table(&drive.path(), &at(&two)) + &table(&other, &at(&one))));
    assert_eq!((size(&one, ""), size(&two, "")), (Some(FIRST_BYTES), Some(SECOND_BYTES)), "{}", drive.log());
    // The address moves to the server, and back.
    let both = table(&drive.path(), "") + &table(&other, &at(&two));
    drive.reload(&server, &(format!("[server]\n{}\n", at(&one)) + &both));
    assert_eq!((size(&one, ""), size(&two, "")), (Some(SECOND_BYTES), Some(FIRST_BYTES)), "{}", drive.log());
    assert_eq!(size(&one, "other"), Some(FIRST_BYTES));
    drive.reload(&server, &table(&drive.path(), &at(&one)));
    assert_eq!((size(&one, ""), size(&one, "other")), (Some(SECOND_BYTES), None), "{}", drive.log());
    assert!(!two.exists());
    let log = drive.log();
    assert!(!log.contains("not listening") && !log.contains("not taken"), "{log}");
    // The address is dropped, and used again at the next reload.
    drive.reload(&server, &table(&drive.path(), &at(&two)));
    drive.reload(&server, &table(&drive.path(), &at(&one)));
    assert_eq!((size(&one, ""), size(&two, "")), (Some(SECOND_BYTES), None), "{}", drive.log());
    assert!(server.stop().success());
}

#[test]
fn a_new_drive_whose_address_is_taken_changes_nothing() {
    let drive = Drive::create(&["--size", SECOND]);
    let other = create(&drive, "other", FIRST);
    let config = table(&drive.path(), "");
    let server = drive.serve_config(&config, 1);
    let default = format!("unix:{}.nbd", text(&drive.path()));
    let taken = std::os::unix::net::UnixListener::bind(drive.folder().join("other.nbd")).expect("bound");
    for (more, says) in
        [("", "another server is listening"), (&format!("nbd = [\"{default}\"]"), "two drives")]
    {
        drive.reload(&server, &(config.clone() + &table(&other, more)));
        let log = drive.log();
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains("nothing changed: ") && last.contains(says), "{log}");
        assert_eq!(size(&drive.folder().join("drive.nbd"), ""), Some(SECOND_BYTES));
    }
    drop(taken);
    assert!(server.stop().success());
}
