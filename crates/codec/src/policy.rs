use std::fmt;
use std::str::FromStr;

/// Compression of new blocks on a drive.
///
/// Its text form (`--codec`, status) is `auto`, `lz4`, `zstd`, `zstd:LEVEL`, `deflate`, `deflate:LEVEL` or
/// `none`. `zstd` without a level is level 1, the best compromise at 4 KiB: level 3 gains 1 % of ratio there
/// and costs a fifth of the speed. `deflate` without a level is level 1 too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The best choice in general: currently zstd level 1.
    #[default]
    Auto,
    /// LZ4.
    Lz4,
    /// Zstandard at a level from -5 to 19.
    Zstd(i8),
    /// DEFLATE at a level from 1 to 12, by libdeflate. Slower than zstd at the same ratio. It is meant for
    /// drives whose data is compressed or decompressed by hardware, now or later.
    Deflate(u8),
    /// Stored unchanged (zero and fill blocks still take no payload).
    None,
}

/// Level of [`Policy::Auto`] and of `zstd` without a level.
const ZSTD_LEVEL_DEFAULT: i8 = 1;
const ZSTD_LEVEL_MIN: i8 = -5;
const ZSTD_LEVEL_MAX: i8 = 19;
/// Level of `deflate` without a level.
const DEFLATE_LEVEL_DEFAULT: u8 = 1;
const DEFLATE_LEVEL_MIN: u8 = 1;
const DEFLATE_LEVEL_MAX: u8 = 12;

impl Policy {
    /// Resolves the policy: `Auto` becomes what it currently means, and a level out of range the nearest one
    /// in range.
    pub(crate) fn resolve(self) -> Policy {
        match self {
            Policy::Auto => Policy::Zstd(ZSTD_LEVEL_DEFAULT),
            Policy::Zstd(level) => Policy::Zstd(level.clamp(ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX)),
            Policy::Deflate(level) => Policy::Deflate(level.clamp(DEFLATE_LEVEL_MIN, DEFLATE_LEVEL_MAX)),
            Policy::Lz4 | Policy::None => self,
        }
    }

    /// Returns the zstd level of this policy. Other policies give the default level, for code that always
    /// requires one.
    pub(crate) fn zstd_level(self) -> i8 {
        match self.resolve() {
            Policy::Zstd(level) => level,
            _ => ZSTD_LEVEL_DEFAULT,
        }
    }
}

/// Text that is not a valid [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown codec {0:?}: expected auto, lz4, zstd, zstd:LEVEL ({ZSTD_LEVEL_MIN} to {ZSTD_LEVEL_MAX}), deflate, \
     deflate:LEVEL ({DEFLATE_LEVEL_MIN} to {DEFLATE_LEVEL_MAX}) or none"
)]
pub struct ParsePolicyError(String);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Policy::Auto),
            "lz4" => Ok(Policy::Lz4),
            "zstd" => Ok(Policy::Zstd(ZSTD_LEVEL_DEFAULT)),
            "deflate" => Ok(Policy::Deflate(DEFLATE_LEVEL_DEFAULT)),
            "none" => Ok(Policy::None),
            _ => text
                .strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
                .filter(|level| (ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX).contains(level))
                .map(Policy::Zstd)
                .or_else(|| {
                    let level = text.strip_prefix("deflate:")?.parse().ok()?;
                    (DEFLATE_LEVEL_MIN..=DEFLATE_LEVEL_MAX).contains(&level).then_some(Policy::Deflate(level))
                })
                .ok_or_else(|| ParsePolicyError(text.to_owned())),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Auto => f.pad("auto"),
            Policy::Lz4 => f.pad("lz4"),
            Policy::Zstd(level) => f.pad(&format!("zstd:{level}")),
            Policy::Deflate(level) => f.pad(&format!("deflate:{level}")),
            Policy::None => f.pad("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let zstd = (-5..=19).map(Policy::Zstd);
        let deflate = (1..=12).map(Policy::Deflate);
        for policy in [Policy::Auto, Policy::Lz4, Policy::None].into_iter().chain(zstd).chain(deflate) {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("zstd".parse(), Ok(Policy::Zstd(1)));
        assert_eq!("deflate".parse(), Ok(Policy::Deflate(1)));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in [
            "",
            "Auto",
            "gzip",
            "zstd:",
            "zstd:20",
            "zstd:-6",
            "zstd:1 ",
            "zstd:300",
            "lz4:1",
            "a\nb",
            "deflate:0",
            "deflate:13",
            "deflate:",
            "deflated",
            "deflate:-1",
        ] {
            let error = text.parse::<Policy>().expect_err(text).to_string();
            assert!(error.contains("expected auto"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn levels_out_of_range_are_clamped() {
        assert_eq!(Policy::Zstd(127).resolve(), Policy::Zstd(19));
        assert_eq!(Policy::Zstd(-128).resolve(), Policy::Zstd(-5));
        assert_eq!(Policy::Deflate(0).resolve(), Policy::Deflate(1));
        assert_eq!(Policy::Deflate(200).resolve(), Policy::Deflate(12));
        assert_eq!(Policy::Auto.resolve(), Policy::Zstd(1));
    }
}
