//! Statements of the documents that this project follows: figures, and what they say.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Document {
    /// "On-the-fly Data Compression for SSDs", Linux Magazine, with its readers' comments.
    LinuxMagazine,
    /// "Gluster Scale Out Storage for Cloud using Computational Storage Drives CSD", Hyperscalers, 19
    /// July 2022.
    Hyperscalers,
    /// "TCO in Computational Storage - Compression", SNIA, August 2023.
    Snia,
    /// "How to utilize CPU offloads to increase storage efficiency", Canonical, 2025.
    Canonical,
    /// The documents of Pumice itself.
    Pumice,
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Document::LinuxMagazine => "Linux Magazine",
            Document::Hyperscalers => "Hyperscalers",
            Document::Snia => "SNIA",
            Document::Canonical => "Canonical",
            Document::Pumice => "Pumice",
        })
    }
}

/// What a document says in one place.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// Unique name.
    pub name: &'static str,
    /// The document.
    pub document: Document,
    /// The figure, table or section.
    pub place: &'static str,
    /// What it is about.
    pub subject: &'static str,
    /// The number.
    pub says: &'static str,
    /// The suite that tests it, or why none does.
    pub tested_by: Result<&'static str, &'static str>,
}

/// Shorter rows of the table below.
const fn of(
    document: Document,
    name: &'static str,
    place: &'static str,
    subject: &'static str,
    says: &'static str,
    tested_by: Result<&'static str, &'static str>,
) -> Statement {
    Statement { name, document, place, subject, says, tested_by }
}

use Document::{Canonical, Hyperscalers, LinuxMagazine, Pumice, Snia};

const ZEROS: Result<&str, &str> = Ok("zeros-vs-random");
const BASELINE: Result<&str, &str> = Ok("fio-baseline");
const CEPH: Result<&str, &str> = Ok("offload");
const RGW: Result<&str, &str> = Ok("s3");
const RAID: Result<&str, &str> = Ok("raid");
const BANDS: &str = "addendum, first table";

