//! Questions that cannot be answered while memory is short: *no memory for the answer* is not *there is no
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

/// Errors that say nothing about what was asked. Not those of too many open files: a server that has reached
/// its limit would answer nobody.
const SHORTAGES: [Errno; 2] = [Errno::NOMEM, Errno::NOBUFS];

/// Asks again as long as memory is short, for a minute at most.
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
        let is_short = Errno::from_io_error(&error).is_some_and(|errno| SHORTAGES.contains(&errno));
        if !is_short || Instant::now() >= until {
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
        let mut answers = vec![Ok(7), Err(Errno::NOBUFS), Err(Errno::NOMEM)];
        assert_eq!(patiently(|| answers.pop().expect("no more questions")).ok(), Some(7));
        for other in [Errno::NOENT, Errno::MFILE, Errno::AGAIN] {
            let mut answers = vec![Err::<u8, _>(other)];
            let error = patiently(|| answers.pop().expect("no more questions")).expect_err("no shortage");
            assert_eq!(Errno::from_io_error(&error), Some(other));
        }
    }
}
