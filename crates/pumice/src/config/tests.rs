//! Parsing of configurations: accepted values, and error messages for the others.

use super::values::*;
use super::*;
use crate::logging;
use crate::size::Size;
use media::Direct;
use service::IoChoice;

fn load_with(text: &str, overrides: Overrides) -> Result<Config, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pumice.toml");
    std::fs::write(&file, text).expect("written");
    let source = Source { file: Some(file.clone()), overrides };
    source.load().map_err(|error| {
        let line = crate::usage::one_line(&error);
        line.replace(&file.display().to_string(), "FILE")
    })
}

fn load(text: &str) -> Result<Config, String> {
    load_with(text, Overrides::default())
}

const ALL: &str = r#"
[server]
nbd = ["unix:/run/pumice/nbd.sock", "tcp:127.0.0.1:10809"]
admin = "unix:/run/pumice/admin.sock"
http = "127.0.0.1:9841"
log-format = "json"
warn-at = [70, 85]
on-event = "true"
threads = 3
io = "plain"
offload = "qat:/opt/libqatzip.so"
insecure = true
tls-anonymous = true
max-connections = 4096
max-connections-per-peer = 100
handshake-timeout = 20
stall-timeout = 21
idle-timeout = 604800
request-memory = "1G"
read-cache = 0
[server.tls]
cert = "/etc/pumice/cert.pem"
key = "/etc/pumice/key.pem"
ca = "/etc/pumice/ca.pem"
crl = "/etc/pumice/crl.pem"

[[drive]]
path = "/srv/one"

[[drive]]
path = "/srv/two"
name = "second"
clients = ["DB1.example.com"]
clients-read-only = ["sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"]
nbd = ["unix:/run/pumice/two.sock"]
map-cache = "64M"
write-cache = false
read-only = true
shared-writes = true
accept-damage = true
direct = "off"
warn-at = "off"
on-event = "logger full"
throttle-at = 92.5
throttle-floor = "8MB"
when-full = "wait:60"
scrub-every = "30d"
background-cpu = 25
attach = true
by = "loop"
"#;

#[test]
fn every_key_is_understood() {
    let config = load(ALL).expect("a good file");
    let unix = |path: &str| Address::Unix(path.into());
    assert_eq!(
        config.server,
        Server {
            nbd: vec![unix("/run/pumice/nbd.sock"), Address::Tcp("127.0.0.1".into(), 10809)],
            admin: Some("/run/pumice/admin.sock".into()),
            tls: Some(TlsFiles {
                cert: "/etc/pumice/cert.pem".into(),
                key: "/etc/pumice/key.pem".into(),
                ca: Some("/etc/pumice/ca.pem".into()),
                crl: Some("/etc/pumice/crl.pem".into())
            }),
            options: ServerOptions {
                http: Some("127.0.0.1:9841".parse().expect("an address")),
                log_format: Some(LogFormat(logging::Format::Json)),
                threads: Some(Threads(Some(3))),
                io: Some(Io(IoChoice::Plain)),
                offload: Some(Offload(offload::Choice::Qat(Some("/opt/libqatzip.so".into())))),
                insecure: Some(true),
                tls_anonymous: Some(true),
                max_connections: Some(Connections(Some(4096))),
                max_connections_per_peer: Some(Connections(Some(100))),
                handshake_timeout: Some(Seconds(Some(20))),
                stall_timeout: Some(Seconds(Some(21))),
                idle_timeout: Some(Seconds(Some(604_800))),
                request_memory: Some(RequestMemory(Size(1 << 30))),
                read_cache: Some(ReadCacheSize(Size(0))),
                ..config.server.options.clone()
            },
        }
    );
    let [one, two] = &config.drives[..] else { panic!("{config:?}") };
    let mut plain = DriveConfig::of("/srv/one".into());
    plain.options.warn_at = Some("70,85".parse().expect("levels"));
    plain.options.on_event = Some("true".parse().expect("a command"));
    assert_eq!(*one, plain, "what the server says of events is for all");
    assert_eq!(one.name, "one");
    assert_eq!(
        *two,
        DriveConfig {
            path: "/srv/two".into(),
            name: "second".into(),
            nbd: vec![unix("/run/pumice/two.sock")],
            access: Access::Listed {
                read_write: vec!["db1.example.com".parse().expect("a name")],
                read_only: vec![format!("sha256:{}", "0f".repeat(32)).parse().expect("a name")],
            },
            attach: Some(AttachMethod::This(attach::NodeKind::Loop)),
            options: DriveOptions {
                map_cache: Some("64M".parse().expect("a size")),
                write_cache: Some(WriteCache(false)),
                read_only: Some(true),
                shared_writes: Some(true),
                accept_damage: Some(true),
                direct: Some(DirectIo(Direct::Off)),
                warn_at: Some("off".parse().expect("levels")),
                on_event: Some("logger full".parse().expect("a command")),
                throttle_at: Some(ThrottleAt::Percent(ThrottlePercent(92.5))),
                throttle_floor: Some("8MB".parse().expect("a size")),
                scrub_every: Some("30d".parse().expect("a time")),
                when_full: Some("wait:60".parse().expect("a time")),
                background_cpu: Some(BackgroundCpu(25.0)),
                ..DriveOptions::default()
            },
        }
    );
}

