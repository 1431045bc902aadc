//! From bytes of the kernel to messages.

use rustix::io::Errno;

use super::{
    DIRECTORY, FILE, FILE_NAME, Message, Operation, Question, TRANSFER_BYTES_MAX, WRITE_HEADER_BYTES,
};

/// Bytes of `fuse_in_header`.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes of `fuse_write_in`.
const WRITE_BYTES: usize = WRITE_HEADER_BYTES - HEADER_BYTES;

pub(super) mod opcode {
    //! `enum fuse_opcode`.
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// `FUSE_INIT_EXT`: `fuse_init_in` has `flags2`.
pub(super) const INIT_EXTENDED: u64 = 1 << 30;
/// `FATTR_SIZE`: SETATTR has a size.
const SETS_SIZE: u32 = 1 << 3;
/// Modes of `fallocate(2)`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// Numbers at places in a message, in the byte order of this machine, as the kernel writes them.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

/// What a body is.
enum Body {
    Request(Operation),
    Question(Question),
}

impl From<Operation> for Body {
    fn from(operation: Operation) -> Body {
        Body::Request(operation)
    }
}

impl From<Question> for Body {
    fn from(question: Question) -> Body {
        Body::Question(question)
    }
}

impl From<Errno> for Body {
    fn from(error: Errno) -> Body {
        Body::Question(Question::Refused(error.raw_os_error()))
    }
}

/// Parses a message as it was read from the device. Any bytes are accepted.
pub fn parse(message: &[u8]) -> Message {
    let header = Fields(message);
    let (Some(length), Some(opcode), Some(unique), Some(node)) =
        (header.u32(0), header.u32(4), header.u64(8), header.u64(16))
    else {
        return Message::NoAnswer;
    };
    let has_no_answer = matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT);
    if unique == 0 || has_no_answer {
        return Message::NoAnswer;
    }
    let body = message.get(HEADER_BYTES..).filter(|_| length as usize == message.len());
    let body = body.and_then(|body| parse_body(opcode, node, body)).unwrap_or(Errno::IO.into());
    match body {
        Body::Request(operation) => Message::Request { unique, operation },
        Body::Question(question) => Message::Question { unique, question },
    }
}

