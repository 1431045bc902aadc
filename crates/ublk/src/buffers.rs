//! Buffers for the data of requests. They are reused, so that their memory is there: memory that the kernel
//! has to find first can depend on writes to the same device.

/// Smallest buffer, in bytes.
const SMALLEST_BYTES: usize = 4096;
/// Buffers of a queue that are kept for reuse: 16 of the largest requests of a device.
const KEPT_BYTES_MAX: usize = 8 << 20;

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

/// Buffers of a queue. Those in use are bounded by its depth and by the largest request of its device.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Kept buffers, by the logarithm of their size.
    classes: Vec<Vec<Box<[u8]>>>,
    kept_bytes: usize,
}

fn size_of(len: usize) -> usize {
    if len == 0 { 0 } else { len.next_power_of_two().max(SMALLEST_BYTES) }
}

fn class_of(size: usize) -> usize {
    (size / SMALLEST_BYTES).trailing_zeros() as usize
}

impl Buffers {
    /// Returns a buffer of `len` bytes with unspecified content: zeros, or old data of this queue.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let size = size_of(len);
        if size == 0 {
            return Buffer::default();
        }
        match self.classes.get_mut(class_of(size)).and_then(Vec::pop) {
            Some(bytes) => {
                debug_assert_eq!(bytes.len(), size, "buffers are kept by size");
                self.kept_bytes -= size;
                Buffer { bytes, len }
            }
            None => Buffer { bytes: vec![0; size].into_boxed_slice(), len },
        }
    }

    /// Takes a buffer back.
    pub(crate) fn give(&mut self, buffer: Buffer) {
        let size = buffer.bytes.len();
        if size == 0 || self.kept_bytes + size > KEPT_BYTES_MAX {
            return;
        }
        let class = class_of(size);
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        self.classes[class].push(buffer.bytes);
        self.kept_bytes += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_reused_for_requests_of_their_size() {
        let mut buffers = Buffers::default();
        let mut first = buffers.take(5000);
        first.as_mut_slice().fill(7);
        buffers.give(first);
        assert_eq!(buffers.kept_bytes, 8192);
        assert!(buffers.take(4096).as_slice().iter().all(|byte| *byte == 0), "a new one");
        let again = buffers.take(8192);
        assert_eq!((again.as_slice().len(), again.as_slice()[0], buffers.kept_bytes), (8192, 7, 0));
        buffers.give(buffers_none());
        assert_eq!(buffers.kept_bytes, 0);
    }

    fn buffers_none() -> Buffer {
        Buffers::default().take(0)
    }

    #[test]
    fn what_is_kept_has_a_limit() {
        let mut buffers = Buffers::default();
        let taken: Vec<Buffer> = (0..128).map(|_| buffers.take(512 << 10)).collect();
        taken.into_iter().for_each(|buffer| buffers.give(buffer));
        assert_eq!(buffers.kept_bytes, KEPT_BYTES_MAX);
    }
}