#[test]
fn the_command_line_beats_the_file() {
    let overrides = Overrides {
        nbd: vec![Address::Unix("/run/other".into())],
        server: ServerOptions {
            threads: Some(Threads(Some(7))),
            io: Some(Io(IoChoice::Auto)),
            ..ServerOptions::default()
        },
        drive: DriveOptions {
            map_cache: Some("1M".parse().expect("a size")),
            write_cache: Some(WriteCache(true)),
            direct: Some(DirectIo(Direct::On)),
            ..DriveOptions::default()
        },
        ..Overrides::default()
    };
    let config = load_with(ALL, overrides).expect("a good file");
    assert_eq!(config.server.nbd, [Address::Unix("/run/other".into())]);
    let options = &config.server.options;
    assert_eq!((&options.threads, &options.io), (&Some(Threads(Some(7))), &Some(Io(IoChoice::Auto))));
    for drive in &config.drives {
        let opened = drive.options.open();
        assert_eq!((opened.map_budget_bytes, opened.write_cache), (1 << 20, true));
        assert!(matches!(opened.direct, Direct::On));
    }
    assert_eq!(
        config.server.admin,
        Some("/run/pumice/admin.sock".into()),
        "the file's where nothing is said"
    );
}

#[test]
fn a_peer_has_half_of_the_connections_by_default() {
    let limits = |text: &str| {
        let nbd =
            load(&format!("[server]\n{text}\n[[drive]]\npath = \"/a\"\n")).expect("good").server.nbd_config();
        let nbd = nbd.expect("no files are named");
        nbd.validate().expect("can be served");
        (nbd.connections_max, nbd.connections_per_peer_max)
    };
    assert_eq!(limits(""), (1024, 512));
    assert_eq!(limits("max-connections = 1"), (1, 1));
    assert_eq!(limits("max-connections = 5000"), (5000, 2500));
    assert_eq!(limits("max-connections-per-peer = 1024"), (1024, 1024));
}

#[test]
fn times_and_memory_of_clients() {
    let of = |text: &str| {
        let nbd = load(&format!("[server]\n{text}\n[[drive]]\npath = \"/a\"\n")).expect("good").server;
        let nbd = nbd.nbd_config().expect("no files are named");
        nbd.validate().expect("can be served");
        let scarce = nbd.handshake_timeout_scarce();
        let times = [nbd.handshake_timeout, scarce, nbd.stall_timeout].map(|time| time.as_secs());
        (times, nbd.idle_timeout.map(|time| time.as_secs()), nbd.total_buffer_bytes_max)
    };
    assert_eq!(of(""), ([30, 3, 30], None, 256 << 20));
    assert_eq!(of("handshake-timeout = 1"), ([1, 1, 30], None, 256 << 20));
    let all = "handshake-timeout = 60\nstall-timeout = 5\nidle-timeout = 3600\nrequest-memory = \"32M\"";
    assert_eq!(of(all), ([60, 6, 5], Some(3600), 32 << 20));
    assert_eq!(of("request-memory = \"1024G\""), ([30, 3, 30], None, 1 << 40));
}

