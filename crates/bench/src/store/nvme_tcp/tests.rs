use std::net::TcpListener;

use super::*;

/// A stand-in for nvme-cli that writes what the kernel would to `sys`. Where it is told to fail there is a
/// file `fail`, or `late` to fail once it is connected; a folder `theirs` is the controller of others that
/// appears then.
const NVME: &str = r#"#!/bin/sh
cd "$(dirname "$0")" && echo "$@" >>log
if [ "$LC_ALL" != C ]; then echo 'Die Operation ist bereits im Gange' >&2; exit 1; fi
for word; do case $word in
    --traddr=*) ip=${word#*=} ;; --trsvcid=*) port=${word#*=} ;; --nqn=*) nqn=${word#*=} ;; --device=*) device=${word#*=} ;;
esac; done
case $1 in
    connect)
        if [ -e theirs ]; then cp -r theirs sys/class/nvme/nvme0; fi
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
        if [ -e hang ]; then exec sleep 60; fi
        if [ -e late ]; then cat late >&2; exit 1; fi
        if [ -e names ]; then echo 'connecting to device: nvme3'; fi ;;
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
        process::tests::script(&fake.path("nvme"), NVME);
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

    fn connections(&self) -> Connections<'static> {
        self.connections_unless(&|_| Ok(()))
    }

    fn connections_unless<'a>(&self, in_use: &'a InUse<'a>) -> Connections<'a> {
        /// The stand-in is done when it has ended.
        const FOLLOWS: Duration = Duration::from_millis(100);
        let (nvme, sys, dev) = (self.path("nvme"), self.path("sys"), self.path("dev"));
        let host = Host { nvme, modprobe: None, sys, dev, follows: FOLLOWS };
        Connections { host: Some(host), made: Vec::new(), claims: Vec::new(), in_use }
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
    fn connected(&self, transport: &str, address: &str) {
        self.connected_in("sys/class/nvme/nvme0", transport, address);
    }

    fn connected_in(&self, folder: &str, transport: &str, address: &str) {
        self.write("namespaces", "[   0]:0x1\n");
        fs::create_dir_all(self.path(folder).join("nvme0n1")).expect("a folder");
        for (file, text) in
            [("transport", transport), ("subsysnqn", "nqn.a"), ("address", address), ("state", "live")]
        {
            self.write(&format!("{folder}/{file}"), &format!("{text}\n"));
        }
        self.write(&format!("{folder}/nvme0n1/nsid"), "1\n");
        self.write("dev/nvme0n1", "");
    }

    /// The address at which it listens, as the kernel writes it.
    fn place(&self) -> String {
        format!("traddr=127.0.0.1,trsvcid={}", self.port)
    }

    fn target(&self, name: &str, nsid: u32) -> Target {
        let text = format!("{name}=nvme-tcp://127.0.0.1:{}/nqn.a?nsid={nsid}", self.port);
        text.parse().expect("a target")
    }

    fn has_disconnected(&self) -> bool {
        self.log().iter().any(|line| line.starts_with("disconnect"))
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
    fake.connected("tcp", &fake.place());
    let mut connections = fake.connections();
    let device = connections.add(&fake.address(None), &Stop::default()).ok().expect("a device");
    assert_eq!(device, fake.path("dev/nvme0n1"));
    drop(connections);
    assert!(!fake.log().iter().any(|line| line.contains("connect")), "{:?}", fake.log());
    // At another address, or by another transport, it is another path to the same data.
    let place = fake.place();
    for (transport, address, shown) in [
        ("tcp", "traddr=10.0.0.1,trsvcid=4420", "by tcp at traddr=10.0.0.1,trsvcid=4420, and"),
        ("rdma", place.as_str(), "by rdma at traddr=127.0.0.1,"),
        ("fc", "traddr=nn-0x1:pn-0x2", "by fc at traddr=nn-0x1:pn-0x2, and"),
        ("loop", "", "by loop, and"),
    ] {
        fake.connected(transport, address);
        let said = fake.failure(None);
        assert!(said.contains(&format!("is connected already as nvme0, {shown}")), "{said}");
        assert!(fake.path("sys/class/nvme/nvme0").exists());
    }
    // Also beside ours.
    fake.connected_in("sys/class/nvme/nvme1", "tcp", &fake.place());
    let said = fake.failure(None);
    assert!(said.contains("is connected already as nvme0, by loop"), "{said}");
    assert!(!fake.log().iter().any(|line| line.contains("connect")), "{:?}", fake.log());
}

#[test]
fn what_others_connect_meanwhile_stays() {
    let fake = Fake::new();
    // A moment before the run does, which then cannot.
    fake.connected_in("theirs", "tcp", &fake.place());
    fake.write("fail", "already connected\n");
    let others = "target t: nvme connect: already connected; others have connected it meanwhile, as nvme0";
    assert_eq!(fake.failure(None), others);
    assert!(fake.path("sys/class/nvme/nvme0").exists() && !fake.has_disconnected(), "{:?}", fake.log());
    // After the run did, which another host name allows.
    let fake = Fake::new();
    let mut connections = fake.connections();
    assert!(connections.add(&fake.address(None), &Stop::default()).is_ok());
    fake.connected("tcp", &fake.place());
    assert_eq!(connections.disconnect(), Vec::<String>::new());
    assert!(fake.path("sys/class/nvme/nvme0").exists() && !fake.path("sys/class/nvme/nvme3").exists());
    // At the same time: nvme-cli may say which one is the run's.
    let fake = Fake::new();
    fake.connected_in("theirs", "tcp", &fake.place());
    fake.write("names", "");
    let mut connections = fake.connections();
    assert!(connections.add(&fake.address(None), &Stop::default()).is_ok());
    assert_eq!(connections.disconnect(), Vec::<String>::new());
    assert!(fake.path("sys/class/nvme/nvme0").exists() && !fake.path("sys/class/nvme/nvme3").exists());
    fs::remove_file(fake.path("names")).expect("removed");
    fs::remove_dir_all(fake.path("sys/class/nvme/nvme0")).expect("removed");
    let mut connections = fake.connections();
    assert!(connections.add(&fake.address(None), &Stop::default()).is_ok());
    let left = connections.disconnect();
    assert!(left.len() == 1 && left[0].contains("may be connected by this run, or by others"), "{left:?}");
    assert!(fake.path("sys/class/nvme/nvme0").exists() && fake.path("sys/class/nvme/nvme3").exists());
}

#[test]
fn what_a_command_has_connected_that_failed_is_disconnected() {
    let fake = Fake::new();
    fake.write("late", "failed to read the answer\n");
    // That it is gone is looked at there.
    assert_eq!(fake.failure(None), "target t: nvme connect: failed to read the answer");
    assert!(fake.has_disconnected(), "{:?}", fake.log());
    // Of two, one is of others: which one is not known.
    fake.connected_in("theirs", "tcp", &fake.place());
    let mut connections = fake.connections();
    assert!(connections.add(&fake.address(None), &Stop::default()).is_err());
    let left = connections.disconnect();
    assert!(left.len() == 1 && left[0].contains("may be connected by this run, or by others"), "{left:?}");
    // The kernel's own words for a second connection.
    let fake = Fake::new();
    fake.connected_in("theirs", "tcp", &fake.place());
    fake.write("fail", "Failed to write to /dev/nvme-fabrics: Operation already in progress\n");
    assert!(fake.failure(None).ends_with("; others have connected it meanwhile, as nvme0"));
    assert!(fake.path("sys/class/nvme/nvme0").exists() && !fake.has_disconnected(), "{:?}", fake.log());
}

#[test]
fn what_others_use_stays_connected() {
    let fake = Fake::new();
    let stop = Stop::default();
    let user = std::cell::Cell::new("nothing");
    let in_use = |device: &Path| match device.ends_with(user.get()) {
        true => Err(format!("{}: in use: mounted at /mnt", device.display()).into()),
        false => Ok(()),
    };
    // The other namespace is mounted during the run.
    fake.write("namespaces", "[   0]:0x1\n[   1]:0x7\n");
    let mut connections = fake.connections_unless(&in_use);
    assert!(connections.add(&fake.address(Some(1)), &stop).is_ok());
    user.set("nvme3n2");
    let shown = fake.path("dev/nvme3n2").display().to_string();
    let left = format!(
        "127.0.0.1:{} stays connected: {shown}: in use: mounted at /mnt; then nvme disconnect --device=nvme3",
        fake.port
    );
    assert_eq!(connections.disconnect(), [left]);
    assert!(!fake.has_disconnected() && fake.path("sys/class/nvme/nvme3").exists());
    fs::remove_dir_all(fake.path("sys/class/nvme/nvme3")).expect("removed");
    // The one to measure is taken as soon as it appears.
    user.set("nvme3n1");
    let mut targets = [fake.target("a", 1)];
    let error = fake.connections_unless(&in_use).with(&mut targets, &stop).err().expect("in use").to_string();
    assert!(
        error.starts_with("target a: ") && error.contains("nvme3n1: in use: mounted at /mnt; "),
        "{error}"
    );
    assert!(error.ends_with("; then nvme disconnect --device=nvme3"), "{error}");
    assert!(!fake.has_disconnected());
}

#[test]
fn what_stays_is_told_with_the_error_of_another_target() {
    let fake = Fake::new();
    fake.write("namespaces", "[   0]:0x1\n[   1]:0x7\n");
    fake.write("stay", "");
    let mut targets = [fake.target("a", 1), fake.target("b", 2)];
    let error = fake.connections().with(&mut targets, &Stop::default()).err().expect("no namespace 2");
    let expected = format!(
        "target b: the subsystem has no namespace 2: it has 1, 7; 127.0.0.1:{} is still connected: nvme disconnect \
         --device=nvme3",
        fake.port
    );
    assert_eq!(error.to_string(), expected);
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
    assert_eq!(fake.failure(None), "target t: this kernel has no module nvme-tcp: modprobe is not installed");
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
            let since = Instant::now();
            while !controller.exists() && since.elapsed() < COMMAND {
                sleep(POLL);
            }
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
    let left = format!("127.0.0.1:{} is still connected: nvme disconnect --device=nvme3", fake.port);
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
    assert_eq!(connected("device: nvme12\n").as_deref(), Some("nvme12"));
    assert_eq!(connected("connecting to device: nvme0\n").as_deref(), Some("nvme0"));
    assert!(
        ["", "already connected\n", "device: nvme\n", "device: x1"].iter().all(|it| connected(it).is_none())
    );
    assert_eq!(listed("[   0]:0x1\n[   1]:0x1f\n"), [1, 31]);
    assert_eq!(listed("NVMe status: 2\n"), Vec::<u32>::new());
}
