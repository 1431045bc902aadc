//! NBD exports, read by a client that sends no writing request.

use std::io;

use layout::BLOCK_BYTES;
use nbd::client::{ClientTls, ClientTlsFiles, Connection, ExportUri};

use super::file::Stamp;
use super::population::{Item, Location, Population, check_size};
use super::{ReadAt, SourceError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// An export to read.
#[derive(Clone, Debug)]
pub struct Export {
    /// The URI as the user gave it.
    pub uri: String,
    parsed: ExportUri,
    tls: Option<ClientTls>,
}

impl Export {
    fn parse(uri: &str, tls: &ClientTlsFiles) -> Result<Export, SourceError> {
        let parsed = ExportUri::parse(uri).map_err(|error| SourceError::new(uri, error))?;
        let tls = parsed.has_tls().then(|| ClientTls::from_pem_files(tls)).transpose();
        let tls = tls.map_err(|error| SourceError::new(uri, error))?;
        Ok(Export { uri: uri.to_string(), parsed, tls })
    }

    pub(crate) fn connect(&self) -> io::Result<Connection> {
        Connection::open(&self.parsed, self.tls.as_ref())
    }
}

impl super::Export for Export {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn open(&self) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(self.connect()?))
    }
}

impl Population {
    /// Adds an NBD export. Holes are skipped if the server reports allocation. `tls` is for URIs that ask for
    /// TLS.
    ///
    /// # Errors
    /// Fails if the URI is invalid, files of `tls` cannot be used, the server does not respond, is not the
    /// one that its certificate must be for, or has no such export.
    pub fn add_nbd(&mut self, uri: &str, tls: &ClientTlsFiles) -> Result<(), SourceError> {
        let export = Export::parse(uri, tls)?;
        let mut connection = export.connect().map_err(|error| SourceError::new(uri, error))?;
        check_size(self.bytes, connection.size_bytes()).map_err(|why| SourceError::new(uri, why))?;
        let ranges = connection.data_ranges().map_err(|error| SourceError::new(uri, error))?;
        let mut data: Vec<(u64, u64)> = Vec::new();
        for range in ranges {
            let (first, end) = (range.start / BLOCK, range.end.div_ceil(BLOCK));
            match data.last_mut() {
                Some((start, blocks)) if *start + *blocks >= first => *blocks = end - *start,
                _ => data.push((first, end - first)),
            }
        }
        let group = self.group(uri.to_string());
        let location = Location::Nbd(self.exports.len() as u32);
        self.exports.push(Box::new(export));
        let bytes = connection.size_bytes();
        self.push(Item { location, bytes, group, alone: true, stamp: Stamp::default() }, &data);
        Ok(())
    }
}

impl ReadAt for Connection {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Connection::read_at(self, offset, buf)
    }
}
