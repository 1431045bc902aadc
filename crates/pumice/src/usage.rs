//! Errors on one line: what, where, what to do.

use std::process::ExitCode;

use clap::error::ErrorKind;

/// A command line that asks for nothing that can be done: exit code 2.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// Prints what is wrong with a command line, or the help that it asks for.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Help that cannot be printed helps nobody; there is nothing to do about it.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    eprintln!("pumice: {}; `pumice --help` tells more", first_paragraph(&error.render().to_string()));
    ExitCode::from(2)
}

/// The message of an error of clap, without its usage and its hints, on one line.
fn first_paragraph(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    words.join(" ").trim_start_matches("error: ").trim_end_matches('.').to_string()
}

/// An error with its causes, each told once.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    line.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_told_already_is_not_told_again() {
        let error = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(one_line(&error), "outer: inner");
        let error = anyhow::anyhow!("in\nner").context("outer");
        assert_eq!(one_line(&error), "outer: in ner");
    }

    #[test]
    fn clap_is_made_one_line() {
        let text =
            "error: the following required arguments were not provided:\n  --size <SIZE>\n\nUsage: x\n";
        assert_eq!(
            first_paragraph(text),
            "the following required arguments were not provided: --size <SIZE>"
        );
    }
}
