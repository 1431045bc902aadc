//! Receive buffer of a connection. One system call receives as many small requests as the socket holds.

/// Initial and idle size, in bytes.
const SMALL_BYTES: usize = 16 << 10;
/// Largest size, in bytes.
const LARGE_BYTES: usize = 256 << 10;

/// Received bytes that are not parsed yet.
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; SMALL_BYTES], start: 0, end: 0 }
    }

    /// Bytes received and not consumed.
    pub(crate) fn available(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `len` available bytes.
    pub(crate) fn consume(&mut self, len: usize) {
        self.start += len;
        debug_assert!(self.start <= self.end);
    }

    /// Grows the buffer so that `len` bytes can be available at once.
    pub(crate) fn reserve(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len.next_power_of_two(), 0);
        }
    }

    /// Returns the room to receive into, at most `limit` bytes. It is not empty, because callers ask for more
    /// only while fewer bytes are available than the buffer holds.
    pub(crate) fn room(&mut self, limit: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.start > 0 && self.bytes.len() - self.end < self.bytes.len() / 2 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let end = self.bytes.len().min(self.end.saturating_add(limit));
        debug_assert!(end > self.end, "there is room to receive into");
        &mut self.bytes[self.end..end]
    }

    /// Counts `len` bytes of [`Input::room`] as received. A buffer that is completely filled grows.
    pub(crate) fn received(&mut self, len: usize) {
        self.end += len;
        debug_assert!(self.end <= self.bytes.len());
        if self.end == self.bytes.len() && self.end < LARGE_BYTES {
            self.bytes.resize((self.end * 4).min(LARGE_BYTES), 0);
        }
    }

    /// Frees most of the memory if no bytes are available.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end && self.bytes.len() > SMALL_BYTES {
            *self = Self::new();
        }
    }
}
