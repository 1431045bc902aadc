//! Text that a command reads: scenarios and results of other commands. A file may be a pipe or a device,
//! whose length nobody knows.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};

/// Longest text. The largest results, those of a scan of thousands of directories, take a few MiB.
const TEXT_MAX_BYTES: u64 = 64 << 20;

/// Reads the text in a file.
///
/// # Errors
/// Fails if it cannot be read, is longer than 64 MiB, or is not UTF-8.
pub(crate) fn text_in(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    text_of(file, path)
}

/// As [`text_in`], for what is open already. `path` is its name in messages.
pub(crate) fn text_of(input: impl Read, path: &Path) -> Result<String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    input.take(TEXT_MAX_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {shown}"))?;
    ensure!(
        bytes.len() as u64 <= TEXT_MAX_BYTES,
        "{shown}: expected a text of at most {} MiB",
        TEXT_MAX_BYTES >> 20
    );
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
        anyhow!("{shown}:{line}: expected UTF-8 text")
    })
}

#[cfg(test)]
mod tests {
    use std::io::repeat;

    use super::*;

    #[test]
    fn a_text_has_a_limit() {
        let read = |bytes: u64| text_of(repeat(b' ').take(bytes), Path::new("-"));
        assert_eq!(read(TEXT_MAX_BYTES).expect("the longest").len() as u64, TEXT_MAX_BYTES);
        let error = read(u64::MAX).expect_err("without end");
        assert_eq!(error.to_string(), "-: expected a text of at most 64 MiB");
        let error = text_of(&b"a\nb\xff"[..], Path::new("x")).expect_err("no text");
        assert_eq!(error.to_string(), "x:2: expected UTF-8 text");
    }
}
