//! Listening address for HTTP: `HOST:PORT` or `unix:SOCKET`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

/// A listening address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAddress {
    /// A host name or IP address without brackets, and a port (0: any free one). As text `HOST:PORT`, with
    /// IPv6 addresses in brackets.
    Tcp(String, u16),
    /// Path of a Unix socket. As text `unix:SOCKET`.
    Unix(PathBuf),
}

/// Text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address to listen on: expected HOST:PORT, such as 127.0.0.1:9841 or [::1]:9841, or unix:SOCKET"
)]
pub struct HttpAddressError(String);

impl FromStr for HttpAddress {
    type Err = HttpAddressError;

    fn from_str(text: &str) -> Result<HttpAddress, HttpAddressError> {
        let error = || HttpAddressError(text.to_string());
        if let Some(path) = text.strip_prefix("unix:") {
            let usable = !path.is_empty() && !path.contains('\0');
            return usable.then(|| HttpAddress::Unix(path.into())).ok_or_else(error);
        }
        let (host, port) = split_port(text).ok_or_else(error)?;
        let named = !host.is_empty() && !host.contains(['/', '@', ' ']);
        if !named || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        Ok(HttpAddress::Tcp(host.to_string(), port.parse().map_err(|_| error())?))
    }
}

/// Splits `HOST:PORT`. Brackets are removed from an IPv6 address.
fn split_port(text: &str) -> Option<(&str, &str)> {
    match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:").filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok()),
        None => text.split_once(':'),
    }
}

/// Returns the host of a request: of the value of its `Host` header, or of the authority of its target (RFC
/// 9110, section 7.2: a host as in a URI, then possibly a port). Without brackets. `None` if it is not one.
pub(crate) fn host_of(value: &str) -> Option<&str> {
    let (host, port) = match value.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']').filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok())?,
        None => value.split_at(value.find(':').unwrap_or(value.len())),
    };
    // Digits only: a sign would be parsed, too. RFC 3986 allows a colon without a port.
    let is_port = |port: &str| {
        port.is_empty() || port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok()
    };
    let is_ended = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    // Of a name: unreserved characters, sub-delimiters and percent-encoded ones.
    let is_named =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte) || byte == b':';
    (is_ended && host.bytes().all(is_named)).then_some(host)
}

/// Returns whether a host names this machine: an IP address, `localhost` or `name`. A page of another origin
/// that has its own name resolve to a loopback address (DNS rebinding) sends that name.
pub(crate) fn is_here(host: &str, name: &str) -> bool {
    let is = |name: &str| host.eq_ignore_ascii_case(name);
    host.parse::<IpAddr>().is_ok() || is("localhost") || is(name)
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HttpAddress::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            HttpAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
            HttpAddress::Unix(path) => write!(f, "unix:{}", status::shown(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, port) in [
            ("127.0.0.1:9841", "127.0.0.1", 9841),
            ("localhost:0", "localhost", 0),
            ("[::1]:80", "::1", 80),
            ("0.0.0.0:65535", "0.0.0.0", 65_535),
        ] {
            let address: HttpAddress = text.parse().expect(text);
            assert_eq!(address, HttpAddress::Tcp(host.to_string(), port));
            assert_eq!(address.to_string(), text);
        }
        let address: HttpAddress = "unix:/run/http.sock".parse().expect("a socket");
        assert_eq!(address, HttpAddress::Unix("/run/http.sock".into()));
        assert_eq!(address.to_string(), "unix:/run/http.sock");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            ":",
            "localhost",
            "localhost:",
            ":80",
            "::1:80",
            "[::1]80",
            "[x]:80",
            "a:b:80",
            "a:65536",
            "a:-1",
            "unix:",
            "unix:/a\0b",
        ] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
        for text in ["http://a:80", "tcp:localhost:80", "a b:80", "user@a:80", "a:+80"] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_of_requests() {
        for (value, host) in [
            ("localhost", "localhost"),
            ("LocalHost:9841", "LocalHost"),
            ("127.0.0.1:65535", "127.0.0.1"),
            ("[::1]:9841", "::1"),
            ("[::1]", "::1"),
            ("a.example:", "a.example"),
            ("%2Frun%2Fx.sock", "%2Frun%2Fx.sock"),
            ("", ""),
        ] {
            assert_eq!(host_of(value), Some(host), "{value}");
        }
        for value in [
            "x:y",
            "x:65536",
            "[::1]:99999",
            "[::1]:+1",
            "[::1]9841",
            "[localhost]",
            "[::1",
            "::1",
            "user@localhost",
            "a/b",
            "a b",
            "localhost:80:80",
        ] {
            assert_eq!(host_of(value), None, "{value}");
        }
    }

    #[test]
    fn hosts_that_name_this_machine() {
        for host in ["localhost", "LocalHost", "127.0.0.1", "10.0.0.1", "::1", "node7", "NODE7"] {
            assert!(is_here(host, "node7"), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "x"] {
            assert!(!is_here(host, "node7"), "{host}");
        }
    }
}
