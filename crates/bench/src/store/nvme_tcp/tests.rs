use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A stand-in for nvme-cli that writes what the kernel would to `sys`. Where it is told to fail there is a file `fail`.
const NVME: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && echo "$@" >>log
for word; do case $word in
    --traddr=*) ip=${word#*=} ;; --trsvcid=*) port=${word#*=} ;; --nqn=*) nqn=${word#*=} ;; --device=*) device=${word#*=} ;;
esac; done
case $1 in
    connect)
        if [ -e hang ]; then touch begun; fi
        if [ -e fail ]; then echo warning >&2; cat fail >&2; exit 1; fi
        for at in sys/class/nvme/nvme3 sys/class/nvme-subsystem/nvme-subsys3/nvme3n1 sys/class/nvme/nvme3/nvme3c3n1; do
            mkdir -p $at
            echo 1 >$at/nsid
        done
        mkdir -p sys/class/nvme-subsystem/nvme-subsys3/nvme3 sys/class/nvme-subsystem/nvme-subsys3/nvme3n2
        echo 7 >sys/class/nvme-subsystem/nvme-subsys3/nvme3n2/nsid
        touch dev/nvme3n1 dev/nvme3n2
        echo tcp >sys/class/nvme/nvme3/transport
        echo "$nqn" >sys/class/nvme/nvme3/subsysnqn
        echo "traddr=$ip,trsvcid=$port,src_addr=$ip" >sys/class/nvme/nvme3/address
        echo live >sys/class/nvme/nvme3/state
        if [ -e hang ]; then exec sleep 60; fi ;;
    discover) cat discovered ;;
    list-ns) cat namespaces ;;
    disconnect) [ -e stay ] || rm -r "sys/class/nvme/$device" ;;
esac
"#;

struct Fake {
    folder: tempfile::TempDir,
    _listener: TcpListener,
    port: u16,
}

