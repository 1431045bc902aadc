//! The way back to a server that was gone.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::state::Phase;
use super::{Connected, Server, Shared};
use crate::link::{Link, Replies, call};
use crate::operation::Operation;

/// Interval between attempts to find a server.
const POLL: Duration = Duration::from_millis(100);

pub(super) fn links(streams: &[UnixStream]) -> io::Result<Arc<[Link]>> {
    streams.iter().map(|stream| stream.try_clone().map(Link::new)).collect()
}

/// Runs until the relay ends: whenever the server is gone, waits for it and makes up for what it has lost.
pub(super) fn keep(shared: &Arc<Shared>, server: &mut impl Server) {
    loop {
        let since = {
            let mut state = shared.state.lock();
            loop {
                match state.phase {
                    Phase::Waiting { since, .. } => break since,
                    Phase::Ended => return,
                    _ => shared.changed.wait(&mut state),
                }
            }
        };
        let recovered = recover(shared, server);
        shared.state.lock().recovering = None;
        match recovered {
            Ok(()) => tracing::info!(seconds = since.elapsed().as_secs_f64(), "the server is back"),
            Err(reason) => wait(shared, since, reason),
        }
    }
}

/// Waits until the next attempt, or gives up.
fn wait(shared: &Shared, began: Instant, why: String) {
    if !matches!(shared.state.lock().phase, Phase::Waiting { .. }) {
        return;
    }
    if began.elapsed() >= shared.settings.patience {
        tracing::error!(%why, "no server within the time limit: all requests fail from now on");
        shared.fail(Phase::Failed(why));
        return;
    }
    let mut state = shared.state.lock();
    if let Phase::Waiting { reason, .. } = &mut state.phase {
        *reason = Some(why);
        shared.changed.wait_for(&mut state, POLL);
    }
}

fn recover(shared: &Arc<Shared>, server: &mut impl Server) -> Result<(), String> {
    let Connected { streams } = server.connect()?;
    let links = links(&streams).map_err(broken)?;
    let made_up = make_up(shared, &links).and_then(|()| shared.install(links.clone()).map_err(broken));
    // What came over them must end before it is made again.
    made_up.inspect_err(|_| links.iter().for_each(Link::shut))
}

fn broken(error: io::Error) -> String {
    format!("the connection broke: {error}")
}

/// Makes changes again that the server may not have.
fn make_up(shared: &Shared, links: &Arc<[Link]>) -> Result<(), String> {
    let (journal, changes) = {
        let mut state = shared.state.lock();
        if !matches!(state.phase, Phase::Waiting { .. }) {
            return Err("given up".to_string());
        }
        state.recovering = Some(links.clone());
        (state.journal.entries(), state.changes_in_flight())
    };
    let first = links.first().ok_or("no connection")?;
    let mut replies = first.replies().map_err(broken)?;
    let count = journal.len();
    for change in journal {
        again(first, &mut replies, &change)
            .map_err(|why| format!("a write that was acknowledged cannot be made again: {why}"))?;
    }
    for (cookie, change) in changes {
        let outcome = call(first, &mut replies, cookie, &change).map_err(broken)?;
        if outcome == Err(Errno::SHUTDOWN) {
            return Err("the server is closing".to_string());
        }
        let done = shared.state.lock().finish(cookie, &outcome);
        if let Some(done) = done {
            done(outcome);
        }
    }
    let covers = shared.state.lock().journal.next();
    again(first, &mut replies, &Operation::Flush).map_err(|why| format!("cannot flush: {why}"))?;
    shared.state.lock().journal.forget(covers);
    if count > 0 {
        tracing::info!(count, "changes were made again");
    }
    Ok(())
}

/// Sends a request that must succeed.
fn again(link: &Link, replies: &mut Replies, operation: &Operation) -> Result<(), String> {
    match call(link, replies, 0, operation) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(errno)) => Err(errno.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
