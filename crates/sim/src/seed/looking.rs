//! Openings for reading only: whoever looks at a drive changes nothing, and is shown what a drive may show.
//!
//! It happens on a copy of the backing, so that all else of a seed is as it would be without.

use drive::Error;

use super::{Run, Stop};
use crate::oracle::LifeEnd;
use crate::{Opening, Style, Subject};

/// Openings for writing before which somebody looks: one in so many.
const ONE_IN: u64 = 8;

impl<S: Subject> Run<S> {
    /// Somebody looks at the drive first, now and then.
    pub(super) fn perhaps_look(&mut self) -> Result<(), Stop> {
        // What is to be seen while it is wiped is judged elsewhere.
        if self.wiping.is_some() || !self.looking.chance(1, ONE_IN) {
            return Ok(());
        }
        self.tell(|| "a look at the drive:".into());
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
        let opening = Opening { read_only: true, may_panic: false, ..self.opening(false) };
        let (media, config) = (self.media.clone(), self.config.clone());
        let before = self.media.counts();
        let opened = self.do_now("open to read", async move { S::open(media, &config, opening).await })?;
        match opened {
            Ok(drive) => {
                self.count("read-only: opened");
                self.drive = Some(drive);
                self.look_at_all()?;
            }
            Err(error) => {
                self.count("read-only: refused");
                // A full backing, and pages that take no write, are no matter.
                self.excuse("open to read", &error)?;
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

    /// A check may miss copies of superblock and checkpoints after a crash: only who opens the drive for writing makes them good.
    fn check_but_copies(&mut self) -> Result<(), Stop> {
        let deep = self.rng.chance(1, 4);
        let problems = self.attempt("check", |drive| async move { drive.check(deep).await })?;
        let problems =
            problems.map_err(|error| Stop::Failed(format!("check of a drive open to be read: {error}")))?;
        match problems.into_iter().find(|problem| !problem.contains("of the backing, copy ")) {
            None => Ok(()),
            Some(problem) => Err(Stop::Failed(format!("check of a drive open to be read: {problem}"))),
        }
    }

    fn look_at_all(&mut self) -> Result<(), Stop> {
        if !self.config.is_faulty() && self.unreadable.is_empty() {
            self.check_but_copies()?;
        }
        self.observe_all()?;
        self.oracle.lock().settle(LifeEnd::Crash)?;
        if self.config.style != Style::Large {
            self.read_annex()?;
        }
        let wrote = self.attempt("write while open to be read", |drive| async move {
            drive.write(0, &[0; 4096], false).await
        })?;
        let trimmed = self
            .attempt("trim while open to be read", |drive| async move { drive.trim(0, 4096, false).await })?;
        for result in [wrote, trimmed] {
            if !matches!(result, Err(Error::ReadOnly(_))) {
                return Err(Stop::Failed(format!("a drive opened to be read answers a write: {result:?}")));
            }
        }
        self.attempt("close after reading", |drive| async move { drive.close().await })?
            .map_err(|error| Stop::Failed(format!("a drive opened to be read does not close: {error}")))
    }
}
