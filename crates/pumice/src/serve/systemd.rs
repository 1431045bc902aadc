//! Notifications to the service manager (`sd_notify(3)`): datagrams of `KEY=VALUE` lines to the socket in
//! `$NOTIFY_SOCKET`. Does nothing if it is not set.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Reports that drives are being served.
pub(super) fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={status}"));
}

/// Reports that the configuration is being reloaded. [`ready`] ends this state.
pub(super) fn reloading() {
    let now = clock_gettime(ClockId::Monotonic);
    let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
    notify(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}

/// Reports that drives are being closed.
pub(super) fn stopping() {
    notify("STOPPING=1");
}

fn notify(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::debug!(%error, "cannot notify the service manager");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_arrive_at_paths_and_abstract_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("pumice-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
        let sockets = [
            (path.as_os_str().to_owned(), UnixDatagram::bind(&path).expect("bound")),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&abstract_name).expect("bound")),
        ];
        for (address, socket) in sockets {
            send(&address, "READY=1").expect("sent");
            let mut buf = [0; 64];
            let len = socket.recv(&mut buf).expect("received");
            assert_eq!(&buf[..len], b"READY=1");
        }
        assert!(send(OsStr::new("/nowhere/at/all"), "READY=1").is_err());
    }
}
