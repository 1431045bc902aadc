//! Queues of a driver in memory, served from a device in memory.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use device::{ReadOnly, Requester};
use nbd::testing::MemoryDevice;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

const DEPTH: u16 = 128;
const CAPACITY_BYTES: u64 = 64 << 20;
/// `UBLK_IO_OP_*`.
const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const TRIM: u8 = 3;
const ZEROES: u8 = 5;
/// `UBLK_IO_F_FUA` without its shift by 8.
const FUA: u32 = 1 << 5;
const MIB_SECTORS: u32 = 2048;

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    unsent: Vec<(u16, i32)>,
    answers: Vec<(u16, i32)>,
    /// Submissions that are refused yet.
    refusals: u32,
    /// The driver refuses a command.
    is_broken: bool,
}

struct FakeDriver(Arc<Mutex<State>>);

impl Driver for FakeDriver {
    fn poll_events(&mut self, cx: &mut Context<'_>, events: &mut VecDeque<Event>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().expect("no panic");
        if state.is_broken {
            return Poll::Ready(Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error())));
        }
        if state.events.is_empty() {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        events.append(&mut state.events);
        Poll::Ready(Ok(()))
    }

    fn answer(&mut self, tag: u16, result: i32) {
        self.0.lock().expect("no panic").unsent.push((tag, result));
    }

    fn submit(&mut self) -> io::Result<bool> {
        let mut state = self.0.lock().expect("no panic");
        if !state.unsent.is_empty() && state.refusals > 0 {
            state.refusals -= 1;
            return Ok(false);
        }
        let sent = std::mem::take(&mut state.unsent);
        state.answers.extend(sent);
        Ok(true)
    }
}

/// A queue that is being served, as the kernel sees it.
struct Kernel {
    state: Arc<Mutex<State>>,
    device: Arc<MemoryDevice>,
    character: Arc<File>,
    data: Data,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<io::Result<()>>,
}

impl Kernel {
    fn new(device: MemoryDevice, options: Options) -> Kernel {
        let (state, device) = (Arc::<Mutex<State>>::default(), Arc::new(device));
        // Sparse: the data of a request is at its place in it.
        let character = Arc::new(tempfile::tempfile().expect("a file"));
        let (stop, stopped) = oneshot::channel();
        let driver = FakeDriver(state.clone());
        let (data, served_device) = (Data::new(character.clone(), 0), device.clone());
        let served = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve_from(driver, DEPTH, data, served_device, &options, stopped).await
        });
        let data = Data::new(character.clone(), 0);
        Kernel { state, device, character, data, stop: Some(stop), served }
    }

    fn with(device: MemoryDevice) -> Kernel {
        Kernel::new(device, Options::default())
    }

    /// Puts events that the queue has not seen.
    fn put(&self, events: impl IntoIterator<Item = Event>) {
        let mut state = self.state.lock().expect("no panic");
        state.events.extend(events);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    fn issue(&self, tag: u16, operation: u8, flags: u32, start_sector: u64, sectors: u32) {
        self.put([request(tag, operation, flags, start_sector, sectors)]);
    }

    /// Waits until something is the case.
    async fn until(&self, mut is_it: impl FnMut(&mut State) -> bool) {
        let happens = async {
            while !is_it(&mut self.state.lock().expect("no panic")) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), happens).await.expect("it happens");
    }

    /// Waits for so many answers, and takes them, in the order of their tags.
    async fn answers(&self, count: usize) -> Vec<(u16, i32)> {
        self.until(|state| state.answers.len() >= count).await;
        let mut answers = std::mem::take(&mut self.state.lock().expect("no panic").answers);
        answers.sort_unstable();
        answers
    }

    /// Waits for the answer to the only request.
    async fn done(&self, tag: u16, operation: u8, flags: u32, start_sector: u64, sectors: u32) -> i32 {
        self.issue(tag, operation, flags, start_sector, sectors);
        let answers = self.answers(1).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!(answers[0].0, tag);
        answers[0].1
    }

    /// Data of a request that reads.
    fn read(&self, tag: u16, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.data.read(tag, &mut data).expect("it was written");
        data
    }

    /// Waits until so many requests wait in the device.
    async fn held(&self, count: u64) {
        self.until(|_| self.device.delayed() >= count).await;
    }

    fn stop(&mut self) {
        let _ = self.stop.take().expect("once").send(());
    }

    /// Waits for the end of the queue.
    async fn ended(self) -> (io::Result<()>, Arc<MemoryDevice>) {
        let ended = tokio::time::timeout(Duration::from_secs(30), self.served).await;
        let result = ended.expect("it ends").expect("no panic");
        drop(self.data);
        assert_eq!(Arc::strong_count(&self.character), 1, "the device is released");
        (result, self.device)
    }
}

