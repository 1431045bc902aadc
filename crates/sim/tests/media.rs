//! Tests that the simulated backing follows its fault model.

use std::collections::BTreeSet;
use std::sync::Arc;

use media::{Faults, IoBuf, Media, SimGhosts, SimMedia, SimRng, TEAR_BYTES};
use sim::executor::{Cut, Executor, NoPulse};

const SIZE: u64 = 1 << 20;

fn backing(seed: u64, faults: Faults) -> Arc<SimMedia> {
    Arc::new(SimMedia::new(SIZE, SimRng::new(seed), faults))
}

/// Runs a task on a backing to its end.
fn on<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    media: &Arc<SimMedia>,
    run: impl FnOnce(Arc<SimMedia>) -> F,
) -> T {
    let mut executor = Executor::new(SimRng::new(7));
    let result = executor.block_on(media, &NoPulse, Cut::Never, run(media.clone()));
    result.unwrap_or_else(|end| panic!("{end:?}"))
}

/// First byte of the first page.
fn shown(media: &Arc<SimMedia>) -> u8 {
    on(media, |media| async move { read(&media, 0).await.expect("read") })[0]
}

fn page(byte: u8, pages: usize) -> Arc<IoBuf> {
    let mut buf = IoBuf::zeroed(pages * 4096);
    buf.fill(byte);
    Arc::new(buf)
}

async fn read(media: &SimMedia, offset: u64) -> std::io::Result<Vec<u8>> {
    let (buf, result) = media.read(offset, IoBuf::zeroed(4096)).await;
    result.map(|()| buf.to_vec())
}

/// Content of one page after a power cut, for many seeds. Each sector is represented by its first byte.
fn after_power_cut<F: Future<Output = ()> + Send + 'static>(
    run: impl Fn(Arc<SimMedia>) -> F,
) -> BTreeSet<Vec<u8>> {
    let outcome = |seed| {
        let media = backing(seed, Faults::default());
        on(&media, &run);
        let media = Arc::new(media.power_cut());
        let bytes = on(&media, |media| async move { read(&media, 0).await.expect("no faults") });
        bytes.chunks(TEAR_BYTES).map(|sector| sector[0]).collect()
    };
    (0..200).map(outcome).collect()
}

#[test]
fn synced_writes_survive() {
    let outcomes = after_power_cut(|media| async move {
        media.write(0, page(1, 1)).await.expect("write");
        media.sync().await.expect("sync");
    });
    assert_eq!(outcomes, BTreeSet::from([vec![1; 8]]));
}

#[test]
fn unsynced_writes_survive_or_not_or_in_part() {
    let outcomes = after_power_cut(|media| async move {
        media.write(0, page(1, 1)).await.expect("write");
        media.sync().await.expect("sync");
        media.write(0, page(2, 1)).await.expect("write");
    });
    assert!(outcomes.contains(&vec![1; 8]) && outcomes.contains(&vec![2; 8]) && outcomes.len() > 10);
    assert!(outcomes.iter().flatten().all(|byte| [1, 2].contains(byte)));
}

#[test]
fn a_sync_covers_what_had_completed_when_it_was_issued() {
    let outcomes = after_power_cut(|media| async move {
        let late = media.write(0, page(1, 1));
        let sync = media.sync();
        let (late, sync) = futures::join!(late, sync);
        late.and(sync).expect("no faults");
    });
    assert!(outcomes.contains(&vec![0; 8]) && outcomes.contains(&vec![1; 8]));
}

#[test]
fn abandoned_writes_happen_all_the_same() {
    let media = backing(1, Faults::default());
    on(&media, |media| async move {
        let mut write = Box::pin(media.write(0, page(1, 1)));
        assert!(futures::poll!(&mut write).is_pending());
    });
    while media.step() {}
    assert_eq!(on(&media, |media| async move { read(&media, 0).await.expect("read") }), [1; 4096]);
}

#[test]
fn a_kill_loses_nothing_that_completed_and_makes_nothing_durable() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let media = backing(seed, Faults::default());
        on(&media, |media| async move { media.write(0, page(1, 1)).await.expect("write") });
        let media = Arc::new(media.kill());
        assert_eq!(on(&media, |media| async move { read(&media, 0).await.expect("read") }), [1; 4096]);
        let media = Arc::new(media.power_cut());
        outcomes.insert(on(&media, |media| async move { read(&media, 0).await.expect("read") })[0]);
    }
    assert_eq!(outcomes, BTreeSet::from([0, 1]));
}

