//! Errors on one line: problem, location and remedy.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::colour::{Mood, paint};

/// Error for wrong usage of the command line: exit code 2.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// An error with its own exit code. Its message is that of the contained error.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

impl std::fmt::Display for Coded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Coded {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Returns the exit code for an error (docs/reference/exit-codes.md).
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Coded>() {
        Some(coded) => coded.code,
        None if error.is::<WrongUsage>() => 2,
        None => 1,
    }
}

/// Prints the error of a command line, or the help that it requests. The first of the `arguments` is the name
/// of the program.
pub(crate) fn refuse(error: &clap::Error, program: &Command, arguments: &[OsString]) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A failure to print the help is ignored.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let what = wrong_value(error).unwrap_or_else(|| first_paragraph(&error.render().to_string()));
    complain(&format!("{what}; see `{} --help`", named(program, arguments)));
    ExitCode::from(2)
}

/// Returns the message for a value that is none of those possible, or not the number that it should be:
/// those of the libraries do not say what was expected. `None` for other errors.
fn wrong_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (name, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let cause = std::error::Error::source(error);
    let expected = match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(valid))) => one_of(valid)?,
        (ErrorKind::ValueValidation, _) if cause?.is::<ParseFloatError>() => "a number".into(),
        (ErrorKind::ValueValidation, _) => integer(cause?.downcast_ref()?, value).into(),
        _ => return None,
    };
    let what = match (error.kind(), value) {
        // The option ends the command line, or another option follows.
        (ErrorKind::InvalidValue, "") => format!("a value is required for '{name}' but none was supplied"),
        _ => format!("invalid value '{value}' for '{name}'"),
    };
    Some(printable(&format!("{what}: expected {expected}")))
}

/// Returns the number expected in place of a text that is no whole number of its type.
fn integer(error: &ParseIntError, text: &str) -> &'static str {
    let is_negative = || {
        let digits = text.strip_prefix('-').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match error.kind() {
        IntErrorKind::PosOverflow => "a smaller number",
        IntErrorKind::NegOverflow => "a larger number",
        IntErrorKind::InvalidDigit if is_negative() => "a number that is not negative",
        _ => "a whole number",
    }
}

/// Formats words as `a, b or c`.
fn one_of(words: &[String]) -> Option<String> {
    Some(match words.split_last()? {
        (last, []) => last.clone(),
        (last, others) => format!("{} or {last}", others.join(", ")),
    })
}

/// Parser for a whole number in a range. Its error names the range.
pub(crate) fn whole_number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Copy + Display,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns the command that arguments name, as it is called, such as `pumice bench compare`.
fn named(program: &Command, arguments: &[OsString]) -> String {
    let (mut command, mut name) = (program, program.get_name().to_string());
    for word in arguments.iter().skip(1) {
        let Some(found) = command.find_subcommand(word) else { break };
        name = format!("{name} {}", found.get_name());
        command = found;
    }
    name
}

/// Beginning of a line that is a warning.
const WARNING: &str = "warning:";

/// Prints a line on standard error, on a terminal with the word that makes it a warning in colour. Ignores
/// failures.
pub(crate) fn complain(line: &str) {
    // The exit code reports the error as well.
    let line = match line.strip_prefix(WARNING) {
        Some(rest) => format!("{}{rest}", paint(Mood::Warning, WARNING)),
        None => line.to_string(),
    };
    let _ = writeln!(anstream::stderr(), "pumice: {line}");
}

/// Returns the message of a clap error on one line, without the usage, and from its tips only the suggestion.
fn first_paragraph(text: &str) -> String {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .take_while(|paragraph| !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more"))
        .collect();
    let message =
        paragraphs.first().map_or("", |first| first.trim_start_matches("error: ").trim_end_matches('.'));
    let meant = paragraphs.iter().skip(1).filter_map(|tips| tips.strip_prefix("tip: "));
    let meant = meant.filter(|tip| tip.contains("similar")).fold(String::new(), |all, tip| all + ": " + tip);
    printable(&format!("{message}{meant}"))
}

/// Makes text from outside safe for a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Formats an error with its causes on one line, without repetition.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    let is_damaged = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref(), Some(drive::Error::Damaged(_)))
    };
    if error.chain().any(is_damaged) {
        line.push_str("; what came after can be given up with --accept-damage --read-only");
    }
    printable(&without_numbers(&line))
}

/// Removes what Rust appends to the text of an error of the system: ` (os error 2)`.
fn without_numbers(line: &str) -> String {
    let mut parts = line.split(" (os error ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|it| it.is_ascii_digit()) => text.push_str(rest),
            _ => text = format!("{text} (os error {part}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_not_repeated() {
        let error = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(one_line(&error), "outer: inner");
        let error = anyhow::anyhow!("in\nner").context("outer");
        assert_eq!(one_line(&error), "outer: in ner");
    }

    #[test]
    fn an_error_of_the_system_is_told_without_its_number() {
        let missing = || std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::new(missing()).context(format!("/a: {}; see /b", missing()));
        assert_eq!(one_line(&error), "/a: No such file or directory; see /b");
        let error = anyhow::anyhow!("/a (os error x): none");
        assert_eq!(one_line(&error), "/a (os error x): none");
    }

    #[test]
    fn the_help_is_that_of_the_command() {
        use clap::CommandFactory;
        for (words, expected) in [
            (&["pumice"][..], "pumice"),
            (&["/usr/bin/pumice", "nothing"], "pumice"),
            (&["pumice", "--bogus", "bench"], "pumice"),
            (&["pumice", "bench", "--bogus"], "pumice bench"),
            (&["pumice", "bench", "compare", "a"], "pumice bench compare"),
            (&["pumice", "sfx-nvme", "sfx", "change-cap", "--bogus"], "pumice sfx-nvme sfx change-cap"),
        ] {
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(named(&crate::Cli::command(), &arguments), expected, "{words:?}");
        }
    }

    #[test]
    fn errors_have_codes() {
        let plain = || anyhow::anyhow!("inner").context("outer");
        assert_eq!(exit_code(&plain()), 1);
        assert_eq!(exit_code(&WrongUsage("no".into()).into()), 2);
        let coded = anyhow::Error::new(Coded { code: 3, error: plain() });
        assert_eq!((exit_code(&coded), one_line(&coded).as_str()), (3, "outer: inner"));
    }

    #[test]
    fn nothing_speaks_to_the_terminal() {
        let error = anyhow::anyhow!("/srv/\x1b[2J\x07drive: no");
        assert_eq!(one_line(&error), "/srv/ [2J drive: no");
    }

    #[test]
    fn tips_that_help_are_kept() {
        let text = "error: unexpected argument '--jsn' found\n\n  tip: a similar argument exists: '--json'\n\nUsage: x";
        let line = "unexpected argument '--jsn' found: a similar argument exists: '--json'";
        assert_eq!(first_paragraph(text), line);
        let text = "error: unexpected argument '-1' found\n\n  tip: to pass '-1' as a value, use '-- -1'\n\nUsage: x";
        assert_eq!(first_paragraph(text), "unexpected argument '-1' found");
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
