//! Two machines, one backing: both claim the same drive, again and again, while they are stopped, killed and
//! told to take it over. See `drive::Claim`.
//!
//! Time passes for all, a little faster or slower by the clock of each. A machine is stopped anywhere, often
//! between queueing a change of the backing and giving it to its kernel. It does nothing then. What it has
//! given to its kernel continues, and ends before much time passes: a page on the backing cannot prevent
//! that.
//!
//! The oracle: once a drive that was claimed later has answered a host, no drive that was claimed earlier
//! answers any more, to reads either. Whoever opens the drive finds each block as it was last written
//! durably, or as somebody began to write it since. In the end a check finds no fault.

use std::sync::Arc;

use drive::{CreateOptions, Drive, Error, OpenOptions, Planted};
use layout::BLOCK_BYTES;
use media::{Faults, SimMedia, SimRng};
use parking_lot::Mutex;

use crate::backing::{Backing, Overwrites};
use crate::executor::{Cut, End, Executor};
use crate::machine::Process;
use crate::machine::{Frozen, Kinship, Machine, Time};
use crate::report::Report;
use crate::{Bug, Counts};

/// Size of the backing, and capacity of the drive, in bytes.
const PHYSICAL_BYTES: u64 = 13 << 20;
const CAPACITY_BYTES: u64 = 1 << 20;
/// Blocks that are written.
const BLOCKS: u64 = 12;
/// Lives of each machine: it claims the drive, and uses it if it gets it.
const LIVES: u64 = 4;
/// Times that a machine is stopped.
const STOPS: u64 = 5;
const SECOND: u64 = 1_000_000_000;

/// What was written, and who answered.
#[derive(Default)]
struct Oracle {
    /// Number of the newest claim whose drive has answered a host.
    newest: u64,
    /// Numbers of claims.
    claims: u64,
    /// For each block, what it may hold: the last durable number, and those that were begun since.
    blocks: Vec<Vec<u64>>,
    next: u64,
    counts: Counts,
    failure: Option<String>,
}

impl Oracle {
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    /// A drive has answered a host.
    fn answered(&mut self, claim: u64, what: &str) {
        if claim < self.newest {
            let newest = self.newest;
            self.fail(format!("claim {claim} answered a {what} after claim {newest} had answered"));
        }
        self.newest = self.newest.max(claim);
    }

    /// Begins a write. Returns the number to write.
    fn begin(&mut self, claim: u64, block: u64) -> u64 {
        self.next += 1;
        // One who has lost the drive changes nothing any more.
        if claim >= self.newest {
            self.blocks[block as usize].push(self.next);
        }
        self.next
    }

    /// A write is durable: what was begun before it is gone.
    fn durable(&mut self, claim: u64, block: u64, number: u64) {
        self.answered(claim, "durable write");
        self.counts.add("rivals: durable writes", 1);
        let numbers = &mut self.blocks[block as usize];
        if let Some(at) = numbers.iter().position(|known| *known == number) {
            numbers.drain(..at);
        }
    }

    fn read(&mut self, claim: Option<u64>, block: u64, bytes: &[u8]) {
        if let Some(claim) = claim {
            self.answered(claim, "read");
        }
        let number = number_in(bytes);
        if !number.is_some_and(|number| self.blocks[block as usize].contains(&number)) {
            let wanted = &self.blocks[block as usize];
            self.fail(format!("block {block} holds {number:?}, it should hold one of {wanted:?}"));
        }
    }
}

/// Contents of a block.
fn contents(block: u64, number: u64) -> Vec<u8> {
    let mut rng = SimRng::new(number.wrapping_mul(BLOCKS) + block);
    let mut bytes = Vec::with_capacity(BLOCK_BYTES);
    bytes.extend_from_slice(&number.to_le_bytes());
    while bytes.len() < BLOCK_BYTES {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes
}

/// The number that was written to a block, if all of it belongs together. Zeros are number 0.
fn number_in(bytes: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let is_whole = |block| contents(block, number) == bytes;
    (bytes.iter().all(|byte| *byte == 0) || (0..BLOCKS).any(is_whole)).then_some(number)
}

struct Story {
    media: Arc<SimMedia>,
    oracle: Mutex<Oracle>,
    bug: Option<Bug>,
    verbose: bool,
}

impl Story {
    fn trace(&self, time: &Time, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("  {:.3} s: {}", time.now() as f64 / SECOND as f64, what());
        }
    }

    fn planted(&self) -> Planted {
        Planted::new(self.bug.and_then(Bug::of_drive))
    }

    fn is_over(&self) -> bool {
        self.oracle.lock().failure.is_some()
    }
}

