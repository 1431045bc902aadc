//! Substitute for the mistakes that the simulator plants: here they are texts in `plant.rs`.

#[derive(Clone, Copy, Debug)]
pub(crate) enum PlantedBug {
    RegionReusedEarly,
    SealedPackKeepsAll,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planted;

impl Planted {
    pub(crate) fn has(self, _bug: PlantedBug) -> bool {
        false
    }
}
