//! Tests of what the disk keeps and loses.

use std::sync::Arc;
use std::time::Duration;

use media::SimRng;
use powercut::disk::{Action, Disk, Failed, PAGE_BYTES, Pace, SECTOR_BYTES, Stale, Trigger, When};

const SEEDS: u64 = 200;
const PAGES: usize = 8;

fn disk(seed: u64, stale: Stale) -> Disk {
    Disk::new(1 << 20, Pace::default(), stale, SimRng::new(seed))
}

fn pages(byte: u8) -> Vec<u8> {
    vec![byte; PAGES * PAGE_BYTES]
}

/// Content after a power cut.
fn after_cut(disk: &Disk) -> Vec<u8> {
    disk.cut();
    assert_eq!(disk.read(0, PAGE_BYTES), Err(Failed));
    disk.restart();
    disk.read(0, PAGES * PAGE_BYTES).expect("power")
}

#[test]
fn what_was_synced_survives() -> Result<(), Failed> {
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Hidden);
        disk.write(0, &pages(1))?;
        disk.sync()?;
        assert_eq!(after_cut(&disk), pages(1), "seed {seed}");
    }
    Ok(())
}

#[test]
fn what_was_not_synced_is_kept_lost_or_torn_between_sectors() -> Result<(), Failed> {
    let (mut kept, mut lost, mut torn, mut torn_in_a_page) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Hidden);
        disk.write(0, &pages(1))?;
        disk.sync()?;
        disk.write(0, &pages(2))?;
        let there = after_cut(&disk);
        for sector in there.chunks_exact(SECTOR_BYTES) {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]) && [1, 2].contains(&sector[0]),
                "seed {seed}"
            );
        }
        kept += u64::from(there == pages(2));
        lost += u64::from(there == pages(1));
        torn += u64::from(there != pages(1) && there != pages(2));
        let mixed = |page: &[u8]| page.iter().any(|byte| *byte != page[0]);
        torn_in_a_page += u64::from(there.chunks_exact(PAGE_BYTES).any(mixed));
    }
    assert!(
        kept > 20 && lost > 20 && torn > 20 && torn_in_a_page > 10,
        "{kept} {lost} {torn} {torn_in_a_page}"
    );
    Ok(())
}

#[test]
fn writes_are_lost_independently_of_their_order() -> Result<(), Failed> {
    let (mut older_only, mut newer_only) = (0, 0);
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Hidden);
        let page = |byte| vec![byte; PAGE_BYTES];
        disk.write(0, &page(1))?;
        disk.write(PAGE_BYTES as u64, &page(2))?;
        let there = after_cut(&disk);
        let has = |at: usize, byte| there[at * PAGE_BYTES..][..PAGE_BYTES] == page(byte);
        older_only += u64::from(has(0, 1) && has(1, 0));
        newer_only += u64::from(has(0, 0) && has(1, 2));
    }
    assert!(older_only > 5 && newer_only > 5, "{older_only} {newer_only}");
    Ok(())
}

#[test]
fn a_discard_is_undone_by_whole_pages() -> Result<(), Failed> {
    let mut undone = 0;
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Hidden);
        disk.write(0, &pages(1))?;
        disk.sync()?;
        disk.discard(0, (PAGES * PAGE_BYTES) as u64)?;
        assert_eq!(disk.read(0, PAGES * PAGE_BYTES)?, pages(0));
        let there = after_cut(&disk);
        for page in there.chunks_exact(PAGE_BYTES) {
            assert!(page.iter().all(|byte| *byte == page[0]), "seed {seed}");
        }
        undone += u64::from(there != pages(0));
    }
    assert!(undone > 20, "{undone}");
    Ok(())
}

#[test]
fn a_failed_sync_loses_what_the_next_one_does_not_bring_back() -> Result<(), Failed> {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Shown);
        disk.fail_sync(1);
        disk.sync()?;
        disk.write(0, &pages(1))?;
        assert_eq!(disk.sync(), Err(Failed));
        assert_eq!(disk.read(0, PAGES * PAGE_BYTES)?, pages(1), "it still shows what was written");
        disk.sync()?;
        lost += u64::from(after_cut(&disk) != pages(1));
    }
    assert!(lost > 50, "{lost}");
    Ok(())
}

#[test]
fn after_a_failed_sync_an_honest_disk_shows_what_is_there() -> Result<(), Failed> {
    for seed in 0..SEEDS {
        let disk = disk(seed, Stale::Hidden);
        disk.fail_sync(0);
        disk.write(0, &pages(1))?;
        assert_eq!(disk.sync(), Err(Failed));
        let shown = disk.read(0, PAGES * PAGE_BYTES)?;
        assert_eq!(after_cut(&disk), shown, "seed {seed}");
    }
    Ok(())
}

#[test]
fn a_trigger_cuts_at_its_moment() -> Result<(), Failed> {
    let disk = disk(1, Stale::Hidden);
    disk.arm(Trigger::new(When::AfterSync, 1, 1), Action::Cut);
    for _ in 0..2 {
        disk.write(0, &pages(1))?;
        disk.sync()?;
        disk.sync_was_answered();
    }
    assert!(disk.is_powered());
    assert_eq!(disk.write(0, &pages(2)), Err(Failed), "the request after the second sync");
    assert!(!disk.is_powered());
    assert!(disk.wait(Duration::ZERO));
    assert_eq!(disk.counts().cuts, 1);
    Ok(())
}

#[test]
fn a_silent_disk_answers_when_it_is_released() {
    let disk = Arc::new(disk(1, Stale::Hidden));
    disk.set_silent(true);
    disk.cut();
    let waiting = std::thread::spawn({
        let disk = disk.clone();
        move || disk.write(0, &pages(1))
    });
    disk.release();
    assert_eq!(waiting.join().expect("no panic"), Err(Failed));
}
