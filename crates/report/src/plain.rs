//! Text from outside, such as names of files, without what could change how other text looks.

/// Returns the text with spaces in place of control characters, and of characters for the direction of text
/// (Unicode Standard Annex 9).
pub(crate) fn plain(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect()
}

/// Returns the text in the same way, except that its lines stay lines.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{plain, plain_lines};

    #[test]
    fn lines_stay_lines() {
        assert_eq!(plain_lines("a\u{1b}[31m\n\u{202e}b\n"), "a [31m\n b\n");
    }

    #[test]
    fn only_visible_text_is_left() {
        assert_eq!(plain("a\u{1b}[31m\n\u{202e}gpj.exe \u{e9}"), "a [31m  gpj.exe \u{e9}");
    }
}