#[test]
fn paths_choose_drives_and_the_file_says_how() {
    let overrides = Overrides { paths: vec!["/srv/two".into(), "/srv/three".into()], ..Overrides::default() };
    let config = load_with(ALL, overrides).expect("a good file");
    let names: Vec<&str> = config.drives.iter().map(|drive| drive.name.as_str()).collect();
    assert_eq!(names, ["second", "three"]);
    assert_eq!(config.drives[0].options.open().map_budget_bytes, 64 << 20);
    let three = config.drives[1].options.open();
    assert_eq!(three.map_budget_bytes, drive::DEFAULT_MAP_BUDGET_BYTES);
    assert_eq!(three.monitor.on_event.as_deref(), Some("true"), "what the server says of events is for all");
}

#[test]
fn drives_given_by_path_get_distinct_names() {
    let paths = vec![PathBuf::from("/srv/a/drive"), PathBuf::from("/srv/b/drive")];
    let source = Source { file: None, overrides: Overrides { paths, ..Overrides::default() } };
    let names: Vec<String> =
        source.load().expect("two drives").drives.into_iter().map(|drive| drive.name).collect();
    assert_eq!(names, ["/srv/a/drive", "/srv/b/drive"]);
}

#[test]
fn names_given_in_the_file_stay_when_paths_get_distinct_names() {
    let paths = ["/srv/two", "/srv/a/drive", "/srv/b/drive"].map(PathBuf::from).to_vec();
    let config = load_with(ALL, Overrides { paths, ..Overrides::default() }).expect("three drives");
    assert_eq!(config.names(), ["second", "/srv/a/drive", "/srv/b/drive"]);
}

