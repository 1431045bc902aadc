//! Addresses, sockets, and the server with its own threads.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use nbd::{Accepted, Address, Inherited, InheritedError, ListenError, Listener, Server, ServerConfig};

use crate::client::{device, shared_of};

#[test]
fn addresses_are_parsed_and_shown() {
    for text in ["unix:/run/p.sock", "unix:relative", "tcp:localhost:10809", "tcp:127.0.0.1:0", "tcp:[::1]:1"]
    {
        assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
    }
    for text in
        ["", "unix:", "tcp:", "tcp:host", "tcp::1", "tcp:::1:1", "tcp:[::1]", "tcp:h:70000", "tcp:h:+1", "/x"]
    {
        assert!(text.parse::<Address>().is_err(), "{text}");
    }
}

#[test]
fn addresses_have_uris() {
    let unix = Address::Unix("/tmp/a b?.sock".into());
    assert_eq!(unix.uri(""), "nbd+unix:///?socket=/tmp/a%20b%3F.sock");
    assert_eq!(Address::Tcp("::1".into(), 5).uri("disk 1"), "nbd://[::1]:5/disk%201");
}

#[test]
fn a_unix_socket_is_private_and_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let listener = Listener::unix(&path).expect("listens");
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_socket_bound_by_others_is_used_and_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let bound = Inherited::new(UnixListener::bind(&path).expect("bound").into()).expect("it listens");
    assert_eq!(*bound.address(), Address::Unix(path.clone()));
    let config = ServerConfig::default();
    for mode in [0o600, 0o666] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("set");
        let listener = bound.listener(&config).expect("one after the other");
        assert_eq!(listener.is_open(&config), mode == 0o666);
        let exports = shared_of(&Arc::new(device()), config.clone());
        let server = Server::start(&exports, vec![listener], 1).expect("starts");
        let mut greeting = [0; 8];
        UnixStream::connect(&path).expect("connected").read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting, b"NBDMAGIC");
        server.shutdown();
        assert!(path.exists());
    }
    let tcp = Inherited::new(TcpListener::bind("127.0.0.1:0").expect("bound").into()).expect("it listens");
    assert!(tcp.listener(&config).is_ok());
    let networked =
        Inherited::new(TcpListener::bind("0.0.0.0:0").expect("bound").into()).expect("it listens");
    assert!(matches!(networked.listener(&config), Err(ListenError::Insecure(_))));
}

#[test]
fn what_nobody_can_connect_to_is_refused() {
    use std::os::linux::net::SocketAddrExt;
    let refused = |descriptor: OwnedFd| Inherited::new(descriptor).expect_err("refused");
    let null = std::fs::File::open("/dev/null").expect("a file");
    assert!(matches!(refused(null.into()), InheritedError::NotASocket));
    let (connected, _other) = UnixStream::pair().expect("sockets");
    assert!(matches!(refused(connected.into()), InheritedError::NotListening));
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    assert!(matches!(refused(datagrams.into()), InheritedError::OtherKind));
    let name = format!("pumice-test-{}", std::process::id());
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).expect("a name");
    let nowhere = UnixListener::bind_addr(&name).expect("bound");
    assert!(matches!(refused(nowhere.into()), InheritedError::NoPath));
}

#[test]
fn a_dead_socket_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).expect("bound"));
    assert!(path.exists());
    let first = Listener::unix(&path).expect("replaces the dead");
    assert!(matches!(Listener::unix(&path), Err(ListenError::Socket(_, socket_file::Error::InUse))));
    drop(first);
}

