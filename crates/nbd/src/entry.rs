//! The step from the handshake into transmission: behind the [fence](crate::fence), then the reply that lets the client
//! send requests.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::Device;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::config::ServerConfig;
use crate::error::ConnectionError;
use crate::export::Chosen;
use crate::fence::{DROP_TIME, Member};
use crate::option_reply::push_reply;
use crate::protocol::{OPT_GO, REP_ERR_POLICY};
use crate::request::Session;

/// Waiting time from which on a line of the log says why a client waited.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// A session that was negotiated. The client does not know yet.
pub(crate) struct Entry<D> {
    pub(crate) export: Chosen<D>,
    pub(crate) session: Session,
    /// The option by which the client chose the export.
    pub(crate) option: u32,
    /// The reply to it.
    pub(crate) answer: Vec<u8>,
}

impl<D: Device> Entry<D> {
    /// Waits until no request of a client that has left is under way, then lets the client send requests. Returns the
    /// membership of the connection, which is to be kept until its last request has ended.
    ///
    /// # Errors
    /// [`ConnectionError::UnderWay`] if such requests did not end in time. The client is told.
    pub(crate) async fn begin<S: AsyncWrite + Unpin>(
        &self,
        number: u64,
        stream: &mut S,
        config: &ServerConfig,
    ) -> Result<Arc<Member>, ConnectionError> {
        let since = Instant::now();
        // Connections whose clients have left end when the grace period does.
        let passed = timeout(config.shutdown_grace + DROP_TIME, self.export.fence().pass()).await;
        let waited = since.elapsed();
        if waited >= WORTH_A_LINE {
            let seconds = waited.as_secs();
            tracing::info!(
                client = number, export = ?self.export.name, seconds,
                "the client waited for requests of a connection that has ended"
            );
        }
        if passed.is_err() {
            if self.option == OPT_GO {
                let mut refusal = Vec::new();
                let message = ConnectionError::UnderWay.to_string();
                push_reply(&mut refusal, OPT_GO, REP_ERR_POLICY, &[message.as_bytes()]);
                send(stream, &refusal, config.handshake_timeout).await?;
            }
            return Err(ConnectionError::UnderWay);
        }
        let member = self.export.fence().join(number);
        send(stream, &self.answer, config.handshake_timeout).await?;
        Ok(member)
    }
}

/// Sends the last reply of a negotiation.
async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &[u8],
    patience: Duration,
) -> Result<(), ConnectionError> {
    let sent = async {
        stream.write_all(bytes).await?;
        stream.flush().await
    };
    match timeout(patience, sent).await {
        Ok(sent) => sent.map_err(|error: io::Error| error.into()),
        Err(_) => Err(ConnectionError::HandshakeTimeout),
    }
}
