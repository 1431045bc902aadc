//! Faults in effect, and counts of events.

/// Content that reads return for writes that a failed sync lost. No user of a backing can know which kind it
/// is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SimGhosts {
    /// That of the medium.
    #[default]
    Hidden,
    /// What was written, also to later processes, until the page is written again or the power is cut.
    Shown,
}

/// The faults in effect. Probabilities are in parts per million. The default has none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Fault 5, once: probability per read.
    pub read_error_ppm: u32,
    /// Fault 5, sticky: probability per read.
    pub sticky_read_error_ppm: u32,
    /// Fault 6: probability per write.
    pub write_error_ppm: u32,
    /// Fault 7: probability per sync.
    pub sync_error_ppm: u32,
    /// Fault 7: probability per completed operation that a page which shows what a failed sync lost shows the
    /// medium from then on.
    pub fade_ppm: u32,
    /// Fault 8: pages that the backing can hold. `None`: all of them.
    pub full_pages: Option<u64>,
    /// Fault 8: probability, per write that fails for lack of space, that space is added afterwards.
    pub room_made_ppm: u32,
    /// Fault 9: probability per completed operation. It strikes at any place.
    pub rot_ppm: u32,
    /// Fault 9 strikes only data of users; see [`SimMedia::with_data_classifier`](super::SimMedia::with_data_classifier).
    pub rot_in_data_only: bool,
    /// Fault 10: probability per completed operation. It strikes an earlier write.
    pub misdirect_ppm: u32,
    /// Below this byte fault 10 strikes only once in a backing's life, counting both lost writes and places
    /// where a misdirected write lands.
    pub misdirect_once_below_bytes: u64,
    /// Fault 11: probability per write that one of its pages accepts no writes from then on.
    pub bad_page_ppm: u32,
    /// Faults 11 and 12 spare what begins below this byte.
    pub spare_below_bytes: u64,
    /// Fault 12: probability per completed operation. It strikes a range of `lost_range_bytes` that begins at
    /// a multiple of that, counted from `spare_below_bytes`.
    pub lost_range_ppm: u32,
    /// Length of the range of fault 12 in bytes; see `lost_range_ppm`.
    pub lost_range_bytes: u64,
    /// Discards are refused as unsupported.
    pub no_discard: bool,
}

/// Counts of events on a backing so far.
#[derive(Clone, Debug, Default)]
pub struct MediaCounts {
    /// Completed reads, including failed ones.
    pub reads: u64,
    /// Completed writes, including failed ones.
    pub writes: u64,
    /// Completed syncs, including failed ones.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Writes torn by power cuts, failed syncs and failed writes.
    pub torn_writes: u64,
    /// Writes lost by power cuts and failed syncs.
    pub lost_writes: u64,
    /// Writes issued to a place where another write or a discard was in flight, so that the result is left to
    /// chance.
    pub overlapping_writes: u64,
    /// Occurrences of fault 5.
    pub read_errors: u64,
    /// Occurrences of fault 6.
    pub write_errors: u64,
    /// Occurrences of fault 7.
    pub sync_errors: u64,
    /// Pages that showed what a failed sync had lost, and show the medium by now although nobody wrote them.
    pub faded_pages: u64,
    /// Occurrences of fault 8.
    pub full_errors: u64,
    /// Number of times that space was added to a full backing.
    pub rooms_made: u64,
    /// Occurrences of fault 9.
    pub rotten_sectors: u64,
    /// Those among them that changed nothing but data of users.
    pub rotten_data: u64,
    /// Occurrences of fault 10.
    pub misdirected_writes: u64,
    /// Writes that failed because of fault 11.
    pub bad_page_errors: u64,
    /// Writes that failed because of a bad page whose content has another copy.
    pub bad_copy_errors: u64,
    /// Occurrences of fault 12.
    pub lost_ranges: u64,
    /// Reads that failed because of fault 13.
    pub lost_reads: u64,
    /// Occurrences of fault 13 that whoever caused them reported to have lost data of users, and nothing else
    /// ([`SimMedia::note_lost_data`](super::SimMedia::note_lost_data)).
    pub lost_data: u64,
}

impl MediaCounts {
    /// Number of times that durable data was changed.
    pub fn damage(&self) -> u64 {
        self.rotten_sectors + self.misdirected_writes + self.lost_ranges + self.lost_data
    }

    /// The same without those that are known to have changed nothing but data of users.
    pub fn damage_beyond_data(&self) -> u64 {
        self.damage() - self.rotten_data - self.lost_data
    }

    /// Number of operations that failed because of any fault, except bad pages whose content has another
    /// copy.
    pub fn errors(&self) -> u64 {
        self.read_errors + self.write_errors + self.sync_errors + self.full_errors + self.bad_page_errors
    }
}
