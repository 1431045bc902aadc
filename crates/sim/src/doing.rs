//! What a drive is asked to do, and what it needs for that.

use strum::{Display, EnumIter};

/// A request, of a host or for the drive's own sake. Its name is that of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumIter)]
#[strum(serialize_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Doing {
    Open,
    #[strum(to_string = "open to read")]
    OpenToRead,
    Close,
    Read,
    #[strum(to_string = "read of bytes")]
    ReadBytes,
    Extents,
    Write,
    #[strum(to_string = "write of bytes")]
    WriteBytes,
    Trim,
    #[strum(to_string = "trim of bytes")]
    TrimBytes,
    #[strum(to_string = "write zeroes")]
    WriteZeroes,
    #[strum(to_string = "zeroing of bytes")]
    ZeroBytes,
    Flush,
    Growth,
    #[strum(to_string = "change of codec")]
    ChangeOfCodec,
    #[strum(to_string = "change of parity")]
    ChangeOfParity,
    Maintain,
    Clean,
    Checkpoint,
    Settle,
    #[strum(to_string = "settle again")]
    SettleAgain,
    Train,
    Lesson,
    Free,
    Scrub,
    /// Another budget of the map.
    Budget,
    Check,
}

impl Doing {
    /// Returns whether it changes nothing on the backing.
    pub(crate) fn reads_only(self) -> bool {
        matches!(self, Doing::Read | Doing::ReadBytes | Doing::Extents | Doing::Scrub)
    }

    /// Returns whether it needs data of hosts: what does not, a drive can do whatever becomes of that data.
    pub(crate) fn needs_data(self) -> bool {
        let needs_none = matches!(
            self,
            Doing::Open
                | Doing::OpenToRead
                | Doing::Close
                | Doing::Flush
                | Doing::Checkpoint
                | Doing::Growth
                | Doing::ChangeOfCodec
                | Doing::ChangeOfParity
        );
        !needs_none
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use strum::IntoEnumIterator;

    use super::*;

    #[test]
    fn names_are_distinct_and_reads_need_data() {
        let names: BTreeSet<String> = Doing::iter().map(|doing| doing.to_string()).collect();
        assert_eq!(names.len(), Doing::iter().count());
        assert!(names.contains("settle again") && names.contains("open to read") && names.contains("flush"));
        assert!(Doing::iter().filter(|doing| doing.reads_only()).all(Doing::needs_data));
    }
}
