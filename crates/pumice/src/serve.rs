//! `pumice serve`

mod daemon;
mod endpoints;
mod http;
mod printer;
mod signals;
mod systemd;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use media::Direct;
use service::{IoChoice, WarnAt, Workers};

use crate::config::{self, DEFAULT_PATH, Overrides, Source, TlsFiles};
use crate::logging;
use crate::size::Size;
use crate::usage::WrongUsage;
use daemon::Daemon;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice serve /srv/drive --nbd unix:/run/drive.sock\n\
    then:    nbdinfo 'nbd+unix:///?socket=/run/drive.sock'\n\
    or:      pumice serve --config /etc/pumice/pumice.toml\n\
    SIGTERM stops the server; SIGHUP reloads the configuration file.")]
pub(crate) struct Args {
    /// Drives (files or block devices); each is exported under its file name [default: drives of the configuration file]
    paths: Vec<PathBuf>,
    /// Configuration file; command-line options take precedence [default: /etc/pumice/pumice.toml, if no PATH is given]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// NBD listening address, unix:SOCKET or tcp:HOST:PORT; may be repeated [default: unix:PATH.nbd for each PATH]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<nbd::Address>,
    /// Additional admin socket for all drives, as unix:SOCKET
    #[arg(long, value_name = "ADDRESS", value_parser = config::parse_unix_socket)]
    admin: Option<PathBuf>,
    /// HTTP listening address for monitoring (read-only): /metrics for Prometheus, /healthz, /status
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<admin::HttpAddress>,
    /// Number of worker threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(config::THREADS_MAX)))]
    threads: Option<u16>,
    /// Memory for the map of each drive [default: 128M]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_map_cache)]
    map_cache: Option<Size>,
    /// Write cache; off: acknowledge writes only when they are durable [default: on]
    #[arg(long, value_parser = ["on", "off"])]
    write_cache: Option<String>,
    /// Serve the drives read-only; write nothing to their backing
    #[arg(long)]
    read_only: bool,
    /// Serve drives with a damaged log in the state before the damage
    #[arg(long, requires = "read_only")]
    accept_damage: bool,
    /// Throttle writes from this usage of the space for data on, progressively until the drive is full
    #[arg(long, value_name = "PERCENT", value_parser = config::parse_percent)]
    throttle_at: Option<f64>,
    /// Lowest write rate that throttling enforces, in bytes per second [default: 4M]
    #[arg(long, value_name = "SIZE", value_parser = config::parse_throttle_floor)]
    throttle_floor: Option<Size>,
    /// Share of one processor, per drive, for recompression in the background; 0 disables it [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = config::parse_background_cpu)]
    background_cpu: Option<f64>,
    /// Compression device: none, qat, or qat:PATH with the path of libqatzip.so [default: none]
    #[arg(long, value_name = "DEVICE")]
    offload: Option<offload::Choice>,
    /// Server certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Server private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates issued by these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Allow NBD and HTTP over TCP without TLS on non-loopback addresses
    #[arg(long)]
    insecure: bool,
    /// Maximum number of NBD connections [default: 1024]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(config::CONNECTIONS_MAX)))]
    max_connections: Option<u32>,
    /// Maximum number of NBD connections per IP address, or per user of a Unix socket [default: half of --max-connections]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(config::CONNECTIONS_MAX)))]
    max_connections_per_peer: Option<u32>,
    /// Physical space usage levels that raise an event, in percent, or off [default: 80,90,95]
    #[arg(long, value_name = "LEVELS")]
    warn_at: Option<WarnAt>,
    /// Command run by `sh -c` for each event, with PUMICE_EVENT, PUMICE_DRIVE, PUMICE_MESSAGE and more in its environment
    #[arg(long, value_name = "COMMAND")]
    on_event: Option<String>,
    /// Log format [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
    /// I/O engine for the backing: auto, uring or plain [default: auto]
    #[arg(long, value_name = "HOW", env = "PUMICE_IO", value_parser = config::parse_io)]
    io: Option<IoChoice>,
    /// Direct I/O (bypass the page cache): auto, on or off [default: auto]
    #[arg(long, value_name = "WHETHER", value_parser = config::parse_direct)]
    direct: Option<Direct>,
}

impl Args {
    fn overrides(&self) -> Overrides {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                Some(TlsFiles { cert: cert.clone(), key: key.clone(), ca: self.tls_ca.clone() })
            }
            _ => None,
        };
        Overrides {
            paths: self.paths.clone(),
            nbd: self.nbd.clone(),
            admin: self.admin.clone(),
            http: self.http.clone(),
            log_format: self.log_format,
            threads: self.threads,
            io: self.io,
            offload: self.offload.clone(),
            tls,
            insecure: self.insecure,
            max_connections: self.max_connections,
            max_connections_per_peer: self.max_connections_per_peer,
            map_cache: self.map_cache,
            write_cache: self.write_cache.as_deref().map(|write_cache| write_cache == "on"),
            read_only: self.read_only,
            accept_damage: self.accept_damage,
            direct: self.direct,
            warn_at: self.warn_at.clone(),
            on_event: self.on_event.clone(),
            throttle_at: self.throttle_at,
            throttle_floor: self.throttle_floor,
            background_cpu: self.background_cpu,
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(source) = Source::find(args.config.as_deref(), args.overrides())? else {
        return Err(anyhow!(WrongUsage(format!(
            "no drive to serve: give a PATH, or write {DEFAULT_PATH} (see --config)"
        ))));
    };
    let config = source.load()?;
    logging::start(config.server.log_format);
    let nbd_config = config.server.nbd_config()?;
    let offload = config.server.offload.start(offload::Options::default())?;
    let mut workers = Workers::start(config.server.threads.map(usize::from), config.server.io)?;
    if let Some(offload) = offload {
        workers.set_offload(config.server.offload.to_string(), offload);
    }
    let workers = Arc::new(workers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let signals = signals::watch()?;
        Daemon::new(source, config, nbd_config, workers.clone(), signals)?.run().await
    });
    // Tasks hold the workers: they go first.
    drop(runtime);
    if let Ok(workers) = Arc::try_unwrap(workers) {
        workers.stop();
    }
    served
}