fn request(tag: u16, operation: u8, flags: u32, start_sector: u64, sectors: u32) -> Event {
    Event::Request(tag, Request { operation, flags, sectors, start_sector })
}

fn memory() -> MemoryDevice {
    MemoryDevice::new(CAPACITY_BYTES, 512)
}

fn code(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

async fn content(device: &MemoryDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    device.read(offset, &mut data).await.expect("in the device");
    data
}

#[tokio::test]
async fn what_is_written_is_read() {
    let kernel = Kernel::with(memory());
    let data: Vec<u8> = (0..8192).map(|at| at as u8).collect();
    kernel.data.write(3, &data).expect("room");
    assert_eq!(kernel.done(3, WRITE, 0, 8, 16).await, 8192);
    assert_eq!(kernel.done(5, READ, 0, 8, 16).await, 8192);
    assert_eq!(kernel.read(5, 8192), data);
    assert_eq!(kernel.done(5, ZEROES, 0, 8, 8).await, 0);
    assert_eq!(kernel.done(5, READ, 0, 8, 16).await, 8192);
    assert_eq!(kernel.read(5, 8192), [&[0; 4096], &data[4096..]].concat());
    assert_eq!(kernel.done(0, TRIM, 0, 8, 16).await, 0);
    assert_eq!(content(&kernel.device, 4096, 8192).await, [0; 8192]);
    assert_eq!(kernel.device.durable_writes(), 0);
    assert_eq!(kernel.done(0, FLUSH, 0, 0, 0).await, 0);
    assert_eq!(kernel.device.flushes(), 1);
}

#[tokio::test]
async fn changes_are_durable_with_fua_and_without_a_cache() {
    for write_through in [false, true] {
        let kernel = Kernel::new(memory(), Options { write_through, assign: None });
        kernel.data.write(0, &[7; 4096]).expect("room");
        for (flags, count) in [(0, 3), (FUA, 6)] {
            for operation in [WRITE, TRIM, ZEROES] {
                assert!(kernel.done(0, operation, flags, 0, 8).await >= 0);
            }
            let durable = if write_through { count } else { count - 3 };
            assert_eq!(kernel.device.durable_writes(), durable);
        }
    }
}

#[tokio::test]
async fn all_tags_are_in_flight_together() {
    let kernel = Kernel::with(memory());
    kernel.device.hold(true);
    kernel.put((0..DEPTH).map(|tag| request(tag, READ, 0, u64::from(tag) * 8, 8)));
    kernel.held(DEPTH.into()).await;
    assert!(kernel.state.lock().expect("no panic").answers.is_empty());
    kernel.device.release();
    let answers = kernel.answers(DEPTH.into()).await;
    assert_eq!(answers, (0..DEPTH).map(|tag| (tag, 4096)).collect::<Vec<_>>());
}

#[tokio::test]
async fn errors_of_the_device_are_reported() {
    for (error, expected) in [
        (DeviceError::NoSpace, Errno::NOSPC),
        (DeviceError::ReadOnly(ReadOnly::Requested), Errno::PERM),
        (DeviceError::Io("broken".to_owned()), Errno::IO),
    ] {
        let kernel = Kernel::with(memory());
        kernel.data.write(0, &[7; 4096]).expect("room");
        kernel.device.fail_with(Some(error));
        assert_eq!(kernel.done(0, WRITE, 0, 0, 8).await, code(expected));
        assert_eq!(kernel.done(0, READ, 0, 0, 8).await, code(expected));
    }
    let kernel = Kernel::with(memory().read_only());
    kernel.data.write(0, &[7; 4096]).expect("room");
    assert_eq!(kernel.done(0, WRITE, 0, 0, 8).await, code(Errno::PERM));
    assert_eq!(kernel.done(0, READ, 0, 0, 8).await, 4096);
    assert_eq!(kernel.done(0, READ, 0, CAPACITY_BYTES / 512, 8).await, code(Errno::INVAL));
    // Of zones.
    assert_eq!(kernel.done(0, 10, 0, 0, 8).await, code(Errno::OPNOTSUPP));
}

#[tokio::test]
async fn data_that_cannot_be_copied_fails_its_request() {
    let kernel = Kernel::with(memory());
    // The file ends before the data of the tag.
    assert_eq!(kernel.done(1, WRITE, 0, 0, 8).await, code(Errno::IO));
    assert_eq!(content(&kernel.device, 0, 4096).await, [0; 4096]);
}

#[tokio::test]
async fn a_change_that_waits_begins_while_the_device_is_served() {
    let kernel = Kernel::with(memory());
    kernel.data.write(0, &[7; 4096]).expect("room");
    kernel.device.wait(true);
    kernel.issue(0, WRITE, 0, 0, 8);
    kernel.held(1).await;
    kernel.device.begin();
    assert_eq!(kernel.answers(1).await, [(0, 4096)]);
}

#[tokio::test]
async fn a_stop_completes_what_is_under_way_and_leaves_the_rest() {
    let mut kernel = Kernel::with(memory());
    kernel.data.write(0, &[7; 4096]).expect("room");
    kernel.data.write(1, &[8; 4096]).expect("room");
    kernel.device.hold(true);
    kernel.issue(0, WRITE, 0, 0, 8);
    kernel.held(1).await;
    kernel.device.hold(false);
    kernel.device.wait(true);
    kernel.issue(1, WRITE, 0, 8, 8);
    kernel.held(2).await;
    kernel.stop();
    // The queue has taken the stop once it takes what comes and starts nothing.
    kernel.until(|state| state.events.is_empty()).await;
    kernel.issue(2, FLUSH, 0, 0, 0);
    kernel.until(|state| state.events.is_empty()).await;
    assert!(kernel.state.lock().expect("no panic").answers.is_empty());
    kernel.device.release();
    let state = kernel.state.clone();
    let (result, device) = kernel.ended().await;
    assert!(result.is_ok());
    assert_eq!(state.lock().expect("no panic").answers, [(0, 4096)]);
    assert_eq!(content(&device, 0, 8192).await, [[7; 4096], [0; 4096]].concat(), "the second has not begun");
    assert_eq!(device.flushes(), 0);
}

#[tokio::test]
async fn a_device_that_shuts_down_ends_the_queue() {
    let kernel = Kernel::with(memory());
    kernel.device.hold(true);
    kernel.issue(0, READ, 0, 0, 8);
    kernel.held(1).await;
    kernel.device.hold(false);
    kernel.device.fail_with(Some(DeviceError::Shutdown));
    kernel.issue(1, READ, 0, 0, 8);
    kernel.until(|state| state.events.is_empty()).await;
    kernel.device.fail_with(None);
    kernel.device.release();
    let state = kernel.state.clone();
    assert!(kernel.ended().await.0.is_ok());
    assert_eq!(state.lock().expect("no panic").answers, [(0, 4096)]);
}

#[tokio::test]
async fn a_device_that_is_stopped_ends_the_queue() {
    let kernel = Kernel::with(memory());
    kernel.device.hold(true);
    kernel.issue(0, READ, 0, 0, 8);
    kernel.held(1).await;
    kernel.put((1..DEPTH).map(Event::Ended));
    kernel.device.release();
    assert_eq!(kernel.answers(1).await, [(0, 4096)]);
    assert!(!kernel.served.is_finished(), "the answer fetches, and ends");
    kernel.put([Event::Ended(0)]);
    assert!(kernel.ended().await.0.is_ok());
}

#[tokio::test]
async fn a_queue_ends_with_a_command_that_is_refused() {
    let kernel = Kernel::with(memory());
    kernel.state.lock().expect("no panic").is_broken = true;
    kernel.issue(0, READ, 0, 0, 8);
    assert!(kernel.ended().await.0.is_err());
}

#[tokio::test]
async fn answers_are_sent_again_until_the_driver_has_them() {
    let mut kernel = Kernel::with(memory());
    kernel.state.lock().expect("no panic").refusals = 3;
    assert_eq!(kernel.done(0, READ, 0, 0, 8).await, 4096);
    // Also those before the end.
    kernel.device.hold(true);
    kernel.issue(0, READ, 0, 0, 8);
    kernel.held(1).await;
    kernel.state.lock().expect("no panic").refusals = 3;
    kernel.stop();
    kernel.device.release();
    let state = kernel.state.clone();
    assert!(kernel.ended().await.0.is_ok());
    assert_eq!(state.lock().expect("no panic").answers, [(0, 4096)]);
}

/// Counts places that are taken.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn large_requests_among_others_go_to_other_threads() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let (handle, taken) = (other.handle().clone(), Arc::new(AtomicUsize::new(0)));
    let assigned = Arc::new(AtomicUsize::new(0));
    let (count, places) = (assigned.clone(), taken.clone());
    let assign: Assign = Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
        places.fetch_add(1, Ordering::Relaxed);
        let held: Box<dyn Any + Send> = Box::new(Held(places.clone()));
        // Every second one stays here.
        let is_there = count.load(Ordering::Relaxed) % 2 == 1;
        Some(Assignment { runtime: is_there.then(|| handle.clone()), held })
    });
    let kernel = Kernel::new(memory(), Options { write_through: false, assign: Some(assign) });
    let places: Vec<u16> = (0..8).collect();
    for &tag in &places {
        kernel.data.write(tag, &vec![tag as u8 + 1; 128 << 10]).expect("room");
    }
    assert_eq!(kernel.done(0, WRITE, 0, 0, 256).await, 128 << 10);
    assert_eq!(assigned.load(Ordering::Relaxed), 0, "alone, it is done here");
    kernel.device.meet(1);
    kernel.put(places.iter().map(|&tag| request(tag, WRITE, 0, u64::from(tag) * 256, 256)));
    let answers = kernel.answers(places.len()).await;
    assert!(answers.iter().all(|(_, result)| *result == 128 << 10), "{answers:?}");
    let assigned = assigned.load(Ordering::Relaxed);
    assert!((places.len() - 1..=places.len()).contains(&assigned), "{assigned}");
    let here = std::thread::current().id();
    let there = kernel.device.writes().iter().filter(|(_, thread)| *thread != here).count();
    assert_eq!(there, assigned.div_ceil(2));
    for &tag in &places {
        let expected = vec![tag as u8 + 1; 128 << 10];
        assert_eq!(content(&kernel.device, u64::from(tag) << 17, 128 << 10).await, expected);
    }
    kernel.until(|_| taken.load(Ordering::Relaxed) == 0).await;
    other.shutdown_background();
}

