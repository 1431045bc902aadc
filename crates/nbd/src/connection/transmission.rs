//! The transmission phase: receives requests and sends replies, many at a time, in one task.
//!
//! One pass of the loop polls the requests whose wakers fired, takes every complete request out of the
//! receive buffer, writes all replies with one system call, and receives once. A new request is polled at
//! once. If the device completes it at once, it costs neither a task nor an allocation.
//!
//! Large requests are shared with other threads ([`Helpers`]) if more requests follow.
//!
//! Nothing is received while the connection is at one of its limits (requests in flight, bytes held, replies
//! not taken). The socket fills up, and the client waits.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use device::{Device, DeviceError, Geometry};
use slots::Slots;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::buffers::{Buffer, Memory, footprint_bytes};
use crate::connection::execute::{self, Finished, Request};
use crate::connection::input::Input;
use crate::connection::output::Output;
use crate::error::ConnectionError;
use crate::limits::budget::Lease;
use crate::limits::helpers::{Assignment, HELPED_BYTES_MIN, Helpers};
use crate::wire::extended::{EXTENDED_HEADER_BYTES, ExtendedRequestHeader};
use crate::wire::operation::{self, Operation, Refusal, Session};
use crate::wire::protocol::{CMD_FLAG_PAYLOAD_LEN, CMD_HEARD, CMD_READY, CMD_WRITE, MAX_PAYLOAD_BYTES};
use crate::wire::reply::{self, ReplyStyle, ReplyTo};
use crate::wire::request::{BadMagic, REQUEST_HEADER_BYTES, RequestHeader};

/// Largest WRITE that is taken whole from the receive buffer, so that one system call receives many. The data
/// of a larger one is received into its own buffer, so that it is not copied twice.
const SMALL_WRITE_BYTES: usize = 32 << 10;
/// Most bytes received at once while a large WRITE is likely to come, so that little of its data is copied
/// twice.
const RECEIVE_BEFORE_LARGE_BYTES: usize = 4 << 10;
/// Most data of a refused request that is read and discarded to keep the connection.
const DRAIN_BYTES_MAX: u64 = 2 * MAX_PAYLOAD_BYTES as u64;
/// Size of waiting replies (without read data) at which no more requests are taken.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Memory charged for the reply to a BLOCK_STATUS with many extents.
const EXTENTS_BYTES: usize = operation::MAX_EXTENTS * size_of::<device::Extent>();
/// Most such requests in flight. Their replies, of up to 32 KiB each, wait for the client without being
/// charged.
const LISTINGS_MAX: usize = 8;

/// Meaning of the next received bytes.
enum Receiving {
    /// A request header.
    Header,
    /// Nothing yet, or the data of a small WRITE: the request waits for that data, for memory or for a slot.
    Admission(Request),
    /// Data of a large WRITE, received into its buffer.
    Data { request: Request, buffer: Buffer, filled: usize },
    /// Data of a refused request.
    Drain { to: ReplyTo, refusal: Refusal, left: u64 },
}

impl Receiving {
    /// Bytes of memory held for a request that has not started.
    fn held_bytes(&self) -> usize {
        match self {
            Receiving::Data { buffer, .. } => footprint_bytes(buffer.as_slice().len()),
            Receiving::Header | Receiving::Admission(_) | Receiving::Drain { .. } => 0,
        }
    }
}

/// A connection in the transmission phase.
pub(crate) struct Transmission<'a, S, D, E, F> {
    stream: &'a mut S,
    device: &'a D,
    execute: E,
    helpers: Option<&'a Arc<Helpers>>,
    session: Session,
    geometry: Geometry,
    input: Input,
    receiving: Receiving,
    /// True if the last WRITE was large.
    expect_large: bool,
    slots: Slots<F>,
    /// Number of requests in flight whose replies may have many extents.
    listings: usize,
    output: Output,
    needs_flush: bool,
    memory: Memory<'a>,
    /// No more requests are taken because of a disconnect request, end of stream, shutdown or failure.
    closing: bool,
    /// The last requests wait for a place or for memory: nothing is received.
    is_at_limit: bool,
    /// The socket is unusable.
    broken: bool,
    failure: Option<ConnectionError>,
    /// Bytes sent and received, to detect whether the connection makes progress.
    moved_bytes: u64,
    received_bytes: u64,
}

/// Returns true if the reply may have many extents.
fn is_listing(operation: &Operation) -> bool {
    matches!(operation, Operation::BlockStatus { max_extents, .. } if *max_extents > 1)
}

/// Memory to charge for a request while it is in flight, beside its buffer.
fn charge_bytes(operation: &Operation) -> usize {
    if is_listing(operation) { EXTENTS_BYTES } else { 0 }
}

