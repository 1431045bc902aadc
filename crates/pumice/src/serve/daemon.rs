//! The running server: its drives, their addresses, and changes of both by a reload.

mod erase;
mod reload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use admin::{HttpAddress, HttpListener, HttpServer};
use anyhow::{Context, Result};
use device::Device;
use front::Exports;
use nbd::{Address, ConfigError, Export, Inherited, Offered, ServerConfig, Sharing};
use service::{
    AdminSocket, Drives, EraseError, Eraser, Erasures, OpenSettings, ServedDrive, ServiceError, Workers,
};
use status::shown;
use tokio::task::JoinSet;

use super::addresses::{absolute, addresses, own_addresses};
use super::endpoints::{Bound, Endpoints};
use super::http;
use super::names::Names;
use super::printer::Printer;
use super::privileges::Privileges;
use super::signals::Signals;
use crate::config::{AtStart, Config, DriveConfig, Server, Source};
use crate::human;
use crate::systemd::Manager;
use crate::usage::one_line;

/// Wait for requests in flight when a drive is closed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Wait, when the server stops, for drives that are being opened: they are closed then.
const OPENING: Duration = Duration::from_secs(10);
/// Additional wait for clients to disconnect.
const PARTING: Duration = Duration::from_secs(2);

/// Interval between attempts to open drives that are in use by another process.
const RETRY: Duration = Duration::from_secs(5);

/// An open drive.
struct Open {
    config: DriveConfig,
    drive: Arc<ServedDrive>,
    /// Exports of the addresses where this drive is the only export.
    own: Exports,
    /// Admin socket for status requests; `None` if it could not be created.
    admin: Option<AdminSocket>,
}

/// Addresses bound before any drive is opened. An address that cannot be bound then costs no recovery and
/// changes no drive. Clients that connect early wait.
struct Early {
    nbd: Vec<Bound>,
    http: Option<HttpListener>,
    /// Responds immediately, with the drives open so far.
    admin: Option<AdminSocket>,
}

pub(super) struct Daemon {
    source: Source,
    /// The configuration in effect.
    config: Config,
    nbd: ServerConfig,
    workers: Arc<Workers>,
    privileges: Privileges,
    manager: Manager,
    signals: Signals,
    /// Drives as visible on the admin socket.
    drives: Drives,
    open: Vec<Open>,
    /// Exports of all drives, for the server's addresses.
    common: Exports,
    endpoints: Endpoints,
    http: Option<HttpServer>,
    /// Drives that could not be opened because they were in use. Opening them is tried again until it
    /// succeeds.
    waiting: Vec<PathBuf>,
    /// Admin socket for the status of drives that could not be opened; `None` if there are none.
    down_admin: Option<AdminSocket>,
    printer: Printer,
    /// Requests to erase drives.
    eraser: Eraser,
    erasures: Erasures,
    /// Number of openings. It distributes drives over the workers.
    openings: usize,
}

impl Daemon {
    pub(super) fn new(
        source: Source,
        config: Config,
        nbd: ServerConfig,
        (workers, privileges): (Arc<Workers>, Privileges),
        (signals, activated): (Signals, Vec<Inherited>),
    ) -> Result<Daemon> {
        let common = nbd::Exports::empty(nbd.clone())?;
        common.arrange(config.names());
        let endpoints = Endpoints::new(workers.clone(), signals.stop.clone(), activated);
        let (eraser, erasures) = Eraser::new();
        Ok(Daemon {
            source,
            config,
            nbd,
            workers,
            privileges,
            manager: Manager::connect(),
            signals,
            drives: Drives::default(),
            open: Vec::new(),
            common,
            endpoints,
            http: None,
            waiting: Vec::new(),
            down_admin: None,
            printer: Printer::start()?,
            eraser,
            erasures,
            openings: 0,
        })
    }

