//! The client against a server that sends arbitrary bytes.

use std::io::{self, Cursor, Read, Write};

use crate::client::{Connection, Duplex};
use crate::wire::protocol::*;

/// Cookie of the first request of a client.
const COOKIE: u64 = 1;

/// A server that sends these bytes, whatever it is asked.
struct Server(Cursor<Vec<u8>>);

impl Read for Server {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Server {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Duplex for Server {}

/// Fuzz target: a client that negotiates, asks which parts of the export hold data, and reads. The first byte
/// is the mode:
/// - bit 0: whether the rest is sent first, or after a negotiation
/// - bit 1: whether that agrees on structured replies, with `base:allocation`
/// - bit 2: whether the magic numbers of a reply are sent ahead of the rest
pub fn fuzz_client(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let structured = mode & 2 != 0;
    let mut sent = Vec::new();
    if mode & 1 != 0 {
        sent = negotiation(structured);
        if mode & 4 != 0 && structured {
            sent.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
            sent.extend([0, 1, 0, 5]);
            sent.extend(COOKIE.to_be_bytes());
        } else if mode & 4 != 0 {
            sent.extend(SIMPLE_REPLY_MAGIC.to_be_bytes());
            sent.extend([0; 4]);
            sent.extend(COOKIE.to_be_bytes());
        }
    }
    sent.extend_from_slice(rest);
    let Ok(mut connection) = Connection::over(Box::new(Server(Cursor::new(sent))), "export") else { return };
    // Any result is acceptable as long as nothing panics, and ranges lie within the export, in order.
    let size = connection.size_bytes();
    if let Ok(ranges) = connection.data_ranges() {
        let mut end = 0;
        for range in ranges {
            assert!(
                end <= range.start && range.start <= range.end && range.end <= size,
                "{range:?} of {size}"
            );
            end = range.end;
        }
    }
    let _ = connection.read_at(0, &mut [0; 4096]);
}

/// Returns what a server with an export of 1 MiB sends in a negotiation.
fn negotiation(structured: bool) -> Vec<u8> {
    let mut sent = [INIT_MAGIC.to_be_bytes(), OPTS_MAGIC.to_be_bytes()].concat();
    sent.extend(FLAG_FIXED_NEWSTYLE.to_be_bytes());
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        sent.extend(REP_MAGIC.to_be_bytes());
        sent.extend([option, kind, data.len() as u32].map(u32::to_be_bytes).concat());
        sent.extend(data);
    };
    if structured {
        reply(OPT_STRUCTURED_REPLY, REP_ACK, &[]);
        let context = [&7_u32.to_be_bytes()[..], CONTEXT_BASE_ALLOCATION.as_bytes()].concat();
        reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, &context);
        reply(OPT_SET_META_CONTEXT, REP_ACK, &[]);
    } else {
        reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[]);
    }
    let info = [&INFO_EXPORT.to_be_bytes()[..], &(1_u64 << 20).to_be_bytes(), &[0, 1]].concat();
    reply(OPT_GO, REP_INFO, &info);
    reply(OPT_GO, REP_ACK, &[]);
    sent
}
