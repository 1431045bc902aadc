//! `pumice serve`

mod exports;
mod http;
mod signals;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use media::Direct;
use nbd::{Accepted, Acceptor, Shared, Shutdown};
use service::{
    AdminSocket, IoChoice, MonitorSettings, OpenSettings, ServedDrive, ThrottleSettings, WarnAt, Workers,
};
use tokio::task::JoinSet;

use crate::logging;
use crate::size::Size;

/// How long requests in flight are waited for when the server is told to stop.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after accepting failed, most likely for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
#[command(after_help = "Example: pumice serve /srv/drive --nbd unix:/run/drive.sock\n\
    then:    nbdinfo 'nbd+unix:///?socket=/run/drive.sock'")]
pub(crate) struct Args {
    /// Files or block devices with drives; each is an export named like its file
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Where NBD clients connect: unix:SOCKET or tcp:HOST:PORT; may be repeated [default: unix:PATH.nbd for each PATH]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<nbd::Address>,
    /// A further admin socket for all drives, as unix:SOCKET
    #[arg(long, value_name = "ADDRESS", value_parser = exports::unix_socket)]
    admin: Option<PathBuf>,
    /// Where monitoring asks over HTTP: /metrics for Prometheus, /healthz, /status; read-only
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<admin::HttpAddress>,
    /// Worker threads [default: one a core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Memory for the map of each drive
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    map_cache: Size,
    /// Off: every write is durable before it is acknowledged
    #[arg(long, default_value = "on", value_parser = ["on", "off"])]
    write_cache: String,
    /// Refuse changes; nothing is written to the drives
    #[arg(long)]
    read_only: bool,
    /// Serve drives whose log is damaged as they were before the damage
    #[arg(long, requires = "read_only")]
    accept_damage: bool,
    /// Slow writes down once so many percent of the space for data are used, more and more until the drive is full
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    throttle_at: Option<f64>,
    /// The rate they are slowed down to just before it is full, a second
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "throttle_at")]
    throttle_floor: Size,
    /// Certificate chain of the server, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities that clients must have a certificate of, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Allow TCP without TLS beyond this machine, for NBD and HTTP
    #[arg(long)]
    insecure: bool,
    /// Levels of physical space in use, in percent, at which there is an event; or off
    #[arg(long, value_name = "LEVELS", default_value_t)]
    warn_at: WarnAt,
    /// Run for each event by `sh -c`, with PUMICE_EVENT, PUMICE_DRIVE, PUMICE_MESSAGE and more in its environment
    #[arg(long, value_name = "COMMAND")]
    on_event: Option<String>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: logging::Format,
    /// How the backing is reached
    #[arg(long, default_value = "auto", env = "PUMICE_IO", value_parser = ["auto", "uring", "plain"])]
    io: String,
    /// Go around the page cache
    #[arg(long, default_value = "auto", value_parser = ["auto", "on", "off"])]
    direct: String,
}

impl Args {
    fn settings(&self) -> OpenSettings {
        OpenSettings {
            map_budget_bytes: self.map_cache.0,
            write_cache: self.write_cache == "on",
            read_only: self.read_only,
            accept_damage: self.accept_damage,
            direct: match self.direct.as_str() {
                "on" => Direct::On,
                "off" => Direct::Off,
                _ => Direct::Auto,
            },
            monitor: MonitorSettings { warn_at: self.warn_at.clone(), on_event: self.on_event.clone() },
            throttle: self.throttle_at.map(|at_percent| ThrottleSettings {
                at_percent,
                floor_bytes_per_second: self.throttle_floor.0.max(1),
            }),
        }
    }

    fn io(&self) -> IoChoice {
        match self.io.as_str() {
            "uring" => IoChoice::Uring,
            "plain" => IoChoice::Plain,
            _ => IoChoice::Auto,
        }
    }
}

