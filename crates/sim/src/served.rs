//! A drive as it is served. In some seeds hosts reach it through NBD connections and the counting and
//! throttling of the service, and the service's background work runs beside the simulator's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use codec::Policy;
use drive::{Covered, Drive, Fault, Settle, Spawner, Zeroes};
use futures::lock::Mutex as AsyncMutex;
use layout::ParityForm;
use media::{SimMedia, SimRng};
use nbd::{Access, Export, Peer, Presence, ServerConfig, ShutdownTrigger, serve_connection};
use parking_lot::Mutex;
use service::{Gate, ThrottleSettings, Unthreaded};
use tokio::sync::Notify;

use crate::backing::Backing;
use crate::subject::{Opening, PassStep, Space};
use crate::wire::{Command, FLAG_FUA, FLAG_NO_HOLE, Wire};
use crate::{Bug, Config, Error, Subject};

/// Number of connections that hosts share.
const WIRES: usize = 3;
/// While disturbed, one request in this many has its connection cut.
const CUTS_ONE_IN: u64 = 64;
/// Most attempts to establish a connection.
const CONNECT_ATTEMPTS_MAX: u32 = 1000;
/// Largest range of one request.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Buffer sizes of connections in bytes, for each direction. One of them is drawn.
const PIPE_BYTES: [usize; 4] = [1 << 10, 16 << 10, 256 << 10, 4 << 20];

/// A drive, and in some seeds its server.
#[derive(Clone)]
pub struct Served {
    drive: Drive<Backing>,
    server: Option<Arc<Server>>,
}

struct Server {
    shared: Arc<nbd::Exports<Gate<Backing>>>,
    service: Unthreaded<Backing>,
    shutdown: ShutdownTrigger,
    background: Arc<Running>,
    connections: Arc<Running>,
    spawner: Spawner,
    wires: [AsyncMutex<Option<Arc<Wire>>>; WIRES],
    rng: Mutex<SimRng>,
    /// Number of connections begun.
    begun: AtomicU64,
    /// The latest of them that was established.
    fenced: AtomicU64,
    /// True if the mistake of ignoring FUA is planted.
    forgets_fua: bool,
    /// True if the mistake of ignoring that clients leave is planted.
    is_blind: bool,
    disturbed: AtomicBool,
    /// Its clock was told to stop.
    is_stopping: AtomicBool,
}

/// Tasks of the server that have not ended.
#[derive(Default)]
struct Running {
    tasks: AtomicUsize,
    ended: Notify,
}

impl Running {
    fn spawn(self: &Arc<Self>, spawner: &Spawner, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        let running = self.clone();
        spawner(Box::pin(async move {
            task.await;
            running.tasks.fetch_sub(1, Ordering::Relaxed);
            running.ended.notify_one();
        }));
    }

    async fn end(&self) {
        while self.tasks.load(Ordering::Relaxed) > 0 {
            self.ended.notified().await;
        }
    }
}

