//! Names of admin sockets in the run-time directories. Sockets for NBD and HTTP may be there too. Those are
//! never asked anything: their servers would count and log a client that they refuse, which is to mean a
//! stranger.

use uuid::Uuid;

/// Suffix of all of them.
const SUFFIX: &str = ".sock";
/// Start of the name of a socket for drives that a process could not open.
const DOWN: &str = "down-";
/// Characters of a drive's id.
const ID_CHARACTERS: usize = 36;

/// Name of the socket of a drive.
pub fn of_drive(id: Uuid) -> String {
    format!("{id}{SUFFIX}")
}

/// Name of that of a copy of it, which has the same id: `copy` counts those of a process from 1.
pub fn of_copy(id: Uuid, pid: u32, copy: usize) -> String {
    match copy {
        1 => format!("{id}-{pid}{SUFFIX}"),
        _ => format!("{id}-{pid}-{copy}{SUFFIX}"),
    }
}

/// Name of the socket for the drives that a process could not open.
pub fn of_down(pid: u32) -> String {
    format!("{DOWN}{pid}{SUFFIX}")
}

/// Returns whether a socket of this name is an admin socket.
pub fn is_admin(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(name) = name.strip_suffix(SUFFIX) else { return false };
    if let Some(pid) = name.strip_prefix(DOWN) {
        return is_number(pid);
    }
    let Some((id, rest)) = name.split_at_checked(ID_CHARACTERS) else { return false };
    let mut numbers = rest.split('-');
    Uuid::try_parse(id).is_ok()
        && numbers.next().is_some_and(str::is_empty)
        && rest.matches('-').count() <= 2
        && numbers.all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_admin_sockets_are_recognized_and_no_others() {
        let id = Uuid::from_u128(7);
        for name in [of_drive(id), of_copy(id, 12, 1), of_copy(id, 12, 64), of_down(12)] {
            assert!(is_admin(&name), "{name}");
        }
        for name in
            ["nbd.sock", "http.sock", "admin.sock", "down-.sock", "down-x.sock", "drive.sock", ".sock"]
        {
            assert!(!is_admin(name), "{name}");
        }
        for rest in ["", "x.sock", "-.sock", "-1-2-3.sock", "-nbd.sock", "-12.nbd", "1.sock", ".sock.sock"] {
            assert!(!is_admin(&format!("{id}{rest}")), "{rest}");
        }
    }
}