/// Runs the story of a seed.
pub(crate) fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Report {
    let mut rng = SimRng::new(seed);
    let media = Arc::new(SimMedia::new(PHYSICAL_BYTES, rng.fork(), Faults::default()));
    let story = Arc::new(Story {
        media: media.clone(),
        oracle: Mutex::new(Oracle { blocks: vec![vec![0]; BLOCKS as usize], ..Oracle::default() }),
        bug,
        verbose,
    });
    let mut executor = Executor::new(rng.fork());
    let time = Arc::new(Time::new(rng.fork(), media.clone()));
    let kinship = [Kinship::Strangers, Kinship::Unseen, Kinship::Seen][rng.index(3)];
    let made = executor.block_on(&media, &*time, Cut::Never, create(media.clone()));
    if !matches!(made, Ok(Ok(()))) {
        story.oracle.lock().fail(format!("the drive cannot be created: {made:?}"));
    }
    for number in 0..2 {
        let spawner = executor.spawner();
        let machine = Machine::new(number, kinship, &time, spawner, rng.fork());
        executor.spawn(lives(story.clone(), machine, rng.fork()));
    }
    let end = executor.run(&media, &*time, Cut::Never);
    if end != End::Finished {
        story.oracle.lock().fail(format!("two machines got nowhere: {end:?}"));
    }
    if !story.is_over() {
        let last = verify(story.clone(), executor.spawner());
        if let Err(end) = executor.block_on(&media, &*time, Cut::Never, last) {
            story.oracle.lock().fail(format!("the last opening got nowhere: {end:?}"));
        }
    }
    let steps = executor.steps();
    drop(executor);
    let mut oracle = story.oracle.lock();
    Report { counts: std::mem::take(&mut oracle.counts), failure: oracle.failure.take(), steps }
}

async fn create(media: Arc<SimMedia>) -> Result<(), Error> {
    let options = CreateOptions {
        physical_size_bytes: PHYSICAL_BYTES,
        logical_capacity_bytes: CAPACITY_BYTES,
        sector_bytes: 512,
        segment_bytes: Some(512 << 10),
        codec: codec::Policy::default(),
        uuid: *b"one for the two!",
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies: None,
        parity: layout::ParityForm::None,
    };
    Drive::<SimMedia>::create(&media, &options).await
}

/// The lives of a machine.
async fn lives(story: Arc<Story>, machine: Arc<Machine>, mut rng: SimRng) {
    let mut stops = STOPS;
    for _ in 0..LIVES {
        machine.rest(rng.below(6 * SECOND)).await;
        if story.is_over() {
            return;
        }
        let process = machine.start();
        let life = Frozen::new(process.clone(), life(story.clone(), process.clone(), rng.fork()));
        let fate = fate(story.clone(), process.clone(), rng.fork(), &mut stops);
        // It ends by itself, or is killed.
        let living = async {
            life.await;
            process.end();
        };
        futures::join!(living, fate);
        while !process.is_gone() {
            machine.rest(SECOND / 100).await;
        }
    }
}

/// Stops a process now and then, and mostly kills it in the end.
async fn fate(story: Arc<Story>, process: Arc<Process>, mut rng: SimRng, stops: &mut u64) {
    let machine = process.machine();
    let until = machine.time().now() + SECOND + rng.below(25 * SECOND);
    while machine.time().now() < until && !process.has_ended() && !story.is_over() {
        machine.rest(rng.below(4 * SECOND)).await;
        if *stops > 0 && rng.chance(1, 2) {
            *stops -= 1;
            match rng.chance(1, 2) {
                true => process.stop(true),
                false => process.stop_in_queue(1 + rng.below(6)).await,
            }
            let most = [SECOND / 4, 3 * SECOND, 12 * SECOND, 20 * SECOND][rng.index(4)];
            machine.rest(rng.below(most)).await;
            process.stop(false);
        }
    }
    match rng.chance(2, 3) {
        true => process.end(),
        false => {
            process.close();
            if rng.chance(1, 2) {
                process.stop_in_queue(1 + rng.below(20)).await;
                machine.rest(rng.below(20 * SECOND)).await;
                process.stop(false);
            }
        }
    }
}