#[test]
fn a_failed_sync_loses_writes_and_the_next_one_succeeds() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        let media = backing(seed, Faults { sync_error_ppm: 1_000_000, ..Faults::default() });
        let failed = on(&media, |media| async move {
            media.write(0, page(1, 1)).await.expect("write");
            media.sync().await.is_err()
        });
        assert!(failed);
        assert_eq!(media.failed_syncs_reported(), 1);
        media.set_faults(Faults::default());
        on(&media, |media| async move { media.sync().await.expect("the next sync succeeds") });
        let media = Arc::new(media.power_cut());
        outcomes.insert(on(&media, |media| async move { read(&media, 0).await.expect("read") })[0]);
    }
    assert_eq!(outcomes, BTreeSet::from([0, 1]));
}

/// Content that reads return after a failed sync, in the next process, and after a power cut. The next sync
/// has succeeded.
fn after_failed_sync(seed: u64, ghosts: SimGhosts) -> [u8; 3] {
    let faults = Faults { sync_error_ppm: 1_000_000, ..Faults::default() };
    let media = Arc::new(SimMedia::new(SIZE, SimRng::new(seed), faults).with_ghosts(ghosts));
    on(&media, |media| async move {
        media.write(0, page(1, 1)).await.expect("write");
        assert!(media.sync().await.is_err());
        media.set_faults(Faults::default());
        media.sync().await.expect("the next sync succeeds");
    });
    let at_once = shown(&media);
    let media = Arc::new(media.kill());
    let next = shown(&media);
    on(&media, |media| async move { media.sync().await.expect("sync") });
    [at_once, next, shown(&Arc::new(media.power_cut()))]
}

#[test]
fn a_cache_goes_on_showing_what_a_failed_sync_lost_until_the_power_is_cut() {
    let cached: BTreeSet<_> = (0..100).map(|seed| after_failed_sync(seed, SimGhosts::Shown)).collect();
    assert!(cached.contains(&[1, 1, 0]), "lost, and shown to the next process");
    assert!(cached.contains(&[1, 1, 1]), "not lost");
    let direct: BTreeSet<_> = (0..100).map(|seed| after_failed_sync(seed, SimGhosts::Hidden)).collect();
    assert_eq!(direct, BTreeSet::from([[0; 3], [1; 3]]), "what is there, at once");
}

#[test]
fn what_is_shown_although_it_is_lost_may_fade_at_any_time() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        let faults = Faults { sync_error_ppm: 1_000_000, ..Faults::default() };
        let media = SimMedia::new(SIZE, SimRng::new(seed), faults).with_ghosts(SimGhosts::Shown);
        let media = Arc::new(media);
        on(&media, |media| async move {
            media.write(0, page(1, 1)).await.expect("write");
            assert!(media.sync().await.is_err());
        });
        media.set_faults(Faults { fade_ppm: 1_000_000, ..Faults::default() });
        // A page fades when an operation ends.
        let first = shown(&media);
        outcomes.insert([first, shown(&media)]);
        assert_eq!((media.ghost_pages(), first), (0, shown(&media).max(first)));
    }
    assert_eq!(outcomes, BTreeSet::from([[0, 0], [1, 0], [1, 1]]));
}

#[test]
fn what_was_lost_is_durable_once_it_is_written_again() {
    for seed in 0..50 {
        let faults = Faults { sync_error_ppm: 1_000_000, ..Faults::default() };
        let media = Arc::new(SimMedia::new(SIZE, SimRng::new(seed), faults).with_ghosts(SimGhosts::Shown));
        on(&media, |media| async move {
            media.write(0, page(1, 1)).await.expect("write");
            assert!(media.sync().await.is_err());
            media.set_faults(Faults::default());
            media.write(0, page(2, 1)).await.expect("write again");
            media.sync().await.expect("sync");
        });
        assert_eq!((media.ghost_pages(), shown(&Arc::new(media.power_cut()))), (0, 2));
    }
}

#[test]
fn a_bad_page_fails_every_write_in_every_life_and_keeps_what_it_held() {
    let media = backing(1, Faults::default());
    on(&media, |media| async move {
        media.write(0, page(1, 2)).await.expect("write");
        media.sync().await.expect("sync");
    });
    media.make_bad(4097);
    let media = Arc::new(media.power_cut());
    for _ in 0..3 {
        on(&media, |media| async move {
            assert!(media.write(0, page(2, 2)).await.is_err());
            assert_eq!(read(&media, 4096).await.expect("read"), [1; 4096]);
            media.write(0, page(3, 1)).await.expect("another page");
        });
    }
    assert_eq!((media.counts().bad_page_errors, media.counts().write_errors), (3, 0));
}

