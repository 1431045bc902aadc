//! Clients as their TLS certificates name them.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::peers::short::Short;

/// Prefix of a fingerprint.
const SHA256: &str = "sha256:";
/// Longest DNS name.
const NAME_BYTES_MAX: usize = 253;

/// Name of a client in the list of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// A DNS name (subjectAltName) of its certificate, in lower case.
    Dns(String),
    /// SHA-256 fingerprint of its certificate.
    Fingerprint([u8; 32]),
}

/// Not a [`ClientName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a DNS name, as in the certificate of the client, or sha256: and the 64 hexadecimal digits of its \
     fingerprint"
)]
pub struct ClientNameError;

impl FromStr for ClientName {
    type Err = ClientNameError;

    fn from_str(text: &str) -> Result<ClientName, ClientNameError> {
        if let Some(digits) = text.strip_prefix(SHA256) {
            // openssl prints colons between bytes.
            let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
            let mut fingerprint = [0; 32];
            if digits.len() != 64 {
                return Err(ClientNameError);
            }
            for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks(2)) {
                let pair =
                    std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|c| c.is_ascii_hexdigit()));
                let value = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
                *byte = value.ok_or(ClientNameError)?;
            }
            return Ok(ClientName::Fingerprint(fingerprint));
        }
        let is_label = |label: &str| {
            !label.is_empty() && label.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
        };
        match text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) {
            true => Ok(ClientName::Dns(text.to_ascii_lowercase())),
            false => Err(ClientNameError),
        }
    }
}

/// Names separated by commas.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, name)| {
            f.write_str(if at > 0 { "," } else { "" })?;
            f.write_str(name)
        })
    }
}

/// The certificate that a client has shown, with those of its issuers.
#[derive(Debug)]
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    /// DNS names, in lower case.
    names: Vec<String>,
    fingerprint: [u8; 32],
}

impl Identity {
    /// Returns the identity in a chain that TLS has verified. `None` if it is empty.
    pub(crate) fn of(chain: &[CertificateDer<'_>]) -> Option<Identity> {
        let own = chain.first()?;
        let names = EndEntityCert::try_from(own)
            .map(|certificate| certificate.valid_dns_names().map(str::to_ascii_lowercase).collect());
        Some(Identity {
            names: names.unwrap_or_default(),
            fingerprint: Sha256::digest(own).into(),
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
        })
    }

    /// Returns true if the client has this name.
    pub(crate) fn is(&self, name: &ClientName) -> bool {
        match name {
            ClientName::Dns(name) => self.names.contains(name),
            ClientName::Fingerprint(fingerprint) => self.fingerprint == *fingerprint,
        }
    }

    /// The client's certificate and those of its issuers. Never empty.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

/// Shows the DNS names (the first ones if there are very many), or the fingerprint of a certificate without
/// any.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.names.is_empty() {
            return fmt::Display::fmt(&Short(Names(&self.names)), f);
        }
        f.write_str(SHA256)?;
        self.fingerprint.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names_or_fingerprints() {
        assert_eq!("DB1.Example.com".parse(), Ok(ClientName::Dns("db1.example.com".into())));
        let digits = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        for text in [digits, colons] {
            assert_eq!(format!("sha256:{text}").parse(), Ok(ClientName::Fingerprint([0xab; 32])));
        }
        let long = "a.".repeat(127) + "a";
        for text in ["", ".", "a..b", "*.example.com", "a b", "CN=a", "sha256:", "sha256:+1", &long] {
            assert_eq!(text.parse::<ClientName>(), Err(ClientNameError), "{text}");
        }
        let odd = format!("sha256:{}+1", "ab".repeat(31));
        assert_eq!(odd.parse::<ClientName>(), Err(ClientNameError));
    }

    #[test]
    fn a_certificate_with_thousands_of_names_is_short_in_the_log() {
        let of = |count: usize| Identity {
            chain: Vec::new(),
            names: (0..count).map(|number| format!("db{number}.example.com")).collect(),
            fingerprint: [0; 32],
        };
        assert_eq!(of(2).to_string(), "db0.example.com,db1.example.com");
        let many = of(3000).to_string();
        assert!(many.starts_with("db0.example.com,") && many.ends_with("..."), "{many}");
        assert_eq!(many.len(), 259);
    }
}
