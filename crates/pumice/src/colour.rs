//! Colours on a terminal. Text is painted always; the streams of [`anstream`] remove the colours where the
//! output is no terminal (unless `CLICOLOR_FORCE` is set), on a dumb terminal (unless `CLICOLOR` or `CI` is
//! set), and wherever `NO_COLOR` is set.

use anstyle::{AnsiColor, Style};

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It is.
    Good,
    /// It works, but needs attention.
    Warning,
    /// It does not work.
    Bad,
}

/// Paints text that has no colours of its own.
pub(crate) fn paint(mood: Mood, text: &str) -> String {
    let style: Style = match mood {
        Mood::Good => AnsiColor::Green.on_default(),
        Mood::Warning => AnsiColor::Yellow.on_default(),
        Mood::Bad => AnsiColor::Red.on_default().bold(),
    };
    format!("{style}{text}{style:#}")
}

/// Paints the first `word` of a line.
pub(crate) fn paint_word(mood: Mood, line: &str, word: &str) -> String {
    line.replacen(word, &paint(mood, word), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_can_be_removed() {
        let line = paint_word(Mood::Warning, "  warning: a warning", "warning:");
        assert_eq!(line, "  \u{1b}[33mwarning:\u{1b}[0m a warning");
        assert_eq!(anstream::adapter::strip_str(&line).to_string(), "  warning: a warning");
        assert!(paint(Mood::Bad, "poisoned").contains("\u{1b}[31m"));
        assert_eq!(anstream::adapter::strip_str(&paint(Mood::Good, "online")).to_string(), "online");
    }
}
