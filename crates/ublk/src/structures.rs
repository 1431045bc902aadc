//! Structures of the ublk driver: `linux/ublk_cmd.h`. They are in the byte order of the machine.

/// Bytes of `struct ublksrv_ctrl_dev_info`.
pub const INFO_BYTES: usize = 64;
/// Bytes of `struct ublk_params` up to the end of `discard`.
pub const PARAMETERS_BYTES: usize = 60;

/// Sectors of the driver: 512 bytes.
pub const SECTOR_SHIFT: u32 = 9;
/// Largest request with data, in bytes.
const REQUEST_BYTES_MAX: u32 = 512 << 10;
/// Largest trim, in sectors: 1 GiB.
const TRIM_SECTORS_MAX: u32 = 2 << 20;
/// Requests of a queue in flight. All of them write in the worst case: 64 MiB a queue.
const DEPTH: u16 = 128;
/// A block of the drive: the smallest write without a read before it, and the smallest trim.
const BLOCK_SHIFT: u8 = 12;
/// The blocks that compress together: what is best to write.
const FRAME_SHIFT: u8 = 15;

/// `UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE | UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_USER_COPY`.
const FLAGS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
/// `UBLK_S_DEV_DEAD`: not started, or stopped.
const STATE_DEAD: u16 = 0;
/// `UBLK_S_DEV_QUIESCED`: requests wait for another server.
const STATE_QUIESCED: u16 = 2;

/// `UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD`.
const TYPES: u32 = 1 | 1 << 1;
/// `UBLK_ATTR_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA`.
const CACHE_AND_FUA: u32 = 1 << 2 | 1 << 3;

/// What the driver knows of a device: `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Number of the device.
    pub id: u32,
    /// Number of its queues.
    pub queues: u16,
    /// Requests of a queue in flight, at most.
    pub depth: u16,
    /// It has a node that is being served, or waits for that.
    pub is_started: bool,
    /// It can be taken over: the kernel has cleared up after its last server.
    pub is_waiting: bool,
    /// `ublksrv_flags`: a number of the server's own, which the driver keeps.
    pub mark: u64,
}

impl Info {
    /// Encodes what a new device is to be. The driver decides on its number, and may reduce the queues.
    pub fn encode_new(queues: u16, mark: u64) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[0..2].copy_from_slice(&queues.to_ne_bytes());
        bytes[2..4].copy_from_slice(&DEPTH.to_ne_bytes());
        bytes[8..12].copy_from_slice(&REQUEST_BYTES_MAX.to_ne_bytes());
        bytes[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        bytes[24..32].copy_from_slice(&FLAGS.to_ne_bytes());
        bytes[32..40].copy_from_slice(&mark.to_ne_bytes());
        bytes
    }

    /// Decodes what the driver has returned.
    pub fn decode(bytes: &[u8; INFO_BYTES]) -> Info {
        let half = |at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Info {
            id: word(bytes, 12),
            queues: half(0),
            depth: half(2),
            is_started: half(4) != STATE_DEAD,
            is_waiting: half(4) == STATE_QUIESCED,
            mark: double(bytes, 32),
        }
    }
}

/// What a device shows: `struct ublk_params` with `basic` and `discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Logical block size in bytes.
    pub sector_bytes: u32,
    /// The kernel refuses changes.
    pub read_only: bool,
    /// The kernel sends flushes and FUA.
    pub write_cache: bool,
}

impl Parameters {
    /// Encodes the parameters.
    pub fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = Parameters::empty();
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(4, &TYPES.to_ne_bytes());
        let read_only = if self.read_only { READ_ONLY } else { 0 };
        let cache = if self.write_cache { CACHE_AND_FUA } else { 0 };
        put(8, &(cache | read_only).to_ne_bytes());
        // Logical and physical block, optimal and smallest request.
        put(12, &[self.sector_bytes.trailing_zeros() as u8, BLOCK_SHIFT, FRAME_SHIFT, BLOCK_SHIFT]);
        put(16, &(REQUEST_BYTES_MAX >> SECTOR_SHIFT).to_ne_bytes());
        put(24, &(self.size_bytes >> SECTOR_SHIFT).to_ne_bytes());
        // Granularity of a trim, its limit, that of writing zeroes, and the number of a trim's ranges.
        put(44, &(1_u32 << BLOCK_SHIFT).to_ne_bytes());
        put(48, &TRIM_SECTORS_MAX.to_ne_bytes());
        put(52, &TRIM_SECTORS_MAX.to_ne_bytes());
        put(56, &1_u16.to_ne_bytes());
        bytes
    }

    /// A buffer for the driver to return the parameters of a device in.
    pub fn empty() -> [u8; PARAMETERS_BYTES] {
        let mut bytes = [0; PARAMETERS_BYTES];
        bytes[0..4].copy_from_slice(&(PARAMETERS_BYTES as u32).to_ne_bytes());
        bytes
    }

    /// Decodes parameters that the driver has returned.
    pub fn decode(bytes: &[u8; PARAMETERS_BYTES]) -> Parameters {
        Parameters {
            size_bytes: double(bytes, 24) << SECTOR_SHIFT,
            sector_bytes: 1_u32.checked_shl(bytes[12].into()).unwrap_or(0),
            read_only: word(bytes, 8) & READ_ONLY != 0,
            write_cache: word(bytes, 8) & CACHE_AND_FUA != 0,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn double(bytes: &[u8], at: usize) -> u64 {
    let (low, high) = (u64::from(word(bytes, at)), u64::from(word(bytes, at + 4)));
    if cfg!(target_endian = "little") { low | high << 32 } else { low << 32 | high }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_shows_what_it_was_given() {
        for (sector_bytes, read_only, write_cache) in
            [(512, false, true), (512, false, false), (4096, true, true)]
        {
            let parameters = Parameters { size_bytes: 5 << 40, sector_bytes, read_only, write_cache };
            let bytes = parameters.encode();
            assert_eq!(word(&bytes, 0) as usize, bytes.len());
            assert_eq!(Parameters::decode(&bytes), parameters);
        }
    }

    #[test]
    fn a_device_keeps_the_mark_of_its_drive() {
        let mut bytes = Info::encode_new(3, 0x1122_3344_5566_7788);
        // The driver numbers it and starts it.
        bytes[12..16].copy_from_slice(&7_u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&1_u16.to_ne_bytes());
        let (mark, is_waiting) = (0x1122_3344_5566_7788, false);
        let info = Info { id: 7, queues: 3, depth: DEPTH, is_started: true, is_waiting, mark };
        assert_eq!(Info::decode(&bytes), info);
        // Its server has ended.
        bytes[4..6].copy_from_slice(&2_u16.to_ne_bytes());
        assert_eq!(Info::decode(&bytes), Info { is_waiting: true, ..info });
    }
}
