//! Calls of the engine's own methods point down, as its `use`s do. The methods of its three central types are
//! spread over the folders of crate `drive`, and no `use` shows which of them a call reaches: a method of a
//! higher folder is not called from a lower one.

use std::collections::{BTreeMap, BTreeSet};

use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use tidy::{DRIVE_RANKS, files, must_be_empty};

/// The types that have methods in several folders.
const TYPES: [&str; 3] = ["Core", "Shared", "Drive"];
/// Names of values of these types, also of what leads to one: `self.0`, `shared.core()`.
const VALUES: [(&str, &str); 4] =
    [("core", "Core"), ("shared", "Shared"), ("drive", "Drive"), ("0", "Shared")];

/// Names that types of other crates have, too. They count only where the receiver is known.
const COMMON: [&str; 4] = ["new", "read", "write", "close"];

/// Returns the number of the rank of a folder or module at the top; the highest is 0.
fn rank(module: &str) -> Option<usize> {
    DRIVE_RANKS.iter().position(|rank| rank.contains(&module))
}

/// Returns the last name of a type: `Core`, also of `&mut Core` and `Arc<Shared<M>>` only their own.
fn name_of(ty: &syn::Type) -> Option<String> {
    match ty {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

/// A call of a method or of an associated function.
struct Call {
    name: String,
    /// The type that it is called on, if the source shows it.
    on: Option<String>,
    /// The function that it is in.
    by: String,
}

/// Methods and calls of a file.
#[derive(Default)]
struct Seen {
    /// The type of the `impl` that is being visited.
    within: Option<String>,
    is_of_trait: bool,
    /// The function that is being visited.
    by: String,
    /// Types and their methods.
    methods: Vec<(String, String)>,
    calls: Vec<Call>,
}

impl Seen {
    fn of(text: &str) -> Seen {
        let mut seen = Seen::default();
        seen.visit_file(&syn::parse_file(text).expect("the compiler takes it"));
        seen
    }

    fn add(&mut self, name: String, on: Option<String>) {
        self.calls.push(Call { name, on, by: self.by.clone() });
    }

    /// Returns the type of what a method is called on, as far as its name shows it.
    fn type_of(&self, receiver: &syn::Expr) -> Option<String> {
        let name = match receiver {
            syn::Expr::Path(path) if path.path.is_ident("self") => return self.within.clone(),
            syn::Expr::Path(path) => path.path.get_ident()?.to_string(),
            syn::Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => name.to_string(),
                syn::Member::Unnamed(index) => index.index.to_string(),
            },
            syn::Expr::MethodCall(call) => call.method.to_string(),
            syn::Expr::Reference(reference) => return self.type_of(&reference.expr),
            syn::Expr::Paren(paren) => return self.type_of(&paren.expr),
            _ => return None,
        };
        VALUES.iter().find(|(value, _)| *value == name).map(|(_, ty)| (*ty).to_owned())
    }
}

impl<'ast> Visit<'ast> for Seen {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        // Tests reach everywhere.
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.within = name_of(&item.self_ty);
        self.is_of_trait = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        (self.within, self.is_of_trait) = (None, false);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if let Some(within) = self.within.as_ref().filter(|_| !self.is_of_trait) {
            self.methods.push((within.clone(), item.sig.ident.to_string()));
        }
        self.by = item.sig.ident.to_string();
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.by = item.sig.ident.to_string();
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.add(call.method.to_string(), self.type_of(&call.receiver));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<&syn::Ident> = path.path.segments.iter().map(|segment| &segment.ident).collect();
        if let [.., on, name] = names[..] {
            let on = if on == "Self" { self.within.clone() } else { Some(on.to_string()) };
            self.add(name.to_string(), on);
        }
        visit::visit_expr_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // The arguments of `assert!`, `format!` and their like.
        let arguments = call.parse_body_with(Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated);
        arguments.iter().flatten().for_each(|argument| {
            let (within, by) = (self.within.clone(), self.by.clone());
            let mut inner = Seen { within, by, ..Seen::default() };
            inner.visit_expr(argument);
            self.calls.append(&mut inner.calls);
        });
    }
}

/// Returns the calls that lead from a lower folder to a higher one. `sources`: paths inside `src`, and texts.
fn upward<'a>(sources: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let seen: Vec<(&str, &str, Seen)> = sources
        .filter(|(path, _)| !path.ends_with("tests.rs"))
        .map(|(path, text)| (path, path.split(['/', '.']).next().unwrap_or_default(), Seen::of(text)))
        .collect();
    // The folder of each method of the three types, and names that other types have, too.
    let mut homes: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for (_, module, seen) in &seen {
        for (ty, name) in &seen.methods {
            match TYPES.contains(&ty.as_str()) {
                true => _ = homes.insert((ty, name), module),
                false => _ = others.insert(name),
            }
        }
    }
    let mut broken = Vec::new();
    for (path, module, seen) in &seen {
        let Some(own) = rank(module) else { continue };
        for call in &seen.calls {
            let on = call.on.as_deref();
            // A name that is theirs alone shows what is called; of others, the receiver does.
            let types = TYPES.iter().filter(|ty| match on {
                Some(on) if TYPES.contains(&on) => **ty == on,
                Some(_) => false,
                None => !others.contains(call.name.as_str()) && !COMMON.contains(&call.name.as_str()),
            });
            let homes = types.filter_map(|ty| homes.get(&(ty, call.name.as_str())));
            let lowest = homes.max_by_key(|home| rank(home));
            if let Some(home) = lowest.filter(|home| rank(home).is_some_and(|rank| rank < own)) {
                broken.push(format!("{path}: {} calls {} of {home}/", call.by, call.name));
            }
        }
    }
    broken
}

#[test]
fn methods_of_higher_folders_are_not_called() {
    let files = files(".rs");
    let sources = files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix("crates/drive/src/")?, file.text.as_str())));
    must_be_empty("calls of the engine's methods point down (docs/design.md)", &upward(sources));
}

#[test]
fn an_upward_call_is_found() {
    let sources = [
        ("state/core.rs", "impl Core { fn a(&self) { assert!(self.b(), \"!\"); self.log.c(); self.c() } }"),
        ("state/log.rs", "impl Log { fn c(&self) {} }"),
        ("medium/load.rs", "impl<M> Shared<M> { fn d(&self) { self.core().c(); } }"),
        ("upkeep/clean.rs", "impl Core { fn b(&self) -> bool { true } fn c(&self) { self.a() } }"),
    ];
    let expected = [
        "state/core.rs: a calls b of upkeep/",
        "state/core.rs: a calls c of upkeep/",
        "medium/load.rs: d calls c of upkeep/",
    ];
    assert_eq!(upward(sources.into_iter()), expected);
}
