//! A drive that is being served.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ask::{MarkName, is_marked};
use drive::{ReadCache, State, Trained};
use host::file::absolute;
use layout::ParityForm;
use media::{Allocation, AnyMedia, Lease};
use offload::Offload;
use status::{EventKind, IoBackend, ReadCacheReport, RequestReport, ServerReport, StatusReport, shown};
use tokio::sync::{Mutex, watch};

use crate::admission::held::Held;
use crate::answer::Answer;
use crate::error::ServiceError;
use crate::serving::close::close;
use crate::serving::erasure::Eraser;
use crate::serving::features::keeps_allocated;
use crate::serving::gate::Gate;
use crate::serving::grow::grow;
use crate::serving::instance::instance;
use crate::serving::open::{Helpers, OpenSettings, open};
use crate::serving::opening::Untaken;
use crate::serving::ownership::Ownership;
use crate::serving::run_memory::RunMemory;
use crate::upkeep::background::Background;
use crate::upkeep::improve::{self, Improver};
use crate::upkeep::scrub::Scrubber;
use crate::upkeep::scrub::periodic::scrub_periodically;
use crate::watch::monitor::Monitor;
use crate::watch::offload_report::offload_report;
use crate::watch::opened_file::id_of_media;
use crate::watch::report::report;
use crate::watch::requests::Requests;
use crate::workers::compute::{Meter, thread_time};
use crate::workers::pool::Workers;
use device::{Device, DeviceError, Extent, Geometry, Requester, Zeroes};

/// A drive on its workers: a [`Device`] that counts its requests and can be closed while clients are
/// connected.
pub struct ServedDrive {
    path: PathBuf,
    gate: Gate<AnyMedia>,
    media: Arc<AnyMedia>,
    direct: bool,
    keep_allocated: bool,
    backend: IoBackend,
    /// Compression device, with its name.
    offload: Option<(String, Arc<dyn Offload>)>,
    /// Of all drives.
    read_cache: Option<Arc<ReadCache>>,
    threads: usize,
    monitor: Monitor,
    opened: Instant,
    instance: String,
    /// This opening began with a loss of acknowledged writes.
    writes_lost: bool,
    /// The mark of a bridge that has the drive attached. `None` if the file system does not report which file
    /// it is.
    mark: Option<MarkName>,
    nbd_uris: parking_lot::Mutex<Vec<String>>,
    /// Performs erasures while it is served, if that is possible.
    eraser: parking_lot::Mutex<Option<Eraser>>,
    background: Mutex<Option<Background>>,
    scrubber: Scrubber,
    scrub_every: Option<Duration>,
    /// Ends the periodic scrubs.
    stop_scrubs: watch::Sender<bool>,
    improver: Improver,
    /// Held while the backing grows, which keeps it locked. False once the drive is closed.
    may_grow: Mutex<bool>,
    /// The right to write to the backing; `None` if it was opened read-only, or is closed.
    ownership: Mutex<Option<Ownership>>,
    /// Its lease; `None` if it was opened read-only.
    lease: Option<Arc<Lease>>,
    /// What outlives a kill of this process.
    memory: parking_lot::Mutex<Option<RunMemory>>,
}

