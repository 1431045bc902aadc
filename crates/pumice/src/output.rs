//! Output of commands: JSON on standard output, and files that are checked before the work and written after
//! it.

use std::fs;
use std::io::{self, ErrorKind, StdoutLock, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::usage;

/// An output whose errors name standard output.
pub(crate) struct Named<W>(W);

/// Returns standard output. Text keeps its colours.
pub(crate) fn stdout() -> Named<StdoutLock<'static>> {
    Named(io::stdout().lock())
}

/// Returns standard output. Colours are removed unless it is a terminal that shows them.
pub(crate) fn coloured_stdout() -> Named<anstream::AutoStream<StdoutLock<'static>>> {
    Named(anstream::stdout().lock())
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Names standard output in an error of it. The kind stays: a closed pipe is no failure.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Prints one JSON document on standard output.
pub(crate) fn print_json(document: &impl serde::Serialize) -> Result<()> {
    let mut out = stdout();
    // Converted to an I/O error: a closed pipe ends the command without a message.
    serde_json::to_writer_pretty(&mut out, document).map_err(io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Prints the result of a completed change. If that fails, prints a warning with `what` instead of failing,
/// because the change was made.
pub(crate) fn report_result(what: &str, print: impl FnOnce() -> Result<()>) {
    if let Err(error) = print()
        && !crate::is_broken_pipe(&error)
    {
        usage::complain(&format!("warning: {what}, but {}", usage::one_line(&error)));
    }
}

/// A file to be written at the end of a command.
pub(crate) struct Output(PathBuf);

impl Output {
    /// Checks that a file can be created at `path`, so that a long command does not fail at its end. Creates
    /// and changes nothing.
    ///
    /// # Errors
    /// Fails if the directory is missing or not writable, or if `path` is a directory.
    pub(crate) fn check(path: &Path) -> Result<Output> {
        let probe = || match fs::metadata(path) {
            Ok(found) if found.is_dir() => Err(io::Error::from(ErrorKind::IsADirectory)),
            // A pipe or `/dev/stdout`. Opening it could wait, or disturb its reader.
            Ok(found) if !found.is_file() => Ok(()),
            _ => tempfile::tempfile_in(folder(path)).map(drop),
        };
        probe().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Output(path.to_path_buf()))
    }

    /// Writes the file. A failure leaves an existing file unchanged. If the path is not a regular file (a
    /// pipe, `/dev/stdout`), it is written in place.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        write_whole(&self.0, text).with_context(|| format!("cannot write {}", self.0.display()))
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, text);
    }
    let mut file = tempfile::Builder::new().prefix(".pumice-").tempfile_in(folder(path))?;
    file.write_all(text.as_bytes())?;
    // Sets the permissions of an ordinary new file.
    let ordinary = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(ordinary);
    let mode = rustix::fs::Mode::from_raw_mode(0o666) - ordinary;
    rustix::fs::fchmod(file.as_file(), mode)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_changes_nothing_and_a_write_replaces() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("page");
        let output = Output::check(&path).expect("it can be made");
        assert_eq!(fs::read_dir(folder.path()).expect("a directory").count(), 0);
        for text in ["one, longer", "two"] {
            output.write(text).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("text"), text);
        }
        Output::check(&path).expect("it can be replaced");
        assert_eq!(fs::read_to_string(&path).expect("text"), "two");
        for bad in [folder.path().to_path_buf(), folder.path().join("none/page"), path.join("below")] {
            let error = Output::check(&bad).err().expect("refused").to_string();
            assert_eq!(error, format!("cannot write {}", bad.display()));
        }
    }
}
