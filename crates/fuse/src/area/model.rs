//! A kernel, a disk and clients, for a server that is killed at any store to the area and around each system
//! call, again and again, also while it takes over.
//!
//! Each client has a range of its own, one request at a time, and reads back at once what it wrote. No
//! request that was not answered may be lost, no change executed once its answer was given, and none answered
//! in two ways.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::wire::{ANSWER_HEADER_BYTES, Attributes, Reply, answer, data_header};

const CLIENTS: usize = 6;
/// Bytes of each client: more than a small write.
const RANGE_BYTES: usize = 9 << 10;
/// Fewer entries and places than clients.
const SHAPE: Shape = Shape { entries: 4, small: 3, large: 3 };
const ATTRIBUTES: Attributes =
    Attributes { size_bytes: (CLIENTS * RANGE_BYTES) as u64, mode: 0o600, block_bytes: 4096 };
/// Steps after which a server that makes no progress is stopped.
const STEPS_MAX: u64 = 100_000;

/// A mistake of the model's own server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    OfArea(Planted),
    /// DONE is stored after the answer.
    DoneLate,
    /// DONE is stored before the execution.
    DoneEarly,
    /// A request is freed before its answer.
    FreedEarly,
}

/// Stops the server after a number of steps, by unwinding: nothing is stored on the way.
#[derive(Debug)]
struct Killer {
    left: AtomicU64,
    taken: AtomicU64,
}

/// What a killed server leaves instead of a result.
struct Killed;

impl Killer {
    fn step(&self) {
        assert!(self.taken.fetch_add(1, Ordering::Relaxed) < STEPS_MAX, "no progress");
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            resume_unwind(Box::new(Killed));
        }
    }

    fn kill_after(&self, steps: u64) {
        self.left.store(steps, Ordering::Relaxed);
    }
}

/// A message of the kernel.
struct Sent {
    client: usize,
    /// `None`: a question.
    operation: Option<Operation>,
    data: Vec<u8>,
    /// Error number of its first answer; 0: success. The kernel has taken it, unless it came to nothing.
    fate: Option<i32>,
    is_answered: bool,
}

#[derive(Clone)]
struct Client {
    /// What is in its range. `None`: a change has failed.
    content: Option<Vec<u8>>,
    reads_next: bool,
    requests_left: u32,
}

struct World {
    random: StdRng,
    killer: Arc<Killer>,
    mistake: Option<Mistake>,
    clients: Vec<Client>,
    sent: HashMap<u64, Sent>,
    /// Numbers and bytes of messages that were not read.
    queue: VecDeque<(u64, Vec<u8>)>,
    unique: u64,
    disk: Vec<u8>,
}

fn range(client: usize) -> Range<usize> {
    client * RANGE_BYTES..(client + 1) * RANGE_BYTES
}

/// Bytes of a message.
fn message(unique: u64, opcode: u32, fields: &[u64], data: &[u8]) -> Vec<u8> {
    let length = (40 + fields.len() * 8 + data.len()) as u32;
    let mut message = [length.to_ne_bytes(), opcode.to_ne_bytes()].concat();
    message.extend([unique, 2, 0, 0].map(u64::to_ne_bytes).concat());
    fields.iter().for_each(|field| message.extend(field.to_ne_bytes()));
    message.extend(data);
    message
}

impl World {
    fn new(seed: u64, requests: u32, mistake: Option<Mistake>) -> World {
        let content = Some(vec![0; RANGE_BYTES]);
        let client = Client { content, reads_next: false, requests_left: requests };
        let mut world = World {
            random: StdRng::seed_from_u64(seed),
            killer: Arc::new(Killer { left: AtomicU64::new(u64::MAX), taken: AtomicU64::new(0) }),
            mistake,
            clients: vec![client; CLIENTS],
            sent: HashMap::new(),
            queue: VecDeque::new(),
            unique: 0,
            disk: vec![0; CLIENTS * RANGE_BYTES],
        };
        (0..CLIENTS).for_each(|client| world.send(client));
        world
    }

    fn is_finished(&self) -> bool {
        self.sent.values().all(|sent| sent.is_answered)
    }

