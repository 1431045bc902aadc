//! Targets, as named on the command line.

mod error;
mod nvme_tcp;

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::BenchError;
pub use error::{AddressError, TargetError};
pub use nvme_tcp::NvmeTcpAddress;

/// Least that jobs can use.
pub(crate) const SMALLEST_BYTES: u64 = 16 << 20;
/// How addresses of NVMe/TCP begin.
const SCHEME_NVME_TCP: &str = "nvme-tcp://";
/// Longest NVMe Qualified Name (NVMe Base Specification, section 4.7).
const NQN_MAX_BYTES: usize = 223;
/// Name of discovery services, which have no namespaces.
pub(crate) const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Largest namespace ID; the one above means all.
const NSID_MAX: u32 = u32::MAX - 1;

/// Kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Pumice drive: a file, or one that is made for each scene.
    Pumice {
        /// The drive. One that does not exist is made for the run and removed after it. `None`: in the
        /// working folder.
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
    /// A volume on new drives that are attached, or on plain files.
    Volume {
        /// Number of drives or files.
        count: u32,
        /// Plain files behind loop devices instead of drives.
        is_raw: bool,
    },
    /// An NBD export.
    Nbd(String),
    /// A namespace of NVMe/TCP.
    NvmeTcp {
        /// Where it is.
        address: NvmeTcpAddress,
        /// Its device here; `None` until it is connected.
        device: Option<PathBuf>,
    },
    /// Images of Ceph, by fio's engine `rbd`.
    Rbd {
        /// The pool.
        pool: String,
        /// The images, at least one. The first is that of jobs on one image.
        images: Vec<String>,
        /// Configuration of the cluster; `None`: that of `CEPH_CONF`.
        conf: Option<PathBuf>,
    },
    /// A bucket behind an S3 gateway.
    S3(S3Address),
    /// A file or block device.
    Path(PathBuf),
}

/// A bucket behind an S3 gateway. Keys are those of `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Address {
    /// `http://HOST:PORT` or `https://HOST`.
    pub endpoint: String,
    /// The bucket. One that does not exist is made for each scene.
    pub bucket: String,
    /// Storage class of objects that are put.
    pub class: Option<String>,
    /// Configuration of the Ceph cluster behind the gateway, to ask for the space that the bucket takes.
    pub conf: Option<PathBuf>,
}

impl S3Address {
    /// Parses `s3+http://HOST:PORT/BUCKET?class=CLASS&conf=PATH`.
    fn parse(text: &str) -> Result<S3Address, AddressError> {
        const FORM: &str = "expected s3+http://HOST:PORT/BUCKET, and after ? class=CLASS or conf=PATH";
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, rest) = base.split_once("://").ok_or(FORM)?;
        let (host, bucket) = rest.split_once('/').ok_or(FORM)?;
        if host.is_empty() || bucket.is_empty() || bucket.contains('/') {
            return Err(FORM.into());
        }
        let endpoint = format!("{scheme}://{host}");
        let mut address = S3Address { endpoint, bucket: bucket.to_string(), class: None, conf: None };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("class", class)) if !class.is_empty() => address.class = Some(class.to_string()),
                Some(("conf", conf)) if !conf.is_empty() => address.conf = Some(conf.into()),
                _ => return Err(FORM.into()),
            }
        }
        Ok(address)
    }
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
    /// Addresses (`HOST:PORT`) at which the Pumice drives below a cluster answer HTTP.
    pub drives: Vec<String>,
}

impl Target {
    /// Whether what is written stays, so that it must be empty before.
    pub fn is_kept(&self) -> bool {
        match &self.kind {
            Kind::Nbd(_) | Kind::NvmeTcp { .. } | Kind::Path(_) | Kind::Rbd { .. } => true,
            Kind::Pumice { path, .. } => path.as_ref().is_some_and(|path| path.exists()),
            _ => false,
        }
    }

    /// The folder in which a file of the run's size is made for it, if one is; `folder` is that of the run.
    pub(crate) fn made_in<'a>(&'a self, folder: &'a Path) -> Option<&'a Path> {
        match &self.kind {
            Kind::Pumice { path: None, .. } | Kind::Raw | Kind::Qcow2 | Kind::Btrfs | Kind::Volume { .. } => {
                Some(folder)
            }
            Kind::Pumice { path: Some(path), .. } if !path.exists() => path.parent(),
            _ => None,
        }
    }

    /// The file or device of a drive that the user named.
    pub(crate) fn drive_path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Pumice { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    /// The file or device on which jobs run, where the user named one and it is there.
    pub fn device_path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Path(path) | Kind::NvmeTcp { device: Some(path), .. } => Some(path),
            _ => None,
        }
    }

    /// Number of images on which one job can run.
    pub(crate) fn images_count(&self) -> u32 {
        match &self.kind {
            Kind::Rbd { images, .. } => images.len() as u32,
            _ => 1,
        }
    }

    pub(crate) fn is_drive(&self) -> bool {
        matches!(self.kind, Kind::Pumice { .. } | Kind::Volume { is_raw: false, .. })
    }
}

