//! The replies of a connection that wait for the socket, gathered into vectored writes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::connection::buffers::Buffer;

/// Most slices in one vectored write.
const SLICES_MAX: usize = 64;

/// Header bytes, followed by data.
struct Segment {
    header_len: usize,
    data: Buffer,
    data_sent: usize,
}

/// Replies not sent yet, in order.
#[derive(Default)]
pub(crate) struct Output {
    /// Header bytes of all segments, one after the other. Those before `headers_sent` are sent.
    headers: Vec<u8>,
    headers_sent: usize,
    segments: VecDeque<Segment>,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes waiting to be sent, without read data.
    pub(crate) fn header_bytes(&self) -> usize {
        self.headers.len() - self.headers_sent
    }

    /// Adds the bytes that `write` appends, then `data`.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>), data: Option<Buffer>) {
        let before = self.headers.len();
        write(&mut self.headers);
        let header_len = self.headers.len() - before;
        match self.segments.back_mut() {
            Some(last) if last.data.as_slice().is_empty() => last.header_len += header_len,
            _ => self.segments.push_back(Segment { header_len, data: Buffer::default(), data_sent: 0 }),
        }
        if let (Some(data), Some(last)) = (data, self.segments.back_mut()) {
            last.data = data;
        }
    }

    /// Writes as much as the socket accepts, and passes buffers that are sent completely to `sent`. Ready
    /// with the number of bytes written.
    pub(crate) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        sent: impl FnMut(Buffer),
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut headers = &self.headers[self.headers_sent..];
        for segment in &self.segments {
            if count + 2 > SLICES_MAX {
                break;
            }
            let (header, rest) = headers.split_at(segment.header_len);
            headers = rest;
            for part in [header, &segment.data.as_slice()[segment.data_sent..]] {
                if !part.is_empty() {
                    slices[count] = IoSlice::new(part);
                    count += 1;
                }
            }
        }
        debug_assert!(count > 0, "a waiting reply has unsent bytes");
        match Pin::new(stream).poll_write_vectored(cx, &slices[..count]) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(written)) => {
                self.advance(written, sent);
                Poll::Ready(Ok(written))
            }
            other => other,
        }
    }

    fn advance(&mut self, mut written: usize, mut sent: impl FnMut(Buffer)) {
        while let Some(segment) = self.segments.front_mut() {
            let header = written.min(segment.header_len);
            segment.header_len -= header;
            self.headers_sent += header;
            written -= header;
            let data = written.min(segment.data.as_slice().len() - segment.data_sent);
            segment.data_sent += data;
            written -= data;
            if segment.header_len > 0 || segment.data_sent < segment.data.as_slice().len() {
                break;
            }
            if let Some(done) = self.segments.pop_front() {
                sent(done.data);
            }
        }
        debug_assert_eq!(written, 0, "no more is sent than was offered to the socket");
        debug_assert_eq!(
            self.header_bytes(),
            self.segments.iter().map(|segment| segment.header_len).sum::<usize>(),
            "every unsent header byte is of a waiting reply"
        );
        // Bounds the headers even if a client always leaves something unsent.
        if self.segments.is_empty() || self.headers_sent > 64 << 10 {
            self.headers.drain(..self.headers_sent);
            self.headers_sent = 0;
        }
    }

    /// Discards everything.
    pub(crate) fn clear(&mut self, mut sent: impl FnMut(Buffer)) {
        self.segments.drain(..).for_each(|segment| sent(segment.data));
        *self = Self::default();
    }
}
