//! Questions that cannot be answered while something is short: *no memory for the answer* is not *there is no
//! such process*. In a control group at its limit, whatever a process asks may fail with `ENOMEM`, if it is
//! not the one to be killed.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Longest time that a question is repeated.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between two attempts.
const POLL: Duration = Duration::from_millis(20);

/// Errors of which none says anything about what was asked.
const SHORTAGES: [Errno; 6] =
    [Errno::NOMEM, Errno::NOBUFS, Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::INTR];

/// Asks again as long as memory or open files are short, for a minute at most.
///
/// # Errors
///
/// Any other error of `ask`, or the last one.
pub fn patiently<T, E: Into<io::Error>>(mut ask: impl FnMut() -> Result<T, E>) -> io::Result<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let error = match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) => error.into(),
        };
        if !Errno::from_io_error(&error).is_some_and(|errno| SHORTAGES.contains(&errno)) {
            return Err(error);
        }
        if Instant::now() >= until {
            return Err(error);
        }
        std::thread::sleep(POLL);
    }
}

/// Reads a file, [patiently].
///
/// # Errors
///
/// That of the file system.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    patiently(|| std::fs::read(path.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_waited_for_and_nothing_else() {
        let mut answers = vec![Ok(7), Err(Errno::NFILE), Err(Errno::NOMEM)];
        assert_eq!(patiently(|| answers.pop().expect("no more questions")).ok(), Some(7));
        let mut answers = vec![Err::<u8, _>(Errno::NOENT)];
        let error = patiently(|| answers.pop().expect("no more questions")).expect_err("it is not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
