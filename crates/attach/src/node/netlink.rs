//! Generic netlink, as far as the `nbd` driver needs it: `linux/netlink.h`, `linux/genetlink.h`.
//!
//! A request is a header of 16 bytes, one of 4 bytes with the command, and attributes. Numbers have the byte
//! order of the machine, attributes are padded to 4 bytes.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};

const HEADER_BYTES: usize = 16;
const GENERIC_HEADER_BYTES: usize = 4;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Longest answer: those of these commands have some attributes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Most messages of an answer.
const MESSAGES_MAX: usize = 64;

/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 1 | 4;
/// `NLMSG_ERROR`: the last message, also if the request was carried out.
const MESSAGE_ERROR: u16 = 2;
/// `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY` and its attributes.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// Attributes of a message.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn add(mut self, kind: u16, value: &[u8]) -> Attributes {
        self.0.extend(((ATTRIBUTE_HEADER_BYTES + value.len()) as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn add_u32(self, kind: u16, number: u32) -> Attributes {
        self.add(kind, &number.to_ne_bytes())
    }

    pub(super) fn add_u64(self, kind: u16, number: u64) -> Attributes {
        self.add(kind, &number.to_ne_bytes())
    }

    pub(super) fn add_nested(self, kind: u16, inner: &Attributes) -> Attributes {
        self.add(kind | NESTED, &inner.0)
    }
}

/// Returns the value of an attribute among encoded ones.
fn find(mut encoded: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some((header, _)) = encoded.split_first_chunk::<ATTRIBUTE_HEADER_BYTES>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        let value = encoded.get(ATTRIBUTE_HEADER_BYTES..length)?;
        if kind & !NESTED == wanted {
            return Some(value);
        }
        encoded = encoded.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

/// A connection to a family of the kernel.
pub(super) struct Family {
    socket: OwnedFd,
    id: u16,
    version: u8,
}

impl Family {
    /// Looks a family up by name. `NOENT`: the kernel does not have it, or not yet.
    pub(super) fn find(name: &str, version: u8) -> Result<Family, Errno> {
        let protocol = Some(netlink::GENERIC);
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        let controller = Family { socket, id: CONTROLLER, version: 1 };
        let name = [name.as_bytes(), b"\0"].concat();
        let answer = controller.ask(GET_FAMILY, &Attributes::default().add(FAMILY_NAME, &name))?;
        let id = find(&answer, FAMILY_ID).and_then(|value| value.first_chunk().copied());
        let id = id.map(u16::from_ne_bytes).ok_or(Errno::PROTO)?;
        Ok(Family { id, version, ..controller })
    }

    /// Sends a command and waits until it is carried out. Returns the attributes of its answer, if it has
    /// one.
    fn ask(&self, command: u8, attributes: &Attributes) -> Result<Vec<u8>, Errno> {
        let length = HEADER_BYTES + GENERIC_HEADER_BYTES + attributes.0.len();
        let mut message = (length as u32).to_ne_bytes().to_vec();
        message.extend(self.id.to_ne_bytes());
        message.extend(FLAGS.to_ne_bytes());
        // Sequence number and sender: there is one request at a time, and the kernel knows the socket.
        message.extend([0; 8]);
        message.extend([command, self.version, 0, 0]);
        message.extend(&attributes.0);
        write(&self.socket, &message)?;
        let mut answer = Vec::new();
        let mut received = vec![0; ANSWER_BYTES_MAX];
        for _ in 0..MESSAGES_MAX {
            let count = read(&self.socket, &mut received)?;
            let mut rest = &received[..count];
            while let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() {
                let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
                let body = rest.get(HEADER_BYTES..length).ok_or(Errno::PROTO)?;
                if u16::from_ne_bytes([header[4], header[5]]) == MESSAGE_ERROR {
                    let code = body.first_chunk().copied().map(i32::from_ne_bytes).ok_or(Errno::PROTO)?;
                    return if code == 0 { Ok(answer) } else { Err(Errno::from_raw_os_error(-code)) };
                }
                answer = body.get(GENERIC_HEADER_BYTES..).unwrap_or_default().to_vec();
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
        Err(Errno::PROTO)
    }

    /// Sends a command that has no answer.
    pub(super) fn command(&self, command: u8, attributes: &Attributes) -> Result<(), Errno> {
        self.ask(command, attributes).map(drop)
    }

    /// Sends a command whose answer has a number.
    pub(super) fn number(&self, command: u8, attributes: &Attributes, wanted: u16) -> Result<u32, Errno> {
        let answer = self.ask(command, attributes)?;
        let value = find(&answer, wanted).and_then(|value| value.first_chunk().copied());
        value.map(u32::from_ne_bytes).ok_or(Errno::PROTO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_found() {
        let inner = Attributes::default().add_u32(1, 7);
        let all = Attributes::default().add(2, b"nbd\0x").add_u64(3, 1 << 40).add_nested(4, &inner);
        assert_eq!(all.0.len(), 12 + 12 + 12);
        assert_eq!(find(&all.0, 2), Some(&b"nbd\0x"[..]));
        assert_eq!(find(&all.0, 3), Some(&(1_u64 << 40).to_ne_bytes()[..]));
        assert_eq!(find(find(&all.0, 4).expect("nested"), 1), Some(&7_u32.to_ne_bytes()[..]));
        assert_eq!(find(&all.0, 5), None);
        assert_eq!(find(&[1, 0], 5), None);
        assert_eq!(find(&[0, 0, 1, 0], 5), None);
    }

    #[test]
    fn the_controller_answers() {
        let family = Family::find("nlctrl", 1).expect("every Linux has it");
        assert_eq!(family.id, CONTROLLER);
        assert_eq!(Family::find("no-such-family", 1).err(), Some(Errno::NOENT));
    }
}
