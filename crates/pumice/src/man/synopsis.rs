//! The synopsis of a page, with the values of options.

use clap::{Arg, Command};

use super::escape;

/// Returns the command with all of its options and arguments, for roff.
pub(super) fn text(command: &Command, name: &str) -> String {
    let mut words = vec![format!("\\fB{}\\fR", escape(name))];
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    words.extend(shown().filter(|it| !it.is_positional() && !is_of_every_command(it)).map(word));
    words.extend(shown().filter(|it| it.is_positional()).map(word));
    if command.has_subcommands() {
        let value = "\\fICOMMAND\\fR";
        words.push(if command.is_subcommand_required_set() {
            value.to_string()
        } else {
            format!("[{value}]")
        });
    }
    words.join("\n")
}

/// Whether an option is `--help` or `--version`.
fn is_of_every_command(argument: &Arg) -> bool {
    matches!(argument.get_id().as_str(), "help" | "version")
}

/// Returns an option or an argument with its values, in brackets if it can be left out.
fn word(argument: &Arg) -> String {
    let names = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let mut values: Vec<String> =
        names.into_iter().flatten().map(|name| format!("\\fI{}\\fR", escape(name))).collect();
    if values.is_empty() && argument.is_positional() {
        values.push(format!("\\fI{}\\fR", escape(argument.get_id().as_str())));
    }
    let values = values.join("\\ ");
    let flag = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => Some(format!("\\fB{}\\fR", escape(&format!("--{long}")))),
        (None, Some(short)) => Some(format!("\\fB{}\\fR", escape(&format!("-{short}")))),
        (None, None) => None,
    };
    let text = match flag {
        None => values,
        Some(flag) if values.is_empty() => flag,
        // A space that no line is broken at.
        Some(flag) => format!("{flag}\\ {values}"),
    };
    let many =
        argument.get_num_args().is_some_and(|range| range.max_values() > 1 && argument.is_positional())
            || matches!(argument.get_action(), clap::ArgAction::Append);
    let text = if argument.is_required_set() { text } else { format!("[{text}]") };
    if many { text + "..." } else { text }
}

#[cfg(test)]
mod tests {
    use clap::ArgAction;

    use super::*;

    #[test]
    fn options_have_their_values() {
        let mut command = Command::new("x")
            .arg(Arg::new("size").long("size").value_name("BYTES").required(true))
            .arg(Arg::new("json").long("json").action(ArgAction::SetTrue))
            .arg(Arg::new("set").long("set").value_name("A=B").action(ArgAction::Append))
            .arg(Arg::new("PATH").num_args(1..));
        command.build();
        let expected = [
            "\\fBpumice x\\fR",
            "\\fB\\-\\-size\\fR\\ \\fIBYTES\\fR",
            "[\\fB\\-\\-json\\fR]",
            "[\\fB\\-\\-set\\fR\\ \\fIA=B\\fR]...",
            "[\\fIPATH\\fR]...",
        ];
        assert_eq!(text(&command, "pumice x").lines().collect::<Vec<_>>(), expected);
    }
}
