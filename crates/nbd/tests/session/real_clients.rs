//! Tests with real clients over real sockets. If a client is not installed, its test prints `skipped:` and
//! passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use nbd::testing::MemoryDevice;
use nbd::{Access, Address, Export, Exports, Listener, Server, ServerConfig, TlsConfig, TlsPolicy};

/// A running server and its folder.
struct Fixture {
    folder: tempfile::TempDir,
    uri: String,
    address: Address,
    server: Option<Server>,
}

const CAPACITY_BYTES: u64 = 64 << 20;

impl Fixture {
    fn new(sector_bytes: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = Listener::unix(&folder.path().join("s")).expect("listens");
        Self::with(folder, listener, sector_bytes, ServerConfig::default())
    }

    fn with(folder: tempfile::TempDir, listener: Listener, sector_bytes: u32, config: ServerConfig) -> Self {
        let device = Arc::new(MemoryDevice::new(CAPACITY_BYTES, sector_bytes));
        let export = Export {
            name: "memory".into(),
            description: String::new(),
            device,
            access: Access::Everyone,
            sharing: nbd::Sharing::default(),
        };
        let address = listener.address().clone();
        let exports = Exports::new(vec![export], config).expect("valid");
        let server = Server::start(&exports, vec![listener], 2).expect("starts");
        Self { folder, uri: address.uri(""), address, server: Some(server) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a file of the device's size with random, repeated and zero parts.
    fn image(&self) -> PathBuf {
        let path = self.path("image");
        let mut state = 1u64;
        let mut bytes = vec![0u8; CAPACITY_BYTES as usize];
        for (index, chunk) in bytes.chunks_mut(64 << 10).enumerate() {
            match index % 4 {
                0 => {}
                1 => chunk.fill(index as u8),
                _ => chunk.chunks_mut(8).for_each(|word| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    word.copy_from_slice(&state.to_le_bytes());
                }),
            }
        }
        std::fs::write(&path, bytes).expect("written");
        path
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
        }
    }
}

fn installed(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output().is_ok_and(|run| run.status.success());
    if !found {
        eprintln!("skipped: {program} {} does not work here", arguments.join(" "));
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new("timeout").arg("120").arg(program).args(arguments).output();
    output.expect("coreutils are installed")
}

/// Runs the program, which must succeed, and returns its output.
fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{program} {arguments:?}: {said}{}", text(&output.stderr));
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn nbdinfo_lists_and_maps() {
    if !installed("nbdinfo", &["--version"]) {
        return;
    }
    let fixture = Fixture::new(4096);
    assert_eq!(succeed("nbdinfo", &["--size", &fixture.uri]).trim(), CAPACITY_BYTES.to_string());
    let info = succeed("nbdinfo", &["--list", &fixture.uri]);
    for line in ["export=\"memory\"", "base:allocation", "block_size_minimum: 4096", "can_df: true"] {
        assert!(info.contains(line), "{line} in {info}");
    }
    assert!(succeed("nbdinfo", &["--map", &fixture.uri]).contains("hole,zero"));
}

#[test]
fn nbdcopy_copies_in_and_out() {
    if !installed("nbdcopy", &["--version"]) {
        return;
    }
    for sector_bytes in [512, 4096] {
        let fixture = Fixture::new(sector_bytes);
        let (image, back) = (fixture.image(), fixture.path("back"));
        succeed("nbdcopy", &["--flush", text(&image), &fixture.uri]);
        succeed("nbdcopy", &[&fixture.uri, text(&back)]);
        assert!(std::fs::read(image).expect("there") == std::fs::read(back).expect("there"));
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if !installed("qemu-img", &["--version"]) {
        return;
    }
    let fixture = Fixture::new(4096);
    let image = fixture.image();
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", text(&image), &fixture.uri]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&image), &fixture.uri]);
    let map = succeed("qemu-img", &["map", "-f", "raw", "--output=json", &fixture.uri]);
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"));
}

#[test]
fn qemu_io_writes_discards_and_zeroes() {
    if !installed("qemu-io", &["--version"]) {
        return;
    }
    let fixture = Fixture::new(512);
    let mut arguments = vec!["-f", "raw", "-d", "unmap"];
    for command in [
        "write -P 17 0 1M",
        "write -f -P 18 1M 512",
        "read -P 17 0 1M",
        "read -P 18 1M 512",
        "discard 64k 64k",
        "read -P 0 64k 64k",
        "write -z 256k 4k",
        "write -zu 512k 64k",
        "read -P 0 256k 4k",
        "read -P 0 512k 64k",
        "read -P 17 260k 60k",
        "aio_write -P 19 2M 8M",
        "aio_write -P 20 16M 32M",
        "aio_flush",
        "read -P 19 2M 8M",
        "read -P 20 16M 32M",
        "flush",
    ] {
        arguments.extend(["-c", command]);
    }
    arguments.push(&fixture.uri);
    let said = succeed("qemu-io", &arguments);
    assert!(!said.contains("failed"), "{said}");
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio", &["--enghelp=nbd"]) {
        return;
    }
    let fixture = Fixture::new(4096);
    let uri = format!("--uri={}", fixture.uri);
    for job in [
        ["--rw=randwrite", "--bs=4k", "--iodepth=64"],
        ["--rw=randrw", "--bsrange=4k-256k", "--iodepth=16"],
        ["--rw=write", "--bs=1M", "--iodepth=16"],
    ] {
        let verify = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"];
        let fixed = [&["--name=j", "--ioengine=nbd", &uri, "--size=64M"][..], &verify].concat();
        succeed("fio", &[&fixed[..], &job[..]].concat());
    }
}

#[test]
fn illegal_requests_are_refused() {
    if !installed("/usr/bin/python3", &["-c", "import nbd"]) {
        return;
    }
    let fixture = Fixture::new(4096);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/illegal_requests.py");
    let Address::Unix(path) = &fixture.address else { panic!("a Unix socket") };
    let said = succeed("/usr/bin/python3", &[script, text(path)]);
    assert!(said.starts_with("ok:"), "{said}");
}

#[test]
fn libnbd_speaks_tls() {
    if !installed("nbdinfo", &["--version"]) || !installed("openssl", &["version"]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    let certificates = [
        format!("{new} -keyout ca-key.pem -out ca-cert.pem -subj /CN=ca"),
        format!(
            "{new} -CA ca-cert.pem -CAkey ca-key.pem -keyout key.pem -out cert.pem -subj /CN=localhost \
             -addext basicConstraints=critical,CA:false -addext subjectAltName=DNS:localhost"
        ),
    ];
    for arguments in certificates {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split_whitespace()).current_dir(folder.path());
        assert!(openssl.output().expect("runs").status.success(), "{arguments}");
    }
    let tls = TlsConfig::from_pem_files(&file("cert.pem"), &file("key.pem"), None, None).expect("usable");
    let config = ServerConfig { tls: TlsPolicy::Required(tls), ..ServerConfig::default() };
    let listener = Listener::tcp("localhost", 0, &config).expect("listens");
    let authority = text(folder.path()).to_owned();
    let fixture = Fixture::with(folder, listener, 4096, config);
    let secure = fixture.uri.replace("nbd://", "nbds://");
    let info = succeed("nbdinfo", &[&format!("{secure}?tls-certificates={authority}")]);
    assert!(info.contains("newstyle-fixed with TLS"), "{info}");
    assert!(!run("nbdinfo", &[&fixture.uri]).status.success(), "without TLS");
}
