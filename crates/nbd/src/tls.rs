//! TLS configuration from PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use crate::error::ConnectionError;

/// Largest PEM file accepted, in bytes. The certificates of all public authorities take a quarter of it.
const PEM_MAX_BYTES: u64 = 1 << 20;

/// TLS 1.2 and 1.3 configuration of a server.
#[derive(Clone)]
pub struct TlsConfig {
    acceptor: TlsAcceptor,
    /// Whether clients need a certificate.
    pub(crate) authenticates_clients: bool,
}

/// Failure to set up TLS.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TlsError {
    #[error("{path}: not a readable PEM file: {source}")]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{path}: holds no certificate")]
    NoCertificate { path: PathBuf },
    #[error("certificate and key do not serve: {0}")]
    Unusable(#[from] rustls::Error),
    #[error("{path}: not usable to check client certificates: {source}")]
    ClientCa { path: PathBuf, source: VerifierBuilderError },
}

/// Reads a PEM file or a pipe, up to a limit.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(PEM_MAX_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > PEM_MAX_BYTES {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "more than 1 MiB")),
            false => Ok(bytes),
        }
    };
    read().map_err(|error| TlsError::Pem { path: path.to_owned(), source: pem::Error::Io(error) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

impl TlsConfig {
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

    /// Reads the server's certificate chain and key, and the authorities that must have issued the
    /// certificates of clients (`None`: clients need no certificate).
    ///
    /// # Errors
    /// [`TlsError`] with the file that cannot be used.
    pub fn from_pem_files(
        certificate: &Path,
        key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|source| TlsError::ClientCa { path: path.to_owned(), source })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = certificates(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|source| TlsError::Pem { path: key.to_owned(), source })?;
        let config = builder.with_single_cert(chain, key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { acceptor, authenticates_clients: client_ca.is_some() })
    }
}
