//! Arrows between crates, and between folders of a crate, point down, as the pictures in docs/design.md show.

use std::collections::{BTreeMap, BTreeSet};

use tidy::{DRIVE_RANKS, Text, files, must_be_empty, root};

/// A picture of design.md: the lines of the first code block behind a line that contains `behind`.
fn picture(behind: &str) -> Vec<String> {
    let design = std::fs::read_to_string(root().join("docs/design.md")).expect("docs/design.md");
    let mut lines = design.lines().skip_while(|line| !line.contains(behind));
    let block = lines.by_ref().skip_while(|line| !line.starts_with("```")).skip(1);
    block.take_while(|line| !line.starts_with("```")).map(str::to_owned).collect()
}

/// The crates in a picture, and the crates that their arrows lead to.
fn drawn() -> BTreeMap<String, BTreeSet<String>> {
    let lines = picture("One crate has one job");
    let name_of = |line: &str| {
        let columns = line.len() - line.trim_start().len();
        let name = line.split_whitespace().next().unwrap_or_default().to_owned();
        (columns <= 8 && !name.is_empty()).then_some(name)
    };
    let names: BTreeSet<String> = lines.iter().filter_map(|line| name_of(line)).collect();
    let mut drawn: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in &lines {
        if let Some(found) = name_of(line).filter(|_| line.len() - line.trim_start().len() <= 8) {
            name = found;
            drawn.entry(name.clone()).or_default();
        }
        let Some((_, targets)) = line.split_once("->") else { continue };
        let targets = targets.split('(').next().unwrap_or_default();
        let words = targets.split(|c: char| !c.is_alphanumeric() && c != '_');
        let crates = words.filter(|word| names.contains(*word)).map(str::to_owned);
        drawn.entry(name.clone()).or_default().extend(crates);
    }
    drawn
}

/// The crates of the workspace, and the crates of the workspace that they depend on, but for their tests.
fn depended_on() -> BTreeMap<String, BTreeSet<String>> {
    let manifests: Vec<Text> = files("Cargo.toml")
        .into_iter()
        .filter(|file| file.path.starts_with("crates/") && file.path.matches('/').count() == 2)
        .collect();
    let name = |file: &Text| file.path.split('/').nth(1).unwrap_or_default().to_owned();
    let names: BTreeSet<String> = manifests.iter().map(name).collect();
    let dependencies = |file: &Text| {
        let lines = file.text.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
        let section = lines.take_while(|line| !line.starts_with('['));
        let crates = section.filter_map(|line| line.split(['.', ' ', '=']).next());
        crates.filter(|dependency| names.contains(*dependency)).map(str::to_owned).collect()
    };
    manifests.iter().map(|file| (name(file), dependencies(file))).collect()
}

#[test]
fn crates_depend_on_what_the_design_shows() {
    let (drawn, found) = (drawn(), depended_on());
    assert!(found.len() > 15 && drawn.len() > 15, "crates: {found:?}, drawn: {drawn:?}");
    let mut broken = Vec::new();
    for (name, dependencies) in &found {
        let Some(shown) = drawn.get(name) else {
            broken.push(format!("{name} is not in the picture"));
            continue;
        };
        broken.extend(dependencies.difference(shown).map(|other| format!("{name} -> {other} is not drawn")));
        broken.extend(shown.difference(dependencies).map(|other| format!("{name} -> {other} is drawn only")));
    }
    broken.extend(
        drawn.keys().filter(|name| !found.contains_key(*name)).map(|name| format!("{name}: no crate")),
    );
    must_be_empty("docs/design.md, Workspace layout, shows the crates and their arrows", &broken);
}

/// Folders, and modules at the top, of a crate: each may use those that follow it, and itself.
struct Order {
    krate: &'static str,
    /// The lowest last. Those of one entry do not use each other.
    ranks: &'static [&'static [&'static str]],
}

const ORDERS: [Order; 2] = [
    Order { krate: "drive", ranks: DRIVE_RANKS },
    Order {
        krate: "service",
        ranks: &[&["control"], &["serving"], &["upkeep"], &["watch"], &["workers"], &["admission"]],
    },
];

/// Names of modules at the top that a file uses: `crate::name`.
fn used(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut used = BTreeSet::new();
    for line in code {
        for part in line.split("crate::").skip(1) {
            let name: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            used.insert(name);
        }
    }
    used
}

#[test]
fn folders_use_what_is_below_them() {
    let mut broken = Vec::new();
    for order in &ORDERS {
        let source = format!("crates/{}/src/", order.krate);
        let rank = |name: &str| order.ranks.iter().position(|rank| rank.contains(&name));
        let mut seen = BTreeSet::new();
        for file in files(".rs") {
            let Some(inside) = file.path.strip_prefix(&source) else { continue };
            let module = inside.split(['/', '.']).next().unwrap_or_default().to_owned();
            let Some(own) = rank(&module) else { continue };
            seen.insert(module.clone());
            // Tests reach everywhere.
            let text = file.text.split("#[cfg(test)]").next().unwrap_or_default();
            for other in used(text).into_iter().filter(|other| *other != module) {
                if rank(&other).is_some_and(|other| other <= own) {
                    broken.push(format!("{} uses crate::{other}", file.path));
                }
            }
        }
        let all: BTreeSet<String> =
            order.ranks.iter().flat_map(|rank| rank.iter().map(|name| name.to_string())).collect();
        broken.extend(all.difference(&seen).map(|name| format!("crates/{}/src has no {name}", order.krate)));
    }
    must_be_empty("folders use only those below them (docs/design.md)", &broken);
}
