//! Claims: who gets a drive, and what an owner does that is asked, or has lost it. What happens when several
//! do that at the same time is the simulator's to find (`crates/sim/src/rivals.rs`).

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use drive::{
    Claim, CreateOptions, Drive, Error, Fate, OpenOptions, Owner, Pace, Planted, Sleep, Surroundings,
    WipeOptions, find_owner,
};
use futures::executor::block_on;
use futures::future::{Either, select};
use layout::Geometry;
use layout::owner::{OWNER_BYTES, Process};
use media::{IoBuf, Media, MemoryMedia};

const UUID: [u8; 16] = *b"a drive that has";

/// A time that passes whenever somebody waits for it.
#[derive(Clone, Default)]
struct Around {
    now: Arc<AtomicU64>,
    fate: Option<Fate>,
    /// The process is stopped for so long just before it writes an owner page.
    stop_ns: u64,
}

impl Surroundings for Around {
    fn sleep(&self, nanoseconds: u64) -> Sleep<'_> {
        // In pieces, so that others have their turn.
        const PIECE: u64 = 100_000_000;
        let mut left = nanoseconds;
        Box::pin(std::future::poll_fn(move |context| {
            if left == 0 {
                return Poll::Ready(());
            }
            let piece = left.min(PIECE);
            left -= piece;
            self.now.fetch_add(piece, Ordering::Relaxed);
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    fn fate(&self, _process: &Process) -> Fate {
        self.fate.clone().expect("nobody asks")
    }

    fn unix_seconds(&self) -> u64 {
        self.now.fetch_add(self.stop_ns, Ordering::Relaxed);
        1_795_795_199
    }
}

impl Around {
    fn with(&self, fate: Fate) -> Around {
        Around { fate: Some(fate), ..self.clone() }
    }

    fn claim(&self, run: u8) -> Claim {
        let now = self.now.clone();
        Claim {
            run: [run; 16],
            process: Process { pid: run.into(), host: "store-7".into(), ..Process::default() },
            clock: Arc::new(move || now.load(Ordering::Relaxed)),
            take_over: false,
            pace: Pace::default(),
            planted: Planted::default(),
        }
    }

    fn take(&self, run: u8, media: &MemoryMedia) -> Result<Owner, Error> {
        block_on(self.claim(run).drive(media, self))
    }
}

fn created() -> MemoryMedia {
    created_with(None)
}

fn created_with(far_copies: Option<bool>) -> MemoryMedia {
    let media = MemoryMedia::new(32 << 20);
    let options = CreateOptions {
        physical_size_bytes: 32 << 20,
        logical_capacity_bytes: 32 << 20,
        sector_bytes: 512,
        segment_bytes: None,
        codec: codec::Policy::default(),
        uuid: UUID,
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies,
        parity: layout::ParityForm::None,
    };
    block_on(Drive::create(&media, &options)).expect("created");
    media
}

fn owned(result: Result<Owner, Error>) -> String {
    match result {
        Err(Error::Owned(why)) => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is somebody else's"),
    }
}

/// Runs a future while an owner keeps its drive.
fn beside<T>(owner: &Owner, media: &MemoryMedia, around: &Around, future: impl Future<Output = T>) -> T {
    let keeping = pin!(owner.keep(media, around, |_, error| panic!("{error}")));
    match block_on(select(pin!(future), keeping)) {
        Either::Left((value, _)) => value,
        Either::Right((why, _)) => panic!("{why}"),
    }
}

/// The start had the mark. Its owner, if there is one, finds out within the time that a challenge takes.
#[test]
fn a_drive_that_lost_its_start_is_taken_after_a_challenge() {
    let (media, around) = (created_with(Some(true)), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    block_on(media.write(0, Arc::new(IoBuf::zeroed(128 << 10)))).expect("lost");
    let before = around.now.load(Ordering::Relaxed);
    let next = around.take(2, &media).expect("nobody answers");
    assert!(around.now.load(Ordering::Relaxed) - before >= Pace::default().wait_ns);
    assert!(next.lease().holds() && !owner.lease().holds());
}

#[test]
fn a_drive_that_was_closed_is_taken_at_once() {
    let (media, around) = (created(), Around::default());
    for run in 1..4 {
        let before = around.now.load(Ordering::Relaxed);
        let owner = around.take(run, &media).expect("nobody has it");
        assert_eq!(around.now.load(Ordering::Relaxed) - before, Pace::default().settle_ns);
        assert!(owner.lease().holds());
        let found = block_on(find_owner(&media)).expect("a mark");
        assert!(found.open && found.process.pid == u32::from(run), "{found:?}");
        assert_eq!(found.who(), format!("process {run} on host store-7, since 2026-11-27 15:59:59 UTC"));
        let lease = owner.lease().clone();
        block_on(owner.give_back(&media, &around)).expect("given back");
        assert!(!lease.holds());
        assert!(!block_on(find_owner(&media)).expect("a mark").open);
    }
}

#[test]
fn what_is_known_of_the_owner_decides() {
    let (media, around) = (created(), Around::default());
    std::mem::forget(around.take(1, &media));
    let refused = owned(around.with(Fate::Elsewhere).take(2, &media));
    assert!(refused.contains("process 1 on host store-7") && refused.contains("--take-over"), "{refused}");
    let refused = owned(around.with(Fate::Runs).take(2, &media));
    assert!(refused.contains("stop it first"), "{refused}");
    let before = around.now.load(Ordering::Relaxed);
    std::mem::forget(around.with(Fate::Gone).take(3, &media).expect("it is gone"));
    assert_eq!(around.now.load(Ordering::Relaxed) - before, Pace::default().settle_ns);
    let before = around.now.load(Ordering::Relaxed);
    std::mem::forget(around.with(Fate::Unseen).take(4, &media).expect("it does not answer"));
    assert!(around.now.load(Ordering::Relaxed) - before >= Pace::default().wait_ns);
    let elsewhere = around.with(Fate::Elsewhere);
    let claim = Claim { take_over: true, ..elsewhere.claim(5) };
    block_on(claim.drive(&media, &elsewhere)).expect("it does not answer");
}

#[test]
fn an_owner_answers_and_keeps_its_drive() {
    let (media, around) = (created(), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    for (run, fate) in [(2, Fate::Unseen), (3, Fate::Elsewhere), (4, Fate::Runs)] {
        let other = around.with(fate);
        let claim = Claim { take_over: true, ..other.claim(run) };
        let refused = owned(beside(&owner, &media, &around, claim.drive(&media, &other)));
        assert!(refused.contains("process 1 on host store-7") && refused.contains("at work"), "{refused}");
    }
    assert!(beside(&owner, &media, &around, owner.lease().confirm()).is_ok());
    block_on(owner.give_back(&media, &around)).expect("given back");
    around.take(5, &media).expect("nobody has it");
}

#[test]
fn an_owner_that_was_stopped_for_too_long_has_lost_its_drive() {
    let (media, around) = (Arc::new(created()), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    let mut options =
        OpenOptions::new(1, Arc::new(|future| _ = std::thread::spawn(move || block_on(future))));
    options.lease = Some(owner.lease().clone());
    let drive = block_on(Drive::open(media.clone(), options)).expect("opened");
    beside(&owner, &media, &around, drive.write(0, &[1; 4096], true)).expect("written");
    let other = around.with(Fate::Unseen);
    std::mem::forget(other.take(2, &media).expect("it does not answer"));
    assert!(!owner.lease().holds());
    // The answer waits until somebody has looked.
    let mut read = [0; 4096];
    {
        let mut reading = pin!(drive.read(0, &mut read));
        assert!(block_on(futures::future::poll_immediate(reading.as_mut())).is_none());
        let why = block_on(owner.keep(&*media, &around, |_, error| panic!("{error}")));
        assert!(why.contains("taken over by process 2"), "{why}");
        drive.disown(&why);
        owner.lease().lose(&why);
        let error = block_on(reading).expect_err("it may be old");
        assert!(error.to_string().contains(&why), "{error}");
    }
    for error in
        [block_on(drive.write(0, &[2; 4096], false)), block_on(drive.flush()), block_on(drive.close())]
    {
        assert!(matches!(error, Err(Error::ReadOnly(_))), "{error:?}");
    }
    // It leaves the mark of the other.
    block_on(owner.give_back(&*media, &around)).expect("nothing to do");
    assert!(block_on(find_owner(&*media)).is_some_and(|found| found.open && found.process.pid == 2));
}

#[test]
fn an_owner_that_was_stopped_while_it_closes_leaves_the_mark() {
    let (media, around) = (created(), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    // By then another one may have the drive.
    let stopped = Around { stop_ns: Pace::default().lease_ns, ..around.clone() };
    block_on(owner.give_back(&media, &stopped)).expect("nothing to do");
    assert!(block_on(find_owner(&media)).expect("a mark").open);
    std::mem::forget(around.with(Fate::Unseen).take(2, &media).expect("it does not answer"));
}

#[test]
fn a_mark_that_something_else_is_written_over_is_lost() {
    let (media, around) = (created(), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    let blank = || Arc::new(IoBuf::zeroed(OWNER_BYTES));
    // One copy is enough.
    block_on(media.write(Geometry::owner_offset(0), blank())).expect("written");
    assert!(beside(&owner, &media, &around, owner.lease().confirm()).is_ok());
    block_on(media.write(Geometry::owner_offset(1), blank())).expect("written");
    let why = block_on(owner.keep(&media, &around, |_, error| panic!("{error}")));
    assert!(why.contains("written over the mark"), "{why}");
    assert!(!owner.lease().holds());
}

#[test]
fn a_wipe_leaves_the_mark() {
    let (media, around) = (created(), Around::default());
    let owner = around.take(1, &media).expect("nobody has it");
    block_on(Drive::wipe(&media, WipeOptions::any())).expect("wiped");
    assert!(block_on(find_owner(&media)).is_some_and(|found| found.open));
    block_on(owner.give_back(&media, &around)).expect("given back");
}

#[test]
fn where_no_drive_is_nothing_is_written() {
    let media = MemoryMedia::new(32 << 20);
    let around = Around::default();
    assert!(matches!(around.take(1, &media), Err(Error::NotADrive)));
    assert_eq!(media.resident_bytes(), 0);
}