impl<'a, S, D, E, F> Transmission<'a, S, D, E, F>
where
    S: AsyncRead + AsyncWrite + Unpin,
    D: Device,
    E: Fn(Option<Assignment>, Request, Buffer) -> F,
    F: Future<Output = Finished>,
{
    pub(crate) fn new(
        stream: &'a mut S,
        device: &'a D,
        execute: E,
        helpers: Option<&'a Arc<Helpers>>,
        session: Session,
        requests_max: usize,
        lease: Lease<'a>,
    ) -> Self {
        Self {
            stream,
            device,
            execute,
            helpers,
            session,
            geometry: device.geometry(),
            input: Input::new(),
            receiving: Receiving::Header,
            expect_large: false,
            slots: Slots::new(requests_max),
            listings: 0,
            output: Output::default(),
            needs_flush: false,
            memory: Memory::new(lease),
            closing: false,
            is_at_limit: false,
            broken: false,
            failure: None,
            moved_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Takes no more requests. Those in flight are completed.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn stream(&self) -> &S {
        self.stream
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Returns true if requests wait for a place or for memory. The end of the stream is not seen meanwhile.
    pub(crate) fn is_at_limit(&self) -> bool {
        self.is_at_limit
    }

    /// Returns true if the socket is unusable.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Returns true if nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.output.is_empty() && matches!(self.receiving, Receiving::Header)
    }

    /// Bytes of request data held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.memory.used_bytes()
    }

    /// Returns true if the connection holds memory that it can release only after the client sends or
    /// receives data.
    pub(crate) fn waits_for_client(&self) -> bool {
        let for_data = matches!(self.receiving, Receiving::Data { .. });
        self.memory.used_bytes() > 0 && (for_data || !self.output.is_empty())
    }

    /// Frees memory kept for speed that was not needed since the last call.
    pub(crate) fn trim_memory(&mut self) {
        self.memory.trim();
    }

    /// Frees memory kept for speed.
    pub(crate) fn release_memory(&mut self) {
        self.memory.clear();
        self.input.shrink();
    }

    /// Ends the connection with an error. Requests in flight are completed.
    pub(crate) fn fail(&mut self, error: ConnectionError) {
        self.closing = true;
        self.failure.get_or_insert(error);
    }

    fn break_off(&mut self, error: io::Error) {
        self.broken = true;
        self.needs_flush = false;
        self.output.clear(|buffer| self.memory.give(buffer));
        self.fail(error.into());
    }

    /// Does all work that can be done now. Ready when the connection is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.slots.register(cx.waker());
        self.geometry = self.device.geometry();
        loop {
            let mut progress = self.poll_finished();
            let hungry = !self.closing && self.take_requests(cx);
            self.is_at_limit = !self.closing && !hungry;
            progress |= self.poll_send(cx);
            if hungry && !self.closing {
                progress |= self.poll_receive(cx);
            }
            let is_all_sent = self.output.is_empty() && !self.needs_flush;
            if self.closing && self.slots.is_empty() && is_all_sent {
                debug_assert_eq!(self.listings, 0, "no request is in flight");
                debug_assert_eq!(
                    self.memory.used_bytes(),
                    self.receiving.held_bytes(),
                    "all other buffers and charges were given back"
                );
                return Poll::Ready(self.failure.take().map_or(Ok(()), Err));
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn poll_finished(&mut self) -> bool {
        let Self { slots, listings, output, memory, session, broken, closing, .. } = self;
        let mut progress = false;
        slots.poll_woken(|finished| {
            progress = true;
            *listings -= usize::from(is_listing(&finished.request.operation));
            let is_left = is_left_to_next(*session, &finished);
            *closing |= is_left;
            push_reply(output, memory, *session, *broken || is_left, finished);
        });
        progress
    }

    /// Takes a place for a large request at some worker, if more requests are in flight or follow.
    fn assign(&mut self, cx: &mut Context<'_>, bytes: usize) -> Option<Assignment> {
        let helpers = self.helpers.filter(|_| bytes >= HELPED_BYTES_MIN)?;
        if self.slots.is_empty() && self.input.available().is_empty() {
            // The data of a large WRITE was received by itself. The next bytes may have arrived already.
            debug_assert!(matches!(self.receiving, Receiving::Header), "the request is complete");
            if self.closing || !self.poll_receive(cx) || self.input.available().is_empty() {
                return None;
            }
        }
        helpers.assign()
    }

    fn start(&mut self, cx: &mut Context<'_>, request: Request, buffer: Buffer) {
        debug_assert_eq!(buffer.as_slice().len(), request.operation.buffer_bytes(), "memory as admitted");
        let listing = usize::from(is_listing(&request.operation));
        self.listings += listing;
        debug_assert!(self.listings <= LISTINGS_MAX, "only admitted below the limit");
        let assignment = self.assign(cx, buffer.as_slice().len());
        let future = (self.execute)(assignment, request, buffer);
        if let Poll::Ready(finished) = self.slots.start(future) {
            self.listings -= listing;
            let is_left = is_left_to_next(self.session, &finished);
            self.closing |= is_left;
            let Self { output, memory, session, broken, .. } = self;
            push_reply(output, memory, *session, *broken || is_left, finished);
        }
    }

    /// Takes requests out of the receive buffer. Returns true if more bytes are needed, false at a limit
    /// (until a request finishes, a reply is sent, or other connections release memory).
    fn take_requests(&mut self, cx: &mut Context<'_>) -> bool {
        while !self.closing {
            if self.output.header_bytes() >= REPLY_BYTES_MAX {
                return false;
            }
            match std::mem::replace(&mut self.receiving, Receiving::Header) {
                Receiving::Header => {
                    let extended = self.session.replies == ReplyStyle::Extended;
                    match decode_header(self.input.available(), extended) {
                        None => return true,
                        Some(Ok((header, payload_bytes))) => {
                            self.input.consume(header_bytes(extended));
                            self.take_header(&header, payload_bytes);
                        }
                        Some(Err(error)) => self.fail(error.into()),
                    }
                }
                Receiving::Admission(request) => {
                    let data_len = match request.operation {
                        Operation::Write { length, .. } => length as usize,
                        _ => 0,
                    };
                    if data_len <= SMALL_WRITE_BYTES && self.input.available().len() < data_len {
                        self.input.reserve(data_len);
                        self.receiving = Receiving::Admission(request);
                        return true;
                    }
                    let Some(buffer) = self.admit(cx, &request.operation) else {
                        self.receiving = Receiving::Admission(request);
                        return false;
                    };
                    if data_len > 0 {
                        self.expect_large = data_len > SMALL_WRITE_BYTES;
                        self.receiving = Receiving::Data { request, buffer, filled: 0 };
                    } else {
                        self.start(cx, request, buffer);
                    }
                }
                Receiving::Data { request, mut buffer, mut filled } => {
                    let rest = &mut buffer.as_mut_slice()[filled..];
                    let copied = rest.len().min(self.input.available().len());
                    rest[..copied].copy_from_slice(&self.input.available()[..copied]);
                    self.input.consume(copied);
                    filled += copied;
                    if filled < buffer.as_slice().len() {
                        self.receiving = Receiving::Data { request, buffer, filled };
                        return true;
                    }
                    self.start(cx, request, buffer);
                }
                Receiving::Drain { to, refusal, mut left } => {
                    let available = self.input.available().len();
                    let dropped = usize::try_from(left).map_or(available, |left| left.min(available));
                    self.input.consume(dropped);
                    left -= dropped as u64;
                    if left > 0 {
                        self.receiving = Receiving::Drain { to, refusal, left };
                        return true;
                    }
                    let Refusal { errno, message } = refusal;
                    self.output.push(|out| reply::push_error(out, to, errno, message), None);
                }
            }
        }
        false
    }

    /// Takes the memory for a request. Returns its buffer, or `None` if the request must wait.
    fn admit(&mut self, cx: &mut Context<'_>, operation: &Operation) -> Option<Buffer> {
        if self.slots.is_full() || is_listing(operation) && self.listings >= LISTINGS_MAX {
            return None;
        }
        let taken = match charge_bytes(operation) {
            0 => self.memory.poll_buffer(cx, operation.buffer_bytes()),
            bytes => self.memory.poll_charge(cx, bytes).map(|()| Buffer::default()),
        };
        match taken {
            Poll::Ready(buffer) => Some(buffer),
            Poll::Pending => None,
        }
    }

    fn take_header(&mut self, header: &ExtendedRequestHeader, payload_bytes: u64) {
        let ExtendedRequestHeader { cookie, offset, .. } = *header;
        let is_extended = self.session.replies == ReplyStyle::Extended;
        if is_extended && header.command == CMD_WRITE && header.flags & CMD_FLAG_PAYLOAD_LEN == 0 {
            // Data must not be taken for requests.
            return self.fail(ConnectionError::NoPayload);
        }
        if self.session.is_bridge && matches!(header.command, CMD_READY | CMD_HEARD) {
            // Of a bridge of version 0.3, which expects no reply.
            return;
        }
        match operation::check(header, &self.geometry, self.session) {
            Ok(Operation::Disc) => self.closing = true,
            Ok(operation) => self.receiving = Receiving::Admission(Request { cookie, offset, operation }),
            Err(_) if payload_bytes > DRAIN_BYTES_MAX => {
                self.fail(ConnectionError::PayloadTooLarge(payload_bytes));
            }
            Err(refusal) => {
                tracing::debug!(cookie, ?header, message = refusal.message, "request refused");
                let to = ReplyTo { style: self.session.replies, cookie, offset };
                self.receiving = Receiving::Drain { to, refusal, left: payload_bytes };
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while !self.output.is_empty() {
            let memory = &mut self.memory;
            match self.output.poll_write(self.stream, cx, |buffer| memory.give(buffer)) {
                Poll::Ready(Ok(written)) => {
                    self.moved_bytes += written as u64;
                    self.needs_flush = true;
                    progress = true;
                }
                Poll::Ready(Err(error)) => {
                    self.break_off(error);
                    return true;
                }
                Poll::Pending => return progress,
            }
        }
        // Plain sockets have nothing to flush, but TLS does.
        if self.needs_flush {
            match Pin::new(&mut *self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => self.needs_flush = false,
                Poll::Ready(Err(error)) => self.break_off(error),
                Poll::Pending => {}
            }
        }
        progress
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> bool {
        let into_data = matches!(self.receiving, Receiving::Data { .. });
        let room = match &mut self.receiving {
            Receiving::Data { buffer, filled, .. } => &mut buffer.as_mut_slice()[*filled..],
            _ if self.expect_large => self.input.room(RECEIVE_BEFORE_LARGE_BYTES),
            _ => self.input.room(usize::MAX),
        };
        // An empty read would count as the end of the stream.
        debug_assert!(!room.is_empty(), "more bytes are needed than were received");
        let mut buf = ReadBuf::new(room);
        match Pin::new(&mut *self.stream).poll_read(cx, &mut buf) {
            Poll::Pending => return false,
            Poll::Ready(Err(error)) => self.break_off(error),
            Poll::Ready(Ok(())) => match buf.filled().len() {
                0 if matches!(self.receiving, Receiving::Header) && self.input.available().is_empty() => {
                    self.closing = true;
                }
                0 => self.fail(ConnectionError::UnexpectedEnd),
                received => {
                    self.moved_bytes += received as u64;
                    self.received_bytes += received as u64;
                    match &mut self.receiving {
                        Receiving::Data { filled, .. } if into_data => *filled += received,
                        _ => self.input.received(received),
                    }
                }
            },
        }
        true
    }
}

fn header_bytes(extended: bool) -> usize {
    if extended { EXTENDED_HEADER_BYTES } else { REQUEST_HEADER_BYTES }
}

/// Decodes the request header at the beginning of received bytes. Returns it with the length of the payload
/// that follows, or `None` if it is not complete.
fn decode_header(received: &[u8], extended: bool) -> Option<Result<(ExtendedRequestHeader, u64), BadMagic>> {
    Some(if extended {
        ExtendedRequestHeader::decode(received.first_chunk()?).map(|header| (header, header.payload_bytes()))
    } else {
        let header = RequestHeader::decode(received.first_chunk()?);
        header.map(|header| (header.into(), header.payload_bytes().into()))
    })
}

/// Returns whether a request has changed nothing, and gets no reply: the client sends it to the next server.
fn is_left_to_next(session: Session, finished: &Finished) -> bool {
    session.is_bridge && finished.result == Err(DeviceError::Shutdown)
}

/// Queues the reply to a finished request, unless it gets none.
fn push_reply(
    output: &mut Output,
    memory: &mut Memory<'_>,
    session: Session,
    gets_none: bool,
    finished: Finished,
) {
    let Finished { request: Request { cookie, offset, operation }, buffer, result } = finished;
    let to = ReplyTo { style: session.replies, cookie, offset };
    let reads = matches!(operation, Operation::Read { .. });
    let buffer = if reads && result.is_ok() && !gets_none {
        Some(buffer)
    } else {
        memory.give(buffer);
        memory.release(charge_bytes(&operation));
        None
    };
    if gets_none {
        return;
    }
    match (&result, operation) {
        (Err(error), _) => {
            let message = error.to_string();
            output.push(|out| reply::push_error(out, to, execute::errno(error), &message), None);
        }
        (Ok(_), Operation::Read { length, .. }) => {
            debug_assert_eq!(
                buffer.as_ref().map(|buffer| buffer.as_slice().len()),
                Some(length as usize),
                "a reply to a read has the requested length"
            );
            output.push(|out| reply::push_read_header(out, to, length), buffer);
        }
        (Ok(extents), Operation::BlockStatus { length, max_extents, .. }) => {
            debug_assert!((1..=max_extents).contains(&extents.len()), "between one extent and the limit");
            output.push(|out| reply::push_block_status(out, to, length, extents), None);
        }
        (Ok(_), _) => output.push(|out| reply::push_done(out, to), None),
    }
}
