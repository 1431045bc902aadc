//! Addresses to listen on: `unix:SOCKET` and `tcp:HOST:PORT`.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_encode};

/// The port registered for NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// Address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host name or IP address (without brackets), and a port.
    Tcp(String, u16),
}

/// Text that is not a valid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address to listen on: write unix:SOCKET or tcp:HOST:PORT")]
pub struct AddressError(pub String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let usable = !path.is_empty() && !path.contains('\0');
            return if usable { Ok(Self::Unix(path.into())) } else { Err(error()) };
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(error)?;
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or_else(error)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| error())?;
                (host, after.strip_prefix(':').ok_or_else(error)?)
            }
            None => rest.rsplit_once(':').filter(|(host, _)| !host.contains(':')).ok_or_else(error)?,
        };
        if host.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        Ok(Self::Tcp(host.to_owned(), port.parse().map_err(|_| error())?))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl Address {
    /// Returns the NBD URI of `export` at this address. The empty name means the default export.
    pub fn uri(&self, export: &str) -> String {
        let export = escape(export.as_bytes());
        match self {
            Self::Unix(path) => {
                format!("nbd+unix:///{export}?socket={}", escape(path.as_os_str().as_bytes()))
            }
            Self::Tcp(host, port) if host.contains(':') => format!("nbd://[{host}]:{port}/{export}"),
            Self::Tcp(host, port) => format!("nbd://{host}:{port}/{export}"),
        }
    }
}

/// Bytes that need no escape in a URI: the unreserved characters of RFC 3986, and the slash.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

fn escape(bytes: &[u8]) -> PercentEncode<'_> {
    percent_encode(bytes, PLAIN)
}
