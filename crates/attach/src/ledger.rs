//! The record of an attachment, as its process writes it: the main thread what it knows of the drive, and
//! the thread that passes the node to servers how far that got.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::place::Record;
use crate::takeover::Takeover;

/// See the [module](self).
pub(crate) struct Ledger {
    folder: PathBuf,
    last: Mutex<Last>,
}

struct Last {
    record: Option<Record>,
    /// The file has it.
    is_written: bool,
    step: Option<Takeover>,
}

impl Last {
    fn write(&mut self, folder: &Path, record: Record) -> io::Result<()> {
        let result = record.write(folder);
        (self.record, self.is_written) = (Some(record), result.is_ok());
        result
    }
}

impl Ledger {
    /// `step`: how far an earlier process got.
    pub(crate) fn new(folder: PathBuf, step: Option<Takeover>) -> Ledger {
        Ledger { folder, last: Mutex::new(Last { record: None, is_written: false, step }) }
    }

    /// Writes a record, with the progress of the takeover so far, unless the file has it. After a failure
    /// the next call writes it.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let mut last = self.last.lock();
        let record = Record { takeover: last.step, ..record.clone() };
        if last.is_written && last.record.as_ref() == Some(&record) {
            return Ok(());
        }
        last.write(&self.folder, record)
    }

    /// Writes the progress of a takeover; `None`: there is none.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn note_step(&self, step: Option<Takeover>) -> io::Result<()> {
        let mut last = self.last.lock();
        last.step = step;
        match &last.record {
            Some(record) => {
                let record = Record { takeover: step, ..record.clone() };
                last.write(&self.folder, record)
            }
            // It comes with the record.
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_threads_know_is_in_one_record() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let ledger = Ledger::new(folder.path().to_path_buf(), Some(Takeover::Asked));
        let written = || Record::read(folder.path()).expect("a record");
        let record = Record::new("/srv/drive".into());
        ledger.write(&record)?;
        assert_eq!(written(), Record { takeover: Some(Takeover::Asked), ..record.clone() });
        ledger.note_step(Some(Takeover::Begun))?;
        let record = Record { server_pid: Some(7), ..record };
        ledger.write(&record)?;
        assert_eq!(written(), Record { takeover: Some(Takeover::Begun), ..record.clone() });
        ledger.note_step(None)?;
        assert_eq!(written(), record);
        Ok(())
    }

    #[test]
    fn a_record_that_could_not_be_written_is_written_later() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let ledger = Ledger::new(folder.path().to_path_buf(), None);
        ledger.write(&Record::new("/srv/drive".into()))?;
        let record = Record { server_pid: Some(7), ..Record::new("/srv/drive".into()) };
        let obstacle = folder.path().join("attachment.new");
        std::fs::create_dir(&obstacle)?;
        assert!(ledger.write(&record).is_err());
        std::fs::remove_dir(&obstacle)?;
        ledger.write(&record)?;
        assert_eq!(Record::read(folder.path()), Some(record));
        Ok(())
    }
}
