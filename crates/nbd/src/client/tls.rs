//! TLS of a client.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{
    self, AlertDescription, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
};

use super::duplex::Duplex;
use crate::trust::tls::{TlsError, certificates, private_key};

/// PEM files of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientTlsFiles {
    /// Authorities that must have issued the certificates of servers; `None`: those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain and its key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// TLS 1.2 and 1.3 configuration of a client. The certificates of servers are always verified.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] with the file that cannot be used.
    pub fn from_pem_files(files: &ClientTlsFiles) -> Result<ClientTls, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)?;
        let builder = match &files.ca {
            Some(ca) => builder.with_root_certificates(roots(ca)?),
            None => builder.with_platform_verifier()?,
        };
        let config = match &files.identity {
            Some((certificate, key)) => {
                builder.with_client_auth_cert(certificates(certificate)?, private_key(key, &provider)?)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(ClientTls(Arc::new(config)))
    }

    /// Does the TLS handshake with a server that must have this name.
    pub(super) fn connect(
        &self,
        name: ServerName<'static>,
        mut stream: Box<dyn Duplex>,
    ) -> io::Result<Box<dyn Duplex>> {
        let mut connection = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).map_err(explained)?;
        }
        Ok(Box::new(Encrypted(StreamOwned::new(connection, stream))))
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// Returns an error that names TLS as the cause, with advice.
fn explained(error: io::Error) -> io::Error {
    let why = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "the server requires a certificate of the client".to_owned()
        }
        Some(error) => error.to_string(),
        None if error.kind() == io::ErrorKind::WouldBlock => "the server does not answer".to_owned(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the server closed the connection in the handshake".to_owned()
        }
        None => return error,
    };
    io::Error::new(error.kind(), format!("TLS: {why}"))
}

/// A stream within TLS.
struct Encrypted(StreamOwned<ClientConnection, Box<dyn Duplex>>);

impl Read for Encrypted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // With TLS 1.3 a server refuses a client's certificate only after the client is done.
        self.0.read(buf).map_err(|error| match error.get_ref() {
            Some(_) => explained(error),
            None => error,
        })
    }
}

impl Write for Encrypted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Duplex for Encrypted {
    fn close(&mut self) {
        self.0.conn.send_close_notify();
        // A server that is gone does not need it.
        let _ = self.0.flush();
    }
}
