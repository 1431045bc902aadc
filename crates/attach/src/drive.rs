//! The drive of an attachment.

use crate::identity::Identity;
use crate::shape::Shape;

/// A drive that is being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    /// Its identity.
    pub(crate) identity: Identity,
    /// Size and sectors of its node.
    pub(crate) shape: Shape,
}