#[test]
fn a_socket_that_is_bound_and_not_listened_at_yet_is_not_dead() {
    use rustix::fs::{FlockOperation, flock};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    // Simulates another server between bind and listen.
    let guard = std::fs::File::open(folder.path()).expect("opened");
    flock(&guard, FlockOperation::LockExclusive).expect("free");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
    let second = std::thread::spawn({
        let path = path.clone();
        move || Listener::unix(&path)
    });
    // Gives the second server time to do the wrong thing.
    std::thread::sleep(std::time::Duration::from_millis(200));
    rustix::net::listen(&socket, 1).expect("listens");
    drop(guard);
    assert!(matches!(
        second.join().expect("no panic"),
        Err(ListenError::Socket(_, socket_file::Error::InUse))
    ));
    assert!(path.exists());
}

#[test]
fn the_socket_of_a_successor_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let first = Listener::unix(&path).expect("listens");
    std::fs::rename(&path, folder.path().join("old")).expect("moved");
    let second = Listener::unix(&path).expect("listens");
    drop(first);
    assert!(path.exists());
    drop(second);
}

#[test]
fn other_files_are_never_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    std::fs::write(&path, "precious").expect("written");
    assert!(matches!(Listener::unix(&path), Err(ListenError::Socket(_, socket_file::Error::NotASocket))));
    assert!(path.exists());
}

#[test]
fn tcp_is_for_this_machine_unless_told_otherwise() {
    let mut config = ServerConfig::default();
    assert!(matches!(Listener::tcp("0.0.0.0", 0, &config), Err(ListenError::Insecure(_))));
    assert!(matches!(Listener::tcp("::ffff:0.0.0.0", 0, &config), Err(ListenError::Insecure(_))));
    let listener = Listener::tcp("127.0.0.1", 0, &config).expect("loopback is fine");
    assert!(matches!(listener.address(), Address::Tcp(host, port) if host == "127.0.0.1" && *port > 0));
    config.insecure = true;
    assert!(Listener::tcp("0.0.0.0", 0, &config).is_ok());
}

#[tokio::test]
async fn tcp_clients_that_vanish_are_noticed() {
    use rustix::net::sockopt;
    let listener = Listener::tcp("127.0.0.1", 0, &ServerConfig::default()).expect("listens");
    let Address::Tcp(_, port) = *listener.address() else { panic!("not TCP") };
    let acceptor = listener.register().expect("registered");
    let _client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let Accepted::Tcp(stream) = acceptor.accept().await.expect("accepted") else { panic!("not TCP") };
    assert!(sockopt::socket_keepalive(&stream).expect("asked"));
    let idle = sockopt::tcp_keepidle(&stream).expect("asked");
    let interval = sockopt::tcp_keepintvl(&stream).expect("asked");
    let silent = idle + interval * sockopt::tcp_keepcnt(&stream).expect("asked");
    assert_eq!(silent.as_secs(), 120);
    // `TCP_USER_TIMEOUT` would end clients that are alive and take nothing for a while.
    assert_eq!(sockopt::tcp_user_timeout(&stream).expect("asked"), 0);
}

fn greeting(mut stream: impl Read + Write) -> bool {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).is_ok() && greeting.starts_with(b"NBDMAGIC")
}

#[test]
fn a_server_serves_all_listeners_until_shutdown() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    let device = Arc::new(device());
    let config = ServerConfig::default();
    let tcp = Listener::tcp("127.0.0.1", 0, &config).expect("listens");
    let Address::Tcp(_, port) = *tcp.address() else { panic!("not TCP") };
    let unix = Listener::unix(&path).expect("listens");
    let exports = shared_of(&device, config);
    let server = Server::start(&exports, vec![unix, tcp], 2).expect("starts");
    for _ in 0..4 {
        assert!(greeting(UnixStream::connect(&path).expect("connected")));
        assert!(greeting(std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected")));
    }
    let mut left = UnixStream::connect(&path).expect("connected");
    assert!(left.read_exact(&mut [0; 18]).is_ok());
    server.shutdown();
    assert_eq!(left.read(&mut [0]).expect("closed"), 0);
    assert!(!path.exists());
    assert!(UnixStream::connect(&path).is_err());
    assert_eq!(exports.connections(), 0);
}
