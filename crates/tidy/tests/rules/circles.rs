//! Modules beside each other are in no circle: if one uses another, directly or by way of others, that one
//! does not use it. A module and the folder of its parts count as one.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use tidy::{files, must_be_empty};

/// Names from the root of a crate down to a module or item.
type Names = Vec<String>;

/// A module, as its file shows it.
#[derive(Default)]
struct Module {
    /// Paths that it uses, as they are written.
    paths: Vec<Names>,
    /// Names under which it shows items of others.
    shown: BTreeMap<String, Names>,
}

impl Module {
    fn add_use(&mut self, tree: &syn::UseTree, before: &mut Names, is_shown: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(&path.tree, before, is_shown);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(tree, before, is_shown));
            }
            syn::UseTree::Name(syn::UseName { ident }) if ident == "self" => self.add_path(before.clone()),
            syn::UseTree::Name(syn::UseName { ident }) => self.add_name(ident, ident, before, is_shown),
            syn::UseTree::Rename(syn::UseRename { ident, rename, .. }) => {
                self.add_name(ident, rename, before, is_shown);
            }
            syn::UseTree::Glob(_) => self.add_path(before.clone()),
        }
    }

    fn add_name(&mut self, name: &syn::Ident, shown: &syn::Ident, before: &Names, is_shown: bool) {
        let path: Names = before.iter().cloned().chain([name.to_string()]).collect();
        if is_shown {
            self.shown.insert(shown.to_string(), path.clone());
        }
        self.add_path(path);
    }

    fn add_path(&mut self, path: Names) {
        self.paths.push(path);
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // Tests reach everywhere.
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            let is_shown = !matches!(item.vis, syn::Visibility::Inherited);
            self.add_use(&item.tree, &mut Vec::new(), is_shown);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The modules of each crate, by their names.
fn crates() -> BTreeMap<String, BTreeMap<Names, Module>> {
    let mut crates: BTreeMap<String, BTreeMap<Names, Module>> = BTreeMap::new();
    for file in files(".rs") {
        let Some((name, inside)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.strip_suffix(".rs"))
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        let mut names: Names = inside.split('/').map(str::to_owned).collect();
        match names.last().map(String::as_str) {
            Some("lib" | "main") if names.len() == 1 => names.clear(),
            Some("mod") => _ = names.pop(),
            Some("tests") => continue,
            _ => {}
        }
        let mut module = Module::default();
        module.visit_file(&syn::parse_file(&file.text).expect("the compiler takes it"));
        crates.entry(name.to_owned()).or_default().insert(names, module);
    }
    crates
}

/// The module in which a path from `within` ends, if that is one of the crate's.
fn target(modules: &BTreeMap<Names, Module>, within: &Names, path: &[String]) -> Option<Names> {
    let mut path = path;
    let mut at = match path.first()?.as_str() {
        "crate" => Names::new(),
        "self" | "super" => within.clone(),
        name if modules.contains_key(&joined(within, name)) => within.clone(),
        _ => return None,
    };
    while let Some((first, rest)) = path.split_first() {
        match first.as_str() {
            "crate" | "self" => {}
            "super" => _ = at.pop(),
            _ => break,
        }
        path = rest;
    }
    while let Some((first, rest)) = path.split_first()
        && modules.contains_key(&joined(&at, first))
    {
        (at, path) = (joined(&at, first), rest);
    }
    match path.first().and_then(|name| modules.get(&at)?.shown.get(name)) {
        Some(shown) => target(modules, &at, shown).or(Some(at)),
        None => Some(at),
    }
}

fn joined(names: &Names, name: &str) -> Names {
    names.iter().cloned().chain([name.to_owned()]).collect()
}

/// For each folder, which of its modules use which others.
fn uses(modules: &BTreeMap<Names, Module>) -> BTreeMap<Names, BTreeMap<String, BTreeSet<String>>> {
    let mut uses: BTreeMap<Names, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (names, module) in modules {
        for path in &module.paths {
            let Some(used) = target(modules, names, path) else { continue };
            let shared = names.iter().zip(&used).take_while(|(one, other)| one == other).count();
            if let (Some(one), Some(other)) = (names.get(shared), used.get(shared)) {
                let folder = uses.entry(names[..shared].to_vec()).or_default();
                folder.entry(one.clone()).or_default().insert(other.clone());
            }
        }
    }
    uses
}

fn reached(uses: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(used) = open.pop().map(|name| uses.get(name)) {
        for name in used.into_iter().flatten() {
            if reached.insert(name.clone()) {
                open.push(name);
            }
        }
    }
    reached
}

#[test]
fn modules_beside_each_other_are_in_no_circle() {
    let mut broken = Vec::new();
    let crates = crates();
    assert!(crates.len() > 15, "{:?}", crates.keys());
    for (name, modules) in &crates {
        for (folder, uses) in uses(modules) {
            let circles: BTreeSet<Vec<String>> = uses
                .keys()
                .map(|module| {
                    let own = reached(&uses, module);
                    own.iter().filter(|other| reached(&uses, other).contains(module)).cloned().collect()
                })
                .filter(|circle: &Vec<String>| circle.len() > 1)
                .collect();
            let place = [std::slice::from_ref(name), &folder[..]].concat().join("/");
            broken.extend(circles.iter().map(|circle| format!("{place}: {}", circle.join(", "))));
        }
    }
    must_be_empty("modules beside each other are in no circle", &broken);
}

#[test]
fn a_circle_by_way_of_shown_names_is_found() {
    let sources = [
        ("", "mod a; mod b; mod c; pub use c::C;"),
        ("a", "use crate::b::B; pub struct A(B);"),
        ("b", "mod inner;"),
        ("b/inner", "pub struct B(Vec<crate::C>);"),
        ("c", "#[cfg(test)] mod tests { use crate::b::B; } pub fn c() { super::a::A::new(); }"),
    ];
    let modules: BTreeMap<Names, Module> = sources
        .into_iter()
        .map(|(path, text)| {
            let mut module = Module::default();
            module.visit_file(&syn::parse_file(text).expect("Rust"));
            (path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect(), module)
        })
        .collect();
    let uses = &uses(&modules)[&Names::new()];
    let all: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
    assert_eq!(reached(uses, "a"), all);
    assert!(!uses["c"].contains("b"), "tests do not count: {uses:?}");
}
