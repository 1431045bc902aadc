//! URIs of exports, as defined in the NBD project's `doc/uri.md`.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::DEFAULT_PORT;

/// An export that a URI names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportUri {
    pub(super) address: UriAddress,
    pub(super) name: String,
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

impl ExportUri {
    /// Parses `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///[EXPORT]?socket=PATH`.
    ///
    /// # Errors
    /// For anything else, including TLS (`nbds`).
    pub fn parse(uri: &str) -> Result<ExportUri, UriError> {
        let (scheme, rest) = uri.split_once("://").ok_or(UriError("no URI"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = unescape(name).ok_or(UriError("the export's name is not UTF-8"))?;
        let address = match scheme {
            "nbd" if host.is_empty() => UriAddress::Tcp(format!("localhost:{DEFAULT_PORT}")),
            "nbd" => {
                let after_address = host.rsplit(']').next().unwrap_or(host);
                let port =
                    if after_address.contains(':') { String::new() } else { format!(":{DEFAULT_PORT}") };
                UriAddress::Tcp(format!("{host}{port}"))
            }
            "nbd+unix" => {
                let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
                let socket = socket.and_then(unescape).filter(|path| !path.is_empty());
                UriAddress::Unix(socket.ok_or(UriError("no socket; write nbd+unix:///?socket=PATH"))?.into())
            }
            "nbds" | "nbds+unix" => {
                return Err(UriError("TLS is not supported here; use a socket on the drive's host"));
            }
            _ => {
                return Err(UriError(
                    "not a URI of NBD; write nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH",
                ));
            }
        };
        Ok(ExportUri { address, name })
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
        let of = |uri: &str| ExportUri::parse(uri).map(|export| (export.address, export.name));
        let tcp = |address: &str, name: &str| Ok((UriAddress::Tcp(address.into()), name.to_string()));
        assert_eq!(of("nbd://host"), tcp("host:10809", ""));
        assert_eq!(of("nbd://host:99/disk"), tcp("host:99", "disk"));
        assert_eq!(of("nbd://[::1]/a%20b"), tcp("[::1]:10809", "a b"));
        assert_eq!(of("nbd://[::1]:7"), tcp("[::1]:7", ""));
        let unix = Ok((UriAddress::Unix("/run/x y".into()), "disk".to_string()));
        assert_eq!(of("nbd+unix:///disk?socket=/run/x%20y"), unix);
        for bad in
            ["nbd+unix:///", "nbds://host", "http://host", "nbd", "nbd+unix:///?socket=", "nbd://h/%ff"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
