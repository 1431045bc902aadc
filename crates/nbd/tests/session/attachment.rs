//! A drive that is attached, and other clients of it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::DeviceError;
use nbd::client::{Agreed, Replies, Wishes, negotiate, negotiate_attachment};
use nbd::protocol::*;
use nbd::reply::SimpleReply;
use nbd::request::RequestHeader;
use nbd::testing::MemoryDevice;
use nbd::{Access, Export, Exports, Listener, Server, ServerConfig, Sharing};
use tempfile::TempDir;

use crate::client::device;

/// Longer than a server takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Id of the opening of the device.
const OPENING: &str = "an opening";
const WISHES: Wishes<'_> =
    Wishes { brings: None, opening: "", returns: false, for_kernel: false, uncached: false };

struct Served {
    server: Option<Server>,
    folder: TempDir,
    device: Arc<MemoryDevice>,
    is_marked: Arc<AtomicBool>,
}

impl Served {
    fn start(shared_writes: bool) -> Served {
        Served::of(device(), shared_writes)
    }

    fn of(device: MemoryDevice, shared_writes: bool) -> Served {
        let (folder, is_marked) = (tempfile::tempdir().expect("a folder"), Arc::new(AtomicBool::new(false)));
        let listener = Listener::unix(&folder.path().join("s")).expect("listens");
        let mark = is_marked.clone();
        let sharing = Sharing {
            opening: OPENING.to_owned(),
            shared_writes,
            mark: Some(Arc::new(move || mark.load(Ordering::Relaxed))),
        };
        let (name, description, device) = ("drive".to_string(), String::new(), Arc::new(device));
        let of_export = Arc::clone(&device);
        let export = Export { name, description, device: of_export, access: Access::Everyone, sharing };
        let exports: Arc<Exports<MemoryDevice>> =
            Exports::new(vec![export], ServerConfig::default()).expect("a valid configuration");
        Served {
            server: Some(Server::start(&exports, vec![listener], 2).expect("starts")),
            folder,
            device,
            is_marked,
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("s")).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream
    }

    fn attach(&self, returns: bool) -> io::Result<UnixStream> {
        self.attach_opening("", returns)
    }

    fn attach_opening(&self, opening: &str, returns: bool) -> io::Result<UnixStream> {
        self.attach_as(Wishes { opening, returns, ..WISHES })
    }

    fn attach_as(&self, wishes: Wishes<'_>) -> io::Result<UnixStream> {
        let mut stream = self.connect();
        let agreed = negotiate_attachment(&mut stream, "", wishes)?;
        assert_eq!(agreed, Agreed { attaches: true });
        Ok(stream)
    }

    fn other(&self) -> UnixStream {
        let mut stream = self.connect();
        negotiate(&mut stream, "", Replies::Simple).expect("negotiated");
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.take().into_iter().for_each(Server::shutdown);
    }
}

fn send(stream: &mut UnixStream, command: u16, cookie: u64, data: &[u8]) {
    let header = RequestHeader { flags: 0, command, cookie, offset: 0, length: data.len() as u32 };
    stream.write_all(&[&header.encode(), data].concat()).expect("sent");
}

fn receive<const N: usize>(stream: &mut UnixStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).expect("received");
    bytes
}

fn error(stream: &mut UnixStream) -> u32 {
    SimpleReply::decode(&receive(stream)).expect("a reply").error
}

fn write(stream: &mut UnixStream) -> u32 {
    send(stream, CMD_WRITE, 1, &[1; 512]);
    error(stream)
}

/// Writes in a connection that ends when it is attached elsewhere, until it may write.
fn write_anew(served: &Served) -> u32 {
    let mut stream = served.other();
    write(&mut stream)
}

#[test]
fn others_may_only_read_what_is_attached() {
    let served = Served::start(false);
    assert_eq!(write_anew(&served), 0);
    let mut bridge = served.attach(false).expect("attached");
    let mut second = served.attach(false).expect("it has several connections");
    let mut other = served.other();
    assert_eq!(write(&mut other), Errno::Perm.code());
    send(&mut other, CMD_FLUSH, 2, &[]);
    assert_eq!(error(&mut other), 0, "it goes on");
    assert_eq!((write(&mut bridge), write(&mut second)), (0, 0));
    drop(bridge);
    assert_eq!(write_anew(&served), Errno::Perm.code(), "the other connection is there");
    send(&mut second, CMD_DISC, 0, &[]);
    assert_eq!(second.read(&mut [0]).expect("the end"), 0);
    assert_eq!(write_anew(&served), 0);
    assert_eq!(write(&mut other), Errno::Perm.code(), "as it was told");
}

#[test]
fn a_name_of_another_device_is_none_to_a_bridge() {
    let served = Served::start(false);
    for returns in [false, true] {
        let error = served.attach_opening("another opening", returns).expect_err("refused");
        assert!(error.to_string().contains("no export named"), "{error}");
    }
    assert_eq!(write_anew(&served), 0, "it is not attached");
    let mut bridge = served.attach_opening(OPENING, false).expect("attached");
    assert_eq!(write(&mut bridge), 0);
}

