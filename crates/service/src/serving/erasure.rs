//! Requests to erase drives that are being served. Only the owner of a drive, which offers it to clients, can
//! close and reopen it. Requests at the admin socket are passed on to it.

use std::path::PathBuf;

use drive::WipeOptions;
use status::StatusReport;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

/// Most requests that wait. They are processed one after the other.
const WAITING_MAX: usize = 16;

/// A request to erase a drive.
pub struct Erasure {
    /// Path of the backing, as the drive has it.
    pub path: PathBuf,
    /// Id of the drive.
    pub id: Uuid,
    /// Sector size and capacity from then on.
    pub options: WipeOptions,
    /// Refuse a drive that holds data.
    pub only_if_empty: bool,
    answer: oneshot::Sender<Result<StatusReport, EraseError>>,
}

impl Erasure {
    /// Answers with the state of the drive afterwards, or why it was not erased.
    pub fn answer(self, result: Result<StatusReport, EraseError>) {
        // The requester may be gone.
        let _ = self.answer.send(result);
    }
}

/// Reason why a drive was not erased.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// The server takes no more requests.
    #[error("the server is ending")]
    Ending,
    /// The server of the drive has not erased it, or can no longer serve it.
    #[error(transparent)]
    Failed(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Takes requests for drives of one server.
#[derive(Clone)]
pub struct Eraser(mpsc::Sender<Erasure>);

/// The requests, in order.
pub type Erasures = mpsc::Receiver<Erasure>;

impl Eraser {
    /// Makes one, with its requests.
    pub fn new() -> (Eraser, Erasures) {
        let (sender, erasures) = mpsc::channel(WAITING_MAX);
        (Eraser(sender), erasures)
    }

    /// Asks for a drive to be erased, and waits for that. The caller holds no reference to the drive: it
    /// could not be opened again.
    pub(crate) async fn erase(
        &self,
        (path, id): (PathBuf, Uuid),
        options: WipeOptions,
        only_if_empty: bool,
    ) -> Result<StatusReport, EraseError> {
        let (answer, answered) = oneshot::channel();
        let erasure = Erasure { path, id, options, only_if_empty, answer };
        self.0.send(erasure).await.map_err(|_| EraseError::Ending)?;
        answered.await.map_err(|_| EraseError::Ending)?
    }
}
