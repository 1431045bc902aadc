//! A backing of any size whose contents are an image that many share, and pages that were written over it.
#![allow(dead_code, unreachable_pub)]

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use media::{IoBuf, Media};
use parking_lot::Mutex;

const PAGE: usize = 4096;

/// See the module's description. Behind the end of the image there are zeros.
pub struct Sparse {
    size_bytes: u64,
    image: Arc<Vec<u8>>,
    written: Mutex<HashMap<u64, Box<[u8; PAGE]>>>,
}

impl Sparse {
    pub fn new(size_bytes: u64, image: Arc<Vec<u8>>) -> Sparse {
        Sparse { size_bytes, image, written: Mutex::default() }
    }

    /// Bytes of pages that were written.
    pub fn written_bytes(&self) -> u64 {
        (self.written.lock().len() * PAGE) as u64
    }

    pub fn page(&self, number: u64) -> [u8; PAGE] {
        if let Some(page) = self.written.lock().get(&number) {
            return **page;
        }
        let mut page = [0; PAGE];
        let at = usize::try_from(number).unwrap_or(usize::MAX).saturating_mul(PAGE);
        let there = self.image.get(at..).unwrap_or_default();
        let len = there.len().min(PAGE);
        page[..len].copy_from_slice(&there[..len]);
        page
    }

    pub fn set_page(&self, number: u64, page: [u8; PAGE]) {
        self.written.lock().insert(number, Box::new(page));
    }

    fn pages(&self, offset: u64, len: usize) -> io::Result<std::ops::Range<u64>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.size_bytes);
        let end = end.ok_or_else(|| io::Error::other("beyond the end"))?;
        assert!(offset.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE), "whole pages");
        Ok(offset / PAGE as u64..end / PAGE as u64)
    }
}

impl Media for Sparse {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn read(&self, offset: u64, mut buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let pages = self.pages(offset, buf.len());
        let result = pages.map(|pages| {
            pages
                .zip(buf.chunks_exact_mut(PAGE))
                .for_each(|(number, out)| out.copy_from_slice(&self.page(number)));
        });
        (buf, result)
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        for (number, bytes) in self.pages(offset, buf.len())?.zip(buf.chunks_exact(PAGE)) {
            self.set_page(number, bytes.try_into().map_err(io::Error::other)?);
        }
        Ok(())
    }

    async fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    async fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
