//! A host of a drive with parity that knows every version of what it wrote, and the pages of the backing.

use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use drive::{CreateOptions, Drive, Error, Planted};
use layout::{Geometry, PAGE_BYTES, PackHeader, ParityForm, ParityIndex, ParityShape, Superblock};
use media::{IoBuf, Media};

use crate::common::{Erased, create_options};
use crate::faulty::{Faulty, Tasks};

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const PHYSICAL: u64 = 96 << 20;
pub(crate) const SEGMENT: u32 = 1 << 20;
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const BLOCKS: u64 = 3000;

pub(crate) fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

pub(crate) struct Host {
    pub(crate) media: Arc<Faulty>,
    pub(crate) tasks: Tasks,
    pub(crate) geometry: Geometry,
    /// Version of each block.
    pub(crate) versions: Vec<u64>,
    pub(crate) entropy: u64,
}

impl Host {
    pub(crate) fn new(parity: ParityForm) -> Host {
        Host::with_physical(parity, PHYSICAL)
    }

    /// One that was filled and closed.
    pub(crate) fn filled(parity: ParityForm) -> Host {
        let mut host = Host::new(parity);
        let drive = host.open();
        host.write(&drive, 0..BLOCKS);
        host.tasks.run(drive.close()).expect("close");
        drop(drive);
        host
    }

    pub(crate) fn with_physical(parity: ParityForm, physical: u64) -> Host {
        Host::with_segments(parity, physical, SEGMENT)
    }

    pub(crate) fn with_segments(parity: ParityForm, physical: u64, segment_bytes: u32) -> Host {
        let (media, tasks) = (Arc::new(Faulty::new(physical)), Tasks::default());
        let options = CreateOptions {
            segment_bytes: Some(segment_bytes),
            parity,
            ..create_options(physical, 64 << 20)
        };
        tasks.run(Drive::create(&*media, &options)).expect("create");
        let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
        let geometry = Superblock::decode(&page).expect("superblock").geometry;
        assert_eq!(geometry.parity, parity);
        Host { media, tasks, geometry, versions: vec![0; BLOCKS as usize], entropy: 0 }
    }

    pub(crate) fn open(&mut self) -> Drive<Erased> {
        self.open_with(Planted::default())
    }

    /// Opens it with a planted mistake.
    pub(crate) fn open_with(&mut self, planted: Planted) -> Drive<Erased> {
        self.entropy += 1;
        let entropy = self.entropy;
        self.tasks.open(&self.media, |options| {
            options.entropy = entropy;
            options.planted = planted;
        })
    }

    pub(crate) fn write(&mut self, drive: &Drive<Erased>, blocks: Range<u64>) {
        for block in blocks {
            let version = &mut self.versions[block as usize];
            *version += 1;
            let data = contents(block, *version);
            self.tasks.run(drive.write(block * BLOCK, &data, false)).expect("write");
        }
        self.tasks.run(drive.flush()).expect("flush");
        self.settle(drive);
    }

    /// Lets everything in the background happen.
    pub(crate) fn settle(&self, drive: &Drive<Erased>) {
        for _ in 0..200 {
            drive.tick();
            self.tasks.turn();
            while self.tasks.run(drive.maintain()).expect("maintain") {}
        }
    }

    /// Reads everything. Returns the blocks that cannot be read; what is read is right.
    pub(crate) fn read(&self, drive: &Drive<Erased>) -> Vec<u64> {
        let mut lost = Vec::new();
        for block in 0..self.versions.len() as u64 {
            let mut bytes = vec![0; BLOCK as usize];
            match self.tasks.run(drive.read(block * BLOCK, &mut bytes)) {
                Ok(()) if self.versions[block as usize] == 0 => assert!(bytes.iter().all(|b| *b == 0)),
                Ok(()) => assert!(bytes == contents(block, self.versions[block as usize]), "block {block}"),
                Err(Error::Io(_) | Error::Corrupt(_)) => lost.push(block),
                Err(other) => panic!("block {block}: {other}"),
            }
        }
        lost
    }

    pub(crate) fn assert_whole(&self, drive: &Drive<Erased>) {
        assert_eq!(self.read(drive), Vec::<u64>::new());
        assert_eq!(self.tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
    }

    pub(crate) fn page(&self, position: u64) -> IoBuf {
        self.tasks.run(self.media.read(position, IoBuf::zeroed(PAGE_BYTES))).0
    }

    pub(crate) fn overwrite(&self, position: u64, bytes: &[u8]) {
        let mut page = IoBuf::zeroed(bytes.len());
        page.copy_from_slice(bytes);
        self.tasks.run(self.media.write(position, Arc::new(page))).expect("write");
    }

    /// Segments with parity.
    pub(crate) fn segments(&self) -> Vec<(u32, ParityIndex)> {
        let shape = self.shape();
        let used = (0..self.geometry.segments())
            .filter(|segment| PackHeader::decode(&self.page(self.geometry.segment_offset(*segment))).is_ok());
        let index = |segment: u32| {
            let at = self.geometry.segment_offset(segment) + u64::from(shape.index_offsets()[0]);
            let bytes = self.tasks.run(self.media.read(at, IoBuf::zeroed(shape.index_bytes()))).0;
            ParityIndex::decode(&bytes, self.geometry.segment_bytes).ok().map(|(index, _)| index)
        };
        used.filter_map(|segment| Some((segment, index(segment)?))).collect()
    }

    /// Where parity and its index are in each segment.
    pub(crate) fn parity_places(&self) -> Vec<Range<u64>> {
        let room = u64::from(self.shape().room_bytes());
        let starts = (0..self.geometry.segments()).map(|segment| self.geometry.segment_offset(segment));
        starts.map(|start| start + room..start + u64::from(self.geometry.segment_bytes)).collect()
    }

    pub(crate) fn shape(&self) -> ParityShape {
        ParityShape::new(self.geometry.segment_bytes, self.geometry.parity).expect("parity")
    }
}
