//! Openings for reading only: they must not change anything, and must return what the oracle allows.
//!
//! They are done on a copy of the backing, so that the rest of a seed does not depend on them.

use drive::Subject as Part;

use super::{Run, Stop};
use crate::doing::Doing;
use crate::oracle::LifeEnd;
use crate::{Error, Opening, Style, Subject};

/// One opening for writing in this many is preceded by an opening for reading only.
const ONE_IN: u64 = 8;

impl<S: Subject> Run<S> {
    /// Opens the drive for reading only, in some cases.
    pub(super) fn perhaps_look(&mut self) -> Result<(), Stop> {
        // The content during a wipe is checked elsewhere.
        if self.wiping.is_some() || !self.looking.chance(1, ONE_IN) {
            return Ok(());
        }
        self.trace(|| "a look at the drive:".into());
        let rng = self.looking.fork();
        let mut look = self.fork(rng);
        look.calm();
        let looked = look.look();
        look.drop_drive();
        self.counts.lock().absorb(&look.counts.lock());
        self.steps += look.steps;
        looked
    }

    fn look(&mut self) -> Result<(), Stop> {
        let opening = Opening { read_only: true, may_panic: false, memory: None, ..self.opening(false) };
        let (media, config) = (self.media.clone(), self.config.clone());
        let before = self.media.counts();
        let opened = self.do_now("open to read", async move { S::open(media, &config, opening).await })?;
        match opened {
            Ok(drive) => {
                self.count("read-only: opened");
                self.drive = Some(drive);
                self.look_at_all()?;
            }
            Err(Error::LeftMemory(why)) => self.memory_refused(&why)?,
            Err(error) if self.end_is_in_doubt(&error, false) => self.count("read-only: refused, start lost"),
            Err(error) if self.end_is_unreadable(&error)? => {
                self.count("read-only: refused, the log may go on in a page that was lost");
            }
            Err(error) => {
                self.count("read-only: refused");
                // A full backing, and pages that accept no writes, are no excuse.
                self.excuse(Doing::OpenToRead, &error)?;
            }
        }
        let after = self.media.counts();
        if (before.writes, before.discards) != (after.writes, after.discards) {
            return Err(Stop::Failed(format!(
                "a drive opened to be read wrote {} times to its backing, and discarded {} times",
                after.writes - before.writes,
                after.discards - before.discards
            )));
        }
        Ok(())
    }

    /// Checks the drive, ignoring problems with copies of superblock and checkpoints. After a crash copies
    /// may be missing, and only an opening for writing repairs them.
    fn check_but_copies(&mut self) -> Result<(), Stop> {
        let deep = self.rng.chance(1, 4);
        let problems = self.attempt("check", |drive| async move { drive.check(deep).await })?;
        let problems =
            problems.map_err(|error| Stop::Failed(format!("check of a drive open to be read: {error}")))?;
        match problems.into_iter().find(|fault| fault.subject != Part::Copy) {
            None => Ok(()),
            Some(problem) => Err(Stop::Failed(format!("check of a drive open to be read: {problem}"))),
        }
    }

    fn look_at_all(&mut self) -> Result<(), Stop> {
        if !self.config.is_faulty() && self.unreadable.is_empty() && !self.is_damaged() {
            self.check_but_copies()?;
        }
        self.observe_all()?;
        let end = if self.is_kept { LifeEnd::Kept } else { LifeEnd::Crash };
        self.oracle.lock().resolve(end)?;
        if self.config.style != Style::Large {
            self.read_annex()?;
        }
        let wrote = self.attempt("write while open to be read", |drive| async move {
            drive.write(0, &[0; 4096], false).await
        })?;
        let trimmed = self
            .attempt("trim while open to be read", |drive| async move { drive.trim(0, 4096, false).await })?;
        for result in [wrote, trimmed] {
            if !result.as_ref().is_err_and(Error::is_read_only) {
                return Err(Stop::Failed(format!("a drive opened to be read answers a write: {result:?}")));
            }
        }
        self.attempt("close after reading", |drive| async move { drive.close().await })?
            .map_err(|error| Stop::Failed(format!("a drive opened to be read does not close: {error}")))
    }
}