#[test]
fn pages_go_bad_and_stay_so() {
    let media = backing(1, Faults { bad_page_ppm: 1_000_000, spare_below_bytes: 4096, ..Faults::default() });
    on(&media, |media| async move {
        media.write(0, page(1, 1)).await.expect("spared");
        assert!(media.write(4096, page(1, 1)).await.is_err());
        media.set_faults(Faults::default());
        assert!(media.write(4096, page(1, 1)).await.is_err());
    });
}

#[test]
fn some_backings_tear_whole_pages_only() {
    for seed in 0..100 {
        let media = Arc::new(SimMedia::new(SIZE, SimRng::new(seed), Faults::default()).tearing(4096));
        on(&media, |media| async move { media.write(0, page(1, 1)).await.expect("write") });
        let media = Arc::new(media.power_cut());
        let bytes = on(&media, |media| async move { read(&media, 0).await.expect("read") });
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "seed {seed}");
    }
}

#[test]
fn a_lost_range_is_lost_as_a_whole_and_only_if_something_newer_vouches_for_it() {
    let faults = Faults { lost_range_ppm: 20_000, lost_range_bytes: 16 << 12, ..Faults::default() };
    let (lost, shown) = write_many(faults);
    assert!(lost > 0);
    assert_eq!(shown[61..], [62, 63, 64], "the newest are whole");
    let whole = |range: &[u8], first: u8| range.iter().copied().eq(first..first + 16);
    let ranges: Vec<bool> = (0..4).map(|i| whole(&shown[i * 16..][..16], (i * 16 + 1) as u8)).collect();
    assert!(ranges.contains(&false), "{ranges:?}");
    let mut all_lost = 0;
    for at in 0..4 {
        // A lost range may begin in the range before, and end here.
        let kept: Vec<usize> = (0..16).filter(|i| shown[at * 16 + i] == (at * 16 + i + 1) as u8).collect();
        let is_end =
            kept.windows(2).all(|pair| pair[0] + 1 == pair[1]) && kept.last().is_none_or(|last| *last == 15);
        assert!(kept.len() < 4 || is_end, "{kept:?} of 16 pages left in range {at}");
        all_lost += u64::from(kept.len() < 4);
    }
    assert!(all_lost > 0, "{shown:?}");
}

#[test]
fn some_lost_ranges_cannot_be_read_until_they_are_written_again() {
    let faults = Faults { lost_range_ppm: 20_000, lost_range_bytes: 16 << 12, ..Faults::default() };
    let unreadable = |seed| {
        on(&backing(seed, faults.clone()), |media| async move {
            for index in 0..64 {
                media.write(index * 4096, page(index as u8 + 1, 1)).await.expect("write");
                media.sync().await.expect("sync");
            }
            media.set_faults(Faults::default());
            let mut failed = 0;
            for index in 0..64 {
                if read(&media, index * 4096).await.is_err() {
                    failed += 1;
                    media.write(index * 4096, page(1, 1)).await.expect("write");
                    assert_eq!(read(&media, index * 4096).await.expect("written again"), [1; 4096]);
                }
            }
            (failed, media.counts().lost_ranges)
        })
    };
    let outcomes: Vec<(u64, u64)> = (1..20).map(unreadable).collect();
    assert!(outcomes.iter().any(|&(failed, lost)| failed >= 12 && lost > 0), "{outcomes:?}");
}

#[test]
fn a_branch_is_a_backing_of_its_own() {
    let media = backing(1, Faults::default());
    on(&media, |media| async move {
        media.write(0, page(1, 1)).await.expect("write");
        media.sync().await.expect("sync");
    });
    let branch = Arc::new(media.branch(SimRng::new(7)));
    on(&branch, |branch| async move {
        branch.write(0, page(2, 1)).await.expect("write");
        branch.sync().await.expect("sync");
    });
    assert_eq!((shown(&media), shown(&branch)), (1, 2));
    let write = page(3, 1);
    let outcomes: Vec<u8> = (0..40)
        .map(|seed| {
            // Not synced: each branch draws the fate of the write independently.
            let write = write.clone();
            on(&media, |media| async move { media.write(0, write).await.expect("write") });
            shown(&Arc::new(media.branch(SimRng::new(seed)).power_cut()))
        })
        .collect();
    assert!(outcomes.contains(&1) && outcomes.contains(&3), "{outcomes:?}");
}

