//! TLS configuration from PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::error::ConnectionError;
use crate::trust::identity::Identity;
use crate::trust::private_key::KeyKind;

/// Largest PEM file accepted, in bytes. The certificates of all public authorities take a quarter of it.
const PEM_MAX_BYTES: u64 = 1 << 20;

/// TLS 1.2 and 1.3 configuration of a server.
#[derive(Clone)]
pub struct TlsConfig {
    acceptor: TlsAcceptor,
    /// `None`: clients need no certificate.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// Failure to set up TLS.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum TlsError {
    #[error("{path}: not a readable PEM file: {source}")]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{path}: holds no certificate")]
    NoCertificate { path: PathBuf },
    #[error("{path}: holds no certificate revocation list")]
    NoCrl { path: PathBuf },
    #[error("{path}: not a supported private key: {kind}")]
    Key { path: PathBuf, kind: KeyKind },
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("{path}: not usable to check client certificates: {source}")]
    ClientCa { path: PathBuf, source: VerifierBuilderError },
}

impl TlsError {
    /// Returns true if this process has no permission to read a file.
    pub fn is_denied(&self) -> bool {
        let TlsError::Pem { source: pem::Error::Io(error), .. } = self else { return false };
        error.kind() == io::ErrorKind::PermissionDenied
    }
}

/// Reads a PEM file or a pipe, up to a limit. Nothing else is opened: the writers of a device or a socket are
/// unknown.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let kind = std::fs::metadata(path)?.file_type();
        if !(kind.is_file() || kind.is_fifo()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a pipe"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(PEM_MAX_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > PEM_MAX_BYTES {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "more than 1 MiB")),
            false => Ok(bytes),
        }
    };
    read().map_err(|error| TlsError::Pem { path: path.to_owned(), source: pem::Error::Io(error) })
}

/// Reads all items of one kind from a PEM file.
fn items<T: PemObject>(path: &Path) -> Result<Vec<T>, TlsError> {
    T::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })
}

pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = items(path)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

/// Reads a private key, and checks that `provider` can use it.
pub(crate) fn private_key(
    path: &Path,
    provider: &CryptoProvider,
) -> Result<PrivateKeyDer<'static>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    match provider.key_provider.load_private_key(key.clone_key()) {
        Ok(_) => Ok(key),
        // Its error names neither the kind of key nor the supported ones.
        Err(_) => Err(TlsError::Key { path: path.to_owned(), kind: KeyKind::of(&key) }),
    }
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let lists = items(path)?;
    if lists.is_empty() {
        return Err(TlsError::NoCrl { path: path.to_owned() });
    }
    Ok(lists)
}

impl TlsConfig {
    /// A configuration from the contents of PEM files, for clients without certificates.
    #[cfg(feature = "testing")]
    pub(crate) fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?
            .with_no_client_auth();
        let chain = vec![CertificateDer::from_pem_slice(certificate)?];
        let config = builder.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), verifier: None })
    }

    /// Does the TLS handshake with a client.
    ///
    /// # Errors
    /// [`ConnectionError::Tls`], or [`ConnectionError::Io`] with the end of the stream if the client left.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, ConnectionError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.acceptor.accept(stream).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ConnectionError::Io(error),
            _ => ConnectionError::Tls(error),
        })
    }

    /// Returns true if clients need a certificate.
    pub(crate) fn authenticates_clients(&self) -> bool {
        self.verifier.is_some()
    }

    /// Returns true if a client with this certificate would be admitted now.
    pub(crate) fn admits(&self, client: Option<&Identity>) -> bool {
        let Some(verifier) = &self.verifier else { return true };
        let Some((own, issuers)) = client.and_then(|client| client.chain().split_first()) else {
            return false;
        };
        verifier.verify_client_cert(own, issuers, UnixTime::now()).is_ok()
    }

    /// Reads the server's certificate chain and key, and the authorities that must have issued the
    /// certificates of clients (`None`: clients need no certificate). With `crls`, a file of certificate
    /// revocation lists, these must show of each certificate of a client's chain that it is not revoked.
    ///
    /// # Errors
    /// [`TlsError`] with the file that cannot be used.
    pub fn from_pem_files(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        crls: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?;
        let verifier = match client_ca {
            None => None,
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(ca)? {
                    roots.add(certificate)?;
                }
                let provider = Arc::clone(&provider);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                if let Some(path) = crls {
                    verifier = verifier.with_crls(revocation_lists(path)?);
                }
                let verifier = verifier.build().map_err(|source| {
                    let path = crls.filter(|_| matches!(source, VerifierBuilderError::InvalidCrl(_)));
                    TlsError::ClientCa { path: path.unwrap_or(ca).to_owned(), source }
                })?;
                Some(verifier)
            }
        };
        let builder = match &verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        };
        let chain = certificates(certificate)?;
        let config = builder.with_single_cert(chain, private_key(key, &provider)?)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, verifier })
    }
}