/// A share of the space at which throttling makes sense.
fn percent(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').parse().ok().filter(|value| (1.0..=99.0).contains(value));
    value.ok_or_else(|| format!("{text:?} is no share from 1 to 99 percent"))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    logging::start(args.log_format);
    let config = exports::nbd_config(args)?;
    let workers = Arc::new(Workers::start(args.threads.map(usize::from), args.io())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve(args, config, &workers));
    // Tasks hold the workers: they go first.
    drop(runtime);
    if let Ok(workers) = Arc::try_unwrap(workers) {
        workers.stop();
    }
    served
}

async fn serve(args: &Args, config: nbd::ServerConfig, workers: &Arc<Workers>) -> Result<()> {
    let stop = signals::watch()?;
    let mut drives = Vec::new();
    let mut stop_opening = stop.clone();
    let opened = tokio::select! {
        opened = open_all(args, workers, &mut drives) => opened.map(|()| true),
        () = stop_opening.requested() => Ok(false),
    };
    let result = match opened {
        Ok(true) => serve_opened(args, config, workers, &drives, stop).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    // Drives that were opened are closed, whatever went wrong with others.
    let mut closed = Ok(());
    for drive in &drives {
        let one = drive.close(PATIENCE).await;
        closed = closed.and(one.with_context(|| format!("{}: not closed properly", drive.path().display())));
    }
    result.and(closed)
}

async fn open_all(args: &Args, workers: &Workers, drives: &mut Vec<Arc<ServedDrive>>) -> Result<()> {
    let settings = args.settings();
    for (index, path) in args.paths.iter().enumerate() {
        let drive = ServedDrive::open(path, &settings, workers, index).await?;
        let direct = drive.report().server.is_some_and(|server| server.direct_io);
        tracing::debug!(drive = %path.display(), direct, io = workers.backend().name(), "how the backing is reached");
        drives.push(drive);
    }
    Ok(())
}

async fn serve_opened(
    args: &Args,
    config: nbd::ServerConfig,
    workers: &Arc<Workers>,
    drives: &[Arc<ServedDrive>],
    mut stop: Shutdown,
) -> Result<()> {
    let mut admin = Vec::new();
    for drive in drives {
        match AdminSocket::listen_for(drive) {
            Ok(socket) => admin.push(socket),
            // Serving matters more than being asked about it.
            Err(error) => tracing::warn!(%error, "status will not find this drive"),
        }
    }
    if let Some(path) = &args.admin {
        admin.push(AdminSocket::listen(path, drives.to_vec())?);
    }
    let all = drives.to_vec();
    let _http =
        args.http.as_ref().map(|at| http::listen(at, args.insecure, move || all.clone())).transpose()?;
    let mut accepting = JoinSet::new();
    for listening in exports::listen(args, config, drives)? {
        let acceptor = listening.listener.register()?;
        accepting.spawn(accept_all(acceptor, listening.shared, workers.clone(), stop.clone()));
    }
    stop.requested().await;
    tracing::info!("stopping: answering what is in flight; a second signal stops at once");
    while accepting.join_next().await.is_some() {}
    Ok(())
}

/// Accepts clients until shutdown, then waits for the last of them.
async fn accept_all(
    acceptor: Acceptor,
    shared: Arc<Shared<ServedDrive>>,
    workers: Arc<Workers>,
    mut shutdown: Shutdown,
) {
    let mut clients = JoinSet::new();
    loop {
        let stop = shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            accepted = acceptor.accept() => match accepted {
                Ok(client) => {
                    let carried = workers.carry(carry(client, shared.clone(), stop));
                    clients.spawn(carried);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = clients.join_next() => {}
        }
    }
    // No more clients come while the last ones finish.
    drop(acceptor);
    while clients.join_next().await.is_some() {}
}

async fn carry(client: Accepted, shared: Arc<Shared<ServedDrive>>, shutdown: Shutdown) {
    if let Err(error) = client.serve(&shared, shutdown).await {
        tracing::debug!(%error, "connection ended");
    }
}
