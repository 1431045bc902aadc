//! Lines end at 120 columns, comments at the width of the code, and files at 700 lines.

use tidy::{Text, files, must_be_empty, root};

const COLUMNS_MAX: usize = 120;
const LINES_MAX: usize = 700;

fn comment_columns() -> usize {
    let rustfmt = std::fs::read_to_string(root().join("rustfmt.toml")).expect("rustfmt.toml");
    let width = rustfmt.lines().find_map(|line| line.strip_prefix("max_width = "));
    width.and_then(|width| width.parse().ok()).expect("max_width in rustfmt.toml")
}

/// Ranges of lines, from 0, in which a raw string continues. What is quoted there has a form of its own.
fn raw_strings(text: &str) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    let (mut at, mut line) = (0, 0);
    let mut before = '\0';
    while let Some(character) = text[at..].chars().next() {
        let rest = &text[at..];
        let is_word = before.is_alphanumeric() || before == '_';
        let hashes = rest.strip_prefix('r').map(|rest| rest.len() - rest.trim_start_matches('#').len());
        if let (Some(hashes), false) = (hashes, is_word && before != 'b')
            && rest[1 + hashes..].starts_with('"')
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = 2 + hashes;
            let len = rest[begin..].find(&end).map_or(rest.len(), |len| begin + len + end.len());
            let lines = rest[..len].matches('\n').count();
            ranges.push(line..=line + lines);
            (at, line, before) = (at + len, line + lines, '"');
            continue;
        }
        if rest.starts_with("//") {
            let len = rest.find('\n').unwrap_or(rest.len());
            (at, before) = (at + len, '\0');
            continue;
        }
        line += usize::from(character == '\n');
        (at, before) = (at + character.len_utf8(), character);
    }
    ranges
}

/// Lines of a Rust file that are too long.
fn long_lines(file: &Text, comment_columns: usize) -> Vec<String> {
    let raw = raw_strings(&file.text);
    let mut is_figure = false;
    let mut broken = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        let trimmed = line.trim_start();
        let comment =
            trimmed.strip_prefix("//").map(|comment| comment.trim_start_matches(['/', '!']).trim_start());
        is_figure = match comment {
            None => false,
            Some(comment) => is_figure != comment.starts_with("```"),
        };
        let most = if comment.is_some() { comment_columns } else { COLUMNS_MAX };
        // Tables, figures and addresses cannot be wrapped.
        let is_table = comment.is_some_and(|comment| comment.starts_with('|'));
        let is_one_word =
            comment.is_some_and(|comment| comment.split_whitespace().any(|word| word.len() > 60));
        let is_raw = raw.iter().any(|range| range.contains(&number));
        if columns > most && !is_table && !is_figure && !is_one_word && !is_raw {
            broken.push(format!("{}:{}: {columns} columns", file.path, number + 1));
        }
    }
    broken
}

#[test]
fn lines_of_code_and_comments_are_not_too_long() {
    let comment_columns = comment_columns();
    let broken: Vec<String> =
        files(".rs").iter().flat_map(|file| long_lines(file, comment_columns)).collect();
    must_be_empty("comments are as wide as the code at most, and no line exceeds 120 columns", &broken);
}

#[test]
fn a_long_line_is_found() {
    let words = "word ".repeat(25);
    let file = |text: String| Text { path: "a.rs".into(), text };
    assert_eq!(long_lines(&file(format!("// {words}\n")), 110), ["a.rs:1: 128 columns"]);
    assert_eq!(long_lines(&file(format!("let a = [{words}];\n")), 110), ["a.rs:1: 136 columns"]);
    assert_eq!(long_lines(&file(format!("/// | {words}|\n")), 110), [""; 0]);
    assert_eq!(long_lines(&file(format!("/// ```text\n/// {words}\n/// ```\n/// a\n")), 110), [""; 0]);
    assert_eq!(long_lines(&file(format!("let a = r#\"\n{words}{words}\n\"#;\n")), 110), [""; 0]);
    assert_eq!(long_lines(&file(format!("// r#\"\n// {words}\n")), 110), ["a.rs:2: 128 columns"]);
}

#[test]
fn files_are_not_too_long() {
    let mut broken = Vec::new();
    for file in files(".rs") {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            broken.push(format!("{}: {lines} lines", file.path));
        }
    }
    must_be_empty("a file has 700 lines at most: two concepts want two files", &broken);
}

/// Prose outside of tables and code.
#[test]
fn lines_of_documents_are_not_too_long() {
    let mut broken = Vec::new();
    for file in files(".md") {
        let mut is_code = false;
        for (number, line) in file.text.lines().enumerate() {
            let trimmed = line.trim_start();
            is_code = is_code != trimmed.starts_with("```");
            let columns = line.chars().count();
            let is_one_word = line.split_whitespace().any(|word| word.len() > 90);
            if columns > COLUMNS_MAX && !is_code && !trimmed.starts_with('|') && !is_one_word {
                broken.push(format!("{}:{}: {columns} columns", file.path, number + 1));
            }
        }
    }
    must_be_empty("prose ends at 120 columns", &broken);
}

#[test]
fn nothing_is_left_to_do() {
    let word = concat!("TO", "DO");
    let mut broken = Vec::new();
    for ending in [".rs", ".sh", ".py", ".toml"] {
        for file in files(ending) {
            let lines = file.text.lines().enumerate();
            let found = lines.filter(|(_, line)| line.contains(word) || line.contains(concat!("FIX", "ME")));
            broken.extend(found.map(|(number, _)| format!("{}:{}", file.path, number + 1)));
        }
    }
    must_be_empty("what is to be done is an issue, not a comment", &broken);
}
