//! What stands below the options in the help: notes and examples.

/// The notes of a help, divided as a manual page has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// Paragraphs for the description.
    pub(super) description: Vec<String>,
    /// Lines of examples.
    pub(super) examples: Vec<String>,
}

impl Notes {
    /// Divides the text: examples begin with a line that says so, and end with an empty line or a sentence.
    /// Exit codes have a section of their own.
    pub(super) fn of(text: &str) -> Notes {
        let mut notes = Notes::default();
        let mut is_example = false;
        for line in text.lines() {
            let line = line.trim();
            let is_sentence = line.starts_with(char::is_uppercase) && line.ends_with('.');
            is_example &= !line.is_empty() && !is_sentence;
            if line.starts_with("Exit code") {
                is_example = false;
                continue;
            }
            let rest = line.strip_prefix("Example").map(|rest| rest.trim_start_matches('s'));
            let example = match rest.and_then(|rest| rest.strip_prefix(':')) {
                Some(first) => {
                    is_example = true;
                    first.trim()
                }
                None => line,
            };
            let lines = if is_example { &mut notes.examples } else { &mut notes.description };
            if !example.is_empty() {
                lines.push(example.to_string());
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_told_from_notes() {
        let notes =
            Notes::of("Columns: A\n\nB, more.\n\nExamples:\n  pumice a\n  pumice b\nExit code: 0 or 1.\nC.");
        assert_eq!(notes.description, ["Columns: A", "B, more.", "C."]);
        assert_eq!(notes.examples, ["pumice a", "pumice b"]);
        let one = Notes::of("Example: pumice c");
        assert_eq!((one.description.len(), one.examples), (0, vec!["pumice c".to_string()]));
    }
}
