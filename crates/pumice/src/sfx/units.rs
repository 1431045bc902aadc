//! Units of ScaleFlux's commands: GB of disk makers for capacities, GiB for data.

/// Unit of the formula.
const SECTOR_BYTES: u64 = 512;
/// Sectors of a disk of so many GB: 97,696,368 for 50 GB, and 1,953,504 for each GB more (IDEMA LBA1-03). The
/// document's drive of 3200 GB has 6,251,233,968. The same line goes on below 50 GB.
const SECTORS_PER_GB: u64 = 1_953_504;
const SECTORS_BEYOND: u64 = 97_696_368 - 50 * SECTORS_PER_GB;
/// Size from which on whole numbers are shown, as of the hardware. Smaller ones get two decimals.
const WHOLE_FROM: f64 = 50.0;

/// A capacity on the command line, in GB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gigabytes(f64);

impl std::str::FromStr for Gigabytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Gigabytes, &'static str> {
        // Larger than any drive.
        const MAX: f64 = 1e9;
        let number: f64 = text.parse().map_err(|_| "expected a number of GB")?;
        if number > 0.0 && number <= MAX {
            Ok(Gigabytes(number))
        } else {
            Err("expected a number of GB above 0")
        }
    }
}

impl Gigabytes {
    /// Returns the bytes of a disk of this capacity.
    pub(super) fn bytes(self) -> u64 {
        ((self.0 * SECTORS_PER_GB as f64) as u64 + SECTORS_BEYOND) * SECTOR_BYTES
    }
}

/// Formats a capacity as `6400 GB`.
pub(super) fn gigabytes(bytes: u64) -> String {
    let sectors = (bytes / SECTOR_BYTES).saturating_sub(SECTORS_BEYOND);
    rounded(sectors as f64 / SECTORS_PER_GB as f64, "GB")
}

/// Formats data as `48890 GiB`.
pub(super) fn gibibytes(bytes: u64) -> String {
    rounded(bytes as f64 / (1_u64 << 30) as f64, "GiB")
}

fn rounded(value: f64, unit: &str) -> String {
    if value >= WHOLE_FROM { format!("{} {unit}", value as u64) } else { format!("{value:.2} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Gigabytes>().expect(text).bytes()
    }

    #[test]
    fn capacities_are_those_of_disks() {
        // Section 6 of the document has the sectors of a drive of 3.2 TB.
        assert_eq!(bytes("3200"), 6_251_233_968 * 512);
        assert_eq!(bytes("50"), 97_696_368 * 512);
        for (text, shown) in
            [("3200", "3200 GB"), ("9600", "9600 GB"), ("50", "50 GB"), ("1.5", "1.50 GB"), ("1", "1.00 GB")]
        {
            assert_eq!(gigabytes(bytes(text)), shown);
            assert_eq!(bytes(text) % 512, 0);
        }
        assert_eq!(bytes("9600") % 4096, 0);
        assert_eq!(gigabytes(0), "0.00 GB");
        assert_eq!(gibibytes(48_890 << 30), "48890 GiB");
        assert_eq!(gibibytes(3 << 29), "1.50 GiB");
        for wrong in ["", "0", "-1", "10G", "inf", "nan", "1e12"] {
            assert!(wrong.parse::<Gigabytes>().is_err(), "{wrong}");
        }
    }
}
