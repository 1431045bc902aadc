//! FLUSH and FUA: what was acknowledged becomes durable. Concurrent flushes share packs and syncs.

use std::sync::{Arc, OnceLock};

use layout::Head;
use media::{IoBuf, Media};

use crate::core::Core;
use crate::error::Error;
use crate::shared::{Drive, Shared};

impl<M: Media> Drive<M> {
    /// Makes every write that returned before this call durable.
    pub async fn flush(&self) -> Result<(), Error> {
        let shared = &self.0;
        {
            let mut core = shared.core();
            if let Some(why) = &core.poisoned {
                return Err(Error::ReadOnly(why.clone()));
            }
            if core.read_only.is_some() {
                return Ok(());
            }
            core.counters.flushes_count += 1;
        }
        #[cfg(feature = "planted-bugs")]
        if shared.core().has_bug(crate::PlantedBug::SkipFlush) {
            shared.seal_host();
            return Ok(());
        }
        shared.flush_log().await
    }
}

impl<M: Media> Shared<M> {
    /// Makes everything appended to the host's head durable.
    pub(crate) async fn flush_log(self: &Arc<Self>) -> Result<(), Error> {
        let target = self.seal_host();
        self.durable(target).await
    }

    /// Makes what was moved durable too.
    pub(crate) async fn flush_moved(self: &Arc<Self>) -> Result<(), Error> {
        let target = self.seal(&[Head::Cleaning, Head::Host]);
        self.durable(target).await
    }

    /// Seals the host's open pack and sends it out. Answers what has to be durable for it to be.
    fn seal_host(self: &Arc<Self>) -> u64 {
        self.seal(&[Head::Host])
    }

    fn seal(self: &Arc<Self>, heads: &[Head]) -> u64 {
        let (target, packs) = {
            let mut core = self.core();
            let core = &mut *core;
            for head in heads {
                core.log.seal(*head, &mut core.segments);
            }
            (core.log.filled(), core.log.take_outbox())
        };
        self.write_out(packs);
        target
    }

    /// Waits until every pack up to `target` (sealed and sent already) is durable, syncing as needed.
    pub(crate) async fn durable(self: &Arc<Self>, target: u64) -> Result<(), Error> {
        loop {
            let lead = self.wait_for(|core| Self::next_step(core, target)).await?;
            let Some(mark) = lead else { return Ok(()) };
            // In the background, so that the sync counts even if this request is given up.
            let shared = self.clone();
            (self.spawner)(Box::pin(async move { shared.sync(mark).await }));
        }
    }

    /// For one who waits for `target`: done (`None`), must sync now (up to which number), or must wait.
    fn next_step(core: &mut Core, target: u64) -> Option<Result<Option<u64>, Error>> {
        if core.log.durable() >= target {
            return Some(Ok(None));
        }
        if let Some(why) = &core.poisoned {
            return Some(Err(Error::ReadOnly(why.clone())));
        }
        if core.syncing || core.log.written() < target {
            return None;
        }
        core.syncing = true;
        Some(Ok(Some(core.log.written())))
    }

    /// Syncs the medium once, for what was written outside the log. Like every sync it waits for the one under way: of
    /// two at a time, one could swallow the error that concerns the other's writes, and report success.
    pub(crate) async fn sync_once(self: &Arc<Self>) -> Result<(), Error> {
        let begun = self.wait_for(|core| match &core.poisoned {
            Some(why) => Some(Err(Error::ReadOnly(why.clone()))),
            None if core.syncing => None,
            None => {
                core.syncing = true;
                Some(Ok((core.syncs_count, core.log.written())))
            }
        });
        let (done_before, mark) = begun.await?;
        let shared = self.clone();
        (self.spawner)(Box::pin(async move { shared.sync(mark).await }));
        self.wait_for(|core| match &core.poisoned {
            Some(why) => Some(Err(Error::ReadOnly(why.clone()))),
            None => (core.syncs_count > done_before).then_some(Ok(())),
        })
        .await
    }

    /// Writes outside the log, one at a time and each to its end even if the request that wants it is given up: a write
    /// that is still under way when the same place is written again could come last. A failure poisons the drive.
    pub(crate) async fn write_to_end(self: &Arc<Self>, offset: u64, buf: Arc<IoBuf>) -> Result<(), Error> {
        let begun = self.wait_for(|core| match &core.poisoned {
            Some(why) => Some(Err(Error::ReadOnly(why.clone()))),
            None if core.writing_aside => None,
            None => {
                core.writing_aside = true;
                Some(Ok(()))
            }
        });
        begun.await?;
        let done = Arc::new(OnceLock::new());
        let (shared, told) = (self.clone(), done.clone());
        (self.spawner)(Box::pin(async move {
            let len = buf.len() as u64;
            let result = shared.media.write(offset, buf).await;
            {
                let mut core = shared.core();
                core.writing_aside = false;
                match &result {
                    Ok(()) => core.counters.physical_written_bytes += len,
                    Err(error) => {
                        core.counters.write_errors_count += 1;
                        core.poison(format!("writing at byte {offset:#x} of the backing failed: {error}"));
                    }
                }
            }
            let _ = told.set(());
            shared.progress.notify(usize::MAX);
        }));
        self.wait_for(|core| match &core.poisoned {
            Some(why) => Some(Err(Error::ReadOnly(why.clone()))),
            None => done.get().map(|()| Ok(())),
        })
        .await
    }

    async fn sync(self: Arc<Self>, mark: u64) {
        let result = self.media.sync().await;
        {
            let mut core = self.core();
            core.syncing = false;
            core.syncs_count += 1;
            match result {
                // After a failed write or sync, success says nothing any more about what was written before.
                Ok(()) if core.poisoned.is_some() => {}
                Ok(()) => core.log.synced(mark),
                Err(error) => {
                    core.counters.write_errors_count += 1;
                    core.poison(format!("a sync of the backing failed: {error}"));
                }
            }
        }
        self.progress.notify(usize::MAX);
    }
}
