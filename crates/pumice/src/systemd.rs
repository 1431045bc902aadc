//! Notifications to the service manager (`sd_notify(3)`): datagrams of `KEY=VALUE` lines to the socket in
//! `$NOTIFY_SOCKET`. Does nothing if it is not set.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Longest wait for a manager whose queue is full. Stopping must not depend on it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The service manager, or none.
pub(crate) struct Manager(Option<UnixDatagram>);

impl Manager {
    /// Connects to the service manager. Call it before root is given up, because its socket may be for root
    /// only.
    pub(crate) fn connect() -> Manager {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty());
        Manager(socket.and_then(|socket| connect(&socket).inspect_err(report).ok()))
    }

    /// Returns whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Reports that drives are being served.
    pub(crate) fn ready(&self, status: &str) {
        self.notify(&format!("READY=1\nSTATUS={status}"));
    }

    /// Reports that another process does the service's work from now on.
    pub(crate) fn handed_over(&self, pid: u32) {
        self.notify(&format!("MAINPID={pid}\nREADY=1"));
    }

    /// Reports that the configuration is being reloaded. [`Manager::ready`] ends this state.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
    }

    /// Reports that drives are being closed.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    fn notify(&self, state: &str) {
        if let Some(Err(error)) = self.0.as_ref().map(|socket| socket.send(state.as_bytes())) {
            report(&error);
        }
    }
}

fn report(error: &io::Error) {
    tracing::warn!(%error, "cannot notify the service manager (NOTIFY_SOCKET)");
}

fn connect(socket: &OsStr) -> io::Result<UnixDatagram> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let connected = UnixDatagram::unbound()?;
    connected.connect_addr(&address)?;
    connected.set_write_timeout(Some(PATIENCE))?;
    Ok(connected)
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
            Manager(Some(connect(&address).expect("connected"))).notify("READY=1");
            let mut buf = [0; 64];
            let len = socket.recv(&mut buf).expect("received");
            assert_eq!(&buf[..len], b"READY=1");
        }
        assert!(connect(OsStr::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_manager_that_reads_nothing_is_not_waited_for_long() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let _unread = UnixDatagram::bind(&path).expect("bound");
        let manager = Manager(Some(connect(path.as_os_str()).expect("connected")));
        // More than the queue of a socket holds; without a limit the first one that does not fit waits for
        // ever.
        let socket = manager.0.as_ref().expect("connected");
        let sent = (0..100_000).try_for_each(|_| socket.send(b"STOPPING=1").map(drop));
        assert_eq!(sent.expect_err("full").kind(), io::ErrorKind::WouldBlock);
        manager.stopping();
    }
}
