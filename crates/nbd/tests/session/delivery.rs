//! Data of reads for the FUSE device of a client.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nbd::client::{Wishes, negotiate_attachment};
use nbd::delivery::{COOKIE_BIT, FuseDevice};
use nbd::option::{ClientOption, OptionHeader};
use nbd::option_reply::{OPTION_REPLY_HEADER_BYTES, OptionReplyHeader};
use nbd::protocol::*;
use nbd::reply::{Delivered, SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;
use nbd::{Listener, Server, ServerConfig};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use crate::client::{device, shared_of};

/// Longer than a server takes.
const LIMIT: Duration = Duration::from_secs(30);

struct Served {
    server: Option<Server>,
    folder: TempDir,
}

impl Served {
    fn start() -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = Listener::unix(&folder.path().join("s")).expect("listens");
        let exports = shared_of(&Arc::new(device()), ServerConfig::default());
        Served { server: Some(Server::start(&exports, vec![listener], 1).expect("starts")), folder }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("s")).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.take().into_iter().for_each(Server::shutdown);
    }
}

/// A descriptor of `/dev/fuse`; `None` where there is none.
fn fuse() -> Option<File> {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.inspect_err(|error| eprintln!("skipped: /dev/fuse: {error}")).ok()
}

fn wishes(device: &FuseDevice) -> Wishes<'_> {
    Wishes { device: Some(device), opening: "", returns: false }
}

fn ask(stream: &mut UnixStream, command: u16, flags: u16, cookie: u64, length: u32) {
    let header = RequestHeader { flags, command, cookie, offset: 0, length };
    stream.write_all(&header.encode()).expect("sent");
}

fn header(stream: &mut UnixStream) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut header = [0; SIMPLE_REPLY_BYTES];
    stream.read_exact(&mut header).expect("a reply");
    header
}

fn option_reply(stream: &mut UnixStream) -> u32 {
    let mut header = [0; OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut header).expect("a reply");
    let header = OptionReplyHeader::decode(&header).expect("a header");
    stream.read_exact(&mut vec![0; header.length as usize]).expect("its data");
    header.reply_type
}

#[test]
fn what_the_device_does_not_take_comes_by_the_socket() {
    let Some(fuse) = fuse() else { return };
    let served = Served::start();
    let mut stream = served.connect();
    // Nothing is mounted by it, so it takes nothing.
    let fuse = FuseDevice::new(OwnedFd::from(fuse)).expect("a FUSE device");
    assert!(negotiate_attachment(&mut stream, "", wishes(&fuse)).expect("agreed").delivers);
    ask(&mut stream, CMD_READ, CMD_FLAG_DELIVER, COOKIE_BIT | 2, 512);
    let reply = SimpleReply::decode(&header(&mut stream)).expect("a reply");
    assert_eq!(reply, SimpleReply { error: 0, cookie: COOKIE_BIT | 2 });
    stream.read_exact(&mut [0; 512]).expect("data");
    // So do errors.
    ask(&mut stream, CMD_READ, CMD_FLAG_DELIVER, COOKIE_BIT | 4, 0);
    let reply = SimpleReply::decode(&header(&mut stream)).expect("a reply");
    assert_eq!((reply.error, reply.cookie), (Errno::Inval.code(), COOKIE_BIT | 4));
}

#[test]
fn notices_come_with_a_reply_or_together_or_late() {
    let Some(fuse) = fuse() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
    let options = std::ffi::CString::new(options).expect("no zero");
    if let Err(error) = mount("test", folder.path(), "fuse", MountFlags::empty(), Some(options.as_c_str())) {
        return eprintln!("skipped: cannot mount a FUSE file system: {error}");
    }
    let served = Served::start();
    let mut stream = served.connect();
    // Nobody waits for answers: they count as given.
    let fuse = FuseDevice::new(OwnedFd::from(fuse)).expect("a FUSE device");
    let agreed = negotiate_attachment(&mut stream, "", wishes(&fuse));
    unmount(folder.path(), UnmountFlags::DETACH).expect("unmounted");
    assert!(agreed.expect("agreed").delivers);
    let notices = |stream: &mut UnixStream, count: usize| {
        (0..count).map(|_| Delivered::decode(&header(stream)).expect("a notice").cookie).collect::<Vec<_>>()
    };
    // More than are kept back.
    let cookies: Vec<_> = (1..=100).map(|number| COOKIE_BIT | (2 * number)).collect();
    for cookie in &cookies {
        ask(&mut stream, CMD_READ, CMD_FLAG_DELIVER, *cookie, 512);
    }
    ask(&mut stream, CMD_FLUSH, 0, 7, 0);
    let mut told = Vec::new();
    let mut flushed = false;
    while told.len() < cookies.len() || !flushed {
        let header = header(&mut stream);
        match Delivered::decode(&header) {
            Some(Delivered { cookie }) => told.push(cookie),
            None => {
                let reply = SimpleReply::decode(&header).expect("a reply");
                flushed = reply == SimpleReply { error: 0, cookie: 7 };
                assert!(flushed, "{reply:?}");
            }
        }
    }
    told.sort_unstable();
    assert_eq!(told, cookies);
    // One alone waits for nothing but a while.
    ask(&mut stream, CMD_READ, CMD_FLAG_DELIVER, COOKIE_BIT | 2, 512);
    assert_eq!(notices(&mut stream, 1), [COOKIE_BIT | 2]);
    // A read that does not ask for it gets its data.
    ask(&mut stream, CMD_READ, 0, 9, 512);
    assert_eq!(SimpleReply::decode(&header(&mut stream)), Some(SimpleReply { error: 0, cookie: 9 }));
}

#[test]
fn without_a_device_nothing_is_delivered() {
    let served = Served::start();
    let mut stream = served.connect();
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    stream.write_all(&(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes()).expect("sent");
    // With data, which it has none of.
    let option = OptionHeader { option: OPT_DELIVER, length: 1 };
    stream.write_all(&option.encode()).expect("sent");
    stream.write_all(b"x").expect("sent");
    assert_eq!(option_reply(&mut stream), REP_ERR_UNSUP);
    // No descriptor comes.
    stream.write_all(&OptionHeader { length: 0, ..option }.encode()).expect("sent");
    assert_eq!(option_reply(&mut stream), REP_ACK);
    stream.write_all(b"d").expect("sent");
    assert_eq!(option_reply(&mut stream), REP_ERR_INVALID);
    stream.write_all(&ClientOption::ExportName(String::new()).encode()).expect("sent");
    stream.read_exact(&mut [0; 10]).expect("size and flags");
    ask(&mut stream, CMD_READ, CMD_FLAG_DELIVER, COOKIE_BIT | 2, 512);
    let reply = SimpleReply::decode(&header(&mut stream)).expect("a reply");
    assert_eq!(reply.error, Errno::Inval.code());
}
