//! A reader of everything, beside clients that write.

use std::io;
use std::path::Path;

use nbd::protocol as wire;
use nbd::request::RequestHeader;
use sim::content::SECTOR_BYTES;

use super::connection::Connection;
use super::read_back::VERIFY_BYTES_MAX;
use super::verifier::Verifier;
use crate::error::Error;

/// Reads each sector that was ever written, and passes its content to the oracle, which allows for writes in
/// flight. Returns false if the connection ended, the clients were stopped, or a read failed.
pub fn sweep(socket: &Path, sector_bytes: u32, verifier: &Verifier) -> bool {
    let align = u64::from(sector_bytes) / SECTOR_BYTES as u64;
    let ranges = verifier.oracle.lock().touched(align, VERIFY_BYTES_MAX / SECTOR_BYTES as u64);
    let Ok(mut connection) = Connection::open(socket) else { return false };
    let mut data = Vec::new();
    for range in ranges {
        if verifier.is_stopped() || !read(&mut connection, range, &mut data, verifier).unwrap_or(false) {
            connection.hang_up();
            return false;
        }
    }
    connection.hang_up();
    true
}

fn read(
    connection: &mut Connection,
    (first, count): (u64, u64),
    data: &mut Vec<u8>,
    verifier: &Verifier,
) -> io::Result<bool> {
    let reading = verifier.oracle.lock().begin_read(first, count);
    let length = count as u32 * SECTOR_BYTES as u32;
    let header = RequestHeader {
        flags: 0,
        command: wire::CMD_READ,
        cookie: 0,
        offset: first * SECTOR_BYTES as u64,
        length,
    };
    connection.send(&header, &[])?;
    let reply = connection.receive()?;
    if reply.error != 0 {
        if !verifier.is_excused() {
            let why = format!("sectors {first}..{} cannot be read: error {}", first + count, reply.error);
            verifier.fail(Error::Violation(why));
        }
        return Ok(false);
    }
    data.resize(length as usize, 0);
    connection.receive_data(data)?;
    verifier.record(verifier.oracle.lock().end_read(&reading, data));
    verifier.count(|counts| counts.verified_bytes += u64::from(length));
    Ok(true)
}
