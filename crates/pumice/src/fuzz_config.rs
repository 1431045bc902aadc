//! Fuzz target: any bytes as a configuration file. Runs briefly with every `cargo test`; see
//! `fuzz/README.md`. It is here, not in `fuzz/`, because programs cannot be linked there.

#[path = "../../layout/tests/fuzz/harness.rs"]
#[allow(dead_code, reason = "no corpus: libFuzzer does not run this")]
mod harness;

use std::path::PathBuf;

use crate::config::{Overrides, Source};

/// Configurations to mutate: the sample file, and one with the options that it leaves out.
fn files() -> Vec<Vec<u8>> {
    let more = r#"
[server]
nbd = ["unix:/run/pumice/nbd.sock", "tcp:[::1]:10809"]
admin = "unix:/run/pumice/admin.sock"
http = "127.0.0.1:9841"
log-format = "json"
warn-at = [70, 85.5]
on-event = "true"
threads = 3
io = "plain"
offload = "qat:/opt/libqatzip.so"
insecure = true
tls-anonymous = true
max-connections = 4096
max-connections-per-peer = 100
[server.tls]
cert = "/etc/pumice/cert.pem"
key = "/etc/pumice/key.pem"
[[drive]]
path = "/srv/two"
name = "second"
clients = ["db1.example.com", "sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"]
clients-read-only = []
nbd = ["unix:/run/pumice/two.sock"]
map-cache = "64M"
write-cache = false
read-only = true
shared-writes = true
accept-damage = true
direct = "off"
warn-at = "off"
throttle-at = 90
throttle-floor = "1M"
background-cpu = 5
[[drive]]
path = "/srv/three"
"#;
    let start = include_bytes!("../../../deploy/pumice.toml").to_vec();
    let lines: Vec<Vec<u8>> = more.lines().map(|line| [b"[server]\n", line.as_bytes()].concat()).collect();
    let in_drive = more.lines().map(|line| [b"[[drive]]\npath = \"/a\"\n", line.as_bytes()].concat());
    [vec![start, more.as_bytes().to_vec()], lines, in_drive.collect()].concat()
}

fn run(bytes: &[u8]) {
    thread_local! {
        static FILE: (tempfile::TempDir, PathBuf) = {
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("pumice.toml");
            (folder, file)
        };
    }
    FILE.with(|(_, file)| {
        std::fs::write(file, bytes).expect("written");
        let source = Source { file: Some(file.clone()), overrides: Overrides::default() };
        match source.load() {
            Ok(config) => assert!(config.names().len() <= bytes.len()),
            Err(error) => {
                let line = crate::usage::one_line(&error);
                assert_eq!(line.lines().count(), 1, "{line:?}");
            }
        }
    });
}

#[test]
fn config_target() {
    harness::fuzz("config_target", &files(), run);
}
