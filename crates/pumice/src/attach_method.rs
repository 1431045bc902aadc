//! Method by which a block device is made (`attach --by`).

use attach::NodeKind;

/// Method to attach a drive by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AttachMethod {
    /// The first one that this machine supports.
    #[default]
    Auto,
    /// This one or none.
    This(NodeKind),
}

impl std::str::FromStr for AttachMethod {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<AttachMethod> {
        let kind = NodeKind::ALL.iter().find(|kind| kind.to_string() == text);
        match kind {
            Some(kind) => Ok(AttachMethod::This(*kind)),
            None if text == "auto" => Ok(AttachMethod::Auto),
            None => Err(anyhow::anyhow!("expected auto, ublk, loop or nbd")),
        }
    }
}

impl std::fmt::Display for AttachMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AttachMethod::Auto => f.write_str("auto"),
            AttachMethod::This(kind) => kind.fmt(f),
        }
    }
}