impl Server {
    fn start(drive: &Drive<Backing>, opening: &Opening, trains: bool) -> Result<Server, Error> {
        let mut rng = SimRng::new(opening.entropy);
        let settings = ThrottleSettings {
            at_percent: [50.0, 90.0, 99.0][rng.index(3)],
            floor_bytes_per_second: [1 << 16, 4 << 20][rng.index(2)],
        };
        let throttle = rng.chance(1, 2).then_some(settings);
        let percent = if trains { [1.0, 10.0, 100.0][rng.index(3)] } else { 0.0 };
        let (service, background) = Unthreaded::new(drive.clone(), throttle, percent);
        let running = Arc::new(Running::default());
        background.into_iter().for_each(|task| running.spawn(&opening.spawner, task));
        if trains && rng.chance(1, 2) {
            service.start_settle();
        }
        let export = Export {
            name: String::new(),
            description: String::new(),
            device: service.gate.clone(),
            access: Access::Everyone,
            sharing: nbd::Sharing::default(),
        };
        let config = ServerConfig {
            requests_per_connection_max: [1, 4, 256][rng.index(3)],
            connections_max: 8,
            ..ServerConfig::default()
        };
        let invalid = |error: nbd::ConfigError| Error::Invalid(error.to_string());
        Ok(Server {
            shared: nbd::Exports::new(vec![export], config).map_err(invalid)?,
            service,
            shutdown: ShutdownTrigger::new(),
            background: running,
            connections: Arc::default(),
            spawner: opening.spawner.clone(),
            wires: Default::default(),
            rng: Mutex::new(rng),
            begun: AtomicU64::new(0),
            fenced: AtomicU64::new(0),
            forgets_fua: opening.bug == Some(Bug::FuaForgotten),
            is_blind: opening.bug == Some(Bug::FenceBlind),
            disturbed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns one of the connections, and establishes it if necessary.
    async fn wire(&self) -> Result<Arc<Wire>, Error> {
        let (index, pipe, cuts) = {
            let mut rng = self.rng.lock();
            let cuts = self.disturbed.load(Ordering::Relaxed) && rng.chance(1, CUTS_ONE_IN);
            (rng.index(WIRES), PIPE_BYTES[rng.index(PIPE_BYTES.len())], cuts)
        };
        let mut place = self.wires[index].lock().await;
        if let Some(wire) = place.as_ref().filter(|wire| !wire.is_lost()) {
            let wire = wire.clone();
            if cuts {
                wire.cut();
            }
            return Ok(wire);
        }
        let mut attempts = CONNECT_ATTEMPTS_MAX;
        let wire = loop {
            let (ours, theirs) = tokio::io::duplex(pipe);
            let (shared, shutdown) = (self.shared.clone(), self.shutdown.subscribe());
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            let is_lost = Arc::new(AtomicBool::new(false));
            let (has_left, is_blind) = (is_lost.clone(), self.is_blind);
            let presence = move |_: &_| match has_left.load(Ordering::Relaxed) && !is_blind {
                true => Presence::Left,
                false => Presence::Here,
            };
            self.connections.spawn(&self.spawner, async move {
                // The reason why it ended is visible on the client's side.
                let _ = serve_connection(theirs, presence, Peer::Unknown, &shared, shutdown).await;
            });
            attempts -= 1;
            match Wire::connect(ours, is_lost.clone(), &self.spawner).await {
                Ok(wire) => {
                    self.fenced.fetch_max(number, Ordering::Relaxed);
                    break Arc::new(wire);
                }
                // It timed out, or connections that were just cut still have all the places.
                Err(_) if attempts > 0 => is_lost.store(true, Ordering::Relaxed),
                Err(error) => return Err(Error::NoConnection(error.to_string())),
            }
        };
        *place = Some(wire.clone());
        Ok(wire)
    }

    async fn request(
        &self,
        command: Command,
        flags: u16,
        (offset, len): (u64, u64),
        data: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let flags = if self.forgets_fua { flags & !FLAG_FUA } else { flags };
        self.wire().await?.request(command, flags, (offset, len as u32), data).await
    }

    /// Sends requests without data for a range, as many as necessary.
    async fn request_range(
        &self,
        command: Command,
        flags: u16,
        (offset, len): (u64, u64),
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(RANGE_BYTES_MAX);
            self.request(command, flags, (offset + done, part), &[]).await?;
            done += part;
        }
        Ok(())
    }

    async fn stop_background(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.service.stop();
        self.background.end().await;
    }

    async fn stop(&self) {
        self.shutdown.trigger();
        self.connections.end().await;
        self.stop_background().await;
    }
}

fn flag(set: bool, flag: u16) -> u16 {
    if set { flag } else { 0 }
}

impl Subject for Served {
    async fn create(media: &SimMedia, config: &Config) -> Result<(), Error> {
        <Drive<Backing> as Subject>::create(media, config).await
    }

    async fn open(media: Arc<SimMedia>, config: &Config, opening: Opening) -> Result<Self, Error> {
        let served = config.is_served() && !opening.read_only && !opening.rescue;
        let drive = <Drive<Backing> as Subject>::open(media, config, opening.clone()).await?;
        let server = served.then(|| Server::start(&drive, &opening, config.is_training())).transpose()?;
        Ok(Served { drive, server: server.map(Arc::new) })
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(self.drive.read(offset, buf).await?) };
        let data = server.request(Command::Read, 0, (offset, buf.len() as u64), &[]).await?;
        buf.copy_from_slice(&data);
        Ok(())
    }

    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(self.drive.write(offset, data, fua).await?) };
        let range = (offset, data.len() as u64);
        server.request(Command::Write, flag(fua, FLAG_FUA), range, data).await.map(drop)
    }

    async fn flush(&self) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(self.drive.flush().await?) };
        match server.request(Command::Flush, 0, (0, 0), &[]).await {
            // A flush takes no room of the drive. It is the backing that has none.
            Err(Error::NoSpace) => Err(Error::BackingFull),
            answer => answer.map(drop),
        }
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        let Some(server) = &self.server else { return Ok(self.drive.trim(offset, len, fua).await?) };
        server.request_range(Command::Trim, flag(fua, FLAG_FUA), (offset, len)).await
    }

    async fn write_zeroes(&self, offset: u64, len: u64, zeroes: Zeroes) -> Result<(), Error> {
        let Some(server) = &self.server else {
            return Ok(self.drive.write_zeroes(offset, len, zeroes).await?);
        };
        let flags = flag(zeroes.fua, FLAG_FUA) | flag(!zeroes.unmap, FLAG_NO_HOLE);
        server.request_range(Command::WriteZeroes, flags, (offset, len)).await
    }

    fn connections_begun(&self) -> u64 {
        self.server.as_ref().map_or(0, |server| server.begun.load(Ordering::Relaxed))
    }

    fn connection_fenced(&self) -> u64 {
        self.server.as_ref().map_or(0, |server| server.fenced.load(Ordering::Relaxed))
    }

    fn disturb(&self, disturbed: bool) {
        if let Some(server) = &self.server {
            server.disturbed.store(disturbed, Ordering::Relaxed);
        }
    }

    async fn close(&self) -> Result<(), Error> {
        if let Some(server) = &self.server {
            server.stop().await;
        }
        Ok(self.drive.close().await?)
    }

    async fn maintain(&self) -> Result<bool, Error> {
        Ok(self.drive.maintain().await?)
    }

    async fn clean(&self) -> Result<bool, Error> {
        Ok(self.drive.clean().await?)
    }

    async fn checkpoint(&self) -> Result<(), Error> {
        Ok(self.drive.checkpoint().await?)
    }

    async fn settle(&self, block: u64, which: Settle) -> Result<PassStep, Error> {
        Subject::settle(&self.drive, block, which).await
    }

    async fn settle_again(&self, block: u64) -> Result<PassStep, Error> {
        self.drive.settle_again(block).await
    }

    async fn cut_hot(&self) -> Result<bool, Error> {
        self.drive.cut_hot().await
    }

    async fn free(&self) -> Result<bool, Error> {
        self.drive.free().await
    }

    async fn train(&self) -> Result<bool, Error> {
        Subject::train(&self.drive).await
    }

    fn tick(&self) {
        // A server's own clock ticks until it is stopped: from outside, a drive that nobody rouses would not
        // be seen.
        if self.server.as_ref().is_none_or(|server| server.is_stopping.load(Ordering::Relaxed)) {
            self.drive.tick();
        }
    }

    async fn check(&self, deep: bool) -> Result<Vec<Fault>, Error> {
        if let Some(server) = &self.server {
            // Nothing may change during the check.
            server.stop_background().await;
        }
        Subject::check(&self.drive, deep).await
    }

    async fn set_codec(&self, policy: Policy) -> Result<(), Error> {
        Ok(self.drive.set_codec(policy).await?)
    }

    async fn set_parity(&self, form: ParityForm) -> Result<(), Error> {
        Ok(self.drive.set_parity(form).await?)
    }

    async fn extents(&self, offset: u64, len: u64) -> Result<Vec<(u64, bool)>, Error> {
        Subject::extents(&self.drive, offset, len).await
    }

    async fn scrub(&self, block: u64) -> Result<PassStep, Error> {
        self.drive.scrub(block).await
    }

    fn set_map_budget(&self, bytes: u64) {
        self.drive.set_map_budget(bytes);
    }

    async fn grow(&self, physical: u64, logical: u64) -> Result<(), Error> {
        self.drive.grow(physical, logical).await
    }

    async fn wipe(media: Arc<SimMedia>) -> Result<(), Error> {
        <Drive<Backing> as Subject>::wipe(media).await
    }

    const CAN_WIPE: bool = <Drive<Backing> as Subject>::CAN_WIPE;
    const KEEPS_MEMORY: bool = <Drive<Backing> as Subject>::KEEPS_MEMORY;
    const AVOIDS_BAD_PAGES: bool = <Drive<Backing> as Subject>::AVOIDS_BAD_PAGES;
    const HAS_SPACE: bool = <Drive<Backing> as Subject>::HAS_SPACE;

    fn is_empty(&self) -> bool {
        self.drive.is_empty()
    }

    fn hold_overruns(&self) -> u64 {
        self.drive.hold_overruns()
    }

    fn waiting_memory_bytes(&self) -> u64 {
        self.drive.waiting_memory_bytes()
    }

    fn bad_segments(&self) -> u64 {
        self.drive.bad_segments()
    }

    fn damaged_segments(&self) -> u64 {
        self.drive.damaged_segments()
    }

    fn covered(&self) -> Vec<Covered> {
        self.drive.covered()
    }

    fn space(&self) -> Option<Space> {
        Subject::space(&self.drive)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.drive.counters()
    }

    fn recovered(&self) -> Vec<(&'static str, u64)> {
        self.drive.recovered()
    }
}
