//! Drive names in a column of limited width: the end of the path, which differs more often than the
//! beginning.

use std::path::Path;

use status::shown;

/// Mark in place of the removed beginning.
const CUT: char = '\u{2026}';

/// Returns the path, shortened at the beginning to at most `width` characters.
pub(super) fn tail(path: &Path, width: usize) -> String {
    let full = shown(path).to_string();
    let count = full.chars().count();
    if count <= width || width == 0 {
        return full;
    }
    std::iter::once(CUT).chain(full.chars().skip(count + 1 - width)).collect()
}

/// Returns a name of at most `width` characters for each path. Equal names are prefixed by their number.
pub(super) fn names<'a>(paths: impl Iterator<Item = &'a Path> + Clone, width: usize) -> Vec<String> {
    let short: Vec<String> = paths.clone().map(|path| tail(path, width)).collect();
    paths
        .enumerate()
        .map(|(at, path)| {
            let same = short.iter().filter(|other| **other == short[at]).count();
            if same == 1 {
                return short[at].clone();
            }
            let number = format!("{}:", at + 1);
            let left = width.saturating_sub(number.len()).max(1);
            number + &tail(path, left)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str], width: usize) -> Vec<String> {
        names(paths.iter().map(Path::new), width)
    }

    #[test]
    fn the_end_of_a_path_is_kept() {
        assert_eq!(of(&["/srv/a", "/srv/b"], 12), ["/srv/a", "/srv/b"]);
        assert_eq!(
            of(&["/var/lib/pumice/databases", "/var/lib/pumice/archive"], 12),
            ["\u{2026}e/databases", "\u{2026}ice/archive"]
        );
    }

    #[test]
    fn equal_ends_are_numbered() {
        assert_eq!(
            of(&["/data/first/pool/drive", "/data/second/pool/drive", "/x"], 12),
            ["1:\u{2026}ool/drive", "2:\u{2026}ool/drive", "/x"]
        );
    }
}
