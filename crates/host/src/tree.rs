//! Files of a machine for tests, also for those of crates above.

use host::Root;

/// Creates a directory tree with files, to be used as the root.
pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    let root = Root::new(folder.path());
    (folder, root)
}
