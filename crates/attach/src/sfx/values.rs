//! Values of a drive as files, with the names and units of the driver's files in sysfs.

use std::fs;
use std::io;
use std::path::Path;

use status::{CAPACITY_COLUMNS, CAPACITY_SECTOR_BYTES, StatusReport, capacity_values};

use super::numbers::{make_dir, write_whole};

/// Directory of the values below that of a drive.
const FEATURES: &str = "sfx_smart_features";

/// Returns names and texts of the files.
fn files(drive: &StatusReport) -> [(&'static str, String); 6] {
    let [free, physical, logical, ratio, provisioned, flag] = capacity_values(drive);
    let values = [&free, &physical, &logical, &ratio, &provisioned, &flag].map(String::as_str);
    let total = drive.physical_limit_bytes / CAPACITY_SECTOR_BYTES;
    [
        ("sfx_capacity_stat", format!("{}\n{}\n", CAPACITY_COLUMNS.join("\t"), values.join("\t"))),
        ("sfx_freespace", format!("{free} {total}\n")),
        ("sfx_physical_size", format!("{physical}\n")),
        ("sfx_logical_size", format!("{logical}\n")),
        ("sfx_comp_ratio", format!("{ratio}\n")),
        ("space_flag", format!("{flag}\n")),
    ]
}

/// Writes the values of a drive below its directory.
pub(super) fn write(folder: &Path, drive: &StatusReport) -> io::Result<()> {
    let dir = folder.join(FEATURES);
    make_dir(&dir)?;
    files(drive).iter().try_for_each(|(name, text)| write_whole(&dir, name, text))
}

/// Removes them.
pub(super) fn remove(folder: &Path) {
    // There may be none.
    let _ = fs::remove_dir_all(folder.join(FEATURES));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_document() -> io::Result<()> {
        let drive = StatusReport {
            physical_limit_bytes: 6_251_233_968 * 512,
            physical_available_bytes: 5_303_721_064 * 512,
            physical_used_bytes: 947_512_904 * 512,
            logical_used_bytes: 3_837_963_264 * 512,
            compression_ratio: 3_837_963_264.0 / 947_512_904.0,
            logical_capacity_bytes: 6_251_233_968 * 512,
            ..StatusReport::default()
        };
        let folder = tempfile::tempdir()?;
        for _ in 0..2 {
            write(folder.path(), &drive)?;
        }
        let dir = folder.path().join(FEATURES);
        for (file, text) in [
            (
                "sfx_capacity_stat",
                "free_space\tphysical_size\tlogical_size\tcomp_ratio\tprovisioned_cap\tspace_flag\n\
                 5303721064\t947512904\t3837963264\t4.05\t6251233968\t0\n",
            ),
            ("sfx_freespace", "5303721064 6251233968\n"),
            ("sfx_physical_size", "947512904\n"),
            ("sfx_logical_size", "3837963264\n"),
            ("sfx_comp_ratio", "4.05\n"),
            ("space_flag", "0\n"),
        ] {
            assert_eq!(fs::read_to_string(dir.join(file))?, text, "{file}");
        }
        assert_eq!(fs::read_dir(&dir)?.count(), 6);
        remove(folder.path());
        assert!(!dir.exists());
        remove(folder.path());
        Ok(())
    }
}