    /// Serves until a stop is requested, then closes everything.
    pub(super) async fn run(mut self) -> Result<()> {
        let mut stop = self.signals.stop.clone();
        let early = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            early = self.bind() => early?,
        };
        // Commands for events must not run as root.
        let held = service::hold_commands().await;
        let opened = self.open_all().await;
        let early = matches!(opened, Ok(true)).then_some(early);
        if early.is_none() {
            // Removes the other sockets as well: the user that it becomes may lack the permission.
            self.down_admin = None;
            self.open.iter_mut().for_each(|open| open.admin = None);
        }
        let of_drives = self.open.iter().filter_map(|open| open.admin.as_ref());
        let backings = self.open.iter().map(|open| open.config.path.as_path());
        let drives = self.open.iter().map(|open| &*open.drive);
        let given_up = self.privileges.give_up(backings, of_drives.chain(&self.down_admin), drives, &held);
        let _held = given_up.is_err().then_some(held);
        self.check_reloads();
        let result = match (opened, given_up, early) {
            (Err(error), ..) | (_, Err(error), _) => Err(error),
            (Ok(_), Ok(()), Some(early)) => self.serve(early).await,
            (Ok(_), Ok(()), None) => Ok(()),
        };
        // Closes all open drives, even if others failed.
        let drives: Vec<_> = self.open.iter().map(|open| open.drive.clone()).collect();
        let closed = together(drives.into_iter().map(async |drive| close(&drive).await)).await;
        together(self.drives.down().into_iter().map(async |drive| drive.finish().await)).await;
        if tokio::time::timeout(OPENING, self.workers.openings_ended()).await.is_err() {
            tracing::warn!(
                "stopped while a drive was being opened: another machine cannot open it without --take-over"
            );
        }
        let mut failures = closed.into_iter().filter_map(Result::err);
        let first = failures.next();
        failures.for_each(|error| tracing::error!("{}", one_line(&error)));
        result.and(first.map_or(Ok(()), Err))
    }

    /// Logs an error if the user that the server became cannot read its configuration and certificates again:
    /// neither renewed certificates nor revocations would take effect.
    fn check_reloads(&self) {
        if !self.privileges.changed_user() || self.source.file.is_none() {
            return;
        }
        let again = self.source.load().and_then(|config| config.server.nbd_config());
        if let Err(error) = again {
            tracing::error!(
                "a reload will fail, and nothing it should revoke be revoked: {}; make it readable to the user of \
                 the server",
                one_line(&error)
            );
        }
    }

    async fn bind(&self) -> Result<Early> {
        let server = &self.config.server;
        let wanted = addresses(&self.config)?;
        let names =
            Names::resolve(self.endpoints.missing_hosts(&wanted).into_iter().chain(http_host(server))).await;
        let admin = server.admin.as_ref().map(|path| AdminSocket::listen(path, self.drives.clone()));
        Ok(Early {
            nbd: self.endpoints.bind(&wanted, &names, &self.nbd)?,
            http: bind_http(server, &names)?,
            admin: admin.transpose()?,
        })
    }

    /// Opens the drives of the configuration. A drive in the file that cannot be opened is reported as down,
    /// and the others are served. A failure of a drive named on the command line ends the server. Returns
    /// false if a stop is requested before all are open.
    async fn open_all(&mut self) -> Result<bool> {
        let mut stop = self.signals.stop.clone();
        let tolerant = self.source.file.is_some() && self.source.overrides.paths.is_empty();
        // An opening keeps a worker busy. If the first failure ends the server, drives are opened one at a
        // time, so that the remaining ones are not touched.
        let most = if tolerant { self.workers.count() } else { 1 };
        let (configs, mut openings) = (self.config.drives.clone(), JoinSet::new());
        let mut to_open = configs.iter().enumerate();
        // Drives are offered in the order of the configuration, whichever is open first.
        let (mut opened, mut next) = (BTreeMap::new(), 0);
        let mut last = None;
        loop {
            for (at, config) in to_open.by_ref().take(most - openings.len()) {
                let opening = self.opening(config, self.source.overrides.at_start);
                openings.spawn(async move { (at, opening.await) });
            }
            let joined = tokio::select! {
                joined = openings.join_next() => joined,
                () = stop.requested() => {
                    close_all(opened.into_values(), openings).await;
                    return Ok(false);
                }
            };
            // A panic ends the process.
            let Some(Ok((at, drive))) = joined else { break };
            opened.insert(at, drive);
            while let Some(drive) = opened.remove(&next) {
                let config = &configs[next];
                next += 1;
                let offered = match drive {
                    Ok(drive) => self.offer(config.clone(), drive, None).await,
                    Err(error) => Err(error),
                };
                match offered {
                    Ok(()) => {}
                    Err(error) if tolerant => {
                        self.down(config, &error);
                        last = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        match last {
            Some(error) if self.open.is_empty() => Err(error),
            _ => Ok(true),
        }
    }

    /// Opens a drive and offers it. `own` are its previous exports at its own addresses, if any.
    async fn open_drive(&mut self, config: DriveConfig, own: Option<Exports>) -> Result<()> {
        let drive = self.opening(&config, AtStart::default()).await?;
        self.offer(config, drive, own).await
    }

    /// Returns the future that opens a drive on the next worker.
    fn opening(
        &mut self,
        config: &DriveConfig,
        AtStart { take_over, forget_memory }: AtStart,
    ) -> impl Future<Output = Result<Arc<ServedDrive>>> + Send + 'static {
        let settings = OpenSettings { take_over, forget_memory, ..config.options.open() };
        let (path, workers) = (config.path.clone(), self.workers.clone());
        let index = self.openings;
        self.openings += 1;
        async move { Ok(ServedDrive::open(&path, &settings, &workers, index).await?) }
    }

    async fn offer(
        &mut self,
        config: DriveConfig,
        drive: Arc<ServedDrive>,
        own: Option<Exports>,
    ) -> Result<()> {
        let direct = drive.report().server.is_some_and(|server| server.direct_io);
        let io = self.workers.backend().as_str();
        tracing::debug!(drive = %shown(&config.path), direct, io, "how the backing is reached");
        let offer = || {
            let own = own.unwrap_or_else(|| self.common.others());
            own.arrange(vec![config.name.clone()]);
            own.add(export(&config, &drive))?;
            self.common.add(export(&config, &drive))?;
            Ok::<Exports, ConfigError>(own)
        };
        let own = match offer() {
            Ok(own) => own,
            Err(error) => {
                close(&drive).await?;
                return Err(error.into());
            }
        };
        drive.set_eraser(self.eraser.clone());
        let admin = AdminSocket::listen_for(&drive);
        // Serving the drive matters more than its status.
        let admin = admin.inspect_err(|error| tracing::warn!(%error, "status will not find this drive")).ok();
        self.drives.add(drive.clone());
        self.open.push(Open { config, drive, own, admin });
        Ok(())
    }

    /// Reports a drive that could not be opened as down. A reload tries to open it again. If that
    /// may pass, the server also tries again by itself.
    fn down(&mut self, config: &DriveConfig, error: &anyhow::Error) {
        let monitor = config.options.open().monitor;
        let mut reason = one_line(error);
        self.waiting.retain(|path| *path != config.path);
        if may_pass(error) {
            self.waiting.push(config.path.clone());
            reason += &format!("; tried again every {} seconds", RETRY.as_secs());
        }
        if let Some(hint) = self.privileges.explain(error) {
            reason += &format!("; {hint}");
        }
        let is_lost = matches!(error.downcast_ref(), Some(ServiceError::LostBelow { .. }));
        self.drives.fail(&config.path, &monitor, &reason, is_lost);
        if self.down_admin.is_none() {
            let admin = AdminSocket::listen_for_down(&self.drives);
            // Serving the other drives matters more.
            self.down_admin =
                admin.inspect_err(|error| tracing::warn!(%error, "status will not find this drive")).ok();
        }
    }

    /// Removes the drives for which `stays` is false from the list of drives that are down.
    fn retain_down(&mut self, stays: impl Fn(&Path) -> bool) {
        self.waiting.retain(|path| stays(path));
        self.drives.retain_down(stays);
        if self.drives.down().is_empty() {
            self.down_admin = None;
        }
    }

    /// Withdraws a drive from clients and closes it. Clients get replies to their requests and are
    /// disconnected first. Returns the exports of the drive's own addresses, and the result of closing.
    async fn close_drive(&mut self, at: usize) -> (Exports, Result<()>) {
        let open = self.open.remove(at);
        let gone = withdraw(&self.common, &open);
        let parted = async {
            for offered in &gone {
                offered.unused().await;
            }
        };
        if tokio::time::timeout(self.nbd.shutdown_grace + PARTING, parted).await.is_err() {
            tracing::warn!(drive = %shown(&open.config.path), "closing under clients that do not leave");
        }
        self.drives.remove(&open.drive);
        let closed = close(&open.drive).await;
        if closed.is_ok() {
            tracing::info!(drive = %shown(&open.config.path), "closed");
        }
        (open.own, closed)
    }

    /// Returns the addresses to listen at and their exports, for the given server settings and the open
    /// drives.
    fn wanted(&self, server: &Server) -> Result<Vec<(Address, Exports)>> {
        let mut wanted = Vec::new();
        for address in &server.nbd {
            wanted.push((absolute(address)?, self.common.clone()));
        }
        for open in &self.open {
            for address in own_addresses(&open.config, server)? {
                wanted.push((absolute(&address)?, open.own.clone()));
            }
        }
        Ok(wanted)
    }

    async fn serve(&mut self, early: Early) -> Result<()> {
        let _admin_of_all = early.admin;
        self.http = early
            .http
            .map(|listener| http::serve(listener, self.drives.clone(), self.common.clone(), &self.printer));
        // Excludes drives that could not be opened.
        let wanted = self.wanted(&self.config.server)?;
        drop(self.endpoints.accept(early.nbd, &wanted, &self.nbd)?);
        self.endpoints.report_unaccepted();
        self.endpoints.announce(&self.nbd, &self.printer);
        self.manager.ready(&self.summary());
        let mut stop = self.signals.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => break,
                _ = self.signals.reload.recv() => {
                    self.manager.reloading();
                    self.reload().await;
                    self.manager.ready(&self.summary());
                }
                Some(erasure) = self.erasures.recv() => {
                    let result = self.erase(&erasure).await;
                    erasure.answer(result.map_err(|error| EraseError::Failed(one_line(&error).into())));
                }
                () = tokio::time::sleep(RETRY), if !self.waiting.is_empty() => self.try_again().await,
            }
        }
        self.manager.stopping();
        tracing::info!("stopping: answering what is in flight; a second signal stops at once");
        self.endpoints.ended().await;
        Ok(())
    }

    /// Opens a drive as [`Daemon::open_drive`] does. Returns `None` if a stop is requested meanwhile.
    async fn open_unless_stopped(&mut self, config: DriveConfig, own: Option<Exports>) -> Option<Result<()>> {
        let mut stop = self.signals.stop.clone();
        tokio::select! {
            biased;
            () = stop.requested() => None,
            opened = self.open_drive(config, own) => Some(opened),
        }
    }

    /// Tries again to open the drives whose reason to be down may pass.
    async fn try_again(&mut self) {
        let mut changed = false;
        for path in self.waiting.clone() {
            let Some(config) = self.config.drives.iter().find(|drive| drive.path == path).cloned() else {
                continue;
            };
            match self.open_unless_stopped(config.clone(), None).await {
                None => return,
                Some(Ok(())) => {
                    tracing::info!(drive = %shown(&path), "opened: what kept it down has passed");
                    self.retain_down(|other| other != path);
                    changed = true;
                }
                // Already reported, but for another reason.
                Some(Err(error)) if may_pass(&error) && self.drives.is_down(&path, &one_line(&error)) => {}
                Some(Err(error)) => self.down(&config, &error),
            }
        }
        if changed {
            self.listen_as(&self.config.server.clone(), Vec::new()).await;
            self.endpoints.announce(&self.nbd, &self.printer);
            self.manager.ready(&self.summary());
        }
    }

    fn summary(&self) -> String {
        let up = match self.open.len() {
            1 => "serving 1 drive".to_string(),
            count => format!("serving {count} drives"),
        };
        match self.drives.down().len() {
            0 => up,
            count => format!("{up}, {count} down"),
        }
    }
}

