//! URIs of exports, as defined in the NBD project's `doc/uri.md`.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::DEFAULT_PORT;

/// Host of a URI that names none, and of a server behind a Unix socket.
const LOCALHOST: &str = "localhost";

/// An export that a URI names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportUri {
    pub(super) address: UriAddress,
    pub(super) name: String,
    /// The name for which the server must have a certificate; `None`: without TLS.
    pub(super) tls_name: Option<ServerName<'static>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UriAddress {
    Tcp(String),
    Unix(PathBuf),
}

/// Reason why a URI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UriError(&'static str);

/// Parameters behind the question mark.
#[derive(Default)]
struct Parameters {
    socket: Option<String>,
    tls_hostname: Option<String>,
}

impl ExportUri {
    /// Parses `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///[EXPORT]?socket=PATH`; with TLS `nbds://` and
    /// `nbds+unix://`. The certificate of the server must be for HOST, of one behind a Unix socket for
    /// `localhost`, unless `tls-hostname=NAME` names another.
    ///
    /// # Errors
    /// For anything else. Names of users, `tls-type` other than `x509`, and `tls-verify-peer=0` are not
    /// supported.
    pub fn parse(uri: &str) -> Result<ExportUri, UriError> {
        let (scheme, rest) = uri.split_once("://").ok_or(UriError("no URI"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = unescape(name).ok_or(UriError("the export's name is not UTF-8"))?;
        let (has_tls, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => {
                return Err(UriError(
                    "not a URI of NBD; write nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH, with TLS nbds:// or \
                     nbds+unix://",
                ));
            }
        };
        let parameters = Parameters::parse(query)?;
        let (host, address) = if is_unix {
            let socket = parameters.socket.filter(|path| !path.is_empty());
            let socket = socket.ok_or(UriError("no socket; write nbd+unix:///?socket=PATH"))?;
            (LOCALHOST, UriAddress::Unix(socket.into()))
        } else {
            let (host, address) = of_authority(authority)?;
            (host, UriAddress::Tcp(address))
        };
        let tls_name = match has_tls {
            true => {
                let host = parameters.tls_hostname.unwrap_or_else(|| host.to_owned());
                let bad = |_| UriError("no host name or IP address that a certificate can be for");
                Some(ServerName::try_from(host).map_err(bad)?)
            }
            false => None,
        };
        Ok(ExportUri { address, name, tls_name })
    }

    /// Path of the Unix socket, if the URI has one.
    pub fn unix_socket(&self) -> Option<&Path> {
        match &self.address {
            UriAddress::Unix(path) => Some(path),
            UriAddress::Tcp(_) => None,
        }
    }

    /// Name of the export.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the URI asks for TLS.
    pub fn has_tls(&self) -> bool {
        self.tls_name.is_some()
    }
}

/// Returns the host of an authority, and the address to connect to.
fn of_authority(authority: &str) -> Result<(&str, String), UriError> {
    if authority.contains('@') {
        return Err(UriError("a user in the URI is not supported; leave it out"));
    }
    if authority.is_empty() {
        return Ok((LOCALHOST, format!("{LOCALHOST}:{DEFAULT_PORT}")));
    }
    // The colons of an IPv6 address are in brackets.
    let after_address = authority.rsplit(']').next().unwrap_or(authority);
    let (host, address) = match after_address.rfind(':') {
        Some(colon) => (&authority[..authority.len() - after_address.len() + colon], authority.to_owned()),
        None => (authority, format!("{authority}:{DEFAULT_PORT}")),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']'), address))
}

impl Parameters {
    fn parse(query: &str) -> Result<Parameters, UriError> {
        let mut parameters = Parameters::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = unescape(value).ok_or(UriError("a parameter of the URI is not UTF-8"))?;
            match (key, value.as_str()) {
                ("socket", _) => parameters.socket = Some(value),
                ("tls-hostname", _) => parameters.tls_hostname = Some(value),
                ("tls-type", "x509") | ("tls-verify-peer", "1") => {}
                ("tls-type", _) => return Err(UriError("the only supported tls-type is x509")),
                ("tls-verify-peer", _) => {
                    return Err(UriError("servers are always verified; leave tls-verify-peer out"));
                }
                _ => {
                    return Err(UriError(
                        "unknown parameter; expected socket, tls-hostname, tls-type or tls-verify-peer",
                    ));
                }
            }
        }
        Ok(parameters)
    }
}

fn unescape(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let of = |uri: &str| {
            ExportUri::parse(uri).map(|export| (export.address, export.name, export.tls_name.is_some()))
        };
        let tcp = |address: &str, name: &str| Ok((UriAddress::Tcp(address.into()), name.to_string(), false));
        assert_eq!(of("nbd://host"), tcp("host:10809", ""));
        assert_eq!(of("nbd://"), tcp("localhost:10809", ""));
        assert_eq!(of("nbd://host:99/disk"), tcp("host:99", "disk"));
        assert_eq!(of("nbd://[::1]/a%20b"), tcp("[::1]:10809", "a b"));
        assert_eq!(of("nbd://[::1]:7"), tcp("[::1]:7", ""));
        let unix = Ok((UriAddress::Unix("/run/x y".into()), "disk".to_string(), false));
        assert_eq!(of("nbd+unix:///disk?socket=/run/x%20y"), unix);
        for bad in [
            "nbd+unix:///",
            "http://host",
            "nbd",
            "nbd+unix:///?socket=",
            "nbd://h/%ff",
            "nbd://user@h/",
            "nbd://h/?sockt=/x",
            "nbds+unix:///disk",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_servers() {
        let of = |uri: &str| {
            let export = ExportUri::parse(uri).expect("a URI");
            assert!(export.has_tls());
            export.tls_name.map(|name| name.to_str().into_owned())
        };
        for (uri, name) in [
            ("nbds://host.example.com/disk", "host.example.com"),
            ("nbds://host:7", "host"),
            ("nbds://", "localhost"),
            ("nbds://192.0.2.7:9", "192.0.2.7"),
            ("nbds://[2001:db8::7]:9/x", "2001:db8::7"),
            ("nbds://[2001:db8::7]", "2001:db8::7"),
            ("nbds+unix:///disk?socket=/run/x", "localhost"),
            ("nbds+unix:///disk?socket=/run/x&tls-hostname=s.example.com", "s.example.com"),
            ("nbds://192.0.2.7/?tls-type=x509&tls-verify-peer=1&tls-hostname=other", "other"),
        ] {
            assert_eq!(of(uri).as_deref(), Some(name), "{uri}");
        }
        for bad in
            ["nbds://h?tls-verify-peer=0", "nbds://h?tls-type=psk", "nbds://a%20b", "nbds://h?tls-hostname="]
        {
            assert!(ExportUri::parse(bad).is_err(), "{bad}");
        }
    }
}
