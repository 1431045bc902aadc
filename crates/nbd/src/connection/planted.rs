//! Mistakes in the order of an area's marks. Programs built with debug assertions make them if told to, so
//! that tests which kill servers can show that they would notice.

use std::collections::VecDeque;

use fuse::{Area, Entry};

/// Names a mistake: `done-late` or `done-early`.
#[cfg(debug_assertions)]
const VARIABLE: &str = "PUMICE_PLANTED";
/// Answers behind which the mark of a change follows, if it is late.
const LATE_BY: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A change is marked as done some time after its answer.
    DoneLate,
    /// A change is marked as done before its execution.
    DoneEarly,
}

/// The mistake that a server makes, if any.
#[derive(Debug, Default)]
pub(super) struct Planted {
    mistake: Option<Mistake>,
    /// Answered, and not marked.
    late: VecDeque<Entry>,
}

impl Planted {
    /// The mistake that the environment asks for. Released programs have none.
    pub(super) fn of_environment() -> Planted {
        Planted { mistake: mistake(), late: VecDeque::new() }
    }

    /// Marks a change before its execution, which is wrong.
    pub(super) fn before_execution(&self, area: &mut Area, entry: &Entry) {
        if self.mistake == Some(Mistake::DoneEarly) {
            area.done(entry, Ok(()));
        }
    }

    /// Marks a change that was executed.
    pub(super) fn done(&self, area: &mut Area, entry: &Entry, result: Result<(), i32>) {
        if self.mistake != Some(Mistake::DoneLate) {
            area.done(entry, result);
        }
    }

    /// Forgets a request that was answered.
    pub(super) fn free(&mut self, area: &mut Area, entry: Entry) {
        if self.mistake != Some(Mistake::DoneLate) {
            return area.free(entry);
        }
        self.late.push_back(entry);
        if self.late.len() > LATE_BY
            && let Some(entry) = self.late.pop_front()
        {
            area.free(entry);
        }
    }
}

#[cfg(debug_assertions)]
fn mistake() -> Option<Mistake> {
    match std::env::var_os(VARIABLE)?.to_str()? {
        "done-late" => Some(Mistake::DoneLate),
        "done-early" => Some(Mistake::DoneEarly),
        _ => None,
    }
}

#[cfg(not(debug_assertions))]
fn mistake() -> Option<Mistake> {
    None
}