/// Refuses targets that reports could not tell apart, and those that are one and the same.
///
/// # Errors
/// Fails if two have the same name, or lead to the same file, device or export.
pub fn distinct(targets: &[Target]) -> Result<(), BenchError> {
    let mut before: Vec<(&Target, Option<(u64, u64)>)> = Vec::new();
    for target in targets {
        let found = target.drive_path().or(target.device_path()).and_then(file_id);
        for (other, id) in &before {
            if other.name == target.name {
                return Err(BenchError::target(&target.name, "given twice: name one, as NAME=TARGET"));
            }
            let is_same_export =
                matches!((&target.kind, &other.kind), (Kind::Nbd(one), Kind::Nbd(two)) if one == two);
            if is_same_export || found.is_some() && found == *id {
                let what = if is_same_export { "export" } else { "file or device" };
                let problem = format!("is the same {what} as the target {}: leave one out", other.name);
                return Err(BenchError::target(&target.name, problem));
            }
        }
        before.push((target, found));
    }
    Ok(())
}

/// Numbers of what a path leads to: of a device, wherever its node is, or of a file, whatever its name.
/// `None` if nothing is there.
pub(crate) fn file_id(path: &Path) -> Option<(u64, u64)> {
    let found = path.metadata().ok()?;
    Some(if found.file_type().is_block_device() { (0, found.rdev()) } else { (found.dev(), found.ino()) })
}

const RBD_FORM: &str =
    "expected rbd:POOL/IMAGE, or rbd:POOL/IMAGE,IMAGE with each image once, and after ? conf=PATH";

/// Parses the codec of drives that are made.
fn codec(text: &str) -> Result<String, codec::ParsePolicyError> {
    // Each drive of the run is created with it: a mistake is one of the command line.
    text.parse::<codec::Policy>().map(|_| text.to_string())
}

impl FromStr for Target {
    type Err = TargetError;

