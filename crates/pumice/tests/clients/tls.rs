//! TLS with client certificates, as libnbd and openssl do it.

use std::process::{Command, Stdio};

use crate::common::server::wait_until;
use crate::common::{Drive, Server, in_time, needs, succeed};

/// Python with libnbd.
const PYTHON: &str = "/usr/bin/python3";

/// A drive and its server at a TCP port of loopback, with an authority and the clients `one` and `two`.
struct House {
    drive: Drive,
    server: Server,
}

/// Makes a certificate in `folder/NAME-cert.pem`, signed by the authority or, without one, by itself.
fn certificate(drive: &Drive, name: &str, more: &[&str]) {
    let (key, cert) = (drive.file(&format!("{name}-key.pem")), drive.file(&format!("{name}-cert.pem")));
    let subject = format!("/CN={name}");
    let request =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let files = ["-keyout", &key, "-out", &cert, "-subj", &subject];
    succeed("openssl", &[&request[..], &files[..], more].concat());
}

impl House {
    /// `None` if a client is not installed.
    fn start(clients: &str) -> Option<House> {
        if !needs(&["openssl", "nbdinfo"]) {
            return None;
        }
        let drive = Drive::create(&["--size", "64M"]);
        certificate(&drive, "ca", &[]);
        let ca = (drive.file("ca-cert.pem"), drive.file("ca-key.pem"));
        let by_ca = ["-CA", &ca.0, "-CAkey", &ca.1, "-addext", "basicConstraints=critical,CA:false"];
        for (name, dns) in [("server", "localhost"), ("one", "one.example.com"), ("two", "two.example.com")] {
            let names = format!("subjectAltName=DNS:{dns}");
            certificate(&drive, name, &[&by_ca[..], &["-addext", &names]].concat());
        }
        for name in ["one", "two"] {
            // libnbd expects these names in a directory.
            let folder = drive.folder().join(name);
            std::fs::create_dir(&folder).expect("a directory");
            std::fs::copy(drive.file("ca-cert.pem"), folder.join("ca-cert.pem")).expect("copied");
            for kind in ["cert", "key"] {
                let from = drive.file(&format!("{name}-{kind}.pem"));
                std::fs::copy(from, folder.join(format!("client-{kind}.pem"))).expect("copied");
            }
        }
        let server = drive.serve_config(&House::config(&drive, clients), 1);
        Some(House { drive, server })
    }

    /// Returns a configuration in which the drive has these lines about its clients.
    fn config(drive: &Drive, clients: &str) -> String {
        let [ca, cert, key] =
            ["ca-cert.pem", "server-cert.pem", "server-key.pem"].map(|name| drive.file(name));
        format!(
            "[server]\nnbd = [\"tcp:localhost:0\"]\n[server.tls]\ncert = \"{cert}\"\nkey = \"{key}\"\nca = \"{ca}\"\n\
             [[drive]]\npath = \"{}\"\n{clients}\n",
            drive.path().display()
        )
    }

    fn reload(&self, clients: &str) {
        let reloads = || self.drive.log().matches("file=").count();
        let before = reloads();
        self.drive.write_config(&House::config(&self.drive, clients));
        self.server.ask_to_reload();
        wait_until("the reload", || reloads() > before);
    }

    /// Returns the URI with the certificate of a client.
    fn uri(&self, name: &str) -> String {
        format!("{}?tls-certificates={}", self.server.uri(), self.drive.file(name))
    }

    fn is_let_in(&self, name: &str) -> bool {
        in_time("nbdinfo", &[&self.uri(name)]).code == Some(0)
    }
}

#[test]
fn clients_use_what_they_are_listed_for() {
    let Some(house) = House::start("clients = [\"one.example.com\"]") else { return };
    assert!(house.server.uri().starts_with("nbds://"), "{}", house.server.uri());
    let info = succeed("nbdinfo", &[house.uri("one")]);
    assert!(info.contains("with TLS") && info.contains("is_read_only: false"), "{info}");
    assert!(!house.is_let_in("two"));
    assert!(!in_time("nbdinfo", &[house.server.uri()]).stderr.is_empty(), "without a certificate");
    let list = succeed("nbdinfo", &["--list", &house.uri("two")]);
    assert!(!list.contains("export=\"drive\""), "{list}");
    house.reload("clients = [\"one.example.com\"]\nclients-read-only = [\"two.example.com\"]");
    let info = succeed("nbdinfo", &[house.uri("two")]);
    assert!(info.contains("is_read_only: true"), "{info}");
    house.reload("clients = []");
    assert!(!house.is_let_in("one") && !house.is_let_in("two"));
    house.reload("");
    assert!(house.is_let_in("one") && house.is_let_in("two"));
    let log = house.drive.log();
    for line in ["identity=one.example.com", "two.example.com may not use \"drive\"", "reason=\"not-listed\""]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(house.server.stop().success());
}