/// Returns what is asked. `None`: the body is malformed.
fn parse_body(opcode: u32, node: u64, body: &[u8]) -> Option<Body> {
    let fields = Fields(body);
    let is_data = matches!(opcode, opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FALLOCATE);
    if is_data && node != FILE {
        return None;
    }
    Some(match opcode {
        opcode::READ => {
            let (offset, length) = (fields.u64(8)?, fields.u32(16)?);
            if length > TRANSFER_BYTES_MAX {
                return None;
            }
            Operation::Read { offset, length }.into()
        }
        opcode::WRITE => {
            let (offset, length) = (fields.u64(8)?, fields.u32(16)?);
            if length > TRANSFER_BYTES_MAX || body.len() != WRITE_BYTES + length as usize {
                return None;
            }
            Operation::Write { offset, length }.into()
        }
        opcode::FSYNC => Operation::Flush.into(),
        opcode::FALLOCATE => {
            let (offset, length) = (fields.u64(8)?, fields.u64(16)?);
            match fields.u32(24)? & !KEEP_SIZE {
                // The kernel expects zeros where it punches a hole for a request to write zeroes.
                PUNCH_HOLE => Operation::Trim { offset, length }.into(),
                ZERO_RANGE => Operation::Zeroes { offset, length }.into(),
                _ => Errno::OPNOTSUPP.into(),
            }
        }
        opcode::INIT => {
            let (major, minor) = (fields.u32(0)?, fields.u32(4)?);
            let flags = u64::from(fields.u32(12)?);
            let more = if flags & INIT_EXTENDED == 0 { 0 } else { fields.u32(16)? };
            Question::Init { major, minor, flags: flags | u64::from(more) << 32 }.into()
        }
        opcode::LOOKUP => {
            let name = body.strip_suffix(b"\0")?;
            Question::Lookup { is_file: node == DIRECTORY && name == FILE_NAME.as_bytes() }.into()
        }
        opcode::GETATTR => Question::GetAttributes { node }.into(),
        opcode::SETATTR => {
            let sets_size = fields.u32(0)? & SETS_SIZE != 0;
            let size_bytes = if sets_size { Some(fields.u64(16)?) } else { None };
            Question::SetAttributes { node, size_bytes }.into()
        }
        opcode::OPEN if node == FILE => Question::Open.into(),
        opcode::OPENDIR => Question::OpenDirectory.into(),
        opcode::READDIR if node == DIRECTORY => {
            Question::ReadDirectory { skip: fields.u64(8)?, room: fields.u32(16)? }.into()
        }
        opcode::READDIR => Errno::NOTDIR.into(),
        opcode::STATFS => Question::StatFs.into(),
        // The kernel does not ask again: to close a descriptor waits for no server then.
        opcode::FLUSH => Errno::NOSYS.into(),
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FSYNCDIR | opcode::ACCESS | opcode::DESTROY => {
            Question::Nothing.into()
        }
        _ => Errno::NOSYS.into(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
        message.extend(opcode.to_ne_bytes());
        message.extend(7_u64.to_ne_bytes());
        message.extend(node.to_ne_bytes());
        message.resize(HEADER_BYTES, 0);
        message.extend(body);
        message
    }

    fn range(offset: u64, length: u64, mode: u32) -> Vec<u8> {
        [&[0; 8][..], &offset.to_ne_bytes(), &length.to_ne_bytes(), &mode.to_ne_bytes(), &[0; 4]].concat()
    }

    fn write(offset: u64, size: u32, data: usize) -> Vec<u8> {
        let mut body = range(offset, size.into(), 0);
        body.resize(WRITE_BYTES, 0);
        body.resize(WRITE_BYTES + data, 1);
        body
    }

    fn request(operation: Operation) -> Message {
        Message::Request { unique: 7, operation }
    }

    fn question(question: Question) -> Message {
        Message::Question { unique: 7, question }
    }

    #[test]
    fn requests_for_data() {
        let of_file = |opcode, body: &[u8]| parse(&message(opcode, FILE, body));
        let read = request(Operation::Read { offset: 512, length: 4096 });
        assert_eq!(of_file(opcode::READ, &range(512, 4096, 0)), read);
        let written = request(Operation::Write { offset: 512, length: 4096 });
        assert_eq!(of_file(opcode::WRITE, &write(512, 4096, 4096)), written);
        assert_eq!(of_file(opcode::FSYNC, &[0; 16]), request(Operation::Flush));
        let long = u64::from(u32::MAX) + 9;
        for (mode, expected) in [
            (3, request(Operation::Trim { offset: 1, length: long })),
            (0x11, request(Operation::Zeroes { offset: 1, length: long })),
            (0x10, request(Operation::Zeroes { offset: 1, length: long })),
            (0, question(Question::Refused(95))),
            (0x13, question(Question::Refused(95))),
        ] {
            assert_eq!(of_file(opcode::FALLOCATE, &range(1, long, mode)), expected, "{mode:#x}");
        }
    }

    #[test]
    fn malformed_requests_fail() {
        let fails = question(Question::Refused(5));
        for (what, message) in [
            ("a short body", message(opcode::READ, FILE, &[0; 19])),
            ("a write with less data", message(opcode::WRITE, FILE, &write(0, 4096, 4095))),
            ("a write with more data", message(opcode::WRITE, FILE, &write(0, 4096, 4097))),
            ("a long read", message(opcode::READ, FILE, &range(0, (256 << 10) + 1, 0))),
            ("of the directory", message(opcode::WRITE, DIRECTORY, &write(0, 1, 1))),
            ("a name without an end", message(opcode::LOOKUP, DIRECTORY, b"drive")),
        ] {
            assert_eq!(parse(&message), fails, "{what}");
        }
        let whole = message(opcode::FSYNC, FILE, &[0; 16]);
        assert_eq!(parse(&whole[..whole.len() - 1]), fails);
        assert_eq!(parse(&whole[..23]), Message::NoAnswer, "no number");
    }

    #[test]
    fn questions() {
        let of = |opcode, node, body: &[u8]| parse(&message(opcode, node, body));
        let lookup = |is_file| question(Question::Lookup { is_file });
        assert_eq!(of(opcode::LOOKUP, DIRECTORY, b"drive\0"), lookup(true));
        assert_eq!(of(opcode::LOOKUP, DIRECTORY, b"drives\0"), lookup(false));
        assert_eq!(of(opcode::LOOKUP, FILE, b"drive\0"), lookup(false));
        let mut set = vec![0; 88];
        let attributes = |size_bytes| question(Question::SetAttributes { node: FILE, size_bytes });
        assert_eq!(of(opcode::SETATTR, FILE, &set), attributes(None));
        set[0] = 8;
        set[16..24].copy_from_slice(&99_u64.to_ne_bytes());
        assert_eq!(of(opcode::SETATTR, FILE, &set), attributes(Some(99)));
        assert_eq!(of(opcode::RELEASE, FILE, &[0; 24]), question(Question::Nothing));
        assert_eq!(of(opcode::FLUSH, FILE, &[0; 24]), question(Question::Refused(38)));
        assert_eq!(of(opcode::OPEN, FILE, &[0; 8]), question(Question::Open));
        assert_eq!(of(4711, FILE, &[0; 8]), question(Question::Refused(38)), "unknown");
        for opcode in [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT] {
            assert_eq!(of(opcode, FILE, &[0; 8]), Message::NoAnswer);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }

        #[test]
        fn any_body_is_accepted(
            opcode in 0_u32..60, node in 0_u64..4, body in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let message = message(opcode, node, &body);
            if let Message::Request { operation: Operation::Write { length, .. }, .. } = parse(&message) {
                prop_assert_eq!(message.len(), WRITE_HEADER_BYTES + length as usize);
            }
        }
    }
}
