//! Tests that the models hold, and that planted mistakes are found.

use crate::check::{PREEMPTIONS_MAX, finds, holds};

const CAUSALITY: &str = "Causality violation";
const NOBODY_RUNS: &str = "deadlock";

macro_rules! hold {
    ($preemptions_max:expr; $($subject:ident: $($model:ident),+;)+) => { $($(
        #[test]
        fn $model() {
            holds(crate::$subject::model::$model, $preemptions_max);
        }
    )+)+ };
}

macro_rules! found {
    ($($mistake:ident by $model:ident: $what:expr;)+) => { $(
        #[test]
        fn $mistake() {
            finds(crate::$mistake::model::$model, $what);
        }
    )+ };
}

// Without a bound on preemptions.
hold! {
    None;
    pins: a_segment_is_written_after_its_readers, segments_are_counted_apart, growth_keeps_readers;
    wait: a_change_is_seen, the_second_change_is_seen, a_right_goes_round, what_is_stored_outside_the_lock_is_seen;
    ticket: an_outcome_arrives, the_last_waker_counts, a_dropped_ticket_leaves_the_buffer_to_the_ring;
    lease: the_last_write_is_the_last, a_lost_lease_is_not_extended;
    slots: one_is_finished;
    frame_cache: frames_are_whole;
    heat: a_hot_group_is_entered_once, what_is_streamed_meanwhile_comes_again;
    sample: it_starts_over;
}

// With a bound, because three threads, and two with many steps, have millions of orders.
hold! {
    Some(PREEMPTIONS_MAX);
    wait: a_change_is_seen_by_all, who_gives_up_wakes_others;
    lease: who_waits_for_a_lease_is_told;
    slots: both_are_finished;
    sample: a_sample_fills_up;
    publish: a_kill_at_any_step_loses_nothing;
}

found! {
    pins_dropped_relaxed by a_segment_is_written_after_its_readers: CAUSALITY;
    pins_looked_at_relaxed by a_segment_is_written_after_its_readers: CAUSALITY;
    pins_counted_in_two_steps by a_segment_is_written_after_its_readers: CAUSALITY;
    pins_given_back_twice by growth_keeps_readers: "has a reader left";
    pins_lost_by_growth by growth_keeps_readers: CAUSALITY;
    wait_without_second_look by a_change_is_seen: NOBODY_RUNS;
    wait_listens_last by a_change_is_seen: NOBODY_RUNS;
    ticket_woken_first by an_outcome_arrives: NOBODY_RUNS;
    ticket_keeps_its_first_waker by the_last_waker_counts: NOBODY_RUNS;
    ticket_registers_without_looking by an_outcome_arrives: NOBODY_RUNS;
    lease_counts_after_looking by the_last_write_is_the_last: CAUSALITY;
    lease_ends_relaxed by the_last_write_is_the_last: CAUSALITY;
    lease_looked_at_before_the_end by the_last_write_is_the_last: CAUSALITY;
    lease_extended_without_the_lock by a_lost_lease_is_not_extended: "a lost lease holds";
    lease_extended_in_silence by who_waits_for_a_lease_is_told: NOBODY_RUNS;
    slots_set_relaxed by both_are_finished: CAUSALITY;
    slots_taken_relaxed by both_are_finished: CAUSALITY;
    slots_taken_in_two_steps by both_are_finished: NOBODY_RUNS;
    slots_woken_before_the_bit by both_are_finished: NOBODY_RUNS;
    publish_counts_first by a_kill_at_any_step_loses_nothing: "the log has a gap";
    publish_opens_first by a_kill_at_any_step_loses_nothing: "a memory that can be read";
    publish_open_before_its_place by a_kill_at_any_step_loses_nothing: "a memory that can be read";
    publish_no_free_region by a_kill_at_any_step_loses_nothing: "not what was appended";
    publish_reuses_early by a_kill_at_any_step_loses_nothing: "not what was appended";
    heat_entered_without_a_claim by a_hot_group_is_entered_once: "entered twice";
    sample_counts_from_before by it_starts_over: "blocks were skipped";
    frames_hits_in_two_steps by frames_are_whole: "left == right";
}

#[test]
fn a_notification_before_the_change_is_found() {
    finds(crate::wait::model::notified_too_early, NOBODY_RUNS);
}

#[test]
fn a_notification_that_never_comes_is_found() {
    finds(crate::wait::model::never_notified, NOBODY_RUNS);
}