    /// Sends the next request of a client.
    fn send(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let Some(left) = client.requests_left.checked_sub(1) else { return };
        client.requests_left = left;
        self.unique += 2;
        let (unique, start) = (self.unique, range(number).start as u64);
        let kind = match &client.content {
            None => 1,
            Some(_) if std::mem::take(&mut client.reads_next) => 3,
            Some(_) => self.random.random_range(0..7),
        };
        let mut data = Vec::new();
        let (opcode, fields, operation) = match kind {
            0 | 1 => {
                let (skip, length) = match kind {
                    0 => (self.random.random_range(0..4_usize) * 512, 512 << self.random.random_range(0..4)),
                    _ => (0, RANGE_BYTES),
                };
                data = (0..length as u64).map(|at| (unique / 2 + at / 512) as u8).collect();
                let (offset, length) = (start + skip as u64, length as u64);
                let operation = Operation::Write { offset, length: length as u32 };
                (16, vec![0, offset, length, 0, 0], Some(operation))
            }
            2 | 3 => {
                let operation = Operation::Read { offset: start, length: RANGE_BYTES as u32 };
                (15, vec![0, start, RANGE_BYTES as u64, 0, 0], Some(operation))
            }
            4 => {
                let length = RANGE_BYTES as u64;
                let is_trim = self.random.random();
                let (mode, operation) = match is_trim {
                    true => (3, Operation::Trim { offset: start, length }),
                    false => (0x11, Operation::Zeroes { offset: start, length }),
                };
                (43, vec![0, start, length, mode], Some(operation))
            }
            5 => (20, vec![0, 0], Some(Operation::Flush)),
            _ => (3, vec![0, 0], None),
        };
        client.reads_next = operation.is_some_and(Operation::is_change);
        let bytes = message(unique, opcode, &fields, &data);
        self.sent.insert(unique, Sent { client: number, operation, data, fate: None, is_answered: false });
        self.queue.push_back((unique, bytes));
        if self.random.random_ratio(1, 8) {
            // INTERRUPT, BATCH_FORGET.
            let (unique, opcode) =
                if self.random.random() { (unique | 1, 36) } else { (self.unique + 1, 42) };
            self.queue.push_back((0, message(unique, opcode, &[unique], &[])));
        }
    }

    /// `read(2)` of the device.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.killer.step();
        let Some((_, message)) = self.queue.pop_front() else { return Err(io::ErrorKind::WouldBlock.into()) };
        bytes[..message.len()].copy_from_slice(&message);
        self.killer.step();
        Ok(message.len())
    }

    /// `write(2)` to the device.
    fn answer(&mut self, answer: &[u8]) {
        self.killer.step();
        let (header, data) = answer.split_at(ANSWER_HEADER_BYTES);
        assert_eq!(header[..4], (answer.len() as u32).to_ne_bytes());
        let errno = -i32::from_ne_bytes(header[4..8].try_into().expect("four bytes"));
        let unique = u64::from_ne_bytes(header[8..].try_into().expect("eight bytes"));
        let sent = self.sent.get_mut(&unique).expect("a request that was sent");
        let is_change = sent.operation.is_some_and(Operation::is_change);
        if is_change {
            assert_eq!(*sent.fate.get_or_insert(errno), errno, "{unique} has two fates");
        }
        // Otherwise ENOENT.
        if !std::mem::replace(&mut sent.is_answered, true) {
            let (number, operation, written) = (sent.client, sent.operation, std::mem::take(&mut sent.data));
            let client = &mut self.clients[number];
            match (operation, &mut client.content) {
                (_, content) if errno != 0 => *content = content.take().filter(|_| !is_change),
                (Some(Operation::Write { offset, length }), content) => {
                    assert_eq!(data[..4], length.to_ne_bytes());
                    let at = offset as usize - range(number).start;
                    content.get_or_insert_with(|| vec![0; RANGE_BYTES])[at..at + written.len()]
                        .copy_from_slice(&written);
                }
                (Some(Operation::Trim { .. } | Operation::Zeroes { .. }), Some(content)) => content.fill(0),
                (Some(Operation::Read { .. }), Some(content)) => {
                    assert!(data == content, "{unique} has read what client {number} did not write");
                }
                _ => {}
            }
            self.send(number);
        }
        self.killer.step();
    }

    /// Executes a request on the disk. Returns what was read, or an error number.
    fn execute(&mut self, task: &Task) -> Result<Vec<u8>, i32> {
        self.killer.step();
        let (unique, operation) = (task.unique, task.operation);
        let sent = &self.sent[&unique];
        assert_eq!(Some(operation), sent.operation);
        assert!(!(operation.is_change() && sent.is_answered), "{unique} is executed after its answer");
        if self.random.random_ratio(1, 12) {
            return Err(28);
        }
        let at = range(sent.client);
        match operation {
            Operation::Write { offset, .. } => {
                let payload = task.payload.as_ref().expect("data").as_slice();
                assert!(payload == sent.data, "{unique} has other data");
                let (first, second) = payload.split_at(payload.len() / 2);
                let (offset, middle) = (offset as usize, offset as usize + first.len());
                self.disk[offset..middle].copy_from_slice(first);
                self.killer.step();
                self.disk[middle..middle + second.len()].copy_from_slice(second);
            }
            Operation::Trim { .. } | Operation::Zeroes { .. } => self.disk[at].fill(0),
            Operation::Read { .. } => return Ok(self.disk[at].to_vec()),
            Operation::Flush => {}
        }
        self.killer.step();
        Ok(Vec::new())
    }
}