impl ServedDrive {
    /// Opens the drive at `path` (recovering it if necessary) and starts its background work on worker
    /// `index`.
    ///
    /// # Errors
    ///
    /// Errors of opening the backing or the drive.
    pub fn open<'a>(
        path: &'a Path,
        settings: &'a OpenSettings,
        workers: &'a Workers,
        index: usize,
    ) -> Answer<'a, Result<Arc<ServedDrive>, ServiceError>> {
        Box::pin(async move {
            // Clients of the admin socket may be in another directory.
            let path = absolute(path);
            let meter = Arc::new(Meter::default());
            let (untaken, keep_allocated) = {
                let (path, settings, spawner) = (path.clone(), settings.clone(), workers.spawner());
                let helpers = Helpers {
                    compute: meter.runner(workers.compute()),
                    offload: workers.offload(),
                    read_cache: workers.read_cache(),
                };
                let begun = workers.openings().begin();
                // It runs to its end, even if the caller stops waiting.
                let opening = workers.spawn_on(index, async move {
                    let opened = open(&path, &settings, spawner, Some(helpers)).await?;
                    let untaken = Untaken::new(opened, begun);
                    let keep_allocated = keeps_allocated(&untaken.get().media).await;
                    Ok::<_, ServiceError>((untaken, keep_allocated))
                });
                opening.await.map_err(|_| ServiceError::WorkerGone)??
            };
            let (drive, media) = (untaken.get().drive.clone(), untaken.get().media.clone());
            let name: Arc<str> = shown(&path).to_string().into();
            let requests = Arc::new(Requests::new(workers.count()));
            let monitor = Monitor::start(&path, (&drive, &media), requests.clone(), &settings.monitor).await;
            // Nothing waits from here on.
            let mut opened = untaken.take();
            let writes_lost = opened.lost.is_some();
            if let Some(lost) = opened.lost.take() {
                monitor.event_sink()(EventKind::WritesLost, lost);
            }
            let gate = Gate {
                drive: drive.clone(),
                requests: requests.clone(),
                throttle: Arc::default(),
                pacer: Arc::default(),
                held: Arc::new(Held::new(settings.when_full, workers.held_bytes(), monitor.event_sink())),
                read_only: settings.read_only,
            };
            let throttling = (settings.throttle, gate.throttle.clone());
            let background = Background::start(workers, index, name, &drive, throttling, gate.pacer.clone());
            let improved = improve::ImproverContext::new(
                (drive.clone(), path.clone()),
                requests,
                (meter, monitor.event_sink()),
                settings.background_cpu_percent,
                thread_time,
            );
            let improver = Improver::start(workers, index, improved);
            let uuid = uuid::Uuid::from_bytes(drive.status().uuid).to_string();
            let (stop_scrubs, stopped) = watch::channel(false);
            if let Some(every) = settings.scrub_every {
                workers.spawn_on(index, scrub_periodically(drive.clone(), path.clone(), every, stopped));
            }
            Ok(Arc::new(ServedDrive {
                improver,
                mark: id_of_media(&Arc::downgrade(&media)).map(|file| MarkName::of(&uuid, &file)),
                scrub_every: settings.scrub_every,
                stop_scrubs,
                scrubber: Scrubber::new(drive, path.clone(), workers.spawner()),
                path,
                gate,
                direct: matches!(&*media, AnyMedia::File(file) if file.direct()),
                keep_allocated,
                media,
                backend: workers.backend(),
                offload: workers.offload_named(),
                read_cache: workers.read_cache(),
                threads: workers.count(),
                monitor,
                opened: Instant::now(),
                writes_lost,
                instance: instance(),
                nbd_uris: parking_lot::Mutex::default(),
                eraser: parking_lot::Mutex::default(),
                background: Mutex::new(Some(background)),
                may_grow: Mutex::new(true),
                lease: opened.lease().cloned(),
                memory: parking_lot::Mutex::new(opened.take_memory()),
                ownership: Mutex::new(opened.take_ownership()),
            }))
        })
    }

    /// Absolute path of the backing.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Id of the drive.
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.gate.drive.status().uuid)
    }

    /// Id of this opening of the drive, unlike that of any other.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Names who erases the drive when an administrator asks for that: closes it, wipes it, and opens it
    /// again.
    pub fn set_eraser(&self, eraser: Eraser) {
        *self.eraser.lock() = Some(eraser);
    }

    pub(crate) fn eraser(&self) -> Option<Eraser> {
        self.eraser.lock().clone()
    }

    /// Returns whether a bridge on this machine has the drive attached, whether or not it is connected to
    /// this server.
    pub fn is_attached(&self) -> bool {
        // Unknown: others may only read.
        self.mark.as_ref().is_some_and(|mark| is_marked(mark).unwrap_or(true))
    }

    /// Gives what outlives this process to the user that it is going to be.
    pub fn give_memory(&self, user: u32, group: u32) {
        if let Some(memory) = &*self.memory.lock() {
            memory.give(user, group);
        }
    }

    /// Sets the NBD URIs that the status shows.
    pub fn set_nbd_uris(&self, uris: Vec<String>) {
        *self.nbd_uris.lock() = uris;
    }

    /// Counts of requests.
    pub fn requests(&self) -> &Requests {
        &self.gate.requests
    }

    /// Returns the status of the drive.
    pub fn report(&self) -> StatusReport {
        let status = self.gate.drive.status();
        let mut report = report(&self.path, &status, &self.gate.drive, self.keep_allocated);
        report.scrubs.every_seconds = self.scrub_every.map(|every| every.as_secs_f64());
        report.server = Some(ServerReport {
            pid: std::process::id(),
            instance: self.instance.clone(),
            uptime_seconds: self.opened.elapsed().as_secs_f64(),
            threads: self.threads,
            nbd_uris: self.nbd_uris.lock().clone(),
            io_backend: self.backend,
            throttle_bytes_per_second: self.gate.throttle.rate(),
            direct_io: self.direct,
            memory_kept: matches!(status.state, State::Online)
                && !self.gate.drive.memory_has_lapsed()
                && self.memory.lock().as_ref().is_some_and(RunMemory::is_there),
            writes_lost: self.writes_lost,
            disowned: matches!(status.state, State::Poisoned(_)) && self.has_lost_lease(),
            requests: {
                let (held_count, held_total_count) = self.gate.held.counts();
                RequestReport { held_count, held_total_count, ..self.gate.requests.report() }
            },
            scrub: self.scrubber.report(),
            offload: self.offload.as_ref().map(|(name, offload)| offload_report(name, offload.statistics())),
            read_cache: self.read_cache.as_ref().map(|cache| ReadCacheReport {
                size_bytes: cache.size_bytes(),
                used_bytes: cache.used_bytes(),
                hits_count: status.read_cache_hits_count,
                misses_count: status.read_cache_misses_count,
            }),
            training: self.improver.training_report(),
            settling: self.improver.settling_report(),
            survey: self.improver.survey_report(),
            ..ServerReport::default()
        });
        if let Some(server) = &mut report.server {
            server.settling.estimate_by(&report.compression);
            report.compression.estimate_by(&server.settling);
        }
        self.monitor.complete(&mut report, &status);
        report
    }

    fn has_lost_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.lost().is_some())
    }

    /// Changes the memory for the drive's map, in bytes; see [`Drive::set_map_budget_bytes`].
    pub fn set_map_budget_bytes(&self, bytes: u64) {
        self.gate.drive.set_map_budget_bytes(bytes);
    }

    /// Increases the capacity that hosts see, for those that connect from now on.
    ///
    /// # Errors
    ///
    /// As for [`Drive::set_logical_capacity`].
    pub fn set_logical_capacity(&self, bytes: u64) -> Answer<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let before = self.gate.drive.logical_capacity_bytes();
            self.gate.drive.set_logical_capacity(bytes).await.map_err(|source| self.failed(source))?;
            tracing::info!(drive = %shown(&self.path), before, now = bytes, "logical capacity");
            Ok(())
        })
    }

    /// Compresses future writes by another policy.
    ///
    /// # Errors
    ///
    /// As for [`Drive::set_codec`].
    pub fn set_codec(&self, policy: codec::Policy) -> Answer<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let before = self.gate.drive.status().codec;
            self.gate.drive.set_codec(policy).await.map_err(|source| self.failed(source))?;
            tracing::info!(drive = %shown(&self.path), %before, now = %policy, "codec");
            Ok(())
        })
    }

    /// Sets apart another share of new segments for parity.
    ///
    /// # Errors
    ///
    /// As for [`Drive::set_parity`].
    pub fn set_parity(&self, form: ParityForm) -> Answer<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let before = self.gate.drive.status().parity.form;
            self.gate.drive.set_parity(form).await.map_err(|source| self.failed(source))?;
            tracing::info!(drive = %shown(&self.path), %before, now = %form, "parity");
            Ok(())
        })
    }

    /// Lets the drive use `bytes` of its backing. A file is extended first, with space allocated according to
    /// `allocation`.
    ///
    /// # Errors
    ///
    /// As for [`Drive::set_physical_size`] and [`FileMedia::grow`]; and if the drive is closed.
    pub fn set_physical_size(
        &self,
        bytes: u64,
        allocation: Allocation,
    ) -> Answer<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            let may_grow = self.may_grow.lock().await;
            if !*may_grow {
                return Err(ServiceError::Refused(format!("{}: the drive was closed", shown(&self.path))));
            }
            let before = self.gate.drive.status().physical_size_bytes;
            let lease = self.ownership.lock().await.as_ref().map(|ownership| ownership.lease.clone());
            let backing = (&self.media, lease.as_deref());
            // A drive that is out of space has space afterwards.
            self.monitor.catch_up().await;
            grow(&self.path, &self.gate.drive, backing, bytes, allocation).await?;
            self.gate.held.room_made();
            tracing::info!(drive = %shown(&self.path), before, now = bytes, "physical size");
            Ok(())
        })
    }

    /// Reads and verifies every record in the background at this rate, in bytes of records per second. A
    /// running scrub continues at that rate.
    pub fn start_scrub(&self, bytes_per_second: u64) {
        self.scrubber.start(bytes_per_second);
    }

    /// Stops a running scrub.
    pub fn stop_scrub(&self) {
        self.scrubber.stop();
    }

    /// Changes the share of a processor that the drive uses in the background, in percent from 0 (off)
    /// to 100.
    pub fn set_background_cpu_percent(&self, percent: f64) {
        self.improver.set_background_cpu_percent(percent);
    }

    /// Recompresses everything that is not settled, in the background but at full speed. A running one
    /// continues.
    pub fn start_settle(&self) {
        self.improver.start_run();
    }

    /// Stops a run of [`ServedDrive::start_settle`].
    pub fn stop_settle(&self) {
        self.improver.stop_run();
    }

    /// Trains a dictionary on a sample of data written since the drive was opened, or since the last
    /// training.
    ///
    /// # Errors
    ///
    /// As for [`Drive::train`].
    pub fn train(&self) -> Answer<'_, Result<Trained, ServiceError>> {
        Box::pin(async move { self.improver.train().await.map_err(|source| self.failed(source)) })
    }

    fn failed(&self, source: drive::Error) -> ServiceError {
        ServiceError::Drive { path: self.path.clone(), source }
    }

    /// Refuses new requests, waits up to `patience` for those in flight, makes everything durable and closes
    /// the drive. Closing again does nothing.
    ///
    /// # Errors
    ///
    /// The error of the last flush or checkpoint: the drive then recovers at its next opening.
    pub fn close(&self, patience: Duration) -> Answer<'_, Result<(), ServiceError>> {
        Box::pin(async move {
            const POLL: Duration = Duration::from_millis(1);
            let Some(background) = self.background.lock().await.take() else { return Ok(()) };
            self.gate.requests.refuse();
            self.gate.held.stop();
            let since = Instant::now();
            while self.gate.requests.in_flight() > 0 && since.elapsed() < patience {
                tokio::time::sleep(POLL).await;
            }
            let left = self.gate.requests.in_flight();
            if left > 0 {
                tracing::warn!(drive = %shown(&self.path), requests = left, "closing over requests still in flight");
            }
            match tokio::time::timeout(patience, self.may_grow.lock()).await {
                Ok(mut may_grow) => *may_grow = false,
                Err(_) => {
                    tracing::warn!(drive = %shown(&self.path), "closing while the backing still grows: it stays locked \
                        until then");
                }
            }
            self.scrubber.stop();
            self.stop_scrubs.send_replace(true);
            self.gate.drive.stop_waiting_for_room();
            // Stopped first, because it may wait for the others.
            self.improver.stop().await;
            let clock = background.stop_maintenance().await;
            self.monitor.stop().await;
            let mut memory = self.memory.lock().take();
            let closed = close(&self.gate.drive, &mut memory).await;
            clock.stop().await;
            if let Some(ownership) = self.ownership.lock().await.take() {
                ownership.give_back().await;
            }
            self.monitor.closed(&closed).await;
            closed.map_err(|source| self.failed(source))
        })
    }
}

impl Device for ServedDrive {
    fn geometry(&self) -> Geometry {
        self.gate.geometry()
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.gate.read(offset, buf).await
    }

    async fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        self.gate.write(offset, data, fua, requester).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.gate.flush().await
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool, requester: &Requester) -> Result<(), DeviceError> {
        self.gate.trim(offset, len, fua, requester).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroes: Zeroes,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        self.gate.write_zeroes(offset, len, zeroes, requester).await
    }

    async fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.gate.extents(offset, len, max).await
    }
}
