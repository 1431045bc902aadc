//! `pumice serve`

mod activation;
mod addresses;
mod daemon;
mod endpoints;
mod http;
mod inherited;
mod names;
mod orphans;
mod printer;
mod privileges;
mod shortage;
mod signals;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use drive::ReadCache;
use launch::LOST_EXIT_CODE;
use service::{ServiceError, Workers};

use crate::config::{self, AtStart, DEFAULT_PATH, DriveOptions, Overrides, ServerOptions, Source, TlsFiles};
use crate::logging;
use crate::usage::{Coded, WrongUsage};
use daemon::Daemon;
use privileges::Privileges;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice serve /srv/drive --nbd unix:/run/drive.sock\n\
    then:    nbdinfo 'nbd+unix:///?socket=/run/drive.sock'\n\
    or:      pumice serve --config /etc/pumice/pumice.toml\n\
    SIGTERM stops the server; SIGHUP reloads the configuration file. Sockets that a service manager has bound are \
    served too (LISTEN_FDS): they offer all drives, or the one that they are named after.")]
pub(crate) struct Args {
    /// Drives (files or block devices); each is exported under its file name [default: drives of the
    /// configuration file]
    paths: Vec<PathBuf>,
    /// Configuration file; command-line options take precedence [default: /etc/pumice/pumice.toml, if no PATH
    /// is given]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// NBD listening address, unix:SOCKET or tcp:HOST:PORT; may be repeated [default: unix:PATH.nbd for each
    /// PATH]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<nbd::Address>,
    /// Additional admin socket for all drives, as unix:SOCKET
    #[arg(long, value_name = "ADDRESS", value_parser = config::parse_unix_socket)]
    admin: Option<PathBuf>,
    /// Server certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Server private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates issued by these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Refuse client certificates that these revocation lists name (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_crl: Option<PathBuf>,
    /// Open drives that another machine has open, if its server does not answer within 5 seconds. Use only
    /// if that machine is down
    #[arg(long, conflicts_with = "read_only")]
    take_over: bool,
    /// Set the memory of a killed server aside if it cannot be used. Acknowledged writes that were not
    /// flushed are lost then
    #[arg(long, conflicts_with = "read_only")]
    forget_memory: bool,
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    drive: DriveOptions,
}

impl Args {
    fn overrides(&self) -> Overrides {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let (ca, crl) = (self.tls_ca.clone(), self.tls_crl.clone());
                Some(TlsFiles { cert: cert.clone(), key: key.clone(), ca, crl })
            }
            _ => None,
        };
        Overrides {
            paths: self.paths.clone(),
            nbd: self.nbd.clone(),
            admin: self.admin.clone(),
            tls,
            server: self.server.clone(),
            drive: self.drive.clone(),
            at_start: AtStart { take_over: self.take_over, forget_memory: self.forget_memory },
            activated: Vec::new(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    serve(args).map_err(|error| match error.downcast_ref() {
        Some(ServiceError::LostBelow { .. }) => Coded { code: LOST_EXIT_CODE, error }.into(),
        _ => error,
    })
}

fn serve(args: &Args) -> Result<()> {
    let activated = activation::sockets(inherited::keep_from_programs())?;
    let mut overrides = args.overrides();
    overrides.activated = activated.iter().map(activation::Activated::listed).collect();
    let Some(source) = Source::find(args.config.as_deref(), overrides)? else {
        return Err(anyhow!(WrongUsage(format!(
            "no drive to serve: give a PATH, or write {DEFAULT_PATH} (see --config)"
        ))));
    };
    let config = source.load()?;
    // Before there are threads, which inherit it.
    shortage::prepare();
    let mut privileges = Privileges::new(&config.server)?;
    privileges.restrict_thread(&config)?;
    let ServerOptions { log_format, offload, threads, io, read_cache, .. } = config.server.options.clone();
    logging::start(log_format.unwrap_or_default().0);
    let mut nbd_config = config.server.nbd_config()?;
    let offload = offload.unwrap_or_default().0;
    let io = io.unwrap_or_default().0;
    let mut workers = Workers::start(threads.unwrap_or_default().0.map(usize::from), io)?;
    if let Some(device) = offload.start(offload::Options::default())? {
        workers.set_offload(offload.to_string(), device);
        // Of the library, which may open more at any time.
        inherited::keep_from_programs();
        service::before_commands(|| drop(inherited::keep_from_programs()));
    }
    workers.set_read_cache(ReadCache::new(read_cache.unwrap_or_default().0.0));
    nbd_config.helpers = Some(Arc::new(helpers_of(&workers)));
    nbd_config.on_bridge = Some(Arc::new(shortage::lock_memory));
    nbd_config.queue_runtime = Some(Arc::new(move || service::runtime_here(io)));
    let workers = Arc::new(workers);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let signals = signals::watch()?;
        orphans::reap()?;
        let activated = activated.into_iter().map(|activated| activated.socket).collect();
        Daemon::new(source, config, nbd_config, (workers.clone(), privileges), (signals, activated))?
            .run()
            .await
    });
    // Tasks hold references to the workers, so they are dropped first.
    drop(runtime);
    if let Ok(workers) = Arc::try_unwrap(workers) {
        workers.stop();
    }
    served
}

/// Returns the threads among which the large requests of a connection are dealt out.
fn helpers_of(workers: &Workers) -> nbd::Helpers {
    let threads = workers.threads().map(|(thread, share)| nbd::Worker::new(thread, share));
    nbd::Helpers::new(threads, workers.helpers())
}