/// A process claims the drive, uses it, and closes it unless it is killed.
async fn life(story: Arc<Story>, process: Arc<Process>, mut rng: SimRng) {
    let raw = Backing::of_process(story.media.clone(), process.clone(), None, story.bug);
    let owner = match process.claim(&mut rng, story.planted()).drive(&raw, &*process).await {
        Ok(owner) => owner,
        Err(Error::Owned(why)) => {
            story.trace(process.machine().time(), || format!("{} is refused: {why}", process.name()));
            story.oracle.lock().counts.add("rivals: claims refused", 1);
            return;
        }
        Err(error) => return story.oracle.lock().fail(format!("claiming the drive: {error}")),
    };
    let claim = {
        let mut oracle = story.oracle.lock();
        oracle.counts.add("rivals: claims", 1);
        oracle.claims += 1;
        oracle.claims
    };
    story.trace(process.machine().time(), || format!("{} has claim {claim}", process.name()));
    let observed = story.bug != Some(Bug::Drive(drive::PlantedBug::LeaseForgotten));
    let lease = observed.then(|| owner.lease().clone());
    let media = Arc::new(Backing::of_process(story.media.clone(), process.clone(), lease, story.bug));
    let opened = Mutex::new(None);
    let using = async {
        let mut options = OpenOptions::new(rng.next_u64(), process.spawner());
        options.recovery_bytes_max = u64::MAX;
        options.lease = Some(owner.lease().clone());
        options.planted = story.planted();
        let drive = match Drive::open(media, options).await {
            Ok(drive) => drive,
            Err(error) => {
                if owner.lease().confirm().await.is_ok() {
                    story.oracle.lock().fail(format!("opening the drive: {error}"));
                }
                return;
            }
        };
        *opened.lock() = Some(drive.clone());
        let used = use_drive(&story, &process, claim, &drive, &mut rng).await;
        // It stops by itself if it is lost. Until then nothing fails.
        if let Err(error) = used.and(drive.close().await)
            && owner.lease().confirm().await.is_ok()
        {
            story.oracle.lock().fail(format!("claim {claim}: {error}"));
        }
    };
    let keeping = async {
        let why = owner.keep(&raw, &*process, |_, _| ()).await;
        story.trace(process.machine().time(), || format!("{}: {why}", process.name()));
        story.oracle.lock().counts.add("rivals: drives lost", 1);
        let drive = opened.lock().clone();
        if let Some(drive) = drive {
            drive.disown(&why);
        }
        owner.lease().lose(&why);
        // The other future ends by that.
        std::future::pending::<()>().await;
    };
    {
        let (using, keeping) = (std::pin::pin!(using), std::pin::pin!(keeping));
        futures::future::select(using, keeping).await;
    }
    // What the process has begun ends first.
    drop(opened);
    if let Err(error) = owner.give_back(&raw, &*process).await {
        story.oracle.lock().fail(format!("giving the drive back: {error}"));
    }
}

/// Reads all blocks, then writes and reads some, until the process is to close the drive.
async fn use_drive(
    story: &Story,
    process: &Process,
    claim: u64,
    drive: &Drive<Backing>,
    rng: &mut SimRng,
) -> Result<(), Error> {
    for block in 0..BLOCKS {
        read(story, Some(claim), drive, block).await?;
    }
    while !process.closes() && !story.is_over() {
        let block = rng.below(BLOCKS);
        if rng.chance(1, 4) {
            read(story, Some(claim), drive, block).await?;
        } else {
            let number = story.oracle.lock().begin(claim, block);
            let fua = rng.chance(1, 2);
            drive.write(block * BLOCK_BYTES as u64, &contents(block, number), fua).await?;
            story.oracle.lock().answered(claim, "write");
            if fua || rng.chance(1, 2) {
                drive.flush().await?;
                story.oracle.lock().durable(claim, block, number);
            }
        }
        drive.tick();
        if rng.chance(1, 8) {
            drive.maintain().await?;
        }
        process.pause(rng.below(SECOND)).await;
    }
    Ok(())
}

async fn read(story: &Story, claim: Option<u64>, drive: &Drive<Backing>, block: u64) -> Result<(), Error> {
    let mut bytes = vec![0; BLOCK_BYTES];
    drive.read(block * BLOCK_BYTES as u64, &mut bytes).await?;
    story.oracle.lock().read(claim, block, &bytes);
    Ok(())
}

/// Opens the drive when all have ended.
async fn verify(story: Arc<Story>, spawner: drive::Spawner) {
    let mut options = OpenOptions::new(u64::MAX, spawner);
    options.recovery_bytes_max = u64::MAX;
    let media = Arc::new(Backing::new(story.media.clone(), Arc::new(Overwrites::default())));
    let done = async {
        let drive = Drive::open(media, options).await?;
        for block in 0..BLOCKS {
            read(&story, None, &drive, block).await?;
        }
        let faults = drive.check(true).await?;
        drive.close().await?;
        Ok::<_, Error>(faults)
    };
    match done.await {
        Ok(faults) if faults.is_empty() => {}
        Ok(faults) => story.oracle.lock().fail(format!("the drive has faults: {faults:?}")),
        Err(error) => story.oracle.lock().fail(format!("the drive cannot be opened: {error}")),
    }
}
