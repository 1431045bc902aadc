use super::*;

fn arena() -> Arena {
    Arena::private(MEMORY_SHAPE).expect("an arena")
}

#[test]
fn a_checkpoint_calls_nothing_durable_behind_a_gap_that_its_cut_does_not_cover() {
    let geometry = Geometry {
        physical_size_bytes: 64 << 20,
        segment_bytes: 1 << 20,
        max_segments: 60,
        far: None,
        parity: layout::ParityForm::None,
    };
    let mut log = Log::new([7; 16], geometry, 20, 1, arena(), Planted::default());
    assert_eq!(log.durable_behind(3), 20);
    log.gaps = vec![15, 5];
    assert_eq!([3, 4, 5, 10, 15, 20].map(|cut| log.durable_behind(cut)), [4, 4, 14, 14, 20, 20]);
}

#[test]
fn a_promised_segment_that_was_set_aside_stays_so_when_a_head_fills_it() {
    let geometry = Geometry {
        physical_size_bytes: 64 << 20,
        segment_bytes: 1 << 20,
        max_segments: 60,
        far: None,
        parity: layout::ParityForm::None,
    };
    let mut segments = Segments::new(geometry, 1);
    segments.list_free(false);
    let mut log = Log::new([7; 16], geometry, 0, 1, arena(), Planted::default());
    log.promise_all(&mut segments);
    log.checkpoint_durable(1, &log.positions());
    let next = log.heads[Head::Host as usize].next.segment;
    segments.set_aside(next, SegmentState::Damaged);
    log.room(Head::Host, 4096, Claim::Ordinary, &mut segments).expect("room");
    assert_eq!(log.heads[Head::Host as usize].current.segment, next);
    assert_eq!(segments.get(next).state(), SegmentState::Damaged);
    assert_eq!(segments.broken_invariant(), None);
}
