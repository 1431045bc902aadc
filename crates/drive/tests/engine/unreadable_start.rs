//! Claims of drives whose start cannot be read, with the marks of owners in it.

use crate::common;
use crate::far;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drive::{Claim, Drive, Error, Fate, Owner, Pace, Planted, Sleep, Surroundings};
use far::SIZE;
use faulty::{Faulty, Tasks};
use layout::owner::Process;

const KIB: u64 = 1 << 10;

/// A time that passes whenever somebody waits for it.
#[derive(Clone, Default)]
struct Around(Arc<AtomicU64>);

impl Surroundings for Around {
    fn sleep(&self, nanoseconds: u64) -> Sleep<'_> {
        self.0.fetch_add(nanoseconds, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn fate(&self, _: &Process) -> Fate {
        Fate::Gone
    }

    fn unix_seconds(&self) -> u64 {
        1
    }
}

impl Around {
    fn claim(&self, run: u8, media: &Faulty, tasks: &Tasks) -> Result<Owner, Error> {
        let clock = self.0.clone();
        let claim = Claim {
            run: [run; 16],
            process: Process::default(),
            clock: Arc::new(move || clock.load(Ordering::Relaxed)),
            take_over: false,
            pace: Pace::default(),
            planted: Planted::default(),
        };
        tasks.run(claim.drive(media, self))
    }
}

fn created(tasks: &Tasks, lost: std::ops::Range<u64>) -> Arc<Faulty> {
    let media = Arc::new(Faulty::new(SIZE));
    tasks.run(Drive::create(&*media, &far::options(SIZE))).expect("create");
    let drive = tasks.open(&media, |_| {});
    tasks.run(drive.write(0, &[7; 4096], true)).expect("write");
    tasks.run(drive.close()).expect("close");
    *media.lost.lock() = vec![lost, 64 * KIB..68 * KIB];
    media
}

/// Nobody is asked, so it takes as long as any lease may last, and no shorter.
#[test]
fn a_start_that_can_be_read_again_once_it_was_written_is() {
    for lost in [0..128 * KIB, 0..24 * KIB, 0..1024 * KIB] {
        let (tasks, around) = (Tasks::default(), Around::default());
        let media = created(&tasks, lost.clone());
        media.heals.store(true, Ordering::SeqCst);
        let owner = around.claim(1, &media, &tasks).unwrap_or_else(|error| panic!("{lost:?}: {error}"));
        let (waited, pace) = (around.0.load(Ordering::Relaxed), Pace::default());
        assert!(waited >= 2 * pace.wait_ns && pace.wait_ns > pace.lease_ns, "{lost:?}: {waited}");
        let drive = tasks.open(&media, |_| {});
        let mut read = vec![0; 4096];
        tasks.run(drive.read(0, &mut read)).expect("read");
        assert!(read == [7; 4096] && drive.status().recovered.start_lost, "{lost:?}");
        tasks.run(drive.close()).expect("close");
        // The mark is there for the next one.
        drop(owner);
        assert!(around.claim(2, &media, &tasks).is_ok());
        assert!(!tasks.open(&media, |_| {}).status().recovered.start_lost, "{lost:?}");
    }
}

#[test]
fn a_start_that_stays_unreadable_has_a_remedy() {
    for takes_writes in [true, false] {
        let (tasks, around) = (Tasks::default(), Around::default());
        let media = created(&tasks, 0..128 * KIB);
        if !takes_writes {
            media.unwritable.lock().push(0..128 * KIB);
        }
        let Err(Error::Io(why)) = around.claim(1, &media, &tasks) else { panic!("it was claimed") };
        assert!(why.contains("copy the backing to another one"), "{why}");
        let options = drive::OpenOptions { read_only: true, ..drive::OpenOptions::new(5, tasks.spawner()) };
        tasks.run(Drive::open(common::erased(media.clone()), options)).expect("it can be looked at");
    }
}
