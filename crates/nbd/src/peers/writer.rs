//! Clients with write access, as messages name them.

use std::fmt;

use crate::peers::peer::Peer;

/// A client with write access, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    pub(crate) number: u64,
    pub(crate) peer: Peer,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} ({})", self.number, self.peer)
    }
}

/// Shows writers in a row.
pub(crate) struct Writers<'a>(pub(crate) &'a [Writer]);

impl fmt::Display for Writers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, writer) in self.0.iter().enumerate() {
            write!(f, "{}{writer}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