impl Fake {
    fn new() -> Fake {
        let folder = tempfile::tempdir().expect("a folder");
        for made in ["sys/module/nvme_tcp", "sys/class/nvme", "dev"] {
            fs::create_dir_all(folder.path().join(made)).expect("a folder");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let fake = Fake { folder, _listener: listener, port };
        fake.write("nvme", NVME);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(fake.path("nvme"), mode).expect("made executable");
        fake.write("dev/nvme-fabrics", "");
        fake.write("namespaces", "[   0]:0x1\n");
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    fn connections(&self) -> Connections {
        let (nvme, sys, dev) = (self.path("nvme"), self.path("sys"), self.path("dev"));
        Connections { host: Some(Host { nvme, modprobe: None, sys, dev }), made: Vec::new() }
    }

    fn address(&self, nsid: Option<u32>) -> NvmeTcpAddress {
        NvmeTcpAddress { host: "127.0.0.1".to_string(), port: self.port, nqn: "nqn.a".to_string(), nsid }
    }

    /// Connects and returns why that fails. Nothing stays connected.
    fn failure(&self, nsid: Option<u32>) -> String {
        let mut connections = self.connections();
        let problem = connections.add(&self.address(nsid), &Stop::default()).expect_err("a failure");
        drop(connections);
        assert!(!self.path("sys/class/nvme/nvme3").exists());
        let said = problem.named(|problem| BenchError::target("t", problem)).to_string();
        assert!(!said.contains('\n'), "{said}");
        said
    }

    /// A controller that others have connected.
    fn connected(&self, address: &str) {
        self.write("namespaces", "[   0]:0x1\n");
        for (file, text) in
            [("transport", "tcp"), ("subsysnqn", "nqn.a"), ("address", address), ("state", "live")]
        {
            fs::create_dir_all(self.path("sys/class/nvme/nvme0/nvme0n1")).expect("a folder");
            self.write(&format!("sys/class/nvme/nvme0/{file}"), &format!("{text}\n"));
        }
        self.write("sys/class/nvme/nvme0/nvme0n1/nsid", "1\n");
        self.write("dev/nvme0n1", "");
    }
}

#[test]
fn what_a_run_connects_it_disconnects() {
    let fake = Fake::new();
    fake.write("namespaces", "[   0]:0x1\n[   1]:0x7\n");
    let mut connections = fake.connections();
    let stop = Stop::default();
    let mut device = |nsid| connections.add(&fake.address(Some(nsid)), &stop).ok().expect("a device");
    assert_eq!(device(1), fake.path("dev/nvme3n1"));
    // By what was connected for the first.
    assert_eq!(device(7), fake.path("dev/nvme3n2"));
    assert_eq!(connections.disconnect(), Vec::<String>::new());
    let port = fake.port;
    assert_eq!(
        fake.log(),
        [
            &format!(
                "connect --transport=tcp --traddr=127.0.0.1 --trsvcid={port} --nqn=nqn.a --ctrl-loss-tmo=30"
            ),
            &format!("list-ns {}", fake.path("dev/nvme3").display()),
            &format!("list-ns {}", fake.path("dev/nvme3").display()),
            "disconnect --device=nvme3",
        ]
    );
}

#[test]
fn what_others_have_connected_stays() {
    let fake = Fake::new();
    fake.connected(&format!("traddr=127.0.0.1,trsvcid={}", fake.port));
    let mut connections = fake.connections();
    let device = connections.add(&fake.address(None), &Stop::default()).ok().expect("a device");
    assert_eq!(device, fake.path("dev/nvme0n1"));
    drop(connections);
    assert!(!fake.log().iter().any(|line| line.contains("connect")), "{:?}", fake.log());
    // At another address it is another path to the same data.
    fake.connected("traddr=10.0.0.1,trsvcid=4420,src_addr=10.0.0.2");
    let said = fake.failure(None);
    assert!(said.contains("is connected already as nvme0, at traddr=10.0.0.1"), "{said}");
    assert!(fake.path("sys/class/nvme/nvme0").exists());
}

#[test]
fn failures_are_told_in_a_line() {
    let fake = Fake::new();
    fake.write("namespaces", "");
    assert_eq!(fake.failure(None), "target t: the subsystem has no namespace");
    fake.write("namespaces", "[   0]:0x1\n[   1]:0xa\n");
    let several = "target t: the subsystem has the namespaces 1, 10: choose one with ?nsid=N";
    assert_eq!(fake.failure(None), several);
    assert_eq!(fake.failure(Some(2)), "target t: the subsystem has no namespace 2: it has 1, 10");

    fake.write("fail", "failed to write to nvme-fabrics device\n");
    fake.write("discovered", &format!("subnqn:  {DISCOVERY_NQN}\nsubnqn:  nqn.b\n"));
    let absent =
        format!("target t: 127.0.0.1:{} has no subsystem nqn.a for this host; it shows nqn.b", fake.port);
    assert_eq!(fake.failure(None), absent);
    fake.write("discovered", "subnqn:  nqn.a\n");
    assert_eq!(fake.failure(None), "target t: nvme connect: failed to write to nvme-fabrics device");

    fs::remove_dir(fake.path("sys/module/nvme_tcp")).expect("removed");
    // The wait for the module is shorter with a modprobe that fails.
    let stop = Stop::default();
    let mut connections = fake.connections();
    connections.host.as_mut().expect("a host").modprobe = process::find("false");
    let problem = connections.add(&fake.address(None), &stop).expect_err("no module");
    let said = problem.named(|problem| BenchError::target("t", problem)).to_string();
    assert!(said.starts_with("target t: this kernel has no module nvme-tcp: exit status"), "{said}");
}

#[test]
fn addresses_that_nothing_listens_at() {
    let mut fake = Fake::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    fake.port = listener.local_addr().expect("its address").port();
    drop(listener);
    assert_eq!(fake.failure(None), format!("target t: 127.0.0.1:{} refuses connections", fake.port));
    assert_eq!(fake.log(), Vec::<String>::new());
}

#[test]
fn a_connection_that_was_interrupted_is_taken_away() {
    let fake = Fake::new();
    fake.write("hang", "");
    let stop = Stop::default();
    let mut connections = fake.connections();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let controller = fake.path("sys/class/nvme/nvme3/state");
            assert!(
                within(&Stop::default(), || controller.exists().then_some(())).is_ok_and(|it| it.is_some())
            );
            stop.set();
        });
        let problem = connections.add(&fake.address(None), &stop).expect_err("interrupted");
        assert!(problem.named(|problem| BenchError::target("t", problem)).is_interrupted());
    });
    assert!(fake.path("sys/class/nvme/nvme3").exists());
    assert_eq!(connections.disconnect(), Vec::<String>::new());
    assert!(!fake.path("sys/class/nvme/nvme3").exists());
}

#[test]
fn what_cannot_be_disconnected_is_named() {
    let fake = Fake::new();
    fake.write("stay", "");
    let mut connections = fake.connections();
    assert!(connections.add(&fake.address(None), &Stop::default()).is_ok());
    let left = format!("127.0.0.1:{} is still connected: nvme disconnect --nqn=nqn.a", fake.port);
    assert_eq!(connections.disconnect(), [left]);
}

#[test]
fn names_of_devices() {
    for (name, expected) in [
        ("nvme0n1", true),
        ("nvme12n345", true),
        ("nvme0c1n1", false),
        ("nvme0", false),
        ("nvme0n1p1", false),
    ] {
        assert_eq!(is_namespace(name), expected, "{name}");
    }
    assert_eq!(listed("[   0]:0x1\n[   1]:0x1f\n"), [1, 31]);
    assert_eq!(listed("NVMe status: 2\n"), Vec::<u32>::new());
}