/// A request at the server.
struct Task {
    unique: u64,
    operation: Operation,
    entry: Option<Entry>,
    payload: Option<Payload>,
    stage: Stage,
    /// What was read, or an error number.
    result: Result<Vec<u8>, i32>,
}

#[derive(Clone, Copy)]
enum Stage {
    Have,
    Executed,
    Marked,
    Answered,
}

struct Server<'a> {
    world: &'a mut World,
    area: Area,
    tasks: Vec<Task>,
    /// Data that is held longer than its request, and what it must be.
    held: Vec<(Payload, Vec<u8>)>,
}

impl Server<'_> {
    /// Opens an area, and serves until all clients have what they want.
    fn run(world: &mut World, memory: &OwnedFd) {
        let mut area = Area::open(memory.try_clone().expect("a descriptor")).expect("an area");
        let inner = Arc::get_mut(&mut area.memory).expect("nobody else has it");
        let killer = world.killer.clone();
        inner.watcher = Some(Box::new(move || killer.step()));
        inner.planted = match world.mistake {
            Some(Mistake::OfArea(planted)) => Some(planted),
            _ => None,
        };
        let mut server = Server { world, area, tasks: Vec::new(), held: Vec::new() };
        server.take_over();
        while !(server.world.is_finished() && server.tasks.is_empty()) {
            server.go_on();
        }
        while !server.held.is_empty() {
            server.release();
        }
    }

    fn take_over(&mut self) {
        let left = self.area.left().expect("an area");
        let mut found = HashSet::new();
        for left in left {
            let unique = match left {
                Left::Request(taken) => {
                    let unique = taken.unique;
                    self.take(taken);
                    unique
                }
                Left::Answer { entry, unique, operation, result } => {
                    let result = result.map(|()| Vec::new());
                    let (entry, payload, stage) = (Some(entry), None, Stage::Marked);
                    self.tasks.push(Task { unique, operation, entry, payload, stage, result });
                    unique
                }
                Left::Question { unique, question } => {
                    self.answer_question(unique, &question);
                    unique
                }
            };
            assert!(found.insert(unique), "{unique} is left twice");
        }
        let is_lost = |(unique, sent): (&u64, &Sent)| {
            let is_queued = self.world.queue.iter().any(|(queued, _)| queued == unique);
            !sent.is_answered && !is_queued && !found.contains(unique)
        };
        assert!(!self.world.sent.iter().any(is_lost), "a request is lost");
    }

    fn take(&mut self, taken: Taken) {
        let Taken { unique, operation, entry, payload } = taken;
        let (entry, stage, result) = (Some(entry), Stage::Have, Ok(Vec::new()));
        self.tasks.push(Task { unique, operation, entry, payload, stage, result });
    }

    fn answer_question(&mut self, unique: u64, question: &Question) {
        let mut out = Vec::new();
        answer(unique, question, &ATTRIBUTES, &mut out);
        self.world.answer(&out);
    }

    /// One step of any request, or of none.
    fn go_on(&mut self) {
        match self.world.random.random_range(0..8) {
            0 if !self.held.is_empty() => self.release(),
            1 => self.area.trim(),
            2 | 3 if self.area.has_room() => self.receive(),
            _ if !self.tasks.is_empty() => {
                let number = self.world.random.random_range(0..self.tasks.len());
                self.advance(number);
            }
            _ if self.area.has_room() => self.receive(),
            _ => self.release(),
        }
    }

    fn receive(&mut self) {
        let is_lost = self.world.queue.is_empty() && self.tasks.is_empty() && !self.world.is_finished();
        assert!(!is_lost, "a request is lost");
        match self.area.receive(|bytes| self.world.read(bytes)) {
            Ok(Received::Request(taken)) => self.take(taken),
            Ok(Received::Question { unique, question }) => self.answer_question(unique, &question),
            Ok(Received::Nothing) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }

    /// Drops data that was held.
    fn release(&mut self) {
        let number = self.world.random.random_range(0..self.held.len());
        let (payload, expected) = self.held.swap_remove(number);
        assert!(payload.as_slice() == expected, "its place was used again");
    }

    fn advance(&mut self, number: usize) {
        let mistake = self.world.mistake;
        let (world, area) = (&mut *self.world, &mut self.area);
        let task = &mut self.tasks[number];
        let mark = |area: &mut Area, task: &Task| {
            let result = task.result.as_ref().map(|_| ()).map_err(|errno| *errno);
            area.done(task.entry.as_ref().expect("not free"), result);
        };
        task.stage = match task.stage {
            Stage::Have => {
                if mistake == Some(Mistake::DoneEarly) {
                    mark(area, task);
                }
                task.result = world.execute(task);
                if let Some(payload) = task.payload.take()
                    && world.random.random()
                {
                    let expected = payload.as_slice().to_vec();
                    self.held.push((payload, expected));
                }
                Stage::Executed
            }
            Stage::Executed => {
                if mistake != Some(Mistake::DoneLate) {
                    mark(area, task);
                }
                Stage::Marked
            }
            Stage::Marked => {
                if mistake == Some(Mistake::FreedEarly) {
                    area.free(task.entry.take().expect("not free"));
                }
                let answer = match &task.result {
                    Ok(data) if matches!(task.operation, Operation::Read { .. }) => {
                        [&data_header(task.unique, data.len() as u32)[..], data].concat()
                    }
                    result => {
                        let result = result.as_ref().map(|_| ()).map_err(|errno| *errno);
                        Reply::new(task.unique, task.operation, result).to_vec()
                    }
                };
                world.answer(&answer);
                if mistake == Some(Mistake::DoneLate) {
                    mark(area, task);
                }
                Stage::Answered
            }
            Stage::Answered => {
                if let Some(entry) = task.entry.take() {
                    area.free(entry);
                }
                self.tasks.swap_remove(number);
                return;
            }
        };
    }
}

