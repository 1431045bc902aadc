//! `pumice man`: manual pages, generated from the definition of the command line.

mod configuration;
mod environment;
mod exit_status;
mod notes;
mod synopsis;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use notes::Notes;

#[derive(clap::Args)]
#[command(after_help = "Example: pumice man pages && man -l pages/pumice-serve.1\n\
    Pages *.1 belong in share/man/man1, pumice.toml.5 in share/man/man5.")]
pub(crate) struct Args {
    /// Output directory, created if missing
    dir: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let shown = args.dir.display();
    std::fs::create_dir_all(&args.dir).with_context(|| format!("{shown}: cannot make this directory"))?;
    let pages = pages(&crate::Cli::command())?;
    for (name, page) in &pages {
        let path = args.dir.join(name);
        std::fs::write(&path, page).with_context(|| format!("{}: cannot write it", path.display()))?;
    }
    writeln!(crate::output::stdout(), "{shown}: {} pages", pages.len())?;
    Ok(())
}

/// Returns file names and contents of all pages.
fn pages(root: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut root = root.clone();
    root.build();
    let others = names_below(&root, "pumice");
    let mut pages = vec![
        ("pumice.1".to_string(), page(&root, "pumice", &others)?),
        (configuration::FILE.to_string(), configuration::page()?),
    ];
    add_below(&root, "pumice", &mut pages)?;
    Ok(pages)
}

fn add_below(above: &Command, name: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    for command in named(above) {
        let own = page_name(name, command);
        pages.push((format!("{own}.1"), page(command, &own, &[name.to_string()])?));
        add_below(command, &own, pages)?;
    }
    Ok(())
}

/// Returns the names of the pages of all commands below one.
fn names_below(above: &Command, name: &str) -> Vec<String> {
    let mut names = Vec::new();
    for command in named(above) {
        let own = page_name(name, command);
        let below = names_below(command, &own);
        names.push(own);
        names.extend(below);
    }
    names
}