/// All statements, in the order of the documents.
pub const STATEMENTS: &[Statement] = &[
    of(
        LinuxMagazine,
        "lm-write",
        "\"Performance\"",
        "sequential writes, zeros against random data",
        "260 / 65 MB/s: 4x",
        ZEROS,
    ),
    of(
        LinuxMagazine,
        "lm-read",
        "\"Performance\"",
        "sequential reads, zeros against random data",
        "260 / 200 MB/s: 1.3x",
        ZEROS,
    ),
    of(
        LinuxMagazine,
        "lm-full",
        "comment of rattusrattus",
        "writes on a full, fragmented drive, over those of a new one: not what the reader saw",
        "under 50 %; better is at least 50 %",
        ZEROS,
    ),
    of(
        LinuxMagazine,
        "lm-trim",
        "comment of jlinton",
        "writes after TRIM, over those of a new drive",
        "steady: 100 %",
        ZEROS,
    ),
    of(
        LinuxMagazine,
        "lm-raid",
        "io-bm, two drives in RAID-0",
        "writes of zeros against random data",
        "421.3 / 115.3 MB/s: 3.7x",
        RAID,
    ),
    of(Hyperscalers, "hs-band-0", BANDS, "ratio at buffer_compress_percentage 0-39", "1:1", BASELINE),
    of(Hyperscalers, "hs-band-40", BANDS, "ratio at 40-69", "2:1", BASELINE),
    of(Hyperscalers, "hs-band-70", BANDS, "ratio at 70-89", "3:1", BASELINE),
    of(Hyperscalers, "hs-band-90", BANDS, "ratio at 90", "5:1", BASELINE),
    of(Hyperscalers, "hs-band-95", BANDS, "ratio at 95", "8:1", BASELINE),
    of(Hyperscalers, "hs-band-100", BANDS, "ratio at 100", "28:1", BASELINE),
    of(
        Hyperscalers,
        "hs14-write",
        "figure 14, 6.4 TB",
        "128K writes, 2:1 over 1:1 data",
        "2.2 / 2.3 GB/s: 0.96x",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs14-read",
        "figure 14, 6.4 TB",
        "128K reads, 2:1 over 1:1 data",
        "2.9 / 2.9 GB/s: 1.0x",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs14-randread",
        "figure 14, 6.4 TB",
        "4K random reads, 2:1 over 1:1 data",
        "730 / 750 kIOPS: 0.97x",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs14-randwrite",
        "figure 14, 6.4 TB",
        "4K random writes, 2:1 over 1:1 data",
        "525 / 190 kIOPS: 2.8x",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs14-mixed",
        "figure 14, 6.4 TB",
        "4K 70/30, 2:1 over 1:1 data",
        "675 / 420 kIOPS: 1.6x",
        BASELINE,
    ),
    of(Hyperscalers, "hs15", "figure 15", "128K reads, 1 job, depth 128, 2:1 data", "2928 MiB/s", BASELINE),
    of(Hyperscalers, "hs16", "figure 16", "128K writes, 1 job, depth 128, 2:1 data", "2251 MiB/s", BASELINE),
    of(
        Hyperscalers,
        "hs17",
        "figure 17",
        "4K random reads, 8 jobs, depth 128, 2:1 data",
        "654 kIOPS",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs18",
        "figure 18",
        "4K random writes, 8 jobs, depth 128, 2:1 data",
        "433 kIOPS",
        BASELINE,
    ),
    of(
        Hyperscalers,
        "hs21-150",
        "figure 21, 6400 to 9600 GB",
        "1.5x advertised, data of 1.5:1 or better: no refused write",
        "fits",
        Ok("expansion"),
    ),
    of(
        Hyperscalers,
        "hs21-200",
        "figure 21, 6400 to 12800 GB",
        "2.0x advertised, data of 2:1 or better: no refused write",
        "fits",
        Ok("expansion"),
    ),
    of(
        Hyperscalers,
        "hs22",
        "figure 22",
        "4K IOPS (reads, writes, mixed) on 3:1 data, over a drive without compression",
        "the longest bar (bars without numbers)",
        Ok("against"),
    ),
    of(
        Hyperscalers,
        "hs-lv-read",
        "figures 14, 19",
        "128K reads of two drives in one volume, over those of one drive",
        "4.2 / 2.9 GB/s: 1.45x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-lv-write",
        "figures 14, 20",
        "128K writes of two drives in one volume, over those of one drive",
        "3.2 / 2.2 GB/s: 1.45x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-expanded-read",
        "section 5, figure 11",
        "the same, expanded 1.5x; the document reads through Gluster",
        "3.5 / 2.9 GB/s: 1.2x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-expanded-write",
        "section 5, figure 12",
        "the same, expanded 1.5x; the document writes through Gluster",
        "2.7 / 2.2 GB/s: 1.2x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-gluster-read",
        "section 5, figure 11",
        "128K reads through Gluster on two drives, over those of one drive",
        "3.5 / 2.9 GB/s: 1.2x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-gluster-write",
        "section 5, figure 12",
        "128K writes through Gluster on two drives, over those of one drive",
        "2.7 / 2.2 GB/s: 1.2x",
        RAID,
    ),
    of(
        Hyperscalers,
        "hs-claim",
        "introduction",
        "speed of two drives expanded to 150 %, over that of one",
        "150 % capacity at twice the speed, and half the cost per TB",
        RAID,
    ),
    of(
        Snia,
        "snia-ratio",
        "figure 3",
        "ratio of the drive at buffer_compress_percentage=60",
        "2:1 (Ceph zstd 2.285:1)",
        Ok("quick"),
    ),
    of(
        Snia,
        "snia-waf",
        "\"How does compression in CS further reduce TCO?\"",
        "write amplification",
        "below 1",
        Ok("quick"),
    ),
    of(
        Snia,
        "snia-write",
        "figure 3",
        "Ceph on drives that compress, over Ceph's zstd: writes",
        "8.3 / 6.3 GB/s: 1.32x",
        CEPH,
    ),
    of(Snia, "snia-read", "figure 3", "the same: reads", "22.5 / 21.1 GB/s: 1.07x", CEPH),
    of(
        Snia,
        "snia-random-read",
        "appendix, \"Software Config\"",
        "the same: random reads of 128K, depth 128",
        "run, without a result",
        CEPH,
    ),
    of(Snia, "snia-cpu", "figures 3, 5", "the same: CPU while writing", "66.5 / 93 %", CEPH),
    of(
        Snia,
        "snia-ceph-ratio",
        "figure 3",
        "ratio of drives below Ceph at buffer_compress_percentage=60",
        "2:1 (Ceph zstd 2.285:1)",
        CEPH,
    ),
    of(
        Canonical,
        "can-put",
        "\"Write Bandwidth\"",
        "S3 PUT with compression below the gateway (QAT; here drives), over none",
        "5.05 / 4.66 GB/s: 1.08x",
        RGW,
    ),
    of(
        Canonical,
        "can-put-zlib",
        "\"Write Bandwidth\"",
        "S3 PUT with RGW's zlib, over none",
        "less than half",
        RGW,
    ),
    of(
        Canonical,
        "can-get",
        "\"Read Bandwidth\"",
        "S3 GET with compression below the gateway (QAT; here drives), over none",
        "20.88 / 21.86 GB/s: 0.96x",
        RGW,
    ),
    of(
        Canonical,
        "can-get-zlib",
        "\"Read Bandwidth\"",
        "S3 GET with RGW's zlib, over none",
        "11.28 / 21.86 GB/s: at most 0.52x",
        RGW,
    ),
    of(
        Canonical,
        "can-cpu",
        "\"Read Bandwidth\"",
        "CPU of GET for each GB with RGW's zlib, over none",
        "2.5x",
        RGW,
    ),
    of(
        Canonical,
        "can-space",
        "\"Space savings\"",
        "ratio of warp's objects: zlib by size_kb_utilized, drives by their status",
        "4:3, 25 %",
        RGW,
    ),
    of(
        Canonical,
        "can-qat",
        "\"Write Bandwidth\"",
        "PUT with QAT, over none",
        "1.08x",
        Err("no QAT device in this machine"),
    ),
    of(
        Canonical,
        "can-warp",
        "table of data sets",
        "MinIO Warp, synthetic CSV",
        "1.33:1, 25 %",
        Ok("datasets"),
    ),
    of(Canonical, "can-jpeg", "table of data sets", "JPEG images", "1.01:1, 1 %", Ok("datasets")),
    of(
        Canonical,
        "can-covid",
        "table of data sets",
        "COVID-19 research data: JSON, CSV, text",
        "1.33:1, 25 %",
        Ok("datasets"),
    ),
    of(Canonical, "can-yuv", "table of data sets", "raw YUV video", "3.13:1, 68 %", Ok("datasets")),
    of(Canonical, "can-h264", "table of data sets", "H.264 video", "1.00:1, 0 %", Ok("datasets")),
    of(
        Pumice,
        "pu-waf",
        "docs/reference/plan.md",
        "write amplification of 1.5x under random overwrites, measured over predicted",
        "at most the prediction",
        Ok("expansion"),
    ),
    of(
        Pumice,
        "pu-slow",
        "docs/reference/bench.md, slow-disk",
        "writes of 2.4:1 data on a disk of 100 MB/s, over the disk alone",
        "2.4x, less headers",
        Ok("slow-disk"),
    ),
    of(
        Pumice,
        "pu-scan",
        "docs/explanation/scan.md",
        "largest error of the ratio that `pumice scan` predicts, over all data sets",
        "at most 2 %",
        Ok("datasets"),
    ),
];

/// Returns a statement by its name.
///
/// # Panics
/// Panics if there is none: names are constants of this crate, and a test looks for all of them.
pub(crate) fn statement(name: &str) -> &'static Statement {
    let found = STATEMENTS.iter().find(|statement| statement.name == name);
    found.unwrap_or_else(|| panic!("no statement {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_suites_exist() {
        for (at, statement) in STATEMENTS.iter().enumerate() {
            assert!(STATEMENTS[..at].iter().all(|other| other.name != statement.name), "{}", statement.name);
            if let Ok(suite) = statement.tested_by {
                assert!(crate::suite(suite).is_some(), "{}: no suite {suite}", statement.name);
            }
        }
    }
}
