//! Settling again: data that was settled before the dictionaries in use, if it is worth it; and data that
//! needs a dictionary whose place is wanted.
//!
//! A map entry does not say which dictionary its record needs, and there is no list of them. But no new
//! record uses a retired dictionary unless the catalog says so. Whatever is in a segment that was written
//! since has been examined since: the place of a record shows whether it is to be tried, and what was tried
//! with success is elsewhere. So nothing is settled twice for the same dictionaries.

use codec::Policy;
use layout::catalog::CATALOG_SLOTS;
use layout::{Catalog, Entry, UNIT_BYTES};
use media::Media;

use crate::error::Error;
use crate::shared::Drive;
use crate::state::dictionaries::NOT_YET;
use crate::state::freeing::Freeing;
use crate::state::sample::Random;
use crate::upkeep::make_settled::{GROUP_BLOCKS, Pick, occupied_units};
use crate::upkeep::recompress::SettleStep;
use crate::upkeep::train::DICTIONARIES_MAX;

/// Groups of blocks compressed on trial to see whether all should be.
const GROUPS_ON_TRIAL: usize = 64;

impl<M: Media> Drive<M> {
    /// Returns how much smaller data settled before the dictionaries in use would become now: 1.05 is a gain
    /// of 5 %. Tries it with 64 groups of blocks from all over the drive. `None`: there is no such data.
    ///
    /// # Errors
    ///
    /// Errors of the medium.
    pub async fn gain_of_settling_again(&self) -> Result<Option<f64>, Error> {
        let shared = &self.0;
        let adopted_at = shared.dictionaries.catalog().adopted_at;
        if adopted_at == 0 || shared.codec() == Policy::None {
            return Ok(None);
        }
        let mut random = Random(shared.run.entropy ^ adopted_at);
        let pick = Pick::Again(adopted_at);
        let (mut before, mut after) = (0, 0);
        for place in shared.places(GROUPS_ON_TRIAL, GROUP_BLOCKS as usize, &mut random).await {
            let group = place.first / GROUP_BLOCKS * GROUP_BLOCKS;
            let expected = {
                let mut core = shared.core();
                let count = (core.blocks() - group).min(GROUP_BLOCKS);
                let mut expected: Vec<Entry> = Vec::with_capacity(count as usize);
                let looked = core.map.lookup(group, count as usize, |_, entry| expected.push(entry));
                if looked.is_err() {
                    continue;
                }
                core.pick(&mut expected, &pick);
                expected
            };
            if !expected.iter().any(|entry| entry.is_record()) {
                continue;
            }
            let was = occupied_units(&expected, 0..expected.len()) * UNIT_BYTES as u64;
            let made = shared.make_settled(group, &expected, Vec::new(), &pick).await?;
            // What gains too little stays as it is.
            let gained = made.gained_bytes;
            before += was;
            after += was - gained.min(was);
        }
        Ok((before > 0).then(|| before as f64 / after.max(1) as f64))
    }

    /// Returns when the dictionaries in use were adopted, as a number of packs:
    /// [`Drive::gain_of_settling_again`] is needed only once for each. 0: unknown, or there are none.
    pub fn dictionaries_adopted_at(&self) -> u64 {
        self.0.dictionaries.catalog().adopted_at
    }

    /// Returns whether dictionaries worth keeping found no place: [`Drive::free_dictionaries_step`] makes
    /// some.
    pub fn wants_dictionary_places(&self) -> bool {
        self.0.core().dictionaries.places_wanted
    }

    /// Examines some of what may need the dictionaries that were retired first, and recompresses what does
    /// with those in use. With the last step they are forgotten, and training is due again if it had found no
    /// place. `next_block` of the result is `None` then, or if there is nothing to do.
    ///
    /// # Errors
    ///
    /// Errors of the medium, or [`Error::NoSpace`]. [`Error::Corrupt`]: something that may need them cannot
    /// be read, and they stay.
    pub async fn free_dictionaries_step(&self) -> Result<SettleStep, Error> {
        let shared = &self.0;
        let (number, at, pick) = {
            let catalog = shared.dictionaries.catalog();
            let mut core = shared.core();
            let known = |id: &u16| catalog.slots.iter().flatten().any(|entry| entry.id == *id);
            core.dictionaries.freeing =
                core.dictionaries.freeing.take().filter(|freeing| freeing.ids.iter().all(known));
            if core.dictionaries.freeing.is_none()
                && let Some((ids, until)) = in_the_way(&catalog)
            {
                core.dictionaries.freeing_passes += 1;
                core.dictionaries.freeing =
                    Some(Freeing { number: core.dictionaries.freeing_passes, ids, until, next_block: 0 });
            }
            let Some(freeing) = &core.dictionaries.freeing else {
                // Those retired last may be counted soon: their segments are still open.
                core.dictionaries.places_wanted &=
                    catalog.slots.iter().flatten().any(|entry| entry.retired_at > 0);
                return Ok(SettleStep::default());
            };
            (freeing.number, freeing.next_block, Pick::Needing(freeing.until, freeing.ids.clone()))
        };
        if at == 0 {
            // What is not written yet is not moved: nothing old may be in that state.
            shared.flush_moved().await?;
        }
        let step = match shared.settle_step(at, &pick).await {
            Ok(step) => step,
            Err(error) => {
                let mut core = shared.core();
                if matches!(error, Error::Corrupt(_)) && core.dictionaries.pass_of_freeing(number).is_some() {
                    // Whether what cannot be read needs them is unknown: they stay.
                    (core.dictionaries.freeing, core.dictionaries.places_wanted) = (None, false);
                }
                return Err(error);
            }
        };
        if let Some(next_block) = step.next_block {
            if let Some(freeing) = shared.core().dictionaries.pass_of_freeing(number) {
                freeing.next_block = next_block;
            }
            return Ok(step);
        }
        let Pick::Needing(until, ids) = pick else { return Ok(step) };
        let forgotten = shared.forget_dictionaries(Some((&ids, until))).await?;
        let mut core = shared.core();
        if core.dictionaries.pass_of_freeing(number).is_some() {
            core.dictionaries.freeing = None;
        }
        if forgotten > 0 && std::mem::take(&mut core.dictionaries.places_wanted) {
            core.schedule.now();
        }
        Ok(step)
    }
}

/// Returns the dictionaries to free, if any were retired, and when the last of them was: those retired first,
/// so many that there is place for as many as one training may bring.
fn in_the_way(catalog: &Catalog) -> Option<(Vec<u16>, u64)> {
    let mut retired: Vec<(u64, u16)> = catalog
        .slots
        .iter()
        .flatten()
        .filter(|entry| entry.retired_at > 0 && entry.retired_at != NOT_YET)
        .map(|entry| (entry.retired_at, entry.id))
        .collect();
    retired.sort_unstable();
    let free = CATALOG_SLOTS - catalog.slots.iter().flatten().count();
    retired.truncate(DICTIONARIES_MAX.saturating_sub(free).max(1));
    let (until, _) = *retired.last()?;
    Some((retired.into_iter().map(|(_, id)| id).collect(), until))
}