/// Returns the documented subcommands.
fn named(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn page_name(above: &str, command: &Command) -> String {
    format!("{above}-{}", command.get_name())
}

fn page(command: &Command, name: &str, others: &[String]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .section("1")
        .source(format!("pumice {}", env!("CARGO_PKG_VERSION")))
        .manual("Pumice");
    man.render_title(&mut out)?;
    writeln!(out, ".SH NAME\n{} \\- {}", escape(name), escape(&about(command)))?;
    writeln!(
        out,
        ".SH SYNOPSIS\n.nh\n.ad l\n{}\n.ad b\n.hy",
        synopsis::text(command, &name.replace('-', " "))
    )?;
    let notes = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let notes = Notes::of(&notes.unwrap_or_default());
    writeln!(out, ".SH DESCRIPTION\n{}.", escape(&description(command)))?;
    for line in &notes.description {
        writeln!(out, ".PP\n{}", escape(line))?;
    }
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if named(command).next().is_some() {
        writeln!(out, ".SH COMMANDS")?;
        for below in named(command) {
            writeln!(out, ".TP\n{}(1)\n{}", escape(&page_name(name, below)), escape(&about(below)))?;
        }
    }
    writeln!(out, ".SH EXIT STATUS")?;
    for (code, meaning) in exit_status::of(name) {
        writeln!(out, ".TP\n{code}\n{}", escape(&meaning))?;
    }
    writeln!(out, ".SH ENVIRONMENT")?;
    for (variable, meaning) in environment::of(name) {
        writeln!(out, ".TP\n{}\n{}", escape(variable), escape(meaning))?;
    }
    if !notes.examples.is_empty() {
        // Keeps line breaks, as in the help.
        writeln!(out, ".SH EXAMPLES\n.nf")?;
        for line in &notes.examples {
            writeln!(out, "{}", escape(line))?;
        }
        writeln!(out, ".fi")?;
    }
    let mut others: Vec<String> = others.iter().map(|other| format!("{}(1)", escape(other))).collect();
    others.push("pumice.toml(5)".into());
    writeln!(out, ".SH SEE ALSO\n{}", others.join(", "))?;
    Ok(out)
}

/// Returns the description of a command without the full stop.
fn description(command: &Command) -> String {
    let text = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    text.unwrap_or_default().trim_end_matches('.').to_string()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Escapes text for roff (`groff(7)`): no escapes, no requests, and dashes that can be searched for.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Returns all commands below a command, with their full names.
    fn all(command: &Command, name: &str) -> Vec<(String, Command)> {
        let mut found = Vec::new();
        for below in named(command) {
            let name = format!("{name} {}", below.get_name());
            found.push((name.clone(), below.clone()));
            found.extend(all(below, &name));
        }
        found
    }

    #[test]
    fn every_command_has_a_page_that_says_what_it_takes() {
        let root = crate::Cli::command();
        let pages = pages(&root).expect("pages");
        assert!(all(&root, "pumice").len() > 10);
        for (name, command) in all(&root, "pumice") {
            let file = format!("{}.1", name.replace(' ', "-"));
            let (_, page) = pages.iter().find(|(page, _)| *page == file).unwrap_or_else(|| panic!("{file}"));
            let page = String::from_utf8_lossy(page).replace("\\-", "-").to_lowercase();
            for section in ["name", "synopsis", "description", "exit status", "environment", "see also"] {
                assert!(page.contains(&format!(".sh {section}\n")), "{file}: {section}");
            }
            let has_examples = page.contains(".sh examples\n.nf\n");
            assert!(has_examples || command.has_subcommands(), "{file}: no example");
            let examples = page.split(".sh examples\n").nth(1).and_then(|it| it.split(".fi").next());
            let is_sentence = |line: &&str| line.ends_with('.');
            assert_eq!(examples.and_then(|it| it.lines().find(is_sentence)), None, "{file}");
            let (_, synopsis) = page.split_once(".sh synopsis\n").expect("a synopsis");
            let (synopsis, rest) = synopsis.split_once(".sh ").expect("a section after it");
            assert!(rest.split("\n.sh ").next().is_some_and(|it| it.lines().count() > 1), "{file}: empty");
            for option in command.get_arguments().filter(|it| !it.is_hide_set() && it.get_long().is_some()) {
                let value = option.get_value_names().filter(|_| option.get_action().takes_values());
                for value in value.into_iter().flatten() {
                    assert!(
                        synopsis.contains(&format!("\\fi{}\\fr", value.to_lowercase())),
                        "{file}: {value}"
                    );
                }
            }
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let positional = || {
                    let id = argument.get_id().to_string();
                    argument.get_value_names().map_or(id, |names| names[0].to_string())
                };
                let name = argument.get_long().map_or_else(positional, |long| format!("--{long}"));
                assert!(page.contains(&name.to_lowercase()), "{file}: {name}");
            }
        }
        let first = String::from_utf8_lossy(&pages[0].1).replace("\\-", "-");
        for (file, _) in &pages[1..] {
            assert!(
                first.contains(file.trim_end_matches(".1").trim_end_matches(".5")),
                "pumice.1 does not list {file}"
            );
        }
    }

    /// Splits a command line into words, up to the start of another program.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
        for character in line.chars() {
            match character {
                '\'' => {
                    quoted = !quoted;
                    word.get_or_insert_default();
                }
                '|' | '>' | '#' | '&' if !quoted => break,
                ' ' if !quoted => words.extend(word.take()),
                other => word.get_or_insert_default().push(other),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn every_example_in_the_help_is_a_good_command_line() {
        let mut examples = 0;
        for (name, command) in all(&crate::Cli::command(), "pumice") {
            if command.has_subcommands() {
                continue;
            }
            let notes = command.get_after_long_help().or(command.get_after_help());
            let notes = notes.map(ToString::to_string).unwrap_or_default();
            assert!(notes.contains("Example") && notes.contains(&name), "{name} has no example");
            for line in notes.lines() {
                // A command can begin here. A match in the middle of a sentence does not count.
                let begins = |at: usize| {
                    let before = line[..at].trim_end();
                    before.is_empty() || before.ends_with([':', '|']) || before.ends_with("&&")
                };
                for (at, _) in line.match_indices("pumice ").filter(|(at, _)| begins(*at)) {
                    let words = words(&line[at..]);
                    let parsed = crate::Cli::try_parse_from(&words);
                    assert!(parsed.is_ok(), "{name}: {words:?}: {:?}", parsed.err());
                    examples += 1;
                }
            }
        }
        assert!(examples > 15, "{examples}");
    }

    #[test]
    fn pages_list_the_environment() {
        let pages = pages(&crate::Cli::command()).expect("pages");
        let environment_of = |file: &str| {
            let (_, page) = pages.iter().find(|(name, _)| name == file).expect("a page");
            let page = String::from_utf8_lossy(page).replace("\\-", "-");
            let (_, section) = page.split_once(".SH ENVIRONMENT\n").expect("a section");
            section.split(".SH ").next().unwrap_or_default().to_string()
        };
        for (file, listed, missing) in [
            ("pumice.1", &["PUMICE_LOG", "PUMICE_USER", "PUMICE_RUNTIME_DIR", "AWS_REGION"][..], &[][..]),
            (
                "pumice-serve.1",
                &["PUMICE_LOG", "PUMICE_USER", "PUMICE_CONFIG", "LISTEN_FDS"],
                &["AWS_REGION"],
            ),
            ("pumice-attach.1", &["PUMICE_IO", "PUMICE_USER", "NOTIFY_SOCKET"], &["AWS_REGION"]),
            ("pumice-demo.1", &["PUMICE_IO", "PUMICE_LOG"], &["AWS_REGION"]),
            ("pumice-bench.1", &["PUMICE_IO", "AWS_REGION", "CEPH_CONF", "NO_PROXY"], &["PUMICE_USER"]),
            ("pumice-scan.1", &["AWS_REGION", "HTTPS_PROXY"], &["PUMICE_RUNTIME_DIR"]),
            ("pumice-sfx-nvme-list.1", &["PUMICE_RUNTIME_DIR"], &["PUMICE_IO"]),
            ("pumice-status.1", &["/run/pumice, $XDG_RUNTIME_DIR/pumice", "NO_COLOR"], &["PUMICE_USER"]),
            ("pumice-bench-compare.1", &["NO_COLOR"], &["PUMICE_USER", "AWS_", "CEPH_CONF", "PUMICE_IO"]),
            ("pumice-bench-scorecard.1", &["NO_COLOR"], &["AWS_", "CEPH_CONF", "PUMICE_RUNTIME_DIR"]),
            ("pumice-tco.1", &["NO_COLOR"], &["PUMICE_RUNTIME_DIR"]),
        ] {
            let section = environment_of(file);
            let has = |name: &&&str| section.contains(**name);
            assert_eq!(listed.iter().find(|name| !has(name)), None, "{file}");
            assert_eq!(missing.iter().find(|name| has(name)), None, "{file}");
        }
        // A default from the environment is in the list too.
        let mut from_environment = 0;
        for (name, command) in all(&crate::Cli::command(), "pumice") {
            let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
            for variable in variables {
                let section = environment_of(&format!("{}.1", name.replace(' ', "-")));
                assert!(section.contains(&format!("\n{variable}\n")), "{name}: {variable}");
                from_environment += 1;
            }
        }
        assert!(from_environment >= 4, "{from_environment}");
    }

    #[test]
    fn roff_is_not_fooled() {
        assert_eq!(escape(".SH x"), "\\&.SH x");
        assert_eq!(escape("a\\b --c"), "a\\eb \\-\\-c");
    }
}
