//! Private keys that TLS can use, and why another one cannot be used.

use std::fmt;

use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Tags of DER (ITU-T X.690).
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// `rsaEncryption` (RFC 8017, appendix C).
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];

/// Kinds of private keys, named for messages, and which ones are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyKind {
    /// Length of the modulus in bits, of an RSA key.
    rsa_bits: Option<usize>,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rsa_bits {
            Some(bits) => write!(f, "an RSA key of {bits} bits")?,
            None => f.write_str("a key of another kind, or damaged")?,
        }
        f.write_str(
            "; supported keys are RSA of 2048, 3072 or 4096 bits, ECDSA on P-256 or P-384, and Ed25519",
        )
    }
}

impl KeyKind {
    pub(crate) fn of(key: &PrivateKeyDer<'_>) -> KeyKind {
        let rsa_bits = match key {
            PrivateKeyDer::Pkcs1(key) => modulus_bits(key.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(key) => rsa_of_pkcs8(key.secret_pkcs8_der()).and_then(modulus_bits),
            _ => None,
        };
        KeyKind { rsa_bits }
    }
}

/// Takes one element with this tag off the front and returns its content.
fn element<'a>(der: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let ([found, short], rest) = der.split_first_chunk()?;
    let (len, rest) = match *short {
        short @ ..0x80 => (usize::from(short), rest),
        // The low bits give the number of bytes of the length.
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            let len = bytes
                .iter()
                .try_fold(0_usize, |len, byte| Some(len.checked_mul(256)? + usize::from(*byte)))?;
            (len, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(len)?;
    *der = rest;
    (*found == tag).then_some(content)
}

/// Returns the RSA key in a `PrivateKeyInfo` (RFC 5208, section 5).
fn rsa_of_pkcs8(mut der: &[u8]) -> Option<&[u8]> {
    let info = &mut element(&mut der, SEQUENCE)?;
    element(info, INTEGER)?;
    let algorithm = &mut element(info, SEQUENCE)?;
    if element(algorithm, OBJECT_IDENTIFIER)? != RSA_ENCRYPTION {
        return None;
    }
    element(info, OCTET_STRING)
}

/// Returns the length of the modulus of an `RSAPrivateKey` (RFC 8017, appendix A.1.2).
fn modulus_bits(mut der: &[u8]) -> Option<usize> {
    let key = &mut element(&mut der, SEQUENCE)?;
    element(key, INTEGER)?;
    let modulus = element(key, INTEGER)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros)?;
    Some((modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
}
