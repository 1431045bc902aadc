//! Builds the library that stands in for libqatzip; the program's tests do so, too.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder and the library in it. `None`, and a line that says so, without a C compiler.
pub fn build() -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let library = dir.path().join("libqatzip.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offload/tests/standin.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-pthread", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    let Ok(status) = built else {
        eprintln!("skipped: no C compiler (cc)");
        return None;
    };
    assert!(status.success(), "the stand-in does not compile");
    Some((dir, library))
}