    /// Parses `[NAME=]TARGET`. A NAME has none of `:/?`, which URIs and paths have before their first `=`.
    fn from_str(text: &str) -> Result<Target, TargetError> {
        let (name, what) = match text.split_once('=') {
            Some((name, what)) if !name.is_empty() && !name.contains([':', '/', '?', ',']) => {
                (Some(name), what)
            }
            _ => (None, text),
        };
        let (word, codec) = match what.split_once(",codec=") {
            Some((word, text)) => (word, Some(text)),
            None => (what, None),
        };
        let kind = match word {
            "pumice" => Kind::Pumice { path: None, codec: codec.map(self::codec).transpose()? },
            _ if word.starts_with("pumice:") => {
                let path = word.trim_start_matches("pumice:");
                if path.is_empty() {
                    let form = "expected pumice:PATH, or pumice alone for a temporary drive";
                    return Err(AddressError::Form(form).into());
                }
                Kind::Pumice { path: Some(path.into()), codec: codec.map(self::codec).transpose()? }
            }
            _ if codec.is_some() => return Err(TargetError::CodecOfOther),
            _ if word.starts_with("pumice,") => {
                return Err(TargetError::UnknownOption(what.to_string()));
            }
            "raw" => Kind::Raw,
            "qcow2" => Kind::Qcow2,
            "btrfs" => Kind::Btrfs,
            "attached" => Kind::Volume { count: 1, is_raw: false },
            "raid0" => Kind::Volume { count: 2, is_raw: false },
            "raw-attached" => Kind::Volume { count: 1, is_raw: true },
            "raw-raid0" => Kind::Volume { count: 2, is_raw: true },
            _ if word.starts_with("nbd://") || word.starts_with("nbd+unix://") => Kind::Nbd(word.to_string()),
            _ if word.starts_with(SCHEME_NVME_TCP) => Kind::NvmeTcp { address: word.parse()?, device: None },
            _ if word.starts_with("rbd:") => match word.trim_start_matches("rbd:").split_once('/') {
                Some((pool, rest)) if !pool.is_empty() && !rest.is_empty() => {
                    let (images, conf) = match rest.split_once('?') {
                        Some((images, query)) => {
                            let conf = query.strip_prefix("conf=").filter(|conf| !conf.is_empty());
                            (images, Some(conf.ok_or(AddressError::Form(RBD_FORM))?.into()))
                        }
                        None => (rest, None),
                    };
                    let images: Vec<String> = images.split(',').map(str::to_string).collect();
                    let is_twice = |at: usize| images[..at].contains(&images[at]);
                    if images.iter().any(String::is_empty) || (0..images.len()).any(is_twice) {
                        return Err(AddressError::Form(RBD_FORM).into());
                    }
                    Kind::Rbd { pool: pool.to_string(), images, conf }
                }
                _ => return Err(AddressError::Form(RBD_FORM).into()),
            },
            _ if word.starts_with("s3+http://") || word.starts_with("s3+https://") => {
                Kind::S3(S3Address::parse(word.trim_start_matches("s3+"))?)
            }
            _ if word.contains('/') && !word.contains("://") => Kind::Path(word.into()),
            _ => return Err(TargetError::Unknown(word.to_string())),
        };
        Ok(Target { name: name.unwrap_or(what).to_string(), kind, pids: Vec::new(), drives: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, kind: Kind) -> Target {
        Target { name: name.to_string(), kind, pids: Vec::new(), drives: Vec::new() }
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
        let rbd = |images: &[&str], conf: Option<&str>| Kind::Rbd {
            pool: "p".to_string(),
            images: images.iter().map(|image| image.to_string()).collect(),
            conf: conf.map(Into::into),
        };
        assert_eq!(parsed("zstd=rbd:p/i"), named("zstd", rbd(&["i"], None)));
        assert_eq!(parsed("zstd=rbd:p/i?conf=/c"), named("zstd", rbd(&["i"], Some("/c"))));
        let many = parsed("zstd=rbd:p/i,j?conf=/c");
        assert_eq!((many.images_count(), &many), (2, &named("zstd", rbd(&["i", "j"], Some("/c")))));
        assert_eq!(parsed("two drives=raid0"), named("two drives", Kind::Volume { count: 2, is_raw: false }));
        let bucket = S3Address {
            endpoint: "http://h:7480".to_string(),
            bucket: "b".to_string(),
            class: Some("ZLIB".to_string()),
            conf: Some("/c".into()),
        };
        let address = "zlib=s3+http://h:7480/b?class=ZLIB&conf=/c";
        assert_eq!(parsed(address), named("zlib", Kind::S3(bucket)));
        let address = "nvme-tcp://[::1]:8009/nqn.2026-11.org:a?nsid=2";
        let kind = Kind::NvmeTcp { address: address.parse().expect(address), device: None };
        assert_eq!(parsed(address), named(address, kind.clone()));
        assert_eq!(parsed(&format!("far={address}")), named("far", kind));
        for bad in ["s3+http://h", "s3+http://h/b/c", "s3+http://h/b?x=1", "s3+http:///b", "s3://b"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
        for bad in [
            "",
            "drive",
            "rbd:p",
            "rbd:/i",
            "rbd:p/i,",
            "rbd:p/i,i",
            "rbd:p/i?conf=",
            "rbd:p/i?user=x",
            "pumice:",
            "raw,codec=lz4",
            "x=",
            "nvme-tcp://h/nqn?ns=1",
            "nvme-tcp:h",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_given_once() {
        let all = |texts: &[&str]| texts.iter().map(|text| parsed(text)).collect::<Vec<_>>();
        assert!(distinct(&all(&["raw", "a=raw", "qcow2"])).is_ok());
        let error = distinct(&all(&["raw", "a=qcow2", "a=raw"])).expect_err("twice").to_string();
        assert_eq!(error, "target a: given twice: name one, as NAME=TARGET");
    }

    #[test]
    fn nothing_is_measured_under_two_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("file"), "").expect("written");
        std::fs::write(at("other"), "").expect("written");
        std::fs::hard_link(at("file"), at("hard")).expect("a link");
        std::os::unix::fs::symlink("file", at("soft")).expect("a link");
        let two = |one: &str, two: &str| {
            let targets = [one, two].map(|text| text.parse().expect("a target"));
            distinct(&targets).map_err(|error| error.to_string())
        };
        for again in [at("soft"), at("hard"), format!("b={}", at("file")), format!("pumice:{}", at("hard"))] {
            let name = again.strip_prefix("b=").map_or(again.as_str(), |_| "b");
            let expected =
                format!("target {name}: is the same file or device as the target a: leave one out");
            assert_eq!(two(&format!("a={}", at("file")), &again), Err(expected));
        }
        let export = "nbd+unix:///?socket=/run/s";
        assert!(two(&format!("a={export}"), export).expect_err("twice").contains("the same export"));
        // One that does not exist is made anew for each.
        let made = format!("pumice:{}", at("new"));
        for (one, other) in [(at("file"), at("other")), (made.clone() + ",codec=lz4", made)] {
            two(&one, &other).expect("they differ");
        }
    }

    #[test]
    fn codecs_are_those_of_drives() {
        for codec in ["auto", "lz4", "zstd:3", "deflate", "none"] {
            parsed(&format!("pumice,codec={codec}"));
        }
        for bad in ["bogus", "", "zstd:99", "lz4,size=1"] {
            for target in ["pumice", "pumice:/srv/drive"] {
                let error = format!("{target},codec={bad}").parse::<Target>().expect_err(bad).to_string();
                assert!(error.contains("expected auto") && !error.contains('\n'), "{error}");
            }
        }
        let error = "pumice,level=3".parse::<Target>().expect_err("an unknown option").to_string();
        assert!(error.starts_with("unknown option"), "{error}");
    }
}
