//! The device is one end of a pair of sockets, the test the kernel at the other end. An answer that is larger
//! than the socket's buffer cannot be written.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use fuse::Area;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::*;
use crate::connection::entry::Begun;
use crate::connection::front_end::FrontEnd;
use crate::exports::export::{Chosen, Export};
use crate::exports::sessions::Client;
use crate::fence::BridgeArrival;
use crate::fence::areas::{AreaId, Areas, Claimed};
use crate::fence::attachment::Sharing;
use crate::limits::config::ServerConfig;
use crate::peers::peer::Peer;
use crate::peers::writer::Writer;
use crate::shutdown::ShutdownTrigger;
use crate::testing::MemoryDevice;
use crate::trust::access::{Access, Right};
use crate::wire::operation::Session;
use crate::wire::protocol::OPT_GO;

/// Longer than a server takes.
const LIMIT: Duration = Duration::from_secs(60);
/// Time in which what must not happen would happen.
const WHILE: Duration = Duration::from_millis(400);
const READ_BYTES: usize = 64 << 10;
/// Less than an answer with that.
const SMALL_BUFFER_BYTES: usize = 8 << 10;
const LARGE_BUFFER_BYTES: usize = 160 << 10;

/// A FUSE file without a kernel.
struct Served {
    kernel: OwnedFd,
    /// The server's end.
    device: OwnedFd,
    area: OwnedFd,
    drive: Arc<MemoryDevice>,
    areas: Arc<Areas>,
    trigger: ShutdownTrigger,
    connection: JoinHandle<Result<(), ConnectionError>>,
}

impl Served {
    /// Serves requests that wait already. Returns the keeper's end, too.
    fn start(requests: &[Vec<u8>]) -> (Served, UnixStream) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (kernel, device) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
        let (drive, trigger) = (Arc::new(MemoryDevice::new(1 << 20, 512)), ShutdownTrigger::new());
        let name = "drive".to_owned();
        let (access, sharing) = (Access::Everyone, Sharing::default());
        let export = Export { name, description: String::new(), device: drive.clone(), access, sharing };
        let exports = Exports::new(vec![export], ServerConfig::default()).expect("a valid configuration");
        let offered = exports.find("drive").expect("it is offered");
        let areas = offered.fence().areas().clone();
        let area = Area::create().expect("an area");
        let copy = |descriptor: &OwnedFd| descriptor.try_clone().expect("a descriptor");
        let share = Share { device: copy(&device), area: copy(&area) };
        let (keeper, mut stream) = UnixStream::pair().expect("sockets");
        let mut shutdown = trigger.subscribe();
        let connection = tokio::spawn(async move {
            let client = Client { number: 1, peer: Peer::Unknown, identity: None };
            let front_end = FuseFrontEnd { id: AreaId::of(&share.area).expect("a file"), share };
            let fence = offered.fence();
            let attached = fence.attach(BridgeArrival::Returning, &Sharing::default()).expect("alone");
            let Claimed::Claim(claim) = fence.areas().wait_for(front_end.id).claim() else {
                panic!("it is served");
            };
            let writer = Writer { number: 1, peer: Peer::Unknown };
            let joined = fence.ask().join(writer, Some(attached), Some(claim), &Sharing::default());
            let (member, _) = joined.expect("the bridge");
            let entry = Entry {
                export: Chosen::new(offered.clone(), &client, Right::Write).expect("everyone may"),
                session: Session::default(),
                front_end: None,
                bridge: Some(BridgeArrival::Returning),
                option: OPT_GO,
                answer: Vec::new(),
            };
            let presence = |stream: &UnixStream| Presence::of(stream);
            serve_fuse(&mut stream, presence, Some(member), &entry, front_end, &exports, &mut shutdown).await
        });
        let served = Served { kernel, device, area, drive, areas, trigger, connection };
        served.limit(LARGE_BUFFER_BYTES);
        requests.iter().for_each(|request| served.send(request));
        (served, keeper)
    }

    /// Limits what can be answered.
    fn limit(&self, bytes: usize) {
        set_socket_send_buffer_size(&self.device, bytes).expect("a size");
    }

    fn send(&self, request: &[u8]) {
        assert_eq!(rustix::io::write(&self.kernel, request).expect("room"), request.len());
    }

    /// Number and error of the next answer.
    async fn answer(&mut self) -> (u64, i32) {
        let mut answer = vec![0; 2 * READ_BYTES];
        let mut length = 0;
        self.until("an answer", |served| match rustix::io::read(&served.kernel, &mut *answer) {
            Ok(read) => {
                length = read;
                true
            }
            Err(Errno::AGAIN) => false,
            Err(error) => panic!("{error}"),
        })
        .await;
        assert_eq!(answer[..4], (length as u32).to_ne_bytes());
        let errno = i32::from_ne_bytes([4, 5, 6, 7].map(|at| answer[at]));
        (u64::from_ne_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|at| answer[at])), errno)
    }

    async fn until(&mut self, what: &str, mut is_so: impl FnMut(&Served) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            assert!(since.elapsed() < LIMIT, "{what}");
            if self.connection.is_finished() {
                panic!("{what}: {:?}", (&mut self.connection).await);
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn ends(&mut self) -> Result<(), ConnectionError> {
        tokio::time::timeout(LIMIT, &mut self.connection).await.expect("in time").expect("no panic")
    }
}

/// A request of the kernel.
fn request(unique: u64, opcode: u32, offset: u64, length: usize, data: &[u8]) -> Vec<u8> {
    let whole = (80 + data.len()) as u32;
    let mut message = [whole.to_ne_bytes(), opcode.to_ne_bytes()].concat();
    message.extend([unique, 2, 0, 0, 0, offset, length as u64, 0, 0].map(u64::to_ne_bytes).concat());
    message.extend(data);
    message
}

fn read(unique: u64) -> Vec<u8> {
    request(unique, 15, 0, READ_BYTES, &[])
}

fn write(unique: u64) -> Vec<u8> {
    request(unique, 16, 0, 512, &[unique as u8; 512])
}

#[tokio::test]
async fn a_failure_without_a_keeper_passes() {
    let (mut served, keeper) = Served::start(&[write(2)]);
    assert_eq!(served.answer().await, (2, 0));
    drop(keeper);
    served.until("it is left", |served| served.areas.left().is_some_and(|left| left.len() == 1)).await;
    // A change is in flight that has not begun when the answer to a read fails.
    served.drive.wait(true);
    served.send(&write(4));
    served.until("it waits", |served| served.drive.delayed() == 1).await;
    served.limit(SMALL_BUFFER_BYTES);
    served.send(&read(6));
    served.until("both are taken up again", |served| served.drive.delayed() >= 3).await;
    assert_eq!(served.areas.left().map(|left| left.len()), Some(1), "the next keeper can have it");
    served.drive.wait(false);
    served.drive.begin();
    assert_eq!(served.answer().await, (4, 0));
    served.limit(LARGE_BUFFER_BYTES);
    assert_eq!(served.answer().await, (6, 0));
    served.send(&read(8));
    assert_eq!(served.answer().await, (8, 0));
    served.trigger.trigger();
    served.ends().await.expect("it was stopped");
}

#[tokio::test]
async fn an_area_is_not_taken_up_again_before_what_is_in_flight_has_ended() {
    let (mut served, keeper) = Served::start(&[]);
    drop(keeper);
    served.until("it is left", |served| served.areas.left().is_some_and(|left| left.len() == 1)).await;
    served.drive.hold(true);
    served.send(&write(2));
    served.until("it is held", |served| served.drive.delayed() == 1).await;
    served.drive.hold(false);
    served.limit(SMALL_BUFFER_BYTES);
    // Each read is counted.
    served.drive.delay_by(Duration::from_millis(1));
    served.send(&read(4));
    served.until("it is read", |served| served.drive.delayed() == 2).await;
    sleep(WHILE).await;
    assert_eq!(served.drive.delayed(), 2, "the write is still executed");
    served.drive.release();
    assert_eq!(served.answer().await, (2, 0));
    served.until("it is read again", |served| served.drive.delayed() > 2).await;
    served.limit(LARGE_BUFFER_BYTES);
    assert_eq!(served.answer().await, (4, 0));
}

#[tokio::test]
async fn a_keeper_that_is_there_connects_again_after_a_failure() {
    let (mut served, _keeper) = Served::start(&[]);
    served.limit(SMALL_BUFFER_BYTES);
    served.send(&read(2));
    let error = served.ends().await.expect_err("it fails");
    assert!(matches!(&error, ConnectionError::Io(error) if is_too_large(error)), "{error}");
}

fn is_too_large(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MSGSIZE)
}

