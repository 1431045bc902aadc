//! Removal of what a run has put to a bucket. After an interruption it has only a few seconds: what it does
//! not get done is named.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::Access;
use super::gateway::{answered, success};
use crate::error::{BenchError, Result};
use crate::process::Stop;

/// Time in which a gateway usually ends what it has received completely of a client that is gone.
pub(crate) const LATE: Duration = Duration::from_secs(2);
/// Longest wait for requests after an interruption: for those in flight, and then for all of the clean-up.
const HURRY: Duration = Duration::from_secs(3);
/// Most pages of keys that are removed: a million objects.
const PAGES_MAX: usize = 1000;
/// Most keys of a page, by S3.
const PAGE_KEYS: usize = 1000;
/// Objects that are removed at once.
const REMOVERS: usize = 8;
/// Keys that are named in a message.
const NAMED_MAX: usize = 3;

/// The time that requests have: as long as they take, but [`HURRY`] once the run is to stop.
pub(super) struct Ending {
    stop: Stop,
    hurried_since: OnceLock<Instant>,
}

impl Ending {
    pub(super) fn new(stop: &Stop) -> Ending {
        Ending { stop: stop.clone(), hurried_since: OnceLock::new() }
    }

    pub(super) fn check(&self) -> Result<()> {
        if !self.stop.is_set() || self.hurried_since.get_or_init(Instant::now).elapsed() < HURRY {
            return Ok(());
        }
        let problem = format!("no end {} seconds after the interruption", HURRY.as_secs());
        Err(BenchError::program("S3 gateway", problem))
    }

    /// Waits for the answer to a request as long as there is time.
    pub(super) fn ask<T: Send + 'static>(&self, ask: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.check()?;
        answered(ask, || self.check())
    }
}

impl Access {
    /// Removes what was put, and a bucket that was made. Returns what stays, if anything does. Once done,
    /// there is nothing to do any more.
    pub(crate) fn remove_all(&self) -> Option<String> {
        if self.is_cut.swap(false, Ordering::Relaxed) {
            // An object that the gateway completes after it was removed would stay.
            std::thread::sleep(LATE);
        }
        let ending = Ending::new(&self.stop);
        let put_count = self.put_count.swap(0, Ordering::Relaxed);
        let is_put_to = self.is_put_to.swap(false, Ordering::Relaxed);
        let is_made = self.is_made.swap(false, Ordering::Relaxed);
        let objects = self.remove_numbered(put_count, &ending);
        let objects = objects.or_else(|| if is_put_to { self.remove_prefix(&ending) } else { None });
        let name = self.gateway.name();
        match (objects, is_made) {
            (objects, false) => objects,
            (Some(objects), true) => Some(format!("{objects}; so does the bucket, made for the run")),
            (None, true) => {
                let gateway = self.gateway.clone();
                let answer = ending.ask(move || gateway.remove_bucket());
                let error = answer.and_then(success).err()?;
                Some(format!("the bucket {name}, made for the run, stays: {error}"))
            }
        }
    }

    /// Looks for what the gateway has stored after all was removed, and removes it. Returns what stays, by
    /// name.
    pub(crate) fn remove_late(&self) -> Option<String> {
        self.remove_prefix(&Ending::new(&self.stop))
    }

    /// Removes the objects of the own client.
    fn remove_numbered(&self, put_count: u64, ending: &Ending) -> Option<String> {
        let (mut stays_count, mut first) = (0, None);
        for object in 0..put_count {
            let (gateway, key) = (self.gateway.clone(), self.key(object));
            let answer = match ending.ask(move || gateway.remove(&key)) {
                Ok(answer) => answer,
                Err(error) => {
                    first.get_or_insert(error);
                    stays_count += put_count - object;
                    break;
                }
            };
            // The gateway is gone: each further request would wait.
            let is_gone = answer.is_err();
            // One that is not there any more is no failure.
            if answer.as_ref().is_ok_and(|answer| answer.status().as_u16() == 404) {
                continue;
            }
            if let Err(error) = success(answer) {
                first.get_or_insert(error);
                stays_count += if is_gone { put_count - object } else { 1 };
            }
            if is_gone {
                break;
            }
        }
        let (name, prefix) = (self.gateway.name(), &self.prefix);
        first.map(|error| format!("{stays_count} objects may stay under {name}/{prefix}: {error}"))
    }

    /// Removes all objects under the prefix, and nothing else. Returns what stays, if anything does.
    fn remove_prefix(&self, ending: &Ending) -> Option<String> {
        let stays = |why: String, keys: &[String]| {
            let named = keys.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
            let named = if named.is_empty() { named } else { format!("; such as {named}") };
            Some(format!("objects may stay under {}/{}: {why}{named}", self.gateway.name(), self.prefix))
        };
        let mut last = Vec::new();
        for _ in 0..PAGES_MAX {
            let (gateway, prefix) = (self.gateway.clone(), self.prefix.clone());
            let keys = match ending.ask(move || gateway.keys(&prefix, PAGE_KEYS)) {
                Ok(Ok(keys)) => keys.unwrap_or_default(),
                Ok(Err(error)) | Err(error) => return stays(error.to_string(), &[]),
            };
            if keys.is_empty() {
                return None;
            }
            if keys == last {
                return stays("the gateway still lists what was removed".to_string(), &keys);
            }
            if let Err(error) = self.remove_keys(&keys, ending) {
                return stays(error.to_string(), &keys);
            }
            last = keys;
        }
        stays("there were too many".to_string(), &last)
    }

    /// Removes objects, some at once, until one cannot be removed.
    fn remove_keys(&self, keys: &[String], ending: &Ending) -> Result<()> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let remover = || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (gateway, key) = (self.gateway.clone(), key.clone());
                if let Err(error) = ending.ask(move || gateway.remove(&key)).and_then(success) {
                    failure.lock().ok()?.get_or_insert(error);
                    break;
                }
            }
            Some(())
        };
        std::thread::scope(|scope| (0..REMOVERS).for_each(|_| drop(scope.spawn(remover))));
        failure.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}