#[test]
fn a_reload_disconnects_who_is_not_listed_any_more() {
    let Some(house) = House::start("clients = [\"one.example.com\", \"two.example.com\"]") else { return };
    if in_time(PYTHON, &["-c", "import nbd"]).code != Some(0) {
        return;
    }
    // Reads again and again until it is disconnected.
    let script = "import nbd, sys, time\nh = nbd.NBD()\nh.set_uri_allow_local_file(True)\nh.connect_uri(sys.argv[1])\n\
                  while True:\n    h.pread(4096, 0)\n    time.sleep(0.05)";
    let reader = |name: &str| {
        let mut command = Command::new(PYTHON);
        command.args(["-c", script, &house.uri(name)]).stderr(Stdio::null()).spawn().expect("started")
    };
    let (mut one, mut two) = (reader("one"), reader("two"));
    let connected = |name: &str| {
        let line = format!("identity={name}.example.com");
        let log = house.drive.log();
        log.lines().any(|found| found.contains("client connected") && found.contains(&line))
    };
    wait_until("both clients", || connected("one") && connected("two"));
    house.reload("clients = [\"two.example.com\"]");
    wait_until("the end of the first", || one.try_wait().expect("a child").is_some());
    assert!(two.try_wait().expect("a child").is_none(), "the second goes on");
    let log = house.drive.log();
    assert!(log.contains("the client is disconnected: its access was revoked"), "{log}");
    two.kill().expect("killed");
    two.wait().expect("ended");
    assert!(house.server.stop().success());
}

/// `pumice scan` is a client too.
#[test]
fn a_drive_is_scanned_over_tls() {
    let Some(house) = House::start("clients-read-only = [\"one.example.com\"]") else { return };
    let (uri, ca) = (house.server.uri(), house.drive.file("ca-cert.pem"));
    let scan = |name: &str| {
        let [cert, key] = ["cert", "key"].map(|kind| house.drive.file(&format!("{name}-{kind}.pem")));
        let files = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        crate::common::pumice(&[&["scan", uri, "--json"][..], &files].concat())
    };
    let one = scan("one");
    assert!(one.code == Some(0) && one.stdout.contains("\"predicted_drive\""), "{one:?}");
    let two = scan("two");
    assert!(two.code == Some(1) && two.stderr.contains("no export named"), "{two:?}");
    let without = crate::common::pumice(&["scan", uri, "--tls-ca", &ca]);
    assert!(without.code == Some(1) && without.stderr.contains("requires a certificate"), "{without:?}");
    let untrusted = crate::common::pumice(&["scan", uri]);
    assert!(
        untrusted.code == Some(1) && untrusted.stderr.contains("invalid peer certificate"),
        "{untrusted:?}"
    );
    assert!(house.server.stop().success());
}

/// Returns the commands of a page: its blocks for the shell, in order.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a block").to_string()).collect()
}

#[test]
fn the_page_for_operators_is_true() {
    if !needs(&["openssl", "nbdinfo"]) {
        return;
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/access.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let drive = Drive::create(&["--size", "64M"]);
    let here = page
        .replace("/root/pumice-ca", &drive.file("ca"))
        .replace("/etc/pumice", &drive.file("etc"))
        .replace("/var/lib/pumice/drive", &drive.file("drive"))
        .replace("tcp:storage1.example.com:10809", "tcp:localhost:0")
        .replace("storage1.example.com", "localhost");
    let shell = |commands: &str| succeed("sh", &["-e", "-c", commands]);
    let commands = commands(&here);
    let [authority, server, clients, configuration, usage, revocation] = &commands[..] else {
        panic!("six blocks: {commands:?}")
    };
    for commands in [authority, server, clients, configuration] {
        shell(commands);
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(["serve", "--config", &drive.file("etc/pumice.toml")]);
    let server = drive.start(command, 1);
    let port =
        server.uri().rsplit_once(':').expect("a port").1.split('/').next().expect("a port").to_string();
    let usage = usage.replace("localhost:10809", &format!("localhost:{port}"));
    let of_backup = usage.replace("db1.example.com", "backup.example.com");
    assert!(shell(&usage).contains("is_read_only: false"), "{usage}");
    assert!(shell(&of_backup).contains("is_read_only: true"), "{of_backup}");
    let log = drive.log();
    assert!(!log.contains("WARN"), "{log}");
    shell(revocation);
    server.ask_to_reload();
    wait_until("the reload", || drive.log().contains("file="));
    assert_ne!(in_time("sh", &["-c", &usage]).code, Some(0), "revoked");
    shell(&of_backup);
    assert!(server.stop().success());
}
