//! Erasing a drive that is being served: it is withdrawn from clients, closed, wiped, and opened again as it
//! was.

use std::ops::ControlFlow;

use anyhow::{anyhow, bail};
use nbd::Shutdown;
use service::{Erasure, Wipe};
use status::StatusReport;

use super::*;

/// Wait for clients that are leaving, and interval of looks.
const LEAVING: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

impl Daemon {
    /// Erases a drive. Returns its state afterwards, or why it was not erased. It is served again in any
    /// case, if it can be opened.
    pub(super) async fn erase(&mut self, erasure: &Erasure) -> Result<StatusReport> {
        let path = shown(&erasure.path).to_string();
        let is_it = |open: &Open| open.drive.path() == erasure.path && open.drive.uuid() == erasure.id;
        let Some(at) = self.open.iter().position(is_it) else {
            bail!("{path}: not served any more");
        };
        self.check_erasable(at, erasure).await.with_context(|| path.clone())?;
        let config = self.open[at].config.clone();
        let (own, closed) = self.close_drive(at).await;
        let wiped = match closed {
            Ok(()) => wipe(erasure, self.signals.stop.clone()).await,
            Err(error) => Err(error),
        };
        // Whatever came of it, its clients come back.
        let opened = self.open_unless_stopped(config.clone(), Some(own)).await;
        let opened = match opened {
            Some(Ok(())) => {
                self.retain_down(|path| path != config.path);
                Ok(())
            }
            Some(Err(error)) => {
                self.down(&config, &error);
                Err(error.context(format!("{path}: cannot be opened again")))
            }
            None => Err(anyhow!("the server is stopping")),
        };
        self.listen_as(&self.config.server.clone(), Vec::new()).await;
        self.endpoints.announce(&self.nbd, &self.printer);
        self.manager.ready(&self.summary());
        wiped.and(opened)?;
        let erased = self.open.iter().find(|open| is_it(open)).map(|open| open.drive.report());
        erased.with_context(|| format!("{path}: erased, and not served any more"))
    }

    /// Withdraws a drive from clients if it may be erased.
    async fn check_erasable(&self, at: usize, erasure: &Erasure) -> Result<()> {
        let open = &self.open[at];
        if open.config.options.open().read_only {
            bail!("served read-only");
        }
        if !self.privileges.can_open(&open.config.path, false) {
            bail!("its server could not open it again, for lack of privileges: stop that first");
        }
        if open.drive.is_attached() {
            bail!("attached: detach it first");
        }
        let since = std::time::Instant::now();
        while open.clients(&self.common) > 0 && since.elapsed() < LEAVING {
            tokio::time::sleep(POLL).await;
        }
        let clients = |count: usize| match count {
            1 => anyhow!("a client is connected to its server: disconnect it first"),
            count => anyhow!("{count} clients are connected to its server: disconnect them first"),
        };
        match open.clients(&self.common) {
            0 => {}
            count => return Err(clients(count)),
        }
        // One may have come meanwhile. From now on none does.
        let count = withdraw(&self.common, open).iter().map(|offered| offered.sessions()).sum();
        let used_bytes = open.drive.report().logical_used_bytes;
        let refused = match (count, erasure.only_if_empty && used_bytes > 0) {
            (0, false) => return Ok(()),
            (0, true) => anyhow!("holds data, {}", human::bytes(used_bytes)),
            (count, _) => clients(count),
        };
        for exports in [&self.common, &open.own] {
            exports.add(export(&open.config, &open.drive))?;
        }
        Err(refused)
    }
}

/// Wipes a drive that is not open. If the server is to stop, the old space is not discarded to its end.
async fn wipe(erasure: &Erasure, stop: Shutdown) -> Result<()> {
    let spawner: drive::Spawner = Arc::new(|future| drop(tokio::spawn(future)));
    let progress =
        |_, _| if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let wipe = Wipe { options: erasure.options, discard: true, take_over: false };
    let wiped = service::wipe(&erasure.path, wipe, spawner, progress).await;
    let (space, wiped) = wiped?;
    let path = shown(&erasure.path).to_string();
    for warning in wiped.not_taken {
        tracing::warn!(drive = %path, "{warning}");
    }
    if let service::SpaceAfterWipe::Failed(error) = space {
        tracing::warn!(drive = %path, "the old space was not discarded: {error}");
    }
    match wiped.may_come_back {
        false => Ok(()),
        true => Err(anyhow!(
            "{path}: wiped, but the backing did not take every copy of the superblock: if the others are lost, what \
             was on it may come back"
        )),
    }
}
