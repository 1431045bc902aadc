//! Columns of `pumice list` within the width of a terminal.

/// Number of columns.
pub(super) const COUNT: usize = 8;

/// Numbers of the columns that can be shortened.
const PATH: usize = 0;
const NBD: usize = 1;
const MOUNTED: usize = 6;
const STATE: usize = 7;

/// Mark in place of what is left out.
const CUT: char = '\u{2026}';

/// Columns to shorten, each with its least width, in the order of the steps: what the rest of a line tells
/// comes first.
const STEPS: [&[(usize, usize)]; 5] = [
    &[(NBD, 12), (MOUNTED, 12)],
    &[(PATH, 24)],
    &[(STATE, 24)],
    &[(NBD, 5), (PATH, 12), (MOUNTED, 7)],
    &[(STATE, 8)],
];

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Returns text of at most `width` characters: its beginning and the longer part of its end.
fn without_middle(text: &str, width: usize) -> String {
    let count = length(text);
    if count <= width {
        return text.to_string();
    }
    let begin = width.saturating_sub(1) / 3;
    let end = width.saturating_sub(1) - begin;
    text.chars().take(begin).chain([CUT]).chain(text.chars().skip(count - end)).collect()
}

/// Returns text of at most `width` characters: its beginning.
fn without_end(text: &str, width: usize) -> String {
    if length(text) <= width {
        return text.to_string();
    }
    text.chars().take(width.saturating_sub(1)).chain([CUT]).collect()
}

/// Width of a line with columns of these widths, three spaces apart.
fn line_width(widths: &[usize; COUNT]) -> usize {
    widths.iter().sum::<usize>() + 3 * (COUNT - 1)
}

/// Shortens the cells of rows to lines of `width` characters: paths and URIs lose their middle, a state its
/// end. Devices and figures stay whole, and no column gets narrower than its name. Paths that would look the
/// same are numbered.
pub(super) fn fit(rows: &mut [[String; COUNT]], names: [&str; COUNT], width: usize) {
    let mut widths = names.map(length);
    for row in rows.iter() {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = length(cell).max(*widest);
        }
    }
    for step in STEPS {
        while line_width(&widths) > width {
            let can_give = step.iter().filter(|(column, least)| widths[*column] > *least);
            let Some((widest, _)) = can_give.max_by_key(|(column, _)| widths[*column]) else { break };
            widths[*widest] -= 1;
        }
    }
    let full: Vec<String> = rows.iter().map(|row| row[PATH].clone()).collect();
    for row in rows.iter_mut() {
        for column in [PATH, NBD, MOUNTED] {
            row[column] = without_middle(&row[column], widths[column]);
        }
        row[STATE] = without_end(&row[STATE], widths[STATE]);
    }
    let short: Vec<String> = rows.iter().map(|row| row[PATH].clone()).collect();
    for (at, row) in rows.iter_mut().enumerate() {
        let is_same = |other: usize| short[other] == short[at] && full[other] != full[at];
        if (0..short.len()).any(is_same) {
            let number = format!("{}:", at + 1);
            row[PATH] =
                number.clone() + &without_middle(&full[at], widths[PATH].saturating_sub(number.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_path_is_left_out() {
        assert_eq!(without_middle("/srv/drive", 10), "/srv/drive");
        assert_eq!(without_middle("/var/lib/pumice/archive", 13), "/var\u{2026}/archive");
        assert_eq!(without_end("failed: no such device", 9), "failed: \u{2026}");
        for width in 0..4 {
            assert!(length(&without_middle("/var/lib", width)) <= width.max(1), "{width}");
        }
    }

    fn row(path: &str, state: &str) -> [String; COUNT] {
        let uri = format!("nbd+unix:///?socket={path}.nbd");
        [path, &uri, "/dev/nbd12 (nbd)", "100.00 GiB", "99.9 %", "2.50:1", "/srv/mounted/somewhere", state]
            .map(str::to_string)
    }

    #[test]
    fn lines_fit_and_devices_stay_whole() {
        let mut rows = vec![
            row("/var/lib/pumice/pools/first/archive/of/everything", "online"),
            row("/srv/b", "online, its backing was deleted, its device is waiting for the server"),
        ];
        fit(&mut rows, [""; COUNT], 100);
        for row in &rows {
            let lengths: Vec<usize> = row.iter().map(|cell| length(cell)).collect();
            assert!(line_width(&lengths.try_into().expect("as many")) <= 100, "{row:?}");
            assert_eq!(row[2], "/dev/nbd12 (nbd)");
            assert_eq!(row[3], "100.00 GiB");
        }
        let before = rows.clone();
        fit(&mut rows, [""; COUNT], 100);
        assert_eq!(rows, before, "what fits stays");
    }

    #[test]
    fn paths_that_would_look_the_same_are_numbered() {
        let mut rows: Vec<_> = ["first/pool/of/drives/drive", "second/pool/of/drives/drive"]
            .map(|end| row(&format!("/var/lib/pumice/a/b/c/d/e/f/{end}"), "online"))
            .into();
        fit(&mut rows, [""; COUNT], 100);
        assert!(rows[0][0].starts_with("1:/") && rows[1][0].starts_with("2:/"), "{rows:?}");
        assert_eq!(length(&rows[0][0]), length(&rows[1][0]));
    }
}
