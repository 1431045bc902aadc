//! A volume of attached drives, or of plain disks beside them: a stripe of LVM where the kernel has
//! device-mapper, else one file in a btrfs whose data is RAID-0. One drive gets the same layer, so that only
//! the number of drives differs.

mod layer;
mod member;

use std::path::Path;

use super::{Space, Store, Workshop, pumice};
use crate::error::Result;
use crate::fio::IoTarget;
use crate::process;
use crate::scene::Scene;
use layer::Layer;
use member::Member;

/// A volume that is there.
pub(crate) struct Volume {
    io_target: IoTarget,
    capacity_bytes: u64,
    // Before what it is made of.
    _layer: Layer,
    members: Vec<Member>,
}

/// Why there can be no volume; `None` if there can.
pub(crate) fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("attaching drives needs root".to_string());
    }
    if process::find("losetup").is_none() {
        return Some("no losetup (package mount)".to_string());
    }
    layer::lacks()
}

/// What makes volumes of several devices here, for reports.
pub(crate) fn layer_name() -> &'static str {
    layer::name()
}

/// What stores of a run could not take away, in its folder, and how to.
pub(crate) fn left_behind(folder: &Path) -> Vec<String> {
    member::left_behind(folder)
}

impl Volume {
    /// Makes `count` new drives, or plain files (`is_raw`), and a volume of them.
    pub(crate) fn open(workshop: &Workshop<'_>, count: u32, is_raw: bool, scene: &Scene) -> Result<Volume> {
        let (size, capacity) = pumice::sizes(workshop.size_bytes, scene.expansion);
        let mut members = Vec::new();
        for number in 1..=count {
            members.push(match is_raw {
                true => Member::raw(workshop, number, capacity)?,
                false => Member::drive(workshop, number, size, capacity)?,
            });
        }
        let devices: Vec<&Path> = members.iter().map(Member::device).collect();
        let (layer, io_target, capacity_bytes) = Layer::new(workshop, &devices, capacity * u64::from(count))?;
        Ok(Volume { io_target, capacity_bytes, _layer: layer, members })
    }
}

impl Store for Volume {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn servers(&self) -> Vec<u32> {
        self.members.iter().flat_map(Member::pids).collect()
    }

    fn strangers(&self) -> Vec<u32> {
        self.servers()
    }

    fn is_in_kernel(&self) -> bool {
        true
    }

    fn space(&self) -> Result<Option<Space>> {
        self.io_target.sync()?;
        let each = self.members.iter().map(Member::space).collect::<Result<Vec<_>>>()?;
        Ok(Space::sum(each.into_iter().flatten()))
    }

    fn drop_caches(&self) {
        self.members.iter().for_each(Member::drop_caches);
    }
}
