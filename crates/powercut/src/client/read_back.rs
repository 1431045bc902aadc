//! Reading back of everything that was ever written.

use std::io::{self, ErrorKind};
use std::path::Path;

use nbd::protocol as wire;
use nbd::request::RequestHeader;
use sim::content::SECTOR_BYTES;

use super::connection::Connection;
use super::device::{Buffer, Device};
use super::verifier::Verifier;
use crate::error::{Error, Result};

/// Bytes read at a time.
pub const VERIFY_BYTES_MAX: u64 = 256 << 10;
/// Reads in flight.
const DEPTH: usize = 8;

/// Reads each sector that was ever written, from a server, and passes its content to the oracle.
///
/// # Errors
/// If a read fails, or returns content that the oracle does not allow.
pub fn read_back(socket: &Path, sector_bytes: u32, verifier: &Verifier) -> Result<()> {
    let failed = read_back_damaged(socket, sector_bytes, verifier)?;
    match failed.first() {
        None => Ok(()),
        Some((first, count, error)) => {
            let why = format!("sectors {first}..{} cannot be read: error {error}", first + count);
            Err(Error::Violation(why))
        }
    }
}

/// As [`read_back`], where reads may fail. Returns those that did, with their errors.
///
/// # Errors
/// If a read returns content that the oracle does not allow.
pub fn read_back_damaged(
    socket: &Path,
    sector_bytes: u32,
    verifier: &Verifier,
) -> Result<Vec<(u64, u64, u32)>> {
    let align = u64::from(sector_bytes) / SECTOR_BYTES as u64;
    let ranges = verifier.oracle.lock().touched(align, VERIFY_BYTES_MAX / SECTOR_BYTES as u64);
    let mut connection = Connection::open(socket).map_err(Error::system("cannot connect"))?;
    let (mut sent, mut data, mut failed) = (0, Vec::new(), Vec::new());
    for received in 0..ranges.len() {
        while sent < ranges.len() && sent < received + DEPTH {
            send(&mut connection, sent, ranges[sent]).map_err(Error::system("cannot read"))?;
            sent += 1;
        }
        let (index, error) = receive(&mut connection, &ranges, &mut data)?;
        let (first, count) = ranges[index];
        if error != 0 {
            verifier.oracle.lock().observe(first, count, None)?;
            failed.push((first, count, error));
            continue;
        }
        verifier.oracle.lock().observe(first, count, Some(&data))?;
        verifier.count(|counts| counts.verified_bytes += data.len() as u64);
    }
    connection.hang_up();
    Ok(failed)
}

/// As [`read_back`], from a block device.
///
/// # Errors
/// As [`read_back`].
pub fn read_back_device(node: &Path, sector_bytes: u32, verifier: &Verifier) -> Result<()> {
    let align = u64::from(sector_bytes) / SECTOR_BYTES as u64;
    let ranges = verifier.oracle.lock().touched(align, VERIFY_BYTES_MAX / SECTOR_BYTES as u64);
    let device = Device::open(node).map_err(Error::system("cannot open the device"))?;
    let mut buffer = Buffer::new();
    for (first, count) in ranges {
        let data = buffer.bytes(count as usize * SECTOR_BYTES);
        device.read(first * SECTOR_BYTES as u64, data).map_err(|error| {
            Error::Violation(format!("sectors {first}..{} cannot be read: {error}", first + count))
        })?;
        verifier.oracle.lock().observe(first, count, Some(data))?;
        verifier.count(|counts| counts.verified_bytes += data.len() as u64);
    }
    Ok(())
}

fn send(connection: &mut Connection, index: usize, (first, count): (u64, u64)) -> io::Result<()> {
    let header = RequestHeader {
        flags: 0,
        command: wire::CMD_READ,
        cookie: index as u64,
        offset: first * SECTOR_BYTES as u64,
        length: count as u32 * SECTOR_BYTES as u32,
    };
    connection.send(&header, &[])
}

/// Receives a reply: the range that was read, and the error or 0.
fn receive(connection: &mut Connection, ranges: &[(u64, u64)], data: &mut Vec<u8>) -> Result<(usize, u32)> {
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::server("did not answer a read for a minute"),
        _ => Error::System { what: "the server ended the connection", source: error },
    };
    let reply = connection.receive().map_err(ended)?;
    let index = reply.cookie as usize;
    let (_, count) = *ranges.get(index).ok_or_else(|| Error::server("answered no request"))?;
    if reply.error != 0 {
        return Ok((index, reply.error));
    }
    data.resize(count as usize * SECTOR_BYTES, 0);
    connection.receive_data(data).map_err(ended)?;
    Ok((index, 0))
}
