//! Where to listen for HTTP: `HOST:PORT`.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A host name or IP address, and a port (0: any free one). As text `HOST:PORT`, IPv6 addresses in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress {
    /// Without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address to listen on: write HOST:PORT, such as 127.0.0.1:9841 or [::1]:9841")]
pub struct HttpAddressError(String);

impl FromStr for HttpAddress {
    type Err = HttpAddressError;

    fn from_str(text: &str) -> Result<HttpAddress, HttpAddressError> {
        let error = || HttpAddressError(text.to_string());
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (host, port) = bracketed.split_once("]:").ok_or_else(error)?;
                host.parse::<Ipv6Addr>().map_err(|_| error())?;
                (host, port)
            }
            None => text.split_once(':').ok_or_else(error)?,
        };
        let named = !host.is_empty() && !host.contains(['/', '@', ' ']);
        if !named || !port.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        Ok(HttpAddress { host: host.to_string(), port: port.parse().map_err(|_| error())? })
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
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
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text);
        }
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
        ] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
        for text in ["http://a:80", "tcp:localhost:80", "a b:80", "user@a:80", "a:+80"] {
            assert!(text.parse::<HttpAddress>().is_err(), "{text}");
        }
    }
}
