//! Makes copies of the checked code, each with one mistake, to verify that the models find it.
//!
//! A mistake is a piece of text and its replacement. The piece must occur exactly once. If it does not, the
//! code has changed and the mistake must be written again: the build fails with a message.

#![allow(clippy::print_stdout, reason = "cargo is spoken to so")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

struct Mistake {
    name: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
}

const fn mistake(
    name: &'static str,
    file: &'static str,
    right: &'static str,
    wrong: &'static str,
) -> Mistake {
    Mistake { name, file, right, wrong }
}

const PINS: &str = "drive/src/state/pins.rs";
const WAIT: &str = "drive/src/wait.rs";
const FRAMES: &str = "drive/src/state/frame_cache.rs";
const HEAT: &str = "drive/src/state/heat.rs";
const SAMPLE: &str = "drive/src/state/sample.rs";
const TICKET: &str = "media/src/file/uring/ticket.rs";
const LEASE: &str = "media/src/lease.rs";
const SLOTS: &str = "slots/src/slots.rs";
const MEMORY: &str = "drive/src/state/log/memory.rs";

const MISTAKES: &[Mistake] = &[
    mistake(
        "pins_dropped_relaxed",
        PINS,
        "fetch_sub(1, Ordering::Release)",
        "fetch_sub(1, Ordering::Relaxed)",
    ),
    mistake("pins_looked_at_relaxed", PINS, ".load(Ordering::Acquire)", ".load(Ordering::Relaxed)"),
    mistake("pins_lost_by_growth", PINS, "self.0.resize_with(", "self.0.clear();\nself.0.resize_with("),
    mistake(
        "pins_counted_in_two_steps",
        PINS,
        "chunk[index as usize].fetch_add(1, Ordering::Relaxed);",
        "let count = chunk[index as usize].load(Ordering::Relaxed);
        chunk[index as usize].store(count + 1, Ordering::Relaxed);",
    ),
    mistake(
        "pins_given_back_twice",
        PINS,
        "fetch_sub(1, Ordering::Release)",
        "fetch_sub(2, Ordering::Release)",
    ),
    mistake(
        "wait_without_second_look",
        WAIT,
        "event.listen();\n        if let Some(answer) = look() {\n            return answer;\n        }",
        "event.listen();",
    ),
    mistake(
        "wait_listens_last",
        WAIT,
        "        let listener = event.listen();
        if let Some(answer) = look() {
            return answer;
        }
",
        "        if let Some(answer) = look() {
            return answer;
        }
        let listener = event.listen();
",
    ),
    mistake(
        "ticket_woken_first",
        TICKET,
        "let before = std::mem::replace(&mut *self.0.lock(), State::Done(outcome));
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }",
        "let before = std::mem::replace(&mut *self.0.lock(), State::Waiting(None));
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
        *self.0.lock() = State::Done(outcome);",
    ),
    mistake(
        "ticket_keeps_its_first_waker",
        TICKET,
        "State::Waiting(Some(waker)) => waker.clone_from(cx.waker()),",
        "State::Waiting(Some(_)) => {}",
    ),
    mistake(
        "ticket_registers_without_looking",
        TICKET,
        "let mut state = self.0.0.lock();\n",
        "let is_waiting = matches!(*self.0.0.lock(), State::Waiting(_));
        let mut state = self.0.0.lock();
        if is_waiting {
            *state = State::Waiting(Some(cx.waker().clone()));
            return Poll::Pending;
        }
",
    ),
    mistake(
        "lease_counts_after_looking",
        LEASE,
        "let before = self.under_way.fetch_add(OPERATION, Ordering::Acquire);",
        "let before = self.under_way.load(Ordering::Acquire);
        self.under_way.fetch_add(OPERATION, Ordering::Acquire);",
    ),
    mistake(
        "lease_ends_relaxed",
        LEASE,
        "self.lease.under_way.fetch_sub(OPERATION, Ordering::Release);",
        "self.lease.under_way.fetch_sub(OPERATION, Ordering::Relaxed);",
    ),
    mistake(
        "lease_looked_at_before_the_end",
        LEASE,
        "let until = self.end(why)?;
        let rest = Lease::new(self.clock.clone());
        rest.extend(until);
        self.is_quiet().then_some(rest)",
        "let is_quiet = self.is_quiet();
        let until = self.end(why)?;
        let rest = Lease::new(self.clock.clone());
        rest.extend(until);
        is_quiet.then_some(rest)",
    ),
    mistake(
        "lease_extended_without_the_lock",
        LEASE,
        "let lost = self.lost.lock();
            if lost.is_some()",
        "let is_lost = self.lost.lock().is_some();
            if is_lost",
    ),
    mistake(
        "lease_extended_in_silence",
        LEASE,
        "self.until.store(until, Ordering::Release);
        }
        self.changed.notify(usize::MAX);",
        "self.until.store(until, Ordering::Release);
        }",
    ),
    mistake(
        "slots_set_relaxed",
        SLOTS,
        "fetch_or(bit, Ordering::AcqRel)",
        "fetch_or(bit, Ordering::Relaxed)",
    ),
    mistake("slots_taken_relaxed", SLOTS, "swap(0, Ordering::AcqRel)", "swap(0, Ordering::Relaxed)"),
    mistake(
        "slots_taken_in_two_steps",
        SLOTS,
        "self.woken.words[word].swap(0, Ordering::AcqRel);",
        "self.woken.words[word].load(Ordering::Acquire);
            self.woken.words[word].store(0, Ordering::Release);",
    ),
    mistake(
        "slots_woken_before_the_bit",
        SLOTS,
        "let before = self",
        "self.woken.task.wake();\nlet bit_is_set = true;\nlet before = u64::from(bit_is_set) * bit | self",
    ),
    mistake(
        "publish_counts_first",
        MEMORY,
        "        let Some(newest) = packs.last() else { return };\n",
        "        let Some(newest) = packs.last() else { return };
        self.arena.store(memory::SEQUENCE_AT, newest.sequence);\n",
    ),
    mistake(
        "publish_opens_first",
        MEMORY,
        "        self.publish_sealed(sealed);\n        self.publish_open(open);\n",
        "        self.publish_open(open);\n        self.publish_sealed(sealed);\n",
    ),
    mistake(
        "publish_open_before_its_place",
        MEMORY,
        "        if begins {
            let [segment, offset]",
        "        if begins {
            self.arena.store(at, memory::OPEN);
            let [segment, offset]",
    ),
    mistake(
        "publish_no_free_region",
        MEMORY,
        "self.arena.reclaim(|unit| self.arena.store(memory::state_at(unit), memory::FREE));",
        "self.arena.reclaim(|_| {});",
    ),
    mistake(
        "publish_reuses_early",
        MEMORY,
        "if self.planted.has(PlantedBug::RegionReusedEarly) {",
        "if true {",
    ),
    mistake(
        "heat_entered_without_a_claim",
        HEAT,
        "if replace(was.tag, WAITING) {",
        "if replace(was.tag, WAITING) || true {",
    ),
    mistake(
        "sample_counts_from_before",
        SAMPLE,
        "if first + count > self.seen.load(Ordering::Relaxed) {",
        "if false {",
    ),
    mistake(
        "frames_hits_in_two_steps",
        FRAMES,
        "self.hits.fetch_add(1, Ordering::Relaxed);",
        "let hits = self.hits.load(Ordering::Relaxed);\nself.hits.store(hits + 1, Ordering::Relaxed);",
    ),
];

fn main() {
    println!("cargo::rerun-if-changed=plant.rs");
    if env::var_os("CARGO_CFG_LOOM").is_none() {
        return;
    }
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate is");
    let out = env::var("OUT_DIR").expect("cargo says where to write");
    let crates = Path::new(&here).parent().expect("the crate is in a folder");
    let mut planted = String::new();
    for Mistake { name, file, right, wrong } in MISTAKES {
        let path = crates.join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        let code = fs::read_to_string(&path).expect("the code to be checked is there");
        assert_eq!(code.matches(right).count(), 1, "{file} changed: write the mistake {name} anew");
        // Inner doc comments are not allowed where the code is put inside a module.
        let code: String = code
            .replace(right, wrong)
            .lines()
            .filter(|line| !line.starts_with("//!"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let subject = path.file_stem().and_then(|it| it.to_str()).expect("the file has a name");
        writeln!(
            planted,
            "mod {name} {{ use crate::publishing::SealedPack; mod code {{ {code} }}
#[path = \"{here}/src/{subject}/model.rs\"] pub(crate) mod model; }}"
        )
        .expect("a string takes all");
    }
    fs::write(Path::new(&out).join("planted.rs"), planted).expect("the copies are written");
}