#[test]
fn nor_what_a_bridge_has_attached_that_is_away() {
    let served = Served::start(false);
    served.is_marked.store(true, Ordering::Relaxed);
    assert_eq!(write_anew(&served), Errno::Perm.code());
    let mut bridge = served.attach(true).expect("attached");
    assert_eq!(write(&mut bridge), 0);
}

#[test]
fn what_others_may_write_is_not_attached() {
    let served = Served::start(false);
    let mut other = served.other();
    // The server knows it by then.
    assert_eq!(write(&mut other), 0);
    let refused = served.attach(false).expect_err("refused").to_string();
    let user = format!("(user {})", rustix::process::geteuid().as_raw());
    assert!(refused.contains("other clients have write access") && refused.contains(&user), "{refused}");
    assert_eq!(write(&mut other), 0, "it goes on");
    // A device that is there already does not wait for others.
    let mut bridge = served.attach(true).expect("attached");
    assert_eq!(other.read(&mut [0]).expect("the end"), 0, "it was disconnected");
    assert_eq!(write(&mut bridge), 0);
}

#[test]
fn a_server_that_closes_leaves_what_it_has_not_done_to_the_next_one() {
    let device = device();
    let mut served = Served::of(device, true);
    let device = served.device.clone();
    let kernel = Wishes { for_kernel: true, ..WISHES };
    let (mut bridge, mut left) = (served.attach_as(kernel).expect("attached"), served.other());
    assert_eq!(write(&mut bridge), 0);
    device.fail_with(Some(DeviceError::Shutdown));
    for stream in [&mut bridge, &mut left] {
        send(stream, CMD_WRITE, 1, &[1; 512]);
    }
    assert_eq!(error(&mut left), Errno::Shutdown.code(), "for which others have a code");
    assert_eq!(bridge.read(&mut [0]).expect("the end"), 0, "without a reply");
    device.fail_with(None);
    let mut bridge = served.attach_as(kernel).expect("attached");
    // In flight when the server ends.
    device.hold(true);
    send(&mut bridge, CMD_WRITE, 1, &[1; 512]);
    while device.delayed() == 0 {
        std::thread::yield_now();
    }
    let server = served.server.take().expect("running");
    let closing = std::thread::spawn(move || server.shutdown());
    device.release();
    assert_eq!(error(&mut bridge), 0);
    assert_eq!(bridge.read(&mut [0]).expect("the end"), 0, "nothing else was sent");
    closing.join().expect("closed");
}

#[test]
fn changes_are_durable_where_no_flush_follows() {
    let served = Served::start(true);
    let device = served.device.clone();
    for (uncached, durable) in [(false, 0), (true, 1)] {
        let mut kernel = served.attach_as(Wishes { for_kernel: true, uncached, ..WISHES }).expect("attached");
        assert_eq!(write(&mut kernel), 0);
        assert_eq!(device.durable_writes(), durable);
    }
    assert_eq!(write(&mut served.other()), 0);
    assert_eq!(device.durable_writes(), 1, "others flush");
}

#[test]
fn what_bridges_of_version_0_3_tell_is_ignored_and_has_no_reply() {
    for device in [device(), device().read_only()] {
        let served = Served::of(device, true);
        let mut bridge = served.attach_opening(OPENING, true).expect("attached");
        for command in [CMD_READY, CMD_HEARD] {
            send(&mut bridge, command, 7, &[]);
        }
        send(&mut bridge, CMD_FLUSH, 2, &[]);
        let reply = SimpleReply::decode(&receive(&mut bridge)).expect("a reply");
        assert_eq!(reply, SimpleReply { error: 0, cookie: 2 }, "nothing came before it");
    }
}

#[test]
fn commands_of_bridges_are_unknown_to_others() {
    let served = Served::start(true);
    let mut other = served.other();
    for command in [CMD_READY, CMD_HEARD] {
        send(&mut other, command, 1, &[]);
        assert_eq!(error(&mut other), Errno::Inval.code());
    }
    let mut stream = served.connect();
    receive::<18>(&mut stream);
    stream.write_all(&(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes()).expect("sent");
    for data in [&[][..], &[8], &[0, 0xff], &[0; 66]] {
        let option = nbd::option::OptionHeader { option: OPT_ATTACH, length: data.len() as u32 };
        stream.write_all(&[&option.encode()[..], data].concat()).expect("sent");
        let reply = nbd::option_reply::OptionReplyHeader::decode(&receive(&mut stream)).expect("a reply");
        assert_eq!(reply.reply_type, REP_ERR_UNSUP);
        stream.read_exact(&mut vec![0; reply.length as usize]).expect("its data");
    }
}
