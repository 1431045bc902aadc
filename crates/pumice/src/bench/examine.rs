//! A look at all targets before anything is made for a run. What takes long is said.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use ::bench::{Kind, Stop, Target};
use anyhow::{Context, Result, bail};
use nbd::client::{Connection, ExportUri};

use crate::usage::{WrongUsage, complain, one_line, printable};

/// Time after which a wait is said.
const SILENT: Duration = Duration::from_secs(3);
/// Longest wait for an answer of an NBD server.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// Says what is waited for, once, if it lasts until [`SILENT`] is over.
pub(super) struct Notice(Sender<()>);

impl Notice {
    pub(super) fn of(what: String) -> Notice {
        Notice::by(complain, what)
    }

    /// As [`Notice::of`], said by `say`.
    pub(super) fn by(say: impl FnOnce(&str) + Send + 'static, what: String) -> Notice {
        let (ended, wait) = mpsc::channel();
        std::thread::spawn(move || {
            if wait.recv_timeout(SILENT) == Err(RecvTimeoutError::Timeout) {
                say(&printable(&what));
            }
        });
        Notice(ended)
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        // The thread has ended if it has spoken.
        let _ = self.0.send(());
    }
}

/// Fails, as wrong usage, if there is nothing to measure at a target.
pub(super) fn examine(target: &Target, stop: &Stop) -> Result<()> {
    let _notice = match &target.kind {
        Kind::Nbd(_) | Kind::S3(_) => {
            Some(Notice::of(format!("waiting for an answer of the target {}", target.name)))
        }
        _ => None,
    };
    let found = match &target.kind {
        Kind::Nbd(uri) => export(uri).with_context(|| format!("target {}", target.name)),
        _ => target.examine(stop).map_err(Into::into),
    };
    found.map_err(|error| WrongUsage(one_line(&error)).into())
}

/// Asks an NBD server for its export, which must be large enough.
fn export(uri: &str) -> Result<()> {
    let parsed = ExportUri::parse(uri)?;
    let (sender, receiver) = mpsc::channel();
    // It goes on, if there is no answer, until the program ends.
    std::thread::spawn(move || {
        drop(sender.send(Connection::open(&parsed, None).map(|connection| connection.size_bytes())))
    });
    match receiver.recv_timeout(ANSWER) {
        Ok(Ok(bytes)) => Ok(::bench::large_enough(bytes)?),
        Ok(Err(error)) => Err(error).context(uri.to_string()),
        Err(_) => bail!("{uri}: the server does not answer within {} seconds", ANSWER.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_lasts_is_said_by_the_given_voice() {
        let (said, heard) = mpsc::channel();
        let notice = Notice::by(move |line| drop(said.send(line.to_string())), "looking\nlong".to_string());
        assert_eq!(heard.recv_timeout(ANSWER * 6).as_deref(), Ok("looking long"));
        drop(notice);
    }
}