#[test]
fn a_full_backing_takes_rewrites_and_what_was_discarded() {
    let faults = Faults { full_pages: Some(1), ..Faults::default() };
    on(&backing(1, faults), |media| async move {
        media.write(0, page(1, 1)).await.expect("room for one");
        assert_eq!(
            media.write(4096, page(2, 1)).await.map_err(|e| e.kind()),
            Err(std::io::ErrorKind::StorageFull)
        );
        media.write(0, page(3, 1)).await.expect("in place");
        assert_eq!(read(&media, 4096).await.expect("read"), [0; 4096]);
        while read(&media, 0).await.expect("read")[0] != 0 {
            media.discard(0, 4096).await.expect("discard");
        }
        media.write(4096, page(2, 1)).await.expect("room again");
    });
}

#[test]
fn a_sticky_read_error_goes_with_a_rewrite() {
    let media = backing(1, Faults { sticky_read_error_ppm: 1_000_000, ..Faults::default() });
    assert!(on(&media, |media| async move { read(&media, 0).await.is_err() }));
    media.set_faults(Faults::default());
    on(&media, |media| async move {
        assert!(read(&media, 0).await.is_err());
        media.write(0, page(1, 1)).await.expect("write");
        assert_eq!(read(&media, 0).await.expect("read"), [1; 4096]);
    });
}

/// Writes pages one by one, each synced, with one fault in effect throughout.
fn write_many(faults: Faults) -> (u64, Vec<u8>) {
    let media = backing(1, faults);
    let shown = on(&media, |media| async move {
        for index in 0..64 {
            media.write(index * 4096, page(index as u8 + 1, 1)).await.expect("write");
            media.sync().await.expect("sync");
        }
        let mut shown = Vec::new();
        for index in 0..64 {
            shown.push(read(&media, index * 4096).await.map_or(0, |page| page[0]));
        }
        shown
    });
    let counts = media.counts();
    (counts.damage(), shown)
}

#[test]
fn rot_and_misdirected_writes_spare_the_newest() {
    for faults in [
        Faults { rot_ppm: 1_000_000, ..Faults::default() },
        Faults { misdirect_ppm: 1_000_000, ..Faults::default() },
    ] {
        let (struck, shown) = write_many(faults);
        assert!(struck > 0);
        assert_eq!(shown[61..], [62, 63, 64], "the newest are whole");
    }
}

#[test]
fn rot_in_data_is_counted_apart_and_may_spare_all_else() {
    const DATA_FROM: usize = 2048;
    for in_data_only in [true, false] {
        let faults = Faults { rot_ppm: 1_000_000, rot_in_data_only: in_data_only, ..Faults::default() };
        let media = SimMedia::new(SIZE, SimRng::new(1), faults);
        let media = Arc::new(media.with_data_classifier(|_, _, bytes, _| bytes.start >= DATA_FROM));
        let changed = on(&media, |media| async move {
            for index in 0..64 {
                media.write(index * 4096, page(1, 1)).await.expect("write");
                media.sync().await.expect("sync");
            }
            let mut changed = false;
            for index in 0..64 {
                let page = read(&media, index * 4096).await.expect("read");
                changed |= page[..DATA_FROM].iter().any(|&byte| byte != 1);
            }
            changed
        });
        let counts = media.counts();
        assert!(counts.rotten_data > 0);
        assert_eq!((changed, counts.damage_beyond_data() > 0), (!in_data_only, !in_data_only));
    }
}

#[test]
fn operations_beyond_the_end_or_misaligned_are_refused() {
    on(&backing(1, Faults::default()), |media| async move {
        assert!(media.write(SIZE, page(1, 1)).await.is_err());
        assert!(media.write(512, page(1, 1)).await.is_err());
        assert!(media.write(u64::MAX - 4095, page(1, 1)).await.is_err());
        assert_eq!(media.in_flight(), 0);
    });
}

#[test]
fn writes_to_one_place_at_a_time_are_counted() {
    for (second, overlapping) in [(0, 1), (4096, 1), (8192, 0)] {
        let media = backing(1, Faults::default());
        on(&media, move |media| async move {
            let (first, second) = (media.write(0, page(1, 2)), media.write(second, page(2, 1)));
            let (first, second) = futures::join!(first, second);
            first.and(second).expect("no faults");
            media.write(0, page(3, 1)).await.expect("one after the other");
        });
        assert_eq!(media.counts().overlapping_writes, overlapping, "at {second}");
    }
}

#[test]
fn what_is_at_risk_before_an_offset_is_reported_until_it_is_synced() {
    let media = backing(1, Faults::default());
    on(&media, |media| async move {
        media.write(8192, page(1, 1)).await.expect("write");
        assert!(!media.is_at_risk_before(8192) && media.is_at_risk_before(8193));
        media.sync().await.expect("sync");
        assert!(!media.is_at_risk_before(SIZE));
    });
}
