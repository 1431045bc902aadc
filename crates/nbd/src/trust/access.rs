//! Access of clients to exports.

use crate::trust::identity::{ClientName, Identity};

/// Clients that may use an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Every client that is admitted.
    #[default]
    Everyone,
    /// Clients with one of these names in their certificates. Others do not see the export.
    Listed {
        /// These may write.
        read_write: Vec<ClientName>,
        /// These may only read, unless they are among the others as well.
        read_only: Vec<ClientName>,
    },
}

/// Rights of a client to an export, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    Read,
    Write,
}

impl Access {
    /// Returns the right of a client, or `None` if it may not use the export.
    pub(crate) fn right_of(&self, client: Option<&Identity>) -> Option<Right> {
        match self {
            Access::Everyone => Some(Right::Write),
            Access::Listed { read_write, read_only } => {
                let client = client?;
                let is_in = |list: &[ClientName]| list.iter().any(|name| client.is(name));
                if is_in(read_write) { Some(Right::Write) } else { is_in(read_only).then_some(Right::Read) }
            }
        }
    }
}
