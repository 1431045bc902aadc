//! Targets, as named on the command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Pumice drive: a file, or one that is made for each scene.
    Pumice {
        /// The drive. One that does not exist is made for the run and removed after it. `None`: in the working folder.
        path: Option<PathBuf>,
        /// Codec of drives that are made.
        codec: Option<String>,
    },
    /// A new file without compression.
    Raw,
    /// A new qcow2 image behind qemu-nbd.
    Qcow2,
    /// A file in a new btrfs that compresses by zstd at level 1.
    Btrfs,
    /// An NBD export.
    Nbd(String),
    /// An image of Ceph, by fio's engine `rbd`. `CEPH_CONF` names the cluster.
    Rbd {
        /// The pool.
        pool: String,
        /// The image.
        image: String,
    },
    /// A file or block device.
    Path(PathBuf),
}

/// A target: what is measured, and what it is called in reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name in reports.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Processes that serve it, besides those that the run starts.
    pub pids: Vec<u32>,
}

impl Target {
    /// Whether what is written stays, so that it must be empty before.
    pub fn is_kept(&self) -> bool {
        match &self.kind {
            Kind::Nbd(_) | Kind::Path(_) | Kind::Rbd { .. } => true,
            Kind::Pumice { path, .. } => path.as_ref().is_some_and(|path| path.exists()),
            _ => false,
        }
    }

    /// The file or device of a drive that the user named.
    pub(crate) fn drive_path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Pumice { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn is_drive(&self) -> bool {
        matches!(self.kind, Kind::Pumice { .. })
    }
}

impl FromStr for Target {
    type Err = String;

    /// Parses `[NAME=]TARGET`. A NAME has none of `:/?`, which URIs and paths have before their first `=`.
    fn from_str(text: &str) -> Result<Target, String> {
        let (name, what) = match text.split_once('=') {
            Some((name, what)) if !name.is_empty() && !name.contains([':', '/', '?', ',']) => {
                (Some(name), what)
            }
            _ => (None, text),
        };
        let (word, codec) = match what.split_once(",codec=") {
            Some((word, codec)) => (word, Some(codec.to_string())),
            None => (what, None),
        };
        let kind = match word {
            "pumice" => Kind::Pumice { path: None, codec },
            _ if word.starts_with("pumice:") => {
                let path = word.trim_start_matches("pumice:");
                if path.is_empty() {
                    return Err("expected pumice:PATH, or pumice alone for a temporary drive".to_string());
                }
                Kind::Pumice { path: Some(path.into()), codec }
            }
            _ if codec.is_some() => return Err("only pumice and pumice:PATH take a codec".to_string()),
            "raw" => Kind::Raw,
            "qcow2" => Kind::Qcow2,
            "btrfs" => Kind::Btrfs,
            _ if word.starts_with("nbd://") || word.starts_with("nbd+unix://") => Kind::Nbd(word.to_string()),
            _ if word.starts_with("rbd:") => match word.trim_start_matches("rbd:").split_once('/') {
                Some((pool, image)) if !pool.is_empty() && !image.is_empty() => {
                    Kind::Rbd { pool: pool.to_string(), image: image.to_string() }
                }
                _ => return Err("expected rbd:POOL/IMAGE".to_string()),
            },
            _ if word.contains('/') => Kind::Path(word.into()),
            _ => {
                return Err(format!(
                    "unknown target {word:?}: expected pumice, pumice:PATH, raw, qcow2, btrfs, an address of NBD, \
                     rbd:POOL/IMAGE, or a path with a slash"
                ));
            }
        };
        Ok(Target { name: name.unwrap_or(what).to_string(), kind, pids: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, kind: Kind) -> Target {
        Target { name: name.to_string(), kind, pids: Vec::new() }
    }

    fn parsed(text: &str) -> Target {
        text.parse().expect(text)
    }

    #[test]
    fn targets_are_parsed() {
        let pumice = |path: Option<&str>, codec: Option<&str>| Kind::Pumice {
            path: path.map(Into::into),
            codec: codec.map(Into::into),
        };
        assert_eq!(parsed("pumice"), named("pumice", pumice(None, None)));
        assert_eq!(parsed("fast=pumice,codec=lz4"), named("fast", pumice(None, Some("lz4"))));
        assert_eq!(parsed("pumice:/srv/a=b"), named("pumice:/srv/a=b", pumice(Some("/srv/a=b"), None)));
        assert_eq!(parsed("Ceph zstd=./x"), named("Ceph zstd", Kind::Path("./x".into())));
        let uri = "nbd+unix:///?socket=/run/x";
        assert_eq!(parsed(uri), named(uri, Kind::Nbd(uri.to_string())));
        assert_eq!(parsed(&format!("a={uri}")), named("a", Kind::Nbd(uri.to_string())));
        let image = Kind::Rbd { pool: "p".to_string(), image: "i".to_string() };
        assert_eq!(parsed("zstd=rbd:p/i"), named("zstd", image));
        for bad in ["", "drive", "rbd:p", "rbd:/i", "pumice:", "raw,codec=lz4", "x="] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
