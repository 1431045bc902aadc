use std::fmt;
use std::str::FromStr;

/// How a drive compresses new blocks.
///
/// As text (`--codec`, status): `auto`, `lz4`, `zstd`, `zstd:LEVEL` or `none`. `zstd` alone is level 1, the
/// best trade at 4 KiB: level 3 gains 1 % of ratio there and costs a quarter of the speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// What is best in general: zstd level 1 today.
    #[default]
    Auto,
    /// LZ4.
    Lz4,
    /// Zstandard at a level from -5 to 19.
    Zstd(i8),
    /// Stored as it came (zero and fill blocks still take no payload).
    None,
}

/// The level of [`Policy::Auto`] and of `zstd` without a level.
const ZSTD_LEVEL_DEFAULT: i8 = 1;
const ZSTD_LEVEL_MIN: i8 = -5;
const ZSTD_LEVEL_MAX: i8 = 19;

impl Policy {
    /// The policy spelled out: `Auto` becomes what it stands for today, and a level out of range the nearest
    /// in range.
    pub(crate) fn resolve(self) -> Policy {
        match self {
            Policy::Auto => Policy::Zstd(ZSTD_LEVEL_DEFAULT),
            Policy::Zstd(level) => Policy::Zstd(level.clamp(ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX)),
            Policy::Lz4 | Policy::None => self,
        }
    }

    /// The zstd level that stands for this policy: where one is needed whatever the policy is.
    pub(crate) fn zstd_level(self) -> i8 {
        match self.resolve() {
            Policy::Zstd(level) => level,
            _ => ZSTD_LEVEL_DEFAULT,
        }
    }
}

/// Text that names no [`Policy`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown codec {0:?}: expected auto, lz4, zstd, zstd:LEVEL (LEVEL from {ZSTD_LEVEL_MIN} to {ZSTD_LEVEL_MAX}) or none"
)]
pub struct ParsePolicyError(String);

impl FromStr for Policy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Policy::Auto),
            "lz4" => Ok(Policy::Lz4),
            "zstd" => Ok(Policy::Zstd(ZSTD_LEVEL_DEFAULT)),
            "none" => Ok(Policy::None),
            _ => text
                .strip_prefix("zstd:")
                .and_then(|level| level.parse().ok())
                .filter(|level| (ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX).contains(level))
                .map(Policy::Zstd)
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
            Policy::None => f.pad("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for policy in [Policy::Auto, Policy::Lz4, Policy::None].into_iter().chain((-5..=19).map(Policy::Zstd))
        {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert_eq!("zstd".parse(), Ok(Policy::Zstd(1)));
    }

    #[test]
    fn nonsense_is_refused_in_one_line() {
        for text in
            ["", "Auto", "gzip", "zstd:", "zstd:20", "zstd:-6", "zstd:1 ", "zstd:300", "lz4:1", "a\nb"]
        {
            let error = text.parse::<Policy>().expect_err(text).to_string();
            assert!(error.contains("expected auto"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn levels_out_of_range_are_clamped() {
        assert_eq!(Policy::Zstd(127).resolve(), Policy::Zstd(19));
        assert_eq!(Policy::Zstd(-128).resolve(), Policy::Zstd(-5));
        assert_eq!(Policy::Auto.resolve(), Policy::Zstd(1));
    }
}
