//! Which faults are on, and what happened.

/// What a read shows of writes that no sync has made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimCache {
    /// I/O goes around the page cache: after a failed sync reads show what is on the medium.
    #[default]
    Direct,
    /// Through the page cache: after a failed sync reads go on showing what was lost, to later processes too, until the page
    /// is written again or the power is cut.
    Cached,
}

/// The faults that are on. Probabilities are in parts per million; the default has none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Fault 5, once: a read.
    pub read_error_ppm: u32,
    /// Fault 5, sticky: a read.
    pub sticky_read_error_ppm: u32,
    /// Fault 6: a write.
    pub write_error_ppm: u32,
    /// Fault 7: a sync.
    pub sync_error_ppm: u32,
    /// Fault 8: pages the backing can hold; `None`: all of them.
    pub full_pages: Option<u64>,
    /// Fault 8: a write that found no room, after which somebody has made some.
    pub room_made_ppm: u32,
    /// Fault 9: at any completed operation, somewhere.
    pub rot_ppm: u32,
    /// Fault 10: at any completed operation, some earlier write.
    pub misdirect_ppm: u32,
    /// Below this byte fault 10 strikes only once in a backing's life, be it a write that is lost or what it lands on.
    pub misdirect_once_below_bytes: u64,
    /// Fault 11: a write, one of whose pages takes no write from then on.
    pub bad_page_ppm: u32,
    /// Fault 11 and 12 spare what begins below this byte.
    pub spare_below_bytes: u64,
    /// Fault 12: at any completed operation, a range of this many bytes that begins at a multiple of them, counted from
    /// `spare_below_bytes`.
    pub lost_range_ppm: u32,
    /// See `lost_range_ppm`.
    pub lost_range_bytes: u64,
    /// Discards are refused as unsupported.
    pub no_discard: bool,
}

/// What happened on a backing so far.
#[derive(Clone, Debug, Default)]
pub struct MediaCounts {
    /// Completed reads, failed ones too.
    pub reads: u64,
    /// Completed writes, failed ones too.
    pub writes: u64,
    /// Completed syncs, failed ones too.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Writes torn by power cuts, failed syncs and failed writes.
    pub torn_writes: u64,
    /// Writes lost by power cuts and failed syncs.
    pub lost_writes: u64,
    /// Writes issued to where another or a discard was in flight: which of them will be there is left to chance.
    pub overlapping_writes: u64,
    /// Faults 5 that struck.
    pub read_errors: u64,
    /// Faults 6 that struck.
    pub write_errors: u64,
    /// Faults 7 that struck.
    pub sync_errors: u64,
    /// Faults 8 that struck.
    pub full_errors: u64,
    /// How often somebody made room on a full backing.
    pub rooms_made: u64,
    /// Faults 9 that struck.
    pub rotten_sectors: u64,
    /// Faults 10 that struck.
    pub misdirected_writes: u64,
    /// Writes that failed of fault 11.
    pub bad_page_errors: u64,
    /// Writes that failed of a page of which there is another copy.
    pub bad_copy_errors: u64,
    /// Faults 12 that struck.
    pub lost_ranges: u64,
}

impl MediaCounts {
    /// Times that something durable became something else.
    pub fn damage(&self) -> u64 {
        self.rotten_sectors + self.misdirected_writes + self.lost_ranges
    }

    /// Operations that failed, of whatever fault.
    pub fn errors(&self) -> u64 {
        self.read_errors + self.write_errors + self.sync_errors + self.full_errors + self.bad_page_errors
    }
}
