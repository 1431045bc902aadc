//! Texts that clients decide, in the log: cut after a limit.

use std::fmt::{self, Display, Write};

/// Longest text in the log that a client decides, in bytes: names of its certificate and of exports, what is
/// wrong with its messages. A certificate may have thousands of names.
const TEXT_BYTES_MAX: usize = 256;

/// Text that is displayed up to [`TEXT_BYTES_MAX`], with "..." in place of what follows.
pub(crate) struct Short<T>(pub(crate) T);

impl<T: Display> Display for Short<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut short = Shortening { to: f, left: TEXT_BYTES_MAX };
        match write!(short, "{}", self.0) {
            Err(_) if short.left == 0 => f.write_str("..."),
            written => written,
        }
    }
}

struct Shortening<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl fmt::Write for Shortening<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() <= self.left {
            self.left -= text.len();
            return self.to.write_str(text);
        }
        let end = (0..=self.left).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.left = 0;
        self.to.write_str(&text[..end])?;
        // Nothing more is to be written.
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut() {
        let short = |text: &str| Short(text).to_string();
        assert_eq!(short("db1.example.com"), "db1.example.com");
        let full = "a".repeat(TEXT_BYTES_MAX);
        assert_eq!(short(&full), full);
        assert_eq!(short(&format!("{full}b")), format!("{full}..."));
        // Between characters.
        assert_eq!(short(&"\u{e4}".repeat(1000)), "\u{e4}".repeat(128) + "...");
        assert_eq!(short(&format!("a{}", "\u{e4}".repeat(1000))), format!("a{}...", "\u{e4}".repeat(127)));
        // In pieces.
        assert_eq!(Short(format_args!("{full}{}", "b")).to_string(), format!("{full}..."));
        assert_eq!(Short(format_args!("{}", 7)).to_string(), "7");
    }
}
