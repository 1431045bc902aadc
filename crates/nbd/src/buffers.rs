//! Buffers for request data. They are reused within a connection and never passed to another one, so a client
//! reads only what the device filled in, or at worst bytes of the same client.

/// Smallest buffer, in bytes.
const SMALLEST_BYTES: usize = 4096;

/// Bytes of buffers kept for reuse by a connection.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The data of one request: `len` bytes of a buffer that may be larger.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

impl Buffer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// The unused buffers of a connection, by size.
#[derive(Default)]
pub(crate) struct BufferPool {
    classes: Vec<Vec<Box<[u8]>>>,
    kept_bytes: usize,
}

/// Bytes of memory that a buffer for `len` bytes takes: the next power of two.
pub(crate) fn footprint_bytes(len: usize) -> usize {
    if len == 0 { 0 } else { len.next_power_of_two().max(SMALLEST_BYTES) }
}

fn class_of(footprint: usize) -> usize {
    (footprint / SMALLEST_BYTES).trailing_zeros() as usize
}

impl BufferPool {
    /// Returns a buffer of `len` bytes with unspecified content: zeros, or old data of this connection.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let footprint = footprint_bytes(len);
        if footprint == 0 {
            return Buffer::default();
        }
        let bytes = match self.classes.get_mut(class_of(footprint)).and_then(Vec::pop) {
            Some(bytes) => {
                self.kept_bytes -= footprint;
                bytes
            }
            None => vec![0; footprint].into_boxed_slice(),
        };
        Buffer { bytes, len }
    }

    /// Takes a buffer back. Returns the bytes of memory that it occupied.
    pub(crate) fn give(&mut self, buffer: Buffer) -> usize {
        let footprint = buffer.bytes.len();
        if footprint > 0 && self.kept_bytes + footprint <= KEPT_BYTES_MAX {
            let class = class_of(footprint);
            if self.classes.len() <= class {
                self.classes.resize_with(class + 1, Vec::new);
            }
            self.classes[class].push(buffer.bytes);
            self.kept_bytes += footprint;
        }
        footprint
    }

    /// Frees all kept buffers.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
