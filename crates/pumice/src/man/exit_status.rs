//! Exit codes of commands, as the reference has them.

/// The reference of exit codes. Its table of commands is the source of the pages.
const REFERENCE: &str = include_str!("../../../../docs/reference/exit-codes.md");

/// Returns the codes of the page of a command, each with its meaning.
pub(super) fn of(page: &str) -> Vec<(&'static str, String)> {
    let words = page.replacen("pumice-", "", 1);
    let section = REFERENCE.split("\n## By command\n").nth(1).and_then(|it| it.split("\n### ").next());
    let rows = section.unwrap_or("").lines();
    let rows = rows.filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")).map(|row| {
        let mut cells = row.split(" | ");
        let mut cell = || cells.next().unwrap_or("").trim_matches([' ', '|']);
        (cell().replace('`', "").replace(' ', "-"), cell(), cell())
    });
    // A command below another, such as `bench compare`, is in the row of that one.
    let is_of_it =
        |names: &str| names.split(",-").any(|name| words == name || words.starts_with(&format!("{name}-")));
    let row = rows.filter(|(names, ..)| is_of_it(names)).max_by_key(|(names, ..)| names.len());
    let (done, failed) = row.map_or(("", ""), |(_, done, failed)| (done, failed));
    let or = |text: &str, else_is: &str| if text.is_empty() { else_is.to_string() } else { sentence(text) };
    vec![
        ("0", or(done, "Done.")),
        ("1", or(failed, "Failed, with the reason in one line on standard error.")),
        ("2", "Wrong usage, with the reason in one line on standard error.".to_string()),
    ]
}

/// Returns Markdown as a sentence without marks, links as their text.
fn sentence(markdown: &str) -> String {
    let mut plain = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, after)) = link.split_once("](") else { break };
        plain += before;
        // "see [below](#serve)" leads nowhere in a page.
        plain += if text == "below" { "pumice(1) and docs/reference/exit\\-codes.md" } else { text };
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    let plain = (plain + rest).replace('`', "").replace("exit\\-codes", "exit-codes");
    let mut letters = plain.chars();
    let first = letters.next().map(char::to_uppercase);
    let text: String = first.into_iter().flatten().chain(letters).collect();
    if text.ends_with('.') { text } else { text + "." }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_codes_of_their_commands() {
        let create = of("pumice-create");
        assert_eq!(create[0].1, "The drive was created.");
        assert!(create[1].1.contains("the path holds something and --force is missing"), "{create:?}");
        assert!(of("pumice-format")[0].1.starts_with("Wiped"));
        assert!(of("pumice-bench-compare")[1].1.contains("130: interrupted"));
        assert!(of("pumice-sfx-nvme-sfx-change-cap")[0].1.starts_with("Changed"));
        assert!(of("pumice-check")[1].1.contains("3 if it could not be checked"));
        assert!(of("pumice-list")[0].1.ends_with("is a warning."), "{:?}", of("pumice-list"));
        assert_eq!(of("pumice")[0].1, "Done.");
        for (_, text) in of("pumice-serve") {
            assert!(!text.contains(['[', '`']), "{text}");
        }
    }
}
