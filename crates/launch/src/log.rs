//! The log of a server.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The part of a log file that one server writes.
#[derive(Clone, Debug)]
pub struct Log {
    path: PathBuf,
    /// Length of the file when the server was started.
    begin: u64,
}

impl Log {
    /// Opens a file for a server that appends to it.
    ///
    /// # Errors
    ///
    /// If the file can be neither created nor written.
    pub fn append(path: &Path) -> io::Result<(Log, File)> {
        let file = File::options().create(true).append(true).open(path)?;
        let begin = file.metadata().map_or(0, |found| found.len());
        Ok((Log { path: path.to_path_buf(), begin }, file))
    }

    /// Returns what the server has written so far; empty if the file cannot be read.
    pub fn text(&self) -> String {
        let log = fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.begin as usize..).unwrap_or_default()).into_owned()
    }

    /// Returns the last line that the server has written, without the name of the program.
    pub fn last_line(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().rfind(|line| !line.is_empty())?;
        Some(line.trim_start_matches("pumice: ").to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_begins_where_its_server_does() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("log");
        fs::write(&path, "of an earlier server\n")?;
        let (log, mut file) = Log::append(&path)?;
        assert_eq!((log.text().as_str(), log.last_line()), ("", None));
        file.write_all(b"first\npumice: no such drive\n\n")?;
        assert_eq!(log.text(), "first\npumice: no such drive\n\n");
        assert_eq!(log.last_line().as_deref(), Some("no such drive"));
        fs::remove_file(&path)?;
        assert_eq!(log.last_line(), None);
        Ok(())
    }
}
