//! A served drive without threads and clocks: the path of hosts' requests, and its background work as futures
//! that the caller runs. A simulator serves drives in this way.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use drive::Drive;
use media::Media;
use tokio::sync::watch;

use crate::admission::held::{Held, WhenFull};
use crate::admission::throttle::{ThrottleSettings, Throttling};
use crate::serving::gate::Gate;
use crate::upkeep::background::{maintain, tick};
use crate::upkeep::improve::{self, improve};
use crate::watch::requests::Requests;
use crate::workers::busy::Hurry;

/// Background work of a drive, until it is done or dropped.
pub type BackgroundFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A served drive without threads.
pub struct Unthreaded<M: Media> {
    /// Path of hosts' requests.
    pub gate: Arc<Gate<M>>,
    improving: Arc<improve::ImproverContext<M>>,
    stop: watch::Sender<bool>,
}

impl<M: Media> Unthreaded<M> {
    /// Serves a drive that was just opened. The futures must be polled in the context of a tokio runtime,
    /// whose clock they use. Work for other threads is done by the caller.
    pub fn new(
        drive: Drive<M>,
        throttle: Option<ThrottleSettings>,
        background_cpu_percent: f64,
    ) -> (Unthreaded<M>, Vec<BackgroundFuture>) {
        let (stop, stopped) = watch::channel(false);
        let requests = Arc::new(Requests::new(1));
        let gate = Arc::new(Gate {
            drive: drive.clone(),
            requests: requests.clone(),
            throttle: Arc::default(),
            pacer: Arc::default(),
            held: Arc::new(Held::new(WhenFull::Error, Arc::default(), Box::new(|_, _| ()))),
            read_only: false,
        });
        let improving = improve::ImproverContext::new(
            (drive.clone(), PathBuf::new()),
            requests,
            (Arc::default(), Box::new(|_, _| ())),
            background_cpu_percent,
            || Duration::ZERO,
        );
        let throttling = (throttle.map_or(Throttling::Off, Throttling::At), gate.throttle.clone());
        let hurry = Hurry::new(Vec::new());
        let background: Vec<BackgroundFuture> = vec![
            Box::pin(tick(drive.clone(), throttling, gate.pacer.clone(), hurry, stopped.clone())),
            Box::pin(maintain(Arc::from(""), drive, stopped.clone())),
            Box::pin(improve(improving.clone(), stopped)),
        ];
        (Unthreaded { gate, improving, stop }, background)
    }

    /// Lets the background work end: each future when its current step is done.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Recompresses everything that is not settled.
    pub fn start_settle(&self) {
        self.improving.start_run();
    }
}