/// Returns the configured address for HTTP.
fn http_address(server: &Server) -> Option<&HttpAddress> {
    server.options.http.as_ref().and_then(|http| http.0.as_ref())
}

/// Returns the host to listen at for HTTP.
fn http_host(server: &Server) -> Option<(String, u16)> {
    match http_address(server)? {
        HttpAddress::Tcp(host, port) => Some((host.clone(), *port)),
        HttpAddress::Unix(_) => None,
    }
}

/// Binds the address for HTTP. `names` has its host.
fn bind_http(server: &Server, names: &Names) -> Result<Option<HttpListener>> {
    let insecure = server.options.insecure.unwrap_or_default();
    let bind = |at| HttpListener::bind_at(at, insecure, |name, port| names.get(name, port));
    Ok(http_address(server).map(bind).transpose()?)
}

/// Returns whether a drive that could not be opened may be opened later: another process uses it, or what the
/// killed server left cannot be used just now.
fn may_pass(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(ServiceError::Media(error)) => error.is_in_use(),
        Some(ServiceError::LeftMemory { passes, .. }) => *passes,
        Some(ServiceError::Unknown { .. }) => true,
        Some(ServiceError::Drive { source, .. }) => matches!(source, drive::Error::Owned(_)),
        _ => false,
    }
}

