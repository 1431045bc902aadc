//! Other NBD clients of a drive that is attached.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nbd::client::{ExportUri, Replies, negotiate};
use nbd::protocol::{CMD_FLAG_FUA, CMD_FLUSH, CMD_WRITE};
use nbd::reply::{SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;

use crate::attach::{Attached, usable};
use crate::attach_servers::{Stopped, server_of};
use crate::common::server::wait_until;
use crate::common::{Outcome, fails, succeed};

const BLOCK: usize = 4096;
/// Longer than any request takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Of the protocol: the client may not write.
const NOT_PERMITTED: u32 = 1;

/// Another client.
struct Other(UnixStream);

impl Other {
    fn connect(socket: &Path) -> io::Result<Other> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        negotiate(&mut stream, "", Replies::Simple)?;
        Ok(Other(stream))
    }

    /// Writes a block with FUA, and flushes. Returns the error of the write.
    fn write(&mut self, offset: u64, byte: u8) -> u32 {
        let header = RequestHeader {
            flags: CMD_FLAG_FUA,
            command: CMD_WRITE,
            cookie: 1,
            offset,
            length: BLOCK as u32,
        };
        let error = self.request(&[&header.encode()[..], &[byte; BLOCK]].concat());
        let flush = RequestHeader { flags: 0, command: CMD_FLUSH, cookie: 1, offset: 0, length: 0 };
        assert_eq!(self.request(&flush.encode()), 0);
        error
    }

    fn request(&mut self, bytes: &[u8]) -> u32 {
        self.0.write_all(bytes).expect("sent");
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.0.read_exact(&mut reply).expect("a reply");
        SimpleReply::decode(&reply).expect("a reply").error
    }
}

/// The socket of the server, as `list` shows it.
fn socket(it: &Attached) -> PathBuf {
    let mut socket = None;
    wait_until("an address", || {
        let listed = it.listed();
        let uri = listed["nbd_uris"][0].as_str().and_then(|uri| ExportUri::parse(uri).ok());
        socket = uri.and_then(|uri| uri.unix_socket().map(Path::to_path_buf));
        socket.is_some()
    });
    socket.expect("found")
}

/// Writes blocks of one byte to the device, of which the kernel keeps nothing.
fn fill(node: &str, byte: u8, count: u32) {
    let fill = format!("head -c {}M /dev/zero | tr '\\0' '\\{byte:o}'", 1);
    let write = format!("dd of={node} bs={BLOCK} count={count} oflag=direct iflag=fullblock conv=notrunc");
    succeed("sh", &["-c", &format!("{fill} | {write} 2>/dev/null")]);
}

/// The first byte of a block of the device.
fn byte_at(node: &str, block: u64) -> u8 {
    let read =
        format!("dd if={node} bs={BLOCK} skip={block} count=1 iflag=direct 2>/dev/null | od -An -tu1 -N1");
    succeed("sh", &["-c", &read]).trim().parse().expect("a byte")
}

#[test]
fn other_clients_only_read_an_attached_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = it.drive.serve(&[]);
    let mut before = Other::connect(&socket(&it))?;
    assert_eq!(before.write(0, 1), 0);
    fails(
        &it.drive.pumice(&["attach", &it.path()]),
        &["other clients have write access", "client", "user 0"],
    );
    assert_eq!(before.write(0, 2), 0, "a refusal disturbs nobody");
    drop(before);
    let node = it.attach(&[]);
    let mut other = Other::connect(&socket(&it))?;
    assert_eq!(other.write(0, 3), NOT_PERMITTED);
    assert_eq!(byte_at(&node, 0), 2);
    // A server that was just started knows, although its bridge does not answer.
    let server = {
        let address = socket(&it);
        let pid = it.record()["bridge_pid"].as_i64().expect("a process");
        let _stopped = Stopped::new(pid);
        assert!(server.stop().success());
        let server = it.drive.serve(&[]);
        let mut other = Other::connect(&address)?;
        assert_eq!(other.write(0, 4), NOT_PERMITTED);
        server
    };
    assert_eq!(byte_at(&node, 0), 2);
    let address = socket(&it);
    it.detach(&node);
    let mut after = Other::connect(&address)?;
    assert_eq!(after.write(0, 5), 0);
    drop(after);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn what_other_clients_write_is_not_undone() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&["--", "--shared-writes"]);
    let mut byte = 0;
    for pause in [Duration::ZERO, Duration::from_secs(2)] {
        for kills in [true, false] {
            byte += 2;
            // Acknowledged, and not flushed.
            fill(&node, byte, 8);
            let mut other = Other::connect(&socket(&it))?;
            for block in 2..4 {
                assert_eq!(other.write(block * BLOCK as u64, byte + 1), 0);
            }
            drop(other);
            std::thread::sleep(pause);
            if kills {
                it.kill_server_at_once();
            } else {
                let pid = server_of(&it.drive, &it.path());
                succeed("kill", &["-TERM", &pid.to_string()]);
            }
            let found: Vec<u8> = (0..8).map(|block| byte_at(&node, block)).collect();
            let own = byte;
            let expected = [own, own, own + 1, own + 1, own, own, own, own];
            assert_eq!(found, expected, "{pause:?}, killed: {kills}\n{}", it.logs());
        }
    }
    it.detach(&node);
    Ok(())
}
