//! Subjects of commits fit where they are shown.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

use std::process::Command;

use tidy::{must_be_empty, root};

const COLUMNS_MAX: usize = 72;
/// The last commit before the rule.
const BEFORE: &str = "3ae2d794";

#[test]
fn subjects_of_commits_are_short() {
    let log = |range: &str| {
        let output =
            Command::new("git").args(["log", "--format=%h %s", range]).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A copy without its history, or with a part of it.
    let Some(log) = log(&format!("{BEFORE}..HEAD")) else {
        println!("skipped: subjects of commits, which need the history");
        return;
    };
    let long =
        |line: &&str| line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > COLUMNS_MAX);
    let broken: Vec<String> = log.lines().filter(long).map(str::to_owned).collect();
    must_be_empty("the subject of a commit has 72 columns at most", &broken);
}