#[test]
fn errors_name_file_line_field_and_what_was_expected() {
    // The invalid line, which is the third line in a drive's table, and the expected parts of the error.
    let in_drive = [
        (
            "map-cache = \"lots\"",
            "drive[0].map-cache: ",
            "invalid value \"lots\": expected a size: a number with K",
        ),
        ("map-cache = -1", "drive[0].map-cache: ", "expected a size"),
        ("map-cache = true", "drive[0].map-cache: ", "expected a size"),
        ("write-cache = \"on\"", "drive[0].write-cache: ", "expected a boolean"),
        ("direct = \"maybe\"", "drive[0].direct: ", "invalid value \"maybe\": expected auto, on or off"),
        ("direct = 1", "drive[0].direct: ", "expected \"auto\", \"on\" or \"off\""),
        ("warn-at = [90, 80]", "drive[0].warn-at: ", "invalid value [90, 80]: expected up to"),
        ("warn-at = 80", "drive[0].warn-at: ", "expected percentages such as [80, 90, 95]"),
        ("warn-at = [\"x\"]", "drive[0].warn-at[0]: ", "expected i64"),
        (
            "throttle-at = 100",
            "drive[0].throttle-at: ",
            "invalid value 100: expected a percentage from 1 to 99",
        ),
        ("throttle-at = \"90\"", "drive[0].throttle-at: ", "expected a percentage from 1 to 99"),
        ("scrub-every = \"soon\"", "drive[0].scrub-every: ", "such as 30d, or off"),
        ("scrub-every = \"99999999999999999999d\"", "drive[0].scrub-every: ", "from 1h to 3650d"),
        ("when-full = \"wait\"", "drive[0].when-full: ", "expected error, or wait:SECONDS"),
        ("when-full = \"wait:0\"", "drive[0].when-full: ", "1 to 86400 seconds"),
        (
            "background-cpu = 101",
            "drive[0].background-cpu: ",
            "invalid value 101: expected a percentage from 0 to 100",
        ),
        ("background-cpu = \"10\"", "drive[0].background-cpu: ", "expected a percentage from 0 to 100"),
        ("throttle-floor = 1.5", "drive[0].throttle-floor: ", "expected a size"),
        ("on-event = \" \"", "drive[0].on-event: ", "a command"),
        ("name = \"\"", "drive[0].name: ", "1 to 4096 bytes"),
        ("nbd = \"unix:/x\"", "drive[0].nbd: ", "expected a sequence"),
        ("nbd = [\"ftp:x\"]", "drive[0].nbd[0]: ", "write unix:SOCKET or tcp:HOST:PORT"),
        ("nbd = [\"unix:x\"]", "drive[0].nbd[0]: ", "must begin with /"),
        ("clients = \"a\"", "drive[0].clients: ", "expected a sequence"),
        ("clients = [\"a\", \"CN=b\"]", "drive[0].clients[1]: ", "expected a DNS name"),
        ("clients-read-only = [\"sha256:12\"]", "drive[0].clients-read-only[0]: ", "64 hexadecimal digits"),
        ("pfad = \"/x\"", "drive[0].pfad: ", "unknown field `pfad`, expected one of `path`"),
        ("mapcache = 3", "drive[0].mapcache: ", "unknown field"),
        ("path = \"/srv/b\"", "", "duplicate key"),
        ("read-only", "", "expected"),
        ("read-only = yes", "", "string values must be quoted"),
    ];
    for (line, field, what) in in_drive {
        let said = load(&format!("[[drive]]\npath = \"/srv/a\"\n{line}\n")).expect_err(line);
        assert!(said.starts_with(&format!("FILE:3: {field}")), "{line}: {said}");
        assert!(said.contains(what), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let in_server = [
        ("threads = 0", "server.threads: ", "a number from 1 to 1024"),
        ("threads = \"4\"", "server.threads: ", "expected a number from 1 to 1024"),
        ("max-connections = 0", "server.max-connections: ", "a number from 1 to 1048576"),
        ("max-connections = 1048577", "server.max-connections: ", "a number from 1 to 1048576"),
        ("user = \"+0\"", "server.user: ", "by name or number"),
        ("max-connections-per-peer = \"all\"", "server.max-connections-per-peer: ", "a number from 1 to"),
        ("handshake-timeout = 0", "server.handshake-timeout: ", "a number from 1 to 604800"),
        ("stall-timeout = 604801", "server.stall-timeout: ", "a number from 1 to 604800"),
        ("idle-timeout = \"none\"", "server.idle-timeout: ", "expected a number from 1 to 604800"),
        (
            "request-memory = \"31M\"",
            "server.request-memory: ",
            "invalid value \"31M\": expected a size of 32768K or more",
        ),
        ("request-memory = \"1025G\"", "server.request-memory: ", "expected a size of 1024G or less"),
        ("http = \"here\"", "server.http: ", "expected HOST:PORT"),
        ("log-format = \"xml\"", "server.log-format: ", "invalid value \"xml\": expected text or json"),
        ("io = \"fast\"", "server.io: ", "invalid value \"fast\": expected auto, uring or plain"),
        ("admin = \"tcp:localhost:1\"", "server.admin: ", "expected unix:SOCKET"),
        ("[server.tls]\ncert = \"/c\"", "server.tls: ", "missing field `key`"),
        ("tls = { cert = \"c\", key = \"/k\" }", "server.tls.cert: ", "begins with /"),
        ("port = 1", "server.port: ", "unknown field `port`, expected one of `nbd`"),
    ];
    for (line, field, what) in in_server {
        let said = load(&format!("[server]\n{line}\n[[drive]]\npath = \"/srv/a\"\n")).expect_err(line);
        assert!(said.starts_with(&format!("FILE:2: {field}")), "{line}: {said}");
        assert!(said.contains(what), "{line}: {said}");
    }
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for (text, what) in [
        ("", "no drive to serve"),
        ("[server]\nthreads = 2\n", "no drive to serve"),
        ("[[drive]]\nname = \"x\"\n", "missing field `path`"),
        ("[[drive]]\npath = \"/a\"\nclients = []\n", "need server.tls with ca"),
        (
            "[server.tls]\ncert = \"/c\"\nkey = \"/k\"\n[[drive]]\npath = \"/a\"\nclients-read-only = [\"b\"]\n",
            "need server.tls with ca",
        ),
        (
            "[server.tls]\ncert = \"/c\"\nkey = \"/k\"\ncrl = \"/l\"\n[[drive]]\npath = \"/a\"\n",
            "tls.crl needs tls.ca",
        ),
        ("[[drive]]\npath = \"relative\"\n", "begins with /"),
        ("[[drive]]\npath = \"/a/x\"\n[[drive]]\npath = \"/b/x\"\n", "both named \"x\""),
        ("[[drive]]\npath = \"/a/x\"\n[[drive]]\npath = \"/a/x\"\nname = \"y\"\n", "listed twice"),
        ("[[drive]]\npath = \"/a\"\naccept-damage = true\n", "needs read-only"),
        (
            "[server]\nnbd = [\"unix:/s\"]\n[[drive]]\npath = \"/a\"\nnbd = [\"unix:/s\"]\n",
            "an address of the server already",
        ),
        ("[server]\nnbd = [\"unix:/s\", \"unix:/s\"]\n[[drive]]\npath = \"/a\"\n", "listed twice"),
        ("[drive]\npath = \"/a\"\n", "expected a sequence"),
    ] {
        let said = load(text).expect_err(text);
        assert!(said.starts_with("FILE") && said.contains(what), "{text}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_is_no_text_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pumice.toml");
    let load = || {
        let source = Source { file: Some(file.clone()), overrides: Overrides::default() };
        crate::usage::one_line(&source.load().expect_err("no configuration"))
    };
    assert!(load().contains("cannot read the configuration"));
    std::fs::write(&file, b"# fine\n# \xff\n").expect("written");
    assert!(load().contains("pumice.toml:2: not UTF-8"), "{}", load());
    std::fs::File::create(&file).and_then(|file| file.set_len(2 << 20)).expect("a large file");
    assert!(load().contains("up to 1 MiB"));
    std::fs::remove_file(&file).and_then(|()| std::fs::create_dir(&file)).expect("a directory");
    assert!(load().contains("not a configuration file"));
}

#[test]
fn the_documented_examples_are_good() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/configuration.md")).expect("the page");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let config = load(example).expect("a good example");
    assert_eq!(
        config.drives.iter().map(|drive| drive.name.as_str()).collect::<Vec<_>>(),
        ["databases", "archive"]
    );
    let sample = std::fs::read_to_string(root.join("deploy/pumice.toml")).expect("the sample");
    assert_eq!(load(&sample).expect("a good sample").drives.len(), 1);
    // The commented-out lines are valid, too.
    let all: String = sample
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|l| l.contains(" = ") || l.starts_with('['))
                .unwrap_or(line)
                .to_string()
                + "\n"
        })
        .collect();
    let without_twice = all.replacen("nbd = [\"unix:/run/pumice/nbd.sock\"]\n", "", 1);
    load(&without_twice).expect("good without its comment signs");
}

#[test]
fn every_key_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let page = std::fs::read_to_string(page).expect("the page");
    for table in ["[server]\nx = 1\n", "[[drive]]\nx = 1\n"] {
        let said = load(table).expect_err("an unknown key");
        let (_, keys) = said.split_once("expected one of ").expect("the known ones");
        for key in keys.split(", ") {
            assert!(
                page.contains(&format!("| {key}")) || page.contains(&key.replace("tls`", "tls.cert`")),
                "{key}"
            );
        }
    }
}
