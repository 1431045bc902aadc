//! Invariants as lists of rules.

/// Returns the first rule that does not hold.
pub(crate) fn first_broken(rules: &[(bool, &'static str)]) -> Option<&'static str> {
    rules.iter().find(|(holds, _)| !holds).map(|(_, what)| *what)
}
