//! Choice of the way to make a block device (`attach --by`).

use attach::NodeKind;

/// Choice of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    #[default]
    Auto,
    This(NodeKind),
}

impl std::str::FromStr for By {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<By> {
        let way = NodeKind::ALL.iter().find(|way| way.to_string() == text);
        match way {
            Some(way) => Ok(By::This(*way)),
            None if text == "auto" => Ok(By::Auto),
            None => Err(anyhow::anyhow!("expected auto, ublk, loop or nbd")),
        }
    }
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            By::Auto => f.write_str("auto"),
            By::This(way) => way.fmt(f),
        }
    }
}