#[tokio::test]
async fn a_thread_that_works_at_a_request_keeps_the_device_from_others() {
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let handle = other.handle().clone();
    let assign: Assign =
        Arc::new(move || Some(Assignment { runtime: Some(handle.clone()), held: Box::new(()) }));
    let kernel = Kernel::new(memory(), Options { write_through: false, assign: Some(assign) });
    kernel.data.write(0, &[7; 64 << 10]).expect("room");
    kernel.device.meet(2);
    kernel.put([request(1, FLUSH, 0, 0, 0), request(0, WRITE, 0, 0, 128), request(2, FLUSH, 0, 0, 0)]);
    kernel.until(|_| kernel.device.writes().len() == 1).await;
    kernel.served.abort();
    kernel.until(|_| kernel.served.is_finished()).await;
    assert!(Arc::strong_count(&kernel.character) > 2, "it is still written");
    // The other write that it waits for.
    kernel.device.write(1 << 20, &[0; 512], false, &Requester::default()).await.expect("room");
    kernel.until(|_| Arc::strong_count(&kernel.character) == 2).await;
    other.shutdown_background();
}

#[tokio::test]
async fn other_tasks_run_while_many_requests_arrive() {
    let kernel = Kernel::with(memory());
    let (others, at_first) = (Cell::new(0), Cell::new(None));
    kernel.put((0..64).map(|tag| request(tag, READ, 0, 0, MIB_SECTORS / 2)));
    let counts = async {
        loop {
            tokio::task::yield_now().await;
            others.set(others.get() + 1);
            let count = kernel.state.lock().expect("no panic").answers.len();
            if count > 0 && at_first.get().is_none() {
                at_first.set(Some(count));
            }
            if count == 64 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), counts).await.expect("it ends");
    assert!(at_first.get().is_some_and(|count| count < 64), "{at_first:?}");
    assert!(others.get() >= 32, "{others:?}");
}
