//! The consolidated capacity report of ScaleFlux's CSD 2000 (`sfx_capacity_stat`), with the same columns in
//! the same order, so that scripts written for it work. Source: Hyperscalers, *Gluster Scale Out Storage for
//! Cloud using Computational Storage Drives*, 2022, section 6.

use crate::report::StatusReport;

/// Unit of the report, independent of the sector size of the drive.
pub const CAPACITY_SECTOR_BYTES: u64 = 512;
/// Columns, in order.
pub const CAPACITY_COLUMNS: [&str; 6] =
    ["free_space", "physical_size", "logical_size", "comp_ratio", "provisioned_cap", "space_flag"];

/// Returns the values of a drive, in the order of [`CAPACITY_COLUMNS`].
pub fn capacity_values(drive: &StatusReport) -> [String; 6] {
    let sectors = |bytes: u64| (bytes / CAPACITY_SECTOR_BYTES).to_string();
    [
        sectors(drive.physical_available_bytes),
        sectors(drive.physical_used_bytes),
        sectors(drive.logical_used_bytes),
        format!("{:.2}", drive.compression_ratio),
        sectors(drive.logical_capacity_bytes),
        u8::from(drive.out_of_space).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_s_example() {
        let drive = StatusReport {
            physical_available_bytes: 5_303_721_064 * 512,
            physical_used_bytes: 947_512_904 * 512,
            logical_used_bytes: 3_837_963_264 * 512,
            compression_ratio: 3_837_963_264.0 / 947_512_904.0,
            logical_capacity_bytes: 6_251_233_968 * 512,
            ..StatusReport::default()
        };
        assert_eq!(capacity_values(&drive).join(" "), "5303721064 947512904 3837963264 4.05 6251233968 0");
    }

    #[test]
    fn out_of_space_is_1() {
        let drive = StatusReport { out_of_space: true, ..StatusReport::default() };
        assert_eq!(capacity_values(&drive)[5], "1");
    }
}
