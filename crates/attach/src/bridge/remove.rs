//! Removal of an attachment on request.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use status::{DriveState, StatusReport};

use super::Attachment;
use crate::error::AttachError;
use crate::node;
use crate::place::{self, Record};
use crate::served::LOST;
use crate::upstream::UpstreamState;
use crate::users::openers;

/// Time for a flush when detaching, and if that is forced.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);
const FORCED_PATIENCE: Duration = Duration::from_secs(5);
/// Advice for most reasons why a drive cannot be flushed.
const START: &str = "start the server, or use --force";
/// Interval between attempts to flush.
const FLUSH_POLL: Duration = Duration::from_millis(100);
/// Time for commands that look at all devices to close the node.
const GLANCE: Duration = Duration::from_secs(1);
/// Time for other processes, such as those that examine new devices, to close the node.
const NODE_PATIENCE: Duration = Duration::from_secs(10);

impl Attachment {
    /// Flushes, then removes the node and everything else. With `force`, also if the drive cannot be flushed.
    /// Returns a description of the loss, if there was one.
    pub(super) fn remove(&mut self, force: bool) -> Result<Option<String>, AttachError> {
        self.shown.lock().is_detaching = true;
        let removed = self.remove_all(force);
        self.shown.lock().is_detaching = removed.is_ok();
        removed
    }

    fn remove_all(&mut self, force: bool) -> Result<Option<String>, AttachError> {
        let node = self.node.path().to_path_buf();
        let refused = |why: String| AttachError::Refused(format!("{}: {why}", node.display()));
        let own = format!("{} ", std::process::id());
        // A process that waits for a hanging server ends when its request has failed.
        let user = || openers(&node).into_iter().find(|user| !user.starts_with(&own) && !is_transient(user));
        // Commands that scan all devices open each one briefly.
        let since = Instant::now();
        // A node that was taken from the drive has the users of another drive.
        let is_its = || node::lost(&self.record, &self.folder).is_none();
        while !force
            && is_its()
            && let Some(user) = user()
        {
            if since.elapsed() >= GLANCE {
                return Err(refused(format!("in use by process {user}")));
            }
            std::thread::sleep(GLANCE / 10);
        }
        if let (false, UpstreamState::Waiting { reason, .. }) = (force, self.upstream.state()) {
            let why = reason.unwrap_or_else(|| "its server is gone".to_string());
            return Err(refused(format!(
                "requests are held, and would fail: {why}; fix that, or use --force"
            )));
        }
        let flushed = self.flush(if force { FORCED_PATIENCE } else { FLUSH_PATIENCE });
        if let Err(why) = flushed {
            if !force {
                return Err(refused(why.to_string()));
            }
            // Held requests would keep the node busy.
            self.upstream.give_up("its server was given up");
        }
        self.node.remove(NODE_PATIENCE, force)?;
        // Must come before another drive gets a node of this name.
        self.published = None;
        // The kernel writes back its page cache when the node is removed.
        let lost = self.flush(if force { FORCED_PATIENCE } else { FLUSH_PATIENCE }).err().map(|it| it.why);
        if let Some(why) = &lost {
            tracing::error!("not everything was flushed: {why}");
        }
        // Otherwise it would restart the server.
        self.upstream.close();
        let stopped = self.started.stop(force || lost.is_none()).inspect_err(|why| tracing::error!("{why}"));
        match &stopped {
            Ok(()) => place::remove(&self.folder),
            // Whoever detaches or attaches next finds the server. The node may be another drive's by then.
            Err(_) => {
                let left = Record { node: None, way: None, ..self.record.clone() };
                let _ = self.ledger.write(&left).inspect_err(|error| tracing::error!(%error, "the record"));
            }
        }
        tracing::info!("detached");
        Ok(lost.or(stopped.err().map(|why| why.to_string())))
    }

    /// Makes all acknowledged changes durable. Waits for the server if it is gone.
    fn flush(&self, patience: Duration) -> Result<(), Unflushed> {
        let (since, mut is_known_to_fail, mut failed) = (Instant::now(), false, None);
        loop {
            let why = match self.upstream.state() {
                UpstreamState::Connected => {
                    let left = patience.saturating_sub(since.elapsed());
                    match self.upstream.flush(left) {
                        Ok(()) => return Ok(()),
                        // The last attempt had no time left.
                        Err(Errno::TIMEDOUT) => {}
                        Err(errno) => failed = Some(errno),
                    }
                    // Asked twice: a server that has just lost its drive first reports that it refuses
                    // writes.
                    if let Some(unflushed) = self.refused_for_good()
                        && std::mem::replace(&mut is_known_to_fail, true)
                    {
                        return Err(unflushed);
                    }
                    match failed {
                        Some(errno) => format!("cannot flush: {errno}"),
                        None => format!("its server has not flushed within {} seconds", patience.as_secs()),
                    }
                }
                // What was acknowledged is in the memory of the drive, which its next server has. Every other
                // write has failed.
                UpstreamState::Failed(reason) => {
                    // Status is answered meanwhile.
                    let outlives_server = self.shown.lock().outlives_server;
                    let missing = if outlives_server { self.missing() } else { Some(LOST.to_string()) };
                    let Some(missing) = missing else { return Ok(()) };
                    let advice = "--force gives them up".to_string();
                    return Err(Unflushed { why: format!("{reason}; {missing}"), advice });
                }
                UpstreamState::Waiting { reason, .. } => {
                    let reason = reason.unwrap_or_else(|| "its server is gone".to_string());
                    format!("{reason}, and acknowledged writes may not be durable")
                }
            };
            if since.elapsed() >= patience {
                return Err(Unflushed { why, advice: START.to_string() });
            }
            std::thread::sleep(FLUSH_POLL);
        }
    }

    /// Why what was acknowledged is not there, as servers have said that do not serve the drive.
    fn missing(&self) -> Option<String> {
        let says_so = |report: &StatusReport| {
            report.state == DriveState::Down
                && report.server.as_ref().is_some_and(|server| server.writes_lost)
        };
        let is_lost = || self.search.search_again().drives.iter().any(says_so);
        self.known.missing().or_else(|| is_lost().then(|| LOST.to_string()))
    }

    /// Returns why no later flush can succeed, if the server has reported that.
    fn refused_for_good(&self) -> Option<Unflushed> {
        let report = self.search.find().filter(|report| report.state == DriveState::Poisoned)?;
        let (server, reason) = (report.server?, report.state_reason.unwrap_or_default());
        if server.disowned {
            let why = format!("{reason}; the unflushed writes of this machine cannot be delivered any more");
            return Some(Unflushed { why, advice: "`pumice detach --force` gives it up".to_string() });
        }
        let advice = format!("restart its server, process {}, or use --force", server.pid);
        Some(Unflushed { why: format!("its drive refuses writes: {reason}"), advice })
    }
}

/// Reason why acknowledged writes are not durable, with advice.
#[derive(Debug, thiserror::Error)]
#[error("{why}; {advice}")]
struct Unflushed {
    why: String,
    advice: String,
}

/// Returns whether a process is one that opens each new device briefly.
fn is_transient(user: &str) -> bool {
    user.contains("(udev") || user.contains("(systemd-udev")
}