/// Runs all futures concurrently and returns their results in order.
async fn together<F>(work: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let begun: Vec<_> = work.map(tokio::spawn).collect();
    let mut done = Vec::new();
    for task in begun {
        // A panic ends the process.
        done.extend(task.await);
    }
    done
}

/// Removes the drive from its exports, so that no new client can select it.
fn withdraw(common: &Exports, open: &Open) -> Vec<Arc<Offered<ServedDrive>>> {
    let name = &open.config.name;
    common.remove(name).into_iter().chain(open.own.remove(name)).collect()
}

fn export(config: &DriveConfig, drive: &Arc<ServedDrive>) -> Export<ServedDrive> {
    Export {
        name: config.name.clone(),
        description: format!("Pumice drive, {}", human::bytes(drive.geometry().capacity_bytes)),
        device: drive.clone(),
        access: config.access.clone(),
        sharing: Sharing {
            opening: drive.instance().to_owned(),
            shared_writes: config.options.shared_writes.unwrap_or_default(),
            mark: {
                let drive = drive.clone();
                Some(Arc::new(move || drive.is_attached()))
            },
        },
    }
}

/// Closes drives that are not offered yet. Those that are still being opened are closed when they are open.
async fn close_all(
    opened: impl Iterator<Item = Result<Arc<ServedDrive>>>,
    mut openings: JoinSet<(usize, Result<Arc<ServedDrive>>)>,
) {
    let mut drives: Vec<_> = opened.flatten().collect();
    openings.abort_all();
    while let Some(joined) = openings.join_next().await {
        // Or it was aborted while it waited.
        if let Ok((_, Ok(drive))) = joined {
            drives.push(drive);
        }
    }
    let closed = together(drives.into_iter().map(async |drive| close(&drive).await)).await;
    closed.into_iter().filter_map(Result::err).for_each(|error| tracing::error!("{}", one_line(&error)));
}

async fn close(drive: &Arc<ServedDrive>) -> Result<()> {
    drive.close(PATIENCE).await.with_context(|| format!("{}: not closed properly", shown(drive.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_done_together_does_not_wait_for_what_is_before_it() {
        let all = Arc::new(tokio::sync::Barrier::new(3));
        let work = (0..3).map(|number| {
            let all = all.clone();
            async move {
                all.wait().await;
                number
            }
        });
        let done = tokio::time::timeout(Duration::from_secs(60), together(work)).await;
        assert_eq!(done.ok(), Some(vec![0, 1, 2]));
    }
}