#[tokio::test]
async fn a_damaged_area_is_given_up() {
    let (mut served, keeper) = Served::start(&[]);
    drop(keeper);
    served.until("it is left", |served| served.areas.left().is_some_and(|left| left.len() == 1)).await;
    served.limit(SMALL_BUFFER_BYTES);
    served.drive.delay_by(Duration::from_millis(1));
    served.send(&read(2));
    served.until("it is read again", |served| served.drive.delayed() > 1).await;
    // State of an entry that nothing uses.
    let area = std::fs::File::from(served.area.as_fd().try_clone_to_owned().expect("a descriptor"));
    area.write_all_at(&[9], 4096 + 100 * 64).expect("written");
    let error = served.ends().await.expect_err("it fails for ever");
    assert!(is_damage(&error), "{error}");
}

/// Whoever brought an area and was killed cannot bring it again, and the server has the last descriptors.
#[tokio::test(start_paused = true)]
async fn an_area_that_was_brought_stays_whatever_becomes_of_its_keeper() {
    let (name, access) = ("drive".to_owned(), Access::Everyone);
    let device = Arc::new(MemoryDevice::new(1 << 20, 512));
    let export = Export { name, description: String::new(), device, access, sharing: Sharing::default() };
    let config = ServerConfig::default();
    let exports = Exports::new(vec![export], config.clone()).expect("a valid configuration");
    let offered = exports.find("drive").expect("it is offered");
    // Its requests do not end.
    let (stuck, _) = offered.fence().ask().join_alone(1);
    let (device, area) = (std::net::UdpSocket::bind("127.0.0.1:0"), Area::create().expect("an area"));
    let id = AreaId::of(&area).expect("a file");
    let share = Share { device: device.expect("a descriptor").into(), area };
    let client = Client { number: 2, peer: Peer::Unknown, identity: None };
    let entry = Entry {
        export: Chosen::new(offered.clone(), &client, Right::Write).expect("everyone may"),
        session: Session::default(),
        front_end: Some(FrontEnd::Fuse(FuseFrontEnd { id, share })),
        bridge: None,
        option: OPT_GO,
        answer: Vec::new(),
    };
    let (mut stream, writer) = (tokio::io::sink(), Writer { number: 2, peer: Peer::Unknown });
    let mut begun = std::pin::pin!(entry.begin(writer, &mut stream, |_| Presence::Left, &config));
    let waits = tokio::time::timeout(config.fence_timeout * 3, &mut begun).await;
    assert!(waits.is_err(), "it has left");
    assert!(offered.fence().areas().left().is_none(), "nobody waits for the area");
    drop(stuck);
    assert!(matches!(begun.await, Ok(Begun::Transmission(Some(_)))));
}
