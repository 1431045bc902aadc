//! Links between documents lead somewhere, to the headings too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use tidy::{files, must_be_empty, root};

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim();
    // The text of a link in a heading.
    let mut text = String::new();
    let mut rest = heading;
    while let Some((before, link)) = rest.split_once('[') {
        text.push_str(before);
        match link.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?.1))) {
            Some((name, behind)) => (text, rest) = (text + name, behind),
            None => (text, rest) = (text + "[", link),
        }
    }
    text.push_str(rest);
    let kept = text.to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code = is_code != is_fence;
        !is_code && !is_fence
    })
}

fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text) {
        let ids = line.split("<a id=\"").skip(1).filter_map(|id| id.split('"').next());
        anchors.extend(ids.map(str::to_owned));
        if !line.starts_with('#') {
            continue;
        }
        let name = anchor(line);
        let count = counts.entry(name.clone()).or_default();
        anchors.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    anchors
}

/// The targets of the links in a line, which code in backticks has none of.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.match_indices("](").map(|(at, _)| at);
    let is_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
    ends.filter(|at| !is_code(*at)).filter_map(|at| line[at + 2..].split(')').next()).collect()
}

#[test]
fn links_lead_somewhere() {
    let documents = files(".md");
    let known: BTreeMap<&str, BTreeSet<String>> =
        documents.iter().map(|file| (file.path.as_str(), anchors(&file.text))).collect();
    assert!(known.len() > 30);
    let (mut broken, mut links) = (Vec::new(), 0);
    for file in &documents {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(&file.text) {
            for target in targets(line) {
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                links += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match path {
                    "" => file.path.clone(),
                    path => resolved(folder, path),
                };
                let is_there = root().join(&path).exists();
                let has_anchor =
                    anchor.is_empty() || known.get(path.as_str()).is_none_or(|known| known.contains(anchor));
                if !is_there || !has_anchor {
                    broken.push(format!("{}:{}: {target}", file.path, number + 1));
                }
            }
        }
    }
    assert!(links > 300, "{links} links");
    must_be_empty("links between documents lead somewhere", &broken);
}

/// Documents of packages lie elsewhere, and without the source tree.
#[test]
fn links_between_installed_documents_lead_somewhere() {
    let share = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("share-{}", std::process::id()));
    let installed = Command::new(root().join("scripts/install-shared.sh")).arg(&share).status();
    assert!(installed.expect("the script runs").success());
    let mut broken = Vec::new();
    let mut folders = vec!["doc/pumice".to_owned(), "pumice/deploy".to_owned()];
    let mut pages = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(share.join(&folder)).expect("a folder").flatten() {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().expect("a type").is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            if !path.ends_with(".md") {
                continue;
            }
            pages += 1;
            for (number, line) in prose(&text) {
                let files = targets(line).into_iter().filter_map(|target| target.split('#').next());
                for target in files.filter(|target| !target.is_empty() && !target.contains("://")) {
                    // Units are installed by `make install`: their links lead out of the folder.
                    let to = share.join(resolved(&folder, target));
                    if to.symlink_metadata().is_err() {
                        broken.push(format!("{path}:{}: {target}", number + 1));
                    }
                }
            }
        }
    }
    std::fs::remove_dir_all(&share).expect("removed");
    assert!(pages > 60, "{pages} pages");
    must_be_empty("links between installed documents lead somewhere", &broken);
}

/// Path from the root of what `path` in `folder` means.
fn resolved(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn anchors_are_those_of_the_headings() {
    assert_eq!(anchor("## When full: error or wait"), "when-full-error-or-wait");
    assert_eq!(anchor("### `kill -9` of [a server](x.md)"), "kill--9-of-a-server");
    assert_eq!(resolved("docs/design", "../format.md"), "docs/format.md");
    let two: Vec<String> = anchors("# A\n# A\n```\n# B\n```\n").into_iter().collect();
    assert_eq!(two, ["a", "a-1"]);
    assert_eq!(targets("see [a](b.md#c) and `[x](y)`"), ["b.md#c"]);
}