/// Serves until the end, with a new server after each kill. `kills` has the steps of each server; the last
/// one is not killed. Returns the number of kills.
fn tell(world: &mut World, memory: &OwnedFd, kills: impl IntoIterator<Item = u64>) -> u64 {
    let mut kills = kills.into_iter();
    let mut killed = 0;
    loop {
        world.killer.kill_after(kills.next().unwrap_or(u64::MAX));
        match catch_unwind(AssertUnwindSafe(|| Server::run(world, memory))) {
            Ok(()) => return killed,
            Err(panic) if panic.is::<Killed>() => killed += 1,
            Err(panic) => resume_unwind(panic),
        }
    }
}

fn memory() -> OwnedFd {
    Area::create_of(SHAPE).expect("a memory")
}

/// A story of many kills. Returns their number.
fn story(seed: u64, mistake: Option<Mistake>) -> u64 {
    let mut random = StdRng::seed_from_u64(!seed);
    let kills: Vec<u64> = (0..60).map(|_| random.random_range(1..80)).collect();
    tell(&mut World::new(seed, 12, mistake), &memory(), kills)
}

#[test]
fn a_server_may_be_killed_again_and_again() {
    let kills: u64 = (0..250).map(|seed| story(seed, None)).sum();
    assert!(kills > 5_000, "{kills} kills");
}

/// Also while the next server takes over.
#[test]
fn a_server_may_be_killed_at_each_step() {
    const SEED: u64 = 7;
    let mut world = World::new(SEED, 3, None);
    assert_eq!(tell(&mut world, &memory(), []), 0);
    let steps = world.killer.taken.load(Ordering::Relaxed);
    assert!(steps > 200, "{steps} steps");
    for step in 1..=steps {
        for of_next in [u64::MAX, 1, 2, 3, 4, 5, 6, 8, 10, 13] {
            tell(&mut World::new(SEED, 3, None), &memory(), [step, of_next]);
        }
    }
}

#[test]
fn each_mistake_is_found() {
    for mistake in [
        Mistake::OfArea(Planted::SkipsLanding),
        Mistake::OfArea(Planted::ClearsEarly),
        Mistake::OfArea(Planted::ReusesPlaces),
        Mistake::OfArea(Planted::StateFirst),
        Mistake::DoneLate,
        Mistake::DoneEarly,
        Mistake::FreedEarly,
    ] {
        let is_found = (0..100).any(|seed| catch_unwind(|| story(seed, Some(mistake))).is_err());
        assert!(is_found, "{mistake:?} is not found");
    }
}
